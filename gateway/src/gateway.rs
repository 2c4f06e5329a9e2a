//! A running gateway: its listeners, its roles and its life from start to stop.
//!
//! What always holds: [`Gateway::start`] returns only when the listeners are bound, the map is compiled, Iggy was reached
//! and the topics that the map names are there; a role is there at most once; without a role its packets are refused,
//! not lost; [`Gateway::stop`] takes nothing new, finishes what was taken, commits and closes, within `shutdown_grace`
//! and a little.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::alarms::Alarms;
use crate::config::{Config, OnUnstorable, Produce};
use crate::delivery::evict::{Clients, evict};
use crate::delivery::{Delivery, Eviction, Outbox};
use crate::health::{self, Health};
use crate::http::{Actions, Http};
use crate::ingest::runtime::{self, Batches};
use crate::ingest::{self, Histories, Ingest};
use crate::limited::Limited;
use crate::listener::door::Door;
use crate::listener::{self, Connections};
use crate::log::appends::Appends;
use crate::log::iggy::{IggyLog, IggyLogConfig};
use crate::log::{Log, Target};
use crate::mapping::{LiveMap, RuleId, TopicMap};
use crate::observe::Counters;
use crate::rates::Rates;
use crate::reload::{Asking, AtStart, Reload, Reloaded};
use crate::session::flaps::Flaps;
use crate::session::{Context, End, Lines, Sessions};
use crate::status::Observer;
use crate::targets::{DEAD_LETTER_PLAN, Targets};
use crate::topology;

mod drain;
mod start;

pub use drain::DrainError;
pub use start::StartError;

use drain::tell_progress;
use start::{look_at_files, read_access, read_map, read_token, warn_of_open_doors, with_patience};

/// What stopping takes beyond `shutdown_grace` at most, for each of its steps.
const STOP_SLACK: Duration = Duration::from_secs(1);

/// What a connector contributes to a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// From clients to Iggy: a source connector.
    Ingest,
    /// From Iggy to clients: a sink connector.
    Delivery,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ingest => "ingest (source)",
            Self::Delivery => "delivery (sink)",
        })
    }
}

/// See the module.
pub struct Gateway {
    context: Arc<Context>,
    log: Arc<dyn Log>,
    appends: Arc<Appends>,
    /// What the connectors runtime stores, if it is to.
    runtime_target: Option<Target>,
    /// What its source has not taken yet.
    batches: Mutex<Option<Batches>>,
    connections: Connections,
    addresses: Vec<SocketAddr>,
    http: Arc<Http>,
    /// Accepting and watching.
    tasks: TaskTracker,
    stop: CancellationToken,
    roles: Mutex<Vec<Role>>,
    /// How its files are asked to be read anew.
    reload: Asking,
}

impl Gateway {
    /// Starts a gateway on Iggy as `config` says. It has no roles yet.
    pub async fn start(config: Config) -> Result<Arc<Self>, StartError> {
        let at_start = look_at_files(&config).await?;
        let map = read_map(&config).await?;
        let iggy = IggyLog::new(IggyLogConfig {
            address: config.iggy.address.clone(),
            username: config.iggy.username.clone(),
            password: config.iggy.password.expose().to_owned(),
            connections: config.iggy.connections,
            request_timeout: IggyLogConfig::REQUEST_TIMEOUT,
        });
        let log: Arc<dyn Log> = Arc::new(iggy);
        let started = Self::start_with(config, map, &at_start, log.clone()).await;
        if started.is_err() {
            log.close().await;
        }
        started
    }

    /// Starts a gateway on `log`.
    pub async fn start_on(
        config: Config,
        map: TopicMap,
        log: Arc<dyn Log>,
    ) -> Result<Arc<Self>, StartError> {
        let at_start = look_at_files(&config).await?;
        Self::start_with(config, map, &at_start, log).await
    }

