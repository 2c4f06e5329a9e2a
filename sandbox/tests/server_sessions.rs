//! Login, logout and what the server says about its clients, with the Rust SDK as the client.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "server_support/mod.rs"]
mod support;

use iggy::prelude::*;
use support::{Running, connected, eventually, named, topic};

#[tokio::test]
async fn a_wrong_password_or_user_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path()).await;
    for (user, password) in [
        ("iggy", "wrong"),
        ("other", "iggy"),
        ("iggy", "iggyy"),
        ("iggyy", "iggy"),
    ] {
        let client = connected(server.address).await;
        assert_eq!(
            client.login_user(user, password).await.unwrap_err(),
            IggyError::InvalidCredentials
        );
        assert_eq!(
            client.login_user(user, password).await.unwrap_err(),
            IggyError::InvalidCredentials
        );
        client.login_user("iggy", "iggy").await.unwrap();
        client.get_streams().await.unwrap();
    }
    server.stop().await;
}

#[tokio::test]
async fn before_the_login_only_a_ping_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path()).await;
    let client = connected(server.address).await;
    client.ping().await.unwrap();
    assert_eq!(
        client.get_cluster_metadata().await.unwrap_err(),
        IggyError::Unauthenticated
    );
    assert_eq!(
        client.get_streams().await.unwrap_err(),
        IggyError::Unauthenticated
    );
    client.ping().await.unwrap();
    client.login_user("iggy", "iggy").await.unwrap();
    assert!(client.get_streams().await.unwrap().is_empty());
    server.stop().await;
}

#[tokio::test]
async fn after_the_logout_a_login_is_needed_again() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path()).await;
    let client = server.client().await;
    client.create_stream("s").await.unwrap();
    client.logout_user().await.unwrap();
    assert_eq!(
        client.create_stream("u").await.unwrap_err(),
        IggyError::Unauthenticated
    );
    client.login_user("iggy", "iggy").await.unwrap();
    // A login on top of a login ends the first session.
    client.login_user("iggy", "iggy").await.unwrap();
    client.create_stream("u").await.unwrap();
    assert_eq!(client.get_streams().await.unwrap().len(), 2);
    server.stop().await;
}

#[tokio::test]
async fn the_cluster_is_one_leading_node_at_the_address_the_client_used() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path()).await;
    let client = server.client().await;
    let cluster = client.get_cluster_metadata().await.unwrap();
    assert_eq!(cluster.nodes.len(), 1);
    let node = &cluster.nodes[0];
    assert_eq!(node.ip, "127.0.0.1");
    assert_eq!(node.endpoints.tcp, server.address.port());
    assert_eq!(
        (node.role, node.status),
        (ClusterNodeRole::Leader, ClusterNodeStatus::Healthy)
    );
    server.stop().await;
}

#[tokio::test]
async fn clients_are_listed_while_they_are_connected() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path()).await;
    let client = server.client().await;
    let other = server.client().await;
    topic(&client, 1, Durability::Replicated).await;
    other
        .create_consumer_group(&named("s"), &named("t"), "g")
        .await
        .unwrap();
    other
        .join_consumer_group(&named("s"), &named("t"), &named("g"))
        .await
        .unwrap();

    let me = client.get_me().await.unwrap();
    let it = other.get_me().await.unwrap();
    assert_ne!(me.client_id, it.client_id);
    assert_eq!((me.consumer_groups_count, it.consumer_groups_count), (0, 1));
    let listed = client.get_clients().await.unwrap();
    assert_eq!(
        listed
            .iter()
            .map(|client| client.client_id)
            .collect::<Vec<_>>(),
        [me.client_id, it.client_id]
    );
    let seen = client.get_client(it.client_id).await.unwrap().unwrap();
    assert_eq!(seen.consumer_groups.len(), 1);
    assert_eq!(seen.address, it.address);
    assert!(client.get_client(1_000_000).await.unwrap().is_none());

    other.disconnect().await.unwrap();
    eventually("the other client is not listed any more", async || {
        (client.get_clients().await.unwrap().len() == 1).then_some(())
    })
    .await;
    let group = client
        .get_consumer_group(&named("s"), &named("t"), &named("g"))
        .await;
    assert_eq!(group.unwrap().unwrap().members_count, 0);
    server.stop().await;
}

#[tokio::test]
async fn the_statistics_count_what_exists() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path()).await;
    let client = server.client().await;
    topic(&client, 3, Durability::Replicated).await;
    support::send(&client, 2, &["a", "b"]).await;
    client
        .create_consumer_group(&named("s"), &named("t"), "g")
        .await
        .unwrap();
    let stats = client.get_stats().await.unwrap();
    assert_eq!(
        (
            stats.streams_count,
            stats.topics_count,
            stats.partitions_count
        ),
        (1, 1, 3)
    );
    assert_eq!(
        (
            stats.messages_count,
            stats.clients_count,
            stats.consumer_groups_count
        ),
        (2, 1, 1)
    );
    assert_eq!(stats.process_id, std::process::id());
    let topic = client
        .get_topic(&named("s"), &named("t"))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (topic.messages_count, topic.size),
        (2, stats.messages_size_bytes)
    );
    assert_eq!(topic.partitions[2].messages_count, 2);
    assert_eq!(topic.partitions[2].current_offset, 1);
    server.stop().await;
}

#[tokio::test]
async fn commands_that_are_not_served_get_an_error_and_the_session_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path()).await;
    let client = server.client().await;
    let unavailable = IggyError::FeatureUnavailable;
    let created = client
        .create_user("someone", "secret", UserStatus::Active, None)
        .await;
    assert_eq!(created.unwrap_err(), unavailable);
    assert_eq!(
        client.get_personal_access_tokens().await.unwrap_err(),
        unavailable
    );
    assert_eq!(
        client
            .describe_options(OptionsScope::Topic)
            .await
            .unwrap_err(),
        unavailable
    );
    assert_eq!(
        client
            .delete_segments(&named("s"), &named("t"), 0, 1)
            .await
            .unwrap_err(),
        unavailable
    );
    client.create_stream("s").await.unwrap();
    server.stop().await;
}

#[tokio::test]
async fn polls_and_appends_are_counted_for_each_partition() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path()).await;
    let client = server.client().await;
    topic(&client, 2, Durability::Replicated).await;
    support::send(&client, 1, &["a", "b", "c"]).await;
    support::send(&client, 1, &["d"]).await;
    for offset in [0, 3, 4] {
        support::poll(&client, 1, PollingStrategy::offset(offset), 2).await;
    }
    let counted = server.stats.snapshot();
    let counted: Vec<_> = counted
        .iter()
        .map(|count| {
            assert_eq!((count.stream.as_str(), count.topic.as_str()), ("s", "t"));
            let polls = (count.polls, count.empty_polls, count.polled_messages);
            (
                count.partition,
                polls,
                (count.appends, count.appended_messages),
            )
        })
        .collect();
    assert_eq!(counted, [(0, (0, 0, 0), (0, 0)), (1, (3, 1, 3), (2, 4))]);
    server.stop().await;
}
