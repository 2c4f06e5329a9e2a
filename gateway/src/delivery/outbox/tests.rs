//! The outbox alone: order, window, packet ids, bounds, the end.

use super::super::ledger::SharedLedger;
use super::*;
use crate::wire::encode;

struct Fixture {
    outbox: Outbox,
    ledger: SharedLedger,
    counters: Arc<Counters>,
    waiting: Arc<Notify>,
    next: u64,
}

fn fixture(limits: Limits) -> Fixture {
    let counters = Arc::new(Counters::default());
    Fixture {
        outbox: Outbox::new(
            ConnectionId(1),
            &limits,
            Arc::default(),
            counters.clone(),
            Instant::now(),
        ),
        ledger: SharedLedger::starting_at(0),
        counters,
        waiting: Arc::new(Notify::new()),
        next: 0,
    }
}

impl Fixture {
    fn offer(&mut self, qos: QoS, payload: usize) -> Offered {
        let offset = self.next;
        self.next += 1;
        let entry = self.ledger.enter(offset);
        self.ledger.advance(self.next);
        let message = Arc::new(Message {
            topic: TopicName::new("t").unwrap(),
            payload: Bytes::from(vec![b'x'; payload]),
        });
        self.outbox.offer(
            Copy {
                message,
                qos,
                entry,
            },
            &self.waiting,
        )
    }

    fn take(&self) -> Vec<u8> {
        let taken = self.outbox.take(usize::MAX, Instant::now());
        taken.pieces.concat()
    }
}

fn limits() -> Limits {
    Limits {
        send_window: 2,
        outbox_bytes: 1_000,
        ..Limits::default()
    }
}

#[test]
fn control_packets_go_before_queued_copies() {
    let mut f = fixture(limits());
    f.offer(QoS::AtMostOnce, 1);
    f.outbox.control(encode::pingresp);
    assert_eq!(f.take(), [0xd0, 0, 0x30, 4, 0, 1, b't', b'x']);
}

#[test]
fn no_more_than_the_window_is_out_and_an_ack_lets_the_next_one_go() {
    let mut f = fixture(limits());
    for _ in 0..3 {
        assert_eq!(f.offer(QoS::AtLeastOnce, 0), Offered::Queued);
    }
    assert_eq!(
        f.take(),
        [0x32, 5, 0, 1, b't', 0, 1, 0x32, 5, 0, 1, b't', 0, 2]
    );
    assert!(f.take().is_empty());
    assert_eq!(f.ledger.safe(None), None);
    f.outbox
        .acknowledge(PacketId::new(2).unwrap(), Instant::now());
    assert_eq!(f.take(), [0x32, 5, 0, 1, b't', 0, 3]);
    assert_eq!(f.ledger.safe(None), None);
    f.outbox
        .acknowledge(PacketId::new(1).unwrap(), Instant::now());
    assert_eq!(f.ledger.safe(None), Some(1));
}

#[test]
fn l3_an_ack_for_an_id_that_is_not_out_is_ignored_and_counted() {
    let mut f = fixture(limits());
    f.offer(QoS::AtLeastOnce, 0);
    f.take();
    let id = PacketId::new(1).unwrap();
    f.outbox
        .acknowledge(PacketId::new(9).unwrap(), Instant::now());
    f.outbox.acknowledge(id, Instant::now());
    f.outbox.acknowledge(id, Instant::now());
    assert_eq!(f.counters.unknown_pubacks.get(), 2);
    assert_eq!(f.counters.copies_acknowledged.get(), 1);
}

#[test]
fn packet_ids_that_are_out_are_not_reused_when_they_come_round() {
    let mut f = fixture(Limits {
        send_window: 3,
        ..limits()
    });
    f.offer(QoS::AtLeastOnce, 0);
    f.take();
    for _ in 0..65_534 {
        f.offer(QoS::AtLeastOnce, 0);
        let sent = f.take();
        f.outbox.acknowledge(
            PacketId::new(u16::from_be_bytes([sent[5], sent[6]])).unwrap(),
            Instant::now(),
        );
    }
    f.offer(QoS::AtLeastOnce, 0);
    assert_eq!(f.take()[5..], [0, 2], "1 is still out");
}

#[tokio::test]
async fn d6_a_full_outbox_takes_no_more_and_says_when_half_of_it_is_free() {
    let mut f = fixture(limits());
    while f.offer(QoS::AtMostOnce, 100) == Offered::Queued {}
    assert!(f.outbox.is_full());
    assert!(f.outbox.state.lock().queued_bytes <= 1_000);
    f.take();
    assert!(!f.outbox.is_full());
    f.waiting.notified().await;
    assert_eq!(f.offer(QoS::AtMostOnce, 100), Offered::Queued);
}

#[test]
fn an_empty_outbox_takes_a_message_larger_than_its_bound() {
    let mut f = fixture(limits());
    assert_eq!(f.offer(QoS::AtLeastOnce, 5_000), Offered::Queued);
    assert_eq!(f.offer(QoS::AtLeastOnce, 1), Offered::Full);
}

#[test]
fn l4_closing_ends_every_copy_and_takes_no_more() {
    let mut f = fixture(limits());
    for _ in 0..4 {
        f.offer(QoS::AtLeastOnce, 10);
    }
    f.take();
    f.outbox.close();
    assert_eq!(f.ledger.open_copies(), 0);
    assert_eq!(f.ledger.safe(None), Some(3));
    assert_eq!(f.outbox.total.load(Ordering::Relaxed), 0);
    assert_eq!(f.offer(QoS::AtLeastOnce, 1), Offered::Closed);
    assert_eq!(f.ledger.open_copies(), 0);
}

#[test]
fn a_qos_0_copy_is_done_only_when_the_writer_lets_go_of_what_it_took() {
    let mut f = fixture(limits());
    f.offer(QoS::AtMostOnce, 1);
    let taken = f.outbox.take(usize::MAX, Instant::now());
    assert_eq!(f.ledger.safe(None), None);
    drop(taken);
    assert_eq!(f.ledger.safe(None), Some(0));
}