    async fn start_with(
        config: Config,
        map: TopicMap,
        at_start: &AtStart,
        log: Arc<dyn Log>,
    ) -> Result<Arc<Self>, StartError> {
        let runtime_target = match config.ingest.produce {
            Produce::Client => None,
            Produce::Runtime => Some(map.only_target().map_err(|error| {
                let file = config.topic_map.clone();
                StartError::NotOneTarget { file, error }
            })?),
        };
        let (access, unbound) = read_access(&config, log.clone()).await?;
        let token = read_token(&config).await?;
        let mut listeners = Vec::with_capacity(unbound.len());
        let mut addresses = Vec::with_capacity(unbound.len());
        let stopping = CancellationToken::new();
        for (config, tls) in unbound {
            let address = config.address;
            let failed = |error| StartError::Listen { address, error };
            let listener = listener::bind(address).map_err(failed)?;
            let real = listener.local_addr().map_err(failed)?;
            addresses.push(real);
            let door = Arc::new(Door::new(real, config, tls, &stopping));
            listeners.push((listener, door));
        }
        let counters = Arc::<Counters>::default();
        let targets = Arc::new(Targets::new(
            log.clone(),
            &map,
            &config.ingest,
            counters.clone(),
        ));
        let patience = config.iggy.start_timeout;
        with_patience(patience, || async { Ok(log.ping().await?) }).await?;
        for (rule, target, plan) in map.constant_targets() {
            let make = || async {
                targets.ensure(rule, &target, &plan).await?;
                Ok(())
            };
            with_patience(patience, make).await?;
        }
        if config.ingest.on_unstorable == OnUnstorable::DeadLetter {
            let target = &config.ingest.dead_letter;
            let made = targets.ensure(RuleId::DeadLetter, target, &DEAD_LETTER_PLAN);
            if let Err(error) = made.await {
                tracing::warn!(%error, "messages that cannot be stored will close their connections, unless the dead-letter topic can be made then");
            }
        }
        let context = Arc::new(Context {
            counters,
            health: Arc::new(Health::new(Instant::now())),
            map: Arc::new(LiveMap::new(
                Arc::new(map),
                config.limits.resolution_cache_bytes,
            )),
            targets,
            ingest: None.into(),
            delivery: None.into(),
            role_added: Notify::new(),
            access,
            alarms: Alarms::default(),
            doors: listeners.iter().map(|(_, door)| door.clone()).collect(),
            sessions: Sessions::default(),
            histories: Histories::new(
                config.limits.dedup_window,
                config.limits.dedup_time,
                config.limits.max_connections,
            ),
            recent: Arc::default(),
            denials: Limited::default(),
            lines: Lines::default(),
            rates: Rates::new(&config.limits),
            flaps: Flaps::new(&config.limits),
            outbox_total: Arc::default(),
            stopping,
            config,
        });
        let tls = listeners
            .iter()
            .filter_map(|(_, door)| Some((door.name(), door.tls.clone()?)));
        let (reload, asking) = Reload::new(context.clone(), tls.collect(), at_start);
        let observer = Observer::new(context.clone());
        let gateway = Arc::new_cyclic(|gateway| {
            let actions = Arc::new(RemoteActions(gateway.clone()));
            let http = Http::new(&context.config.http, token, observer.clone(), actions);
            Self {
                context,
                http,
                log,
                appends: Arc::default(),
                runtime_target,
                batches: Mutex::default(),
                connections: Connections::default(),
                addresses,
                tasks: TaskTracker::new(),
                stop: CancellationToken::new(),
                roles: Mutex::default(),
                reload: asking,
            }
        });
        gateway.spawn(observer.record());
        for (address, bound) in gateway.http.bind() {
            gateway.spawn(gateway.http.clone().serve(address, bound));
        }
        gateway.spawn(health::watch(
            gateway.context.health.clone(),
            gateway.log.clone(),
        ));
        gateway.spawn(evict(
            gateway.context.config.limits.clone(),
            gateway.context.outbox_total.clone(),
            LiveClients(gateway.context.clone()),
        ));
        gateway.spawn(topology::watch(
            gateway.context.clone(),
            gateway.log.clone(),
        ));
        gateway.spawn(reload.watch());
        let mut listening = Vec::with_capacity(listeners.len());
        for ((listener, door), address) in listeners.into_iter().zip(&gateway.addresses) {
            listening.push(format!("{}://{address}", door.config.scheme()));
            warn_of_open_doors(&door.config);
            gateway.spawn(listener::accept(
                listener,
                door,
                gateway.connections.clone(),
                gateway.context.clone(),
            ));
        }
        tracing::info!(
            gateway = gateway.context.config.name,
            listen = listening.join(" "),
            iggy = gateway.context.config.iggy.address,
            "MQTT gateway started"
        );
        Ok(gateway)
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = task => {}
            }
        });
    }

    /// What it was started with.
    pub fn config(&self) -> &Config {
        &self.context.config
    }

    /// Reads all its files anew, as SIGHUP does (certificates, users, permissions, keys, topic map), and says what became of
    /// each. One at a time: who comes while files are being read waits, and they are read once more. Empty if it stops.
    pub async fn reload(&self) -> Vec<Reloaded> {
        self.reload.reload().await
    }

    /// What its connections share.
    #[cfg(any(test, fuzzing))]
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Where it listens, in the order of the configuration; with the real ports.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Where it answers operators now, with the real ports.
    pub fn http_addresses(&self) -> Vec<SocketAddr> {
        self.http.addresses()
    }

    /// What it has counted.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.context.counters
    }

    /// Adds `role`; says whether it was not there.
    pub fn add_role(&self, role: Role) -> bool {
        let mut roles = self.roles.lock();
        if roles.contains(&role) {
            return false;
        }
        roles.push(role);
        let limits = Arc::new(self.context.config.limits.clone());
        match role {
            Role::Ingest => self.context.ingest.store(Some(Ingest::new(ingest::Parts {
                log: self.ingest_log(),
                appends: self.appends.clone(),
                map: self.context.map.clone(),
                targets: self.context.targets.clone(),
                headers: self.context.config.headers,
                config: self.context.config.ingest.clone(),
                limits,
                counters: self.context.counters.clone(),
                recent: self.context.recent.clone(),
            }))),
            Role::Delivery => self.context.delivery.store(Some(Delivery::new(
                self.log.clone(),
                self.appends.clone(),
                self.context.map.clone(),
                limits,
                self.context.counters.clone(),
                &format!("mqtt-gateway.{}", self.context.config.node),
            ))),
        }
        self.context.role_added.notify_waiters();
        true
    }

    /// Where an ingest role that is added now appends.
    fn ingest_log(&self) -> Arc<dyn Log> {
        let Some(target) = &self.runtime_target else {
            return self.log.clone();
        };
        let (health, counters) = (self.context.health.clone(), self.counters().clone());
        let (log, batches) = runtime::hand_over(self.log.clone(), target.clone(), health, counters);
        *self.batches.lock() = Some(batches);
        log
    }

    /// With `produce = "runtime"`: what the ingest role that was added last wants stored. Once for each.
    pub fn take_batches(&self) -> Option<Batches> {
        self.batches.lock().take()
    }

    /// Whether `role` is there and no other.
    pub fn is_only_role(&self, role: Role) -> bool {
        *self.roles.lock() == [role]
    }

    /// Ends `role`, which finishes what it has begun. Connections that do not depend on it live on; those that have
    /// subscriptions end with the delivery role, because nothing else would tell them that nothing comes any more.
    pub async fn remove_role(&self, role: Role) {
        let grace = self.context.config.shutdown_grace;
        match role {
            Role::Ingest => {
                if let Some(ingest) = self.context.ingest.swap(None) {
                    ingest.close(grace).await;
                }
            }
            Role::Delivery => {
                if let Some(delivery) = self.context.delivery.swap(None) {
                    delivery.begin_to_end();
                    self.context.sessions.for_each(|_, live| {
                        if live.has_subscriptions() {
                            live.end.end(End::DeliveryEnded);
                        }
                    });
                    delivery.close(grace).await;
                }
            }
        }
        self.roles.lock().retain(|other| *other != role);
    }

    /// Stops. Call it when no role is left; what is still there ends too.
    pub async fn stop(&self) {
        let grace = self.context.config.shutdown_grace;
        self.context.stopping.cancel();
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        if let Some(delivery) = &*self.context.delivery.load() {
            delivery.begin_to_end();
        }
        self.context
            .sessions
            .for_each(|_, live| live.end.end(End::Stopping));
        self.connections.tasks.close();
        let ended = tokio::select! {
            ended = timeout(grace + STOP_SLACK, self.connections.tasks.wait()) => ended,
            never = tell_progress(&self.context) => never,
        };
        if ended.is_err() {
            tracing::warn!(
                clients = self.context.sessions.len(),
                "connections did not end in time"
            );
        }
        for role in [Role::Ingest, Role::Delivery] {
            self.remove_role(role).await;
        }
        self.log.close().await;
        tracing::info!(gateway = self.context.config.name, "MQTT gateway stopped");
    }
}

