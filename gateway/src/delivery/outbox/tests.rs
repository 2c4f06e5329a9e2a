//! The outbox alone: order, window, packet ids, bounds, the end.

use super::super::ledger::SharedLedger;
use super::*;
use crate::wire::encode;

struct Fixture {
    outbox: Outbox,
    ledger: SharedLedger,
    counters: Arc<Counters>,
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
        let entry = Arc::new(entry);
        self.outbox.offer([Copy {
            message,
            qos,
            entry,
        }])
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
        assert_eq!(f.offer(QoS::AtLeastOnce, 0), Offered::Taken);
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
    while f.offer(QoS::AtLeastOnce, 100) == Offered::Taken {}
    assert!(f.outbox.is_full());
    assert!(f.outbox.bytes() <= 1_000);
    // The window is 2: half of the room is free only after some acknowledgements.
    let mut acknowledged = 0;
    while f.outbox.is_full() {
        f.take();
        for _ in 0..2 {
            acknowledged += 1;
            f.outbox
                .acknowledge(PacketId::new(acknowledged).unwrap(), Instant::now());
        }
    }
    assert!(acknowledged > 2);
    f.outbox.room().await;
    assert_eq!(f.offer(QoS::AtLeastOnce, 100), Offered::Taken);
}

#[test]
fn qos_0_copies_without_room_are_dropped_and_counted_and_a_qos_1_copy_ends_the_offer() {
    let mut f = fixture(limits());
    for _ in 0..20 {
        assert_eq!(f.offer(QoS::AtMostOnce, 100), Offered::Taken);
    }
    let state = f.outbox.state(Instant::now());
    assert_eq!(state.queued as u64 + state.dropped, 20);
    assert!(state.dropped > 0 && state.is_full);
    assert_eq!(f.counters.copies_dropped.get(), state.dropped);
    assert_eq!(f.ledger.open_records(), state.queued);
    assert_eq!(f.offer(QoS::AtLeastOnce, 100), Offered::Full(0));
}

#[test]
fn all_outboxes_together_are_bounded_and_say_so() {
    let limits = Limits {
        outbox_bytes_total: 1_000,
        ..limits()
    };
    let total = Arc::<OutboxTotal>::default();
    let mut f = fixture(limits.clone());
    f.outbox = Outbox::new(
        ConnectionId(1),
        &limits,
        total.clone(),
        f.counters.clone(),
        Instant::now(),
    );
    total.bytes.fetch_add(900, Ordering::Relaxed);
    assert_eq!(
        f.offer(QoS::AtLeastOnce, 100),
        Offered::Taken,
        "it was empty"
    );
    assert_eq!(f.offer(QoS::AtLeastOnce, 100), Offered::Full(0));
    assert!(futures_util::FutureExt::now_or_never(total.pressed()).is_some());
    f.outbox.close();
    assert_eq!(total.bytes(), 900);
}

#[test]
fn nothing_is_sent_again_unless_it_is_configured() {
    let mut f = fixture(limits());
    f.offer(QoS::AtLeastOnce, 1);
    f.take();
    let later = Instant::now() + Duration::from_secs(3_600);
    assert!(!f.outbox.check_retransmission(later));
    assert!(f.outbox.take(usize::MAX, later).pieces.is_empty());
}

#[test]
fn an_unacknowledged_copy_is_sent_again_with_dup_and_its_id_as_often_as_configured() {
    let mut f = fixture(Limits {
        retransmit_interval: Duration::from_secs(20),
        retransmit_max: 2,
        ..limits()
    });
    for _ in 0..3 {
        f.offer(QoS::AtLeastOnce, 0);
    }
    let begin = Instant::now();
    let at = |seconds| begin + Duration::from_secs(seconds);
    let take = |f: &Fixture, now| f.outbox.take(usize::MAX, now).pieces.concat();
    assert_eq!(
        take(&f, begin),
        [0x32, 5, 0, 1, b't', 0, 1, 0x32, 5, 0, 1, b't', 0, 2]
    );
    assert!(take(&f, at(19)).is_empty());
    f.outbox.acknowledge(PacketId::new(2).unwrap(), at(19));
    let again = [0x3a, 5, 0, 1, b't', 0, 1];
    let third = [0x32, 5, 0, 1, b't', 0, 3];
    assert_eq!(take(&f, at(20)), [again, third].concat());
    f.outbox.acknowledge(PacketId::new(3).unwrap(), at(20));
    assert!(take(&f, at(39)).is_empty());
    assert_eq!(take(&f, at(40)), again);
    assert!(!f.outbox.check_retransmission(at(59)));
    assert!(take(&f, at(60)).is_empty());
    assert!(f.outbox.check_retransmission(at(60)), "in vain");
    assert_eq!(f.counters.copies_sent_again.get(), 2);
    f.outbox.acknowledge(PacketId::new(1).unwrap(), at(60));
    assert_eq!(f.outbox.bytes(), 0);
    assert_eq!(f.outbox.total.bytes(), 0);
}

#[test]
fn what_is_unacknowledged_when_the_role_ends_is_not_committed() {
    let mut f = fixture(limits());
    f.offer(QoS::AtMostOnce, 0);
    for _ in 0..3 {
        f.offer(QoS::AtLeastOnce, 0);
    }
    f.take();
    f.outbox
        .acknowledge(PacketId::new(1).unwrap(), Instant::now());
    f.outbox.owe_at_end();
    f.outbox.close();
    assert_eq!(f.ledger.safe(None), Some(1));
}

#[test]
fn an_empty_outbox_takes_a_message_larger_than_its_bound() {
    let mut f = fixture(limits());
    assert_eq!(f.offer(QoS::AtLeastOnce, 5_000), Offered::Taken);
    assert_eq!(f.offer(QoS::AtLeastOnce, 1), Offered::Full(0));
}

#[test]
fn l4_closing_ends_every_copy_and_takes_no_more() {
    let mut f = fixture(limits());
    for _ in 0..4 {
        f.offer(QoS::AtLeastOnce, 10);
    }
    f.take();
    f.outbox.close();
    assert_eq!(f.ledger.open_records(), 0);
    assert_eq!(f.ledger.safe(None), Some(3));
    assert_eq!(f.outbox.total.bytes(), 0);
    assert_eq!(f.offer(QoS::AtLeastOnce, 1), Offered::Closed);
    assert_eq!(f.ledger.open_records(), 0);
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
