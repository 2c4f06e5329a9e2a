//! The batch protocol on a paused clock: the times below are the protocol's, not waits of the tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::SourceBatchResult::{Ack, Nack};
use super::*;
use crate::{Error, Schema};

/// How a scripted source answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Poll {
    Batch,
    Wait,
    Fail(usize),
    Panic,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hook {
    Take,
    Fail,
    Panic,
}

struct Scripted {
    poll: Poll,
    hook: Hook,
    polls: AtomicUsize,
    results: Mutex<Vec<SourceBatchResult>>,
}

#[async_trait]
impl Source for Scripted {
    async fn open(&mut self) -> Result<(), Error> {
        Ok(())
    }

    async fn poll(&self) -> Result<ProducedMessages, Error> {
        let polls = self.polls.fetch_add(1, Ordering::SeqCst) + 1;
        match self.poll {
            Poll::Wait => std::future::pending().await,
            Poll::Fail(times) if polls <= times => Err(Error::Connection("gone".to_owned())),
            Poll::Panic => panic!("in poll"),
            Poll::Batch | Poll::Fail(_) => Ok(ProducedMessages {
                schema: Schema::Raw,
                messages: Vec::new(),
                state: None,
            }),
        }
    }

    async fn on_batch_result(&self, result: SourceBatchResult) -> Result<(), Error> {
        self.results.lock().push(result);
        match self.hook {
            Hook::Take => Ok(()),
            Hook::Fail => Err(Error::InvalidState),
            Hook::Panic => panic!("in on_batch_result"),
        }
    }