/// What operators can ask for over HTTP.
struct RemoteActions(Weak<Gateway>);

#[async_trait::async_trait]
impl Actions for RemoteActions {
    async fn reload(&self) -> serde_json::Value {
        let reloaded = match self.0.upgrade() {
            Some(gateway) => gateway.reload().await,
            None => Vec::new(),
        };
        reloaded
            .into_iter()
            .map(|one| {
                let error = one.outcome.err();
                json!({ "name": one.name, "files": one.files, "ok": error.is_none(), "error": error })
            })
            .collect()
    }

    async fn set_open(&self, address: SocketAddr, open: bool) -> Result<(), String> {
        let Some(gateway) = self.0.upgrade() else {
            return Err(DrainError::Stopping.to_string());
        };
        let done = match open {
            true => gateway.open_listener(address).await,
            false => gateway.drain_listener(address),
        };
        done.map_err(|error| error.to_string())
    }
}

/// Who is connected, for whoever decides who has to go.
struct LiveClients(Arc<Context>);

impl Clients for LiveClients {
    fn close_if(&self, look: &mut dyn FnMut(&Outbox) -> Option<Eviction>) {
        self.0.sessions.for_each(|_, live| {
            if let Some(eviction) = look(&live.outbox) {
                live.end.end(End::Evicted(eviction));
            }
        });
    }

    fn delivery(&self) -> Option<Arc<Delivery>> {
        self.0.delivery.load_full()
    }
}
