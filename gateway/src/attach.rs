//! How connectors share gateways: the one map from a gateway's name to the gateway that runs under it in this process.
//!
//! What always holds: the first connector that names a gateway starts it, each adds its role, the last to leave stops it;
//! two that disagree on its configuration never share it; a start that failed leaves nothing behind. The runtime loads
//! the library once however many connectors use it, so this one global is how a source and a sink find each other.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;

use crate::config::{Config, ConfigError};
use crate::gateway::{Gateway, Role, StartError};
use crate::ingest::runtime::Batches;

/// Why a connector cannot join a gateway.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The configuration is wrong.
    #[error("{0}")]
    Config(#[from] ConfigError),
    /// The gateway does not start.
    #[error("gateway {name:?} does not start: {error}")]
    Start {
        /// Its name.
        name: String,
        /// Why.
        error: StartError,
    },
    /// Another connector runs the gateway with another configuration.
    #[error(
        "gateway {name:?} runs already with another configuration: {} differ; let the source and the sink use the same \
         gateway file, or give them different names",
        keys.join(", ")
    )]
    Disagree {
        /// The gateway's name.
        name: String,
        /// The keys with different values.
        keys: Vec<String>,
    },
    /// Another connector of the same kind has joined it already.
    #[error(
        "gateway {name:?} has its {role} role already; disable one of the two connectors, or give it another name"
    )]
    RoleTaken {
        /// The gateway's name.
        name: String,
        /// The role.
        role: Role,
    },
}

/// The gateway of one name, while it runs. The lock is held while it starts and stops.
type Slot = Arc<tokio::sync::Mutex<Option<Arc<Gateway>>>>;

static GATEWAYS: LazyLock<Mutex<HashMap<String, Slot>>> = LazyLock::new(Mutex::default);

fn slot(name: &str) -> Slot {
    GATEWAYS.lock().entry(name.to_owned()).or_default().clone()
}

/// A connector's part in a gateway. [`Attachment::detach`] ends it.
#[must_use = "a connector that is not detached keeps its gateway running"]
pub struct Attachment {
    name: String,
    role: Role,
    gateway: Arc<Gateway>,
    batches: Option<Batches>,
}

/// Joins the gateway that `plugin_config` names, starting it if this is the first to join. `plugin_config` is the JSON
/// object that the runtime gives to the connector; environment variables `MQTT_GATEWAY_*` are read too.
pub async fn attach(
    role: Role,
    plugin_config: &serde_json::Value,
) -> Result<Attachment, AttachError> {
    let config = Config::load(plugin_config, std::env::vars_os())?;
    let name = config.name.clone();
    let slot = slot(&name);
    let mut running = slot.lock().await;
    let gateway = match &*running {
        Some(gateway) => {
            let keys = gateway.config().differing_keys(&config);
            if !keys.is_empty() {
                return Err(AttachError::Disagree { name, keys });
            }
            gateway.clone()
        }
        None => Gateway::start(config)
            .await
            .map_err(|error| AttachError::Start {
                name: name.clone(),
                error,
            })?,
    };
    if !gateway.add_role(role) {
        return Err(AttachError::RoleTaken { name, role });
    }
    tracing::info!(gateway = name, %role, "connector attached");
    *running = Some(gateway.clone());
    let batches = match role {
        Role::Ingest => gateway.take_batches(),
        Role::Delivery => None,
    };
    Ok(Attachment {
        name,
        role,
        gateway,
        batches,
    })
}

impl Attachment {
    /// What the connector has to hand to the connectors runtime: of a source with `produce = "runtime"`.
    pub fn batches(&self) -> Option<&Batches> {
        self.batches.as_ref()
    }

    /// Ends the connector's part. The last to leave stops the gateway.
    pub async fn detach(self) {
        let slot = slot(&self.name);
        let mut running = slot.lock().await;
        tracing::info!(gateway = self.name, role = %self.role, "connector detaches");
        let is_last = running
            .as_ref()
            .is_some_and(|running| Arc::ptr_eq(running, &self.gateway))
            && self.gateway.is_only_role(self.role);
        if is_last {
            self.gateway.stop().await;
            *running = None;
        } else {
            self.gateway.remove_role(self.role).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Connectors await these in futures that must be `Send`; the library alone would compile without.
    #[test]
    fn attaching_and_detaching_may_move_between_threads() {
        fn is_send<T: Send>(_: &T) {}
        is_send(&attach(Role::Ingest, &serde_json::Value::Null));
        fn detached(attachment: Attachment) -> impl Future<Output = ()> + Send {
            attachment.detach()
        }
        let _: fn(Attachment) -> _ = detached;
    }
}