    async fn close(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

struct Bench {
    source: Arc<Scripted>,
    in_flight: Arc<InFlight>,
    sent: mpsc::UnboundedReceiver<(u64, Instant)>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Bench {
    fn start(poll: Poll, hook: Hook, answer: Sent) -> Self {
        Self::start_with(poll, hook, Policy::default(), move |_, _| answer)
    }

    fn start_with(
        poll: Poll,
        hook: Hook,
        policy: Policy,
        answer: impl Fn(&InFlight, u64) -> Sent + Send + Sync + 'static,
    ) -> Self {
        let source = Arc::new(Scripted {
            poll,
            hook,
            polls: AtomicUsize::new(0),
            results: Mutex::default(),
        });
        let in_flight = Arc::new(InFlight::default());
        let (send, sent) = mpsc::unbounded_channel();
        let (stop, stopped) = watch::channel(false);
        let (polled, flight) = (Arc::clone(&source), Arc::clone(&in_flight));
        let task = tokio::spawn(async move {
            let answer = |batch_id, _: &[u8]| {
                send.send((batch_id, Instant::now())).unwrap();
                answer(&flight, batch_id)
            };
            run(7, &*polled, answer, &flight, stopped, policy).await;
        });
        Self {
            source,
            in_flight,
            sent,
            stop,
            task,
        }
    }

    async fn next(&mut self) -> (u64, Instant) {
        self.sent.recv().await.expect("the polling ended")
    }

    async fn answer(&self, batch_id: u64, result: SourceBatchResult) -> Applied {
        let applied = self.in_flight.deliver(batch_id, result).unwrap();
        applied.await.unwrap()
    }

    fn polls(&self) -> usize {
        self.source.polls.load(Ordering::SeqCst)
    }

    fn results(&self) -> Vec<SourceBatchResult> {
        self.source.results.lock().clone()
    }

    /// The polling must end by itself.
    async fn ended(self) -> Vec<SourceBatchResult> {
        let results = Arc::clone(&self.source);
        tokio::time::timeout(Duration::from_secs(3600), self.task)
            .await
            .expect("the polling goes on")
            .unwrap();
        results.results.lock().clone()
    }
}

#[tokio::test(start_paused = true)]
async fn one_batch_is_in_flight_and_ids_rise_from_one() {
    let mut bench = Bench::start(Poll::Batch, Hook::Take, Sent::ResultFollows);
    let (first, at) = bench.next().await;
    assert_eq!(first, 1);
    tokio::time::sleep(Duration::from_secs(29)).await;
    assert_eq!(bench.polls(), 1);
    assert!(bench.results().is_empty());

    assert_eq!(bench.answer(1, Ack).await, Applied::Continue);
    assert_eq!(bench.results(), [Ack]);
    let (second, next_at) = bench.next().await;
    assert_eq!(second, 2);
    assert_eq!(next_at - at, Duration::from_secs(29));
}

#[tokio::test(start_paused = true)]
async fn a_batch_without_a_result_counts_as_undelivered_after_30_seconds() {
    let mut bench = Bench::start(Poll::Batch, Hook::Take, Sent::ResultFollows);
    let (_, at) = bench.next().await;
    let (second, next_at) = bench.next().await;
    assert_eq!(second, 2);
    assert_eq!(bench.results(), [Nack]);
    let (timeout, delay) = (Duration::from_secs(30), Duration::from_millis(100));
    assert!(
        (timeout + delay..timeout + delay + Duration::from_millis(5)).contains(&(next_at - at))
    );
    // The result that comes too late has no receiver, the one for the batch in flight has.
    let late = bench.in_flight.deliver(1, Ack).unwrap_err();
    assert_eq!(late, NotInFlight::Other { expected: 2 });
    assert_eq!(bench.answer(2, Ack).await, Applied::Continue);
    assert_eq!(bench.results(), [Nack, Ack]);
}

#[tokio::test(start_paused = true)]
async fn the_wait_after_undelivered_batches_doubles_up_to_five_seconds() {
    let policy = Policy {
        max_nacks: u32::MAX,
        ..Policy::default()
    };
    let refuse = |_: &InFlight, _| Sent::Refused(-1);
    let mut bench = Bench::start_with(Poll::Batch, Hook::Take, policy, refuse);
    let (_, mut at) = bench.next().await;
    for millis in [100, 200, 400, 800, 1600, 3200, 5000, 5000] {
        let (_, next_at) = bench.next().await;
        let waited = (next_at - at).as_millis();
        // Tokio's timers are exact to a millisecond.
        assert!(
            (millis..millis + 5).contains(&waited),
            "{waited} ms instead of {millis} ms"
        );
        at = next_at;
    }
    assert!(bench.results().iter().all(|result| *result == Nack));
}

#[tokio::test(start_paused = true)]
async fn five_undelivered_batches_in_a_row_end_the_polling_for_good() {
    let mut bench = Bench::start(Poll::Batch, Hook::Take, Sent::ResultFollows);
    for (batch, result) in [Nack, Nack, Nack, Nack, Ack, Nack, Nack, Nack, Nack]
        .iter()
        .enumerate()
    {
        let (id, _) = bench.next().await;
        assert_eq!(id, batch as u64 + 1);
        assert_eq!(
            bench.answer(id, *result).await,
            Applied::Continue,
            "batch {id}"
        );
    }
    let (id, _) = bench.next().await;
    assert_eq!(bench.answer(id, Nack).await, Applied::Stop);
    let results = bench.ended().await;
    assert_eq!(results.len(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_source_that_cannot_be_polled_is_tried_again_without_end() {
    let started = Instant::now();
    let mut bench = Bench::start(Poll::Fail(50), Hook::Take, Sent::ResultFollows);
    let (id, at) = bench.next().await;
    assert_eq!((id, bench.polls()), (1, 51));
    // 100 + 200 + … + 3200 ms, then 44 times 5 s.
    let waited = (at - started).as_millis();
    assert!((226_300..226_600).contains(&waited), "{waited}");
    assert!(bench.results().is_empty());
}

#[tokio::test(start_paused = true)]
async fn stopping_ends_a_poll_that_waits() {
    let bench = Bench::start(Poll::Wait, Hook::Take, Sent::ResultFollows);
    while bench.polls() == 0 {
        tokio::task::yield_now().await;
    }
    let before = Instant::now();
    bench.stop.send_replace(true);
    assert!(bench.ended().await.is_empty());
    assert_eq!(Instant::now(), before);
}

#[tokio::test(start_paused = true)]
async fn stopping_tells_the_source_that_a_batch_in_flight_was_not_delivered() {
    let mut bench = Bench::start(Poll::Batch, Hook::Take, Sent::ResultFollows);
    bench.next().await;
    let in_flight = Arc::clone(&bench.in_flight);
    bench.stop.send_replace(true);
    assert_eq!(bench.ended().await, [Nack]);
    assert_eq!(in_flight.deliver(1, Ack).unwrap_err(), NotInFlight::Nothing);
}

#[tokio::test(start_paused = true)]
async fn a_result_that_came_before_the_stop_is_kept() {
    let mut bench = Bench::start(Poll::Batch, Hook::Take, Sent::ResultFollows);
    bench.next().await;
    // One thread: the task sees both only when this one awaits.
    let applied = bench.in_flight.deliver(1, Ack).unwrap();
    bench.stop.send_replace(true);
    assert_eq!(applied.await, Ok(Applied::Continue));
    assert_eq!(bench.ended().await, [Ack]);
}

#[tokio::test(start_paused = true)]
async fn stopping_ends_the_wait_after_an_undelivered_batch() {
    let mut bench = Bench::start(Poll::Batch, Hook::Take, Sent::Refused(-1));
    let (_, at) = bench.next().await;
    bench.stop.send_replace(true);
    assert_eq!(bench.ended().await, [Nack]);
    assert_eq!(Instant::now(), at);
}

#[tokio::test(start_paused = true)]
async fn a_result_for_another_batch_is_refused_and_changes_nothing() {
    let mut bench = Bench::start(Poll::Batch, Hook::Take, Sent::ResultFollows);
    bench.next().await;
    for other in [0, 2, u64::MAX] {
        let refused = bench.in_flight.deliver(other, Nack).unwrap_err();
        assert_eq!(refused, NotInFlight::Other { expected: 1 });
    }
    assert_eq!(bench.answer(1, Ack).await, Applied::Continue);
    assert_eq!(bench.results(), [Ack]);
}

#[tokio::test(start_paused = true)]
async fn a_result_given_before_the_callback_returns_counts() {
    let answer = |in_flight: &InFlight, batch_id| {
        assert!(in_flight.deliver(batch_id, Ack).is_ok());
        assert_eq!(
            in_flight.deliver(batch_id, Nack).unwrap_err(),
            NotInFlight::Nothing
        );
        Sent::ResultFollows
    };
    let mut bench = Bench::start_with(Poll::Batch, Hook::Take, Policy::default(), answer);
    let (_, at) = bench.next().await;
    let (second, next_at) = bench.next().await;
    assert_eq!((second, next_at), (2, at));
    assert_eq!(bench.results()[0], Ack);
    bench.task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_host_without_results_acknowledges_by_taking_the_batch() {
    let mut bench = Bench::start(Poll::Batch, Hook::Take, Sent::Delivered);
    let (_, at) = bench.next().await;
    let (_, next_at) = bench.next().await;
    assert_eq!(next_at, at);
    assert_eq!(bench.results()[0], Ack);
    bench.task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_source_that_cannot_take_a_result_is_not_polled_any_more() {
    for hook in [Hook::Fail, Hook::Panic] {
        let mut bench = Bench::start(Poll::Batch, hook, Sent::ResultFollows);
        bench.next().await;
        assert_eq!(bench.answer(1, Ack).await, Applied::Stop);
        assert_eq!(bench.polls(), 1);
        assert_eq!(bench.ended().await, [Ack]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_poll_ends_the_polling_without_a_batch() {
    let bench = Bench::start(Poll::Panic, Hook::Take, Sent::ResultFollows);
    assert!(bench.ended().await.is_empty());
}
