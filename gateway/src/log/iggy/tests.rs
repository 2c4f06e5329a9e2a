//! The client against things that are no Iggy server. What it does with a real one is tested end to end.
//!
//! Tokio's time is paused: it jumps to the next deadline whenever nothing else is going on.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use super::*;
use crate::log::{Headers, Name};

fn config(address: String) -> IggyLogConfig {
    IggyLogConfig {
        address,
        username: "gateway".into(),
        password: "correct horse".into(),
        connections: 2,
        request_timeout: IggyLogConfig::REQUEST_TIMEOUT,
    }
}

fn triple() -> Triple {
    let target = Target {
        stream: Name::new("plant").unwrap(),
        topic: Name::new("telemetry").unwrap(),
    };
    Triple {
        target,
        partition: 0,
    }
}

fn record() -> Record {
    Record {
        id: 1,
        headers: Headers::default(),
        payload: "21.5".into(),
    }
}

/// A listener on a free port that does the same with everyone who connects.
async fn listener<F: Future<Output = ()> + Send + 'static>(
    serve: impl Fn(TcpStream) -> F + Send + 'static,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let mut served = tokio::task::JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let serving = serve(stream);
            served.spawn(serving);
        }
    });
    address
}

async fn nobody() -> String {
    TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap()
        .to_string()
}

fn reason(error: LogError) -> String {
    match error {
        LogError::Unreachable { reason, .. } => reason,
        other => panic!("not unreachable but: {other}"),
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_at_the_address_is_said_at_once_and_again_to_every_request() {
    let address = nobody().await;
    let log = IggyLog::new(config(address.clone()));
    let error = log.connect().await.unwrap_err();
    assert!(error.to_string().contains(&address), "{error}");
    assert!(reason(error).contains("refused"));
    // The readers have their own connections, which nobody asked for yet.
    reason(log.poll(&triple(), 0, 1).await.unwrap_err());
    let before = Instant::now();
    for _ in 0..10 {
        assert!(reason(log.ping().await.unwrap_err()).contains("refused"));
        reason(log.append(&triple(), &[record()]).await.unwrap_err());
        reason(log.poll(&triple(), 0, 1).await.unwrap_err());
        reason(log.end(&triple()).await.unwrap_err());
        reason(log.committed(&triple(), "gateway").await.unwrap_err());
        reason(log.commit(&triple(), "gateway", 0).await.unwrap_err());
        reason(log.topic(&triple().target).await.unwrap_err());
        reason(
            log.create(&triple().target, &TopicSpec::default())
                .await
                .unwrap_err(),
        );
    }
    assert!(
        before.elapsed() < Duration::from_secs(1),
        "{:?}",
        before.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_never_answers_is_given_up() {
    let silent = listener(|mut stream| async move {
        let mut buffer = [0; 1024];
        while stream.read(&mut buffer).await.is_ok_and(|bytes| bytes > 0) {}
    });
    let log = IggyLog::new(config(silent.await));
    let before = Instant::now();
    assert_eq!(
        reason(log.connect().await.unwrap_err()),
        "it does not answer"
    );
    assert!(
        before.elapsed() <= pool::CONNECT_TIMEOUT + Duration::from_millis(10),
        "{:?}",
        before.elapsed()
    );
    assert_eq!(
        reason(log.append(&triple(), &[record()]).await.unwrap_err()),
        "it does not answer"
    );
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_is_no_iggy_server_is_not_taken_for_one() {
    let web = listener(|mut stream| async move {
        let mut buffer = [0; 1024];
        let _ = stream.read(&mut buffer).await;
        let _ = stream
            .write_all(format!("HTTP/1.1 400 Bad Request\r\n\r\n{}", "x".repeat(1000)).as_bytes())
            .await;
        let _ = stream.read(&mut buffer).await;
    });
    let closes = listener(|stream| async move { drop(stream) });
    for address in [web.await, closes.await] {
        let log = IggyLog::new(config(address.clone()));
        let error = log.connect().await.unwrap_err();
        assert!(error.is_transient(), "{error}");
        assert!(error.to_string().contains(&address), "{error}");
        reason(log.ping().await.unwrap_err());
    }
}

#[tokio::test(start_paused = true)]
async fn a_password_that_no_server_takes_is_told_without_asking_one() {
    let address = listener(|stream| async move { drop(stream) }).await;
    let log = IggyLog::new(IggyLogConfig {
        password: String::new(),
        ..config(address)
    });
    assert_eq!(
        log.connect().await,
        Err(LogError::BadCredentials {
            username: "gateway".into()
        })
    );
}

#[tokio::test(start_paused = true)]
async fn what_iggy_would_refuse_is_refused_also_while_it_is_away() {
    let log = IggyLog::new(config(nobody().await));
    let empty = Record {
        payload: Vec::new().into(),
        ..record()
    };
    assert!(matches!(
        log.append(&triple(), &[record(), empty]).await,
        Err(LogError::Refused(_))
    ));
    let spec = TopicSpec {
        partitions: 0,
        ..TopicSpec::default()
    };
    assert!(matches!(
        log.create(&triple().target, &spec).await,
        Err(LogError::Refused(_))
    ));
    let long = "x".repeat(256);
    assert!(matches!(
        log.commit(&triple(), &long, 0).await,
        Err(LogError::Refused(_))
    ));
    assert_eq!(log.append(&triple(), &[]).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn after_closing_everything_fails() {
    let log = IggyLog::new(config(nobody().await));
    log.close().await;
    assert!(reason(log.ping().await.unwrap_err()).contains("closed"));
    assert!(reason(log.poll(&triple(), 0, 1).await.unwrap_err()).contains("closed"));
    assert!(reason(log.connect().await.unwrap_err()).contains("closed"));
}

#[test]
fn the_password_is_in_no_debug_output() {
    let config = config("iggy:8090".into());
    assert!(!format!("{config:?}").contains("horse"));
    let log = format!("{:?}", IggyLog::new(config));
    assert!(!log.contains("horse") && log.contains("iggy:8090"), "{log}");
}
