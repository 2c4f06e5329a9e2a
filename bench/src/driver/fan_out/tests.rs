//! The crowd against a broker of a few lines.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use super::*;

/// Serves everyone, and gives each PUBLISH to all who have subscribed; the PUBLISH number `lost` to none.
fn serve(lost: Option<usize>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let subscribed: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
    thread::spawn(move || {
        for socket in listener.incoming() {
            let (socket, subscribed) = (socket.unwrap(), subscribed.clone());
            thread::spawn(move || converse(socket, &subscribed, lost));
        }
    });
    address
}

fn converse(mut socket: TcpStream, subscribed: &Mutex<Vec<TcpStream>>, lost: Option<usize>) {
    let mut published = 0;
    loop {
        let mut head = [0; 2];
        if socket.read_exact(&mut head).is_err() {
            return;
        }
        // The tests' packets are shorter than 128 bytes.
        let mut rest = vec![0; usize::from(head[1])];
        socket.read_exact(&mut rest).unwrap();
        match head[0] >> 4 {
            1 => socket.write_all(&[0x20, 2, 0, 0]).unwrap(),
            8 => {
                let qos = *rest.last().unwrap();
                subscribed.lock().unwrap().push(socket.try_clone().unwrap());
                socket.write_all(&[0x90, 3, 0, 1, qos]).unwrap();
            }
            12 => socket.write_all(&[0xD0, 0]).unwrap(),
            3 => {
                if lost != Some(published) {
                    let packet = [&head[..], &rest].concat();
                    for subscriber in &mut *subscribed.lock().unwrap() {
                        subscriber.write_all(&packet).unwrap();
                    }
                }
                published += 1;
            }
            _ => {}
        }
    }
}

fn plan(address: SocketAddr, qos: QoS) -> FanOut {
    FanOut {
        address,
        topic: "a/b".to_owned(),
        qos,
        subscribers: 7,
        stuck: 0,
        window: 3,
        rate: None,
        payload: 20,
        limit: Limit {
            messages: 50,
            duration: Duration::from_secs(60),
        },
    }
}

#[test]
fn every_copy_is_counted_with_its_latency() {
    for qos in [QoS::AtMostOnce, QoS::AtLeastOnce] {
        let crowd = Crowd::gather(plan(serve(None), qos)).unwrap();
        let outcome = crowd.run(|| ()).unwrap();
        assert_eq!(outcome.messages, 350);
        let latencies = outcome.latencies.summary();
        assert_eq!(latencies.count, 350);
        assert!(latencies.min > 0.0 && latencies.max <= outcome.elapsed.as_secs_f64() * 1e6 * 1.01);
    }
}

#[test]
fn a_message_that_a_subscriber_misses_ends_the_run() {
    let crowd = Crowd::gather(plan(serve(Some(10)), QoS::AtLeastOnce)).unwrap();
    let error = crowd.run(|| ()).unwrap_err();
    let is_missed = matches!(
        error,
        DriverError::OutOfOrder {
            expected: 10,
            came: 11,
            ..
        }
    );
    assert!(is_missed, "{error}");
}

#[test]
fn at_a_fixed_rate_copies_count_from_when_they_were_to_be_sent() {
    let mut plan = plan(serve(None), QoS::AtLeastOnce);
    plan.rate = Some(500.0);
    plan.window = 1_000;
    let outcome = Crowd::gather(plan).unwrap().run(|| ()).unwrap();
    assert_eq!((outcome.messages, outcome.unsent), (350, 0));
    // The last of 50 messages is to be sent after 98 ms.
    assert!(outcome.elapsed >= Duration::from_millis(98));
}

#[test]
fn at_a_fixed_rate_what_the_window_holds_back_counts_as_late() {
    let mut plan = plan(serve(None), QoS::AtLeastOnce);
    plan.rate = Some(1e6);
    plan.window = 1;
    let outcome = Crowd::gather(plan).unwrap().run(|| ()).unwrap();
    // All 50 are to be sent at once and go one after the other, so the last one is as late as the run is long.
    let longest = outcome.latencies.summary().max;
    assert!(
        longest > outcome.elapsed.as_secs_f64() * 1e6 * 0.9,
        "{longest}"
    );
}
