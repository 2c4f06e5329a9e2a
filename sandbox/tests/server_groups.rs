//! Consumer groups with the Rust SDK as the client: the single commands.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "server_support/raw.rs"]
mod raw;
#[path = "server_support/mod.rs"]
mod support;

use iggy::prelude::*;
use iggy_binary_protocol::codes::{
    ATTACH_CONSUMER_SESSION_CODE, GET_CONSUMER_OFFSET_ROUTING_CODE, GET_POLL_ROUTING_CODE,
    JOIN_CONSUMER_GROUP_CODE, POLL_MESSAGES_CODE, POLL_MESSAGES_ON_PRIMARY_CODE,
};
use iggy_binary_protocol::requests::consumer_groups::JoinConsumerGroupRequest;
use iggy_binary_protocol::requests::messages::PollMessagesRequest;
use iggy_binary_protocol::responses::messages::PollRoutingResponse;
use iggy_binary_protocol::{
    WireConsumer, WireDecode, WireEncode, WireIdentifier, WirePollingStrategy,
};
use raw::Raw;
use support::{Running, eventually, named, offsets, send, topic};

async fn join(client: &IggyClient) {
    client
        .join_consumer_group(&named("s"), &named("t"), &named("g"))
        .await
        .unwrap();
}

/// The group's members and their partitions, by client id.
async fn members(client: &IggyClient) -> Vec<(u32, Vec<u32>)> {
    let group = client
        .get_consumer_group(&named("s"), &named("t"), &named("g"))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(group.members_count as usize, group.members.len());
    group
        .members
        .into_iter()
        .map(|member| (member.id, member.partitions))
        .collect()
}

async fn poll(client: &IggyClient) -> Result<PolledMessages, IggyError> {
    let group = Consumer::group(named("g"));
    let strategy = PollingStrategy::next();
    client
        .poll_messages(&named("s"), &named("t"), None, &group, &strategy, 10, true)
        .await
}

#[tokio::test]
async fn groups_are_created_listed_and_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path()).await;
    let client = server.client().await;
    topic(&client, 2, Durability::Replicated).await;
    let (s, t) = (named("s"), named("t"));
    assert!(client.get_consumer_groups(&s, &t).await.unwrap().is_empty());
    assert!(
        client
            .get_consumer_group(&s, &t, &named("g"))
            .await
            .unwrap()
            .is_none()
    );
    let created = client.create_consumer_group(&s, &t, "g").await.unwrap();
    assert_eq!(
        (
            created.name.as_str(),
            created.partitions_count,
            created.members_count
        ),
        ("g", 2, 0)
    );
    assert_eq!(
        client.create_consumer_group(&s, &t, "g").await.unwrap_err(),
        IggyError::ConsumerGroupNameAlreadyExists(String::new(), Identifier::default())
    );
    client.create_consumer_group(&s, &t, "h").await.unwrap();
    let names: Vec<_> = client
        .get_consumer_groups(&s, &t)
        .await
        .unwrap()
        .into_iter()
        .map(|group| group.name)
        .collect();
    assert_eq!(names, ["g", "h"]);
    assert_eq!(
        client
            .create_consumer_group(&s, &named("x"), "g")
            .await
            .unwrap_err()
            .as_code(),
        2010
    );
    client
        .delete_consumer_group(&s, &t, &named("g"))
        .await
        .unwrap();
    let missing = IggyError::ConsumerGroupIdNotFound(Identifier::default(), Identifier::default());
    assert_eq!(
        client
            .delete_consumer_group(&s, &t, &named("g"))
            .await
            .unwrap_err(),
        missing
    );
    assert_eq!(
        client
            .join_consumer_group(&s, &t, &named("g"))
            .await
            .unwrap_err(),
        missing
    );
    assert_eq!(
        client
            .leave_consumer_group(&s, &t, &named("h"))
            .await
            .unwrap_err()
            .as_code(),
        5006
    );
    server.stop().await;
}

#[tokio::test]
async fn the_partitions_are_shared_out_anew_when_members_come_and_go() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path()).await;
    let first = server.client().await;
    let second = server.client().await;
    topic(&first, 3, Durability::Replicated).await;
    first
        .create_consumer_group(&named("s"), &named("t"), "g")
        .await
        .unwrap();
    let one = first.get_me().await.unwrap().client_id;
    let two = second.get_me().await.unwrap().client_id;

    join(&first).await;
    assert_eq!(members(&first).await, [(one, vec![0, 1, 2])]);
    join(&second).await;
    assert_eq!(members(&first).await, [(one, vec![0, 2]), (two, vec![1])]);
    first
        .create_partitions(&named("s"), &named("t"), 1)
        .await
        .unwrap();
    assert_eq!(
        members(&first).await,
        [(one, vec![0, 2]), (two, vec![1, 3])]
    );
    first
        .leave_consumer_group(&named("s"), &named("t"), &named("g"))
        .await
        .unwrap();
    assert_eq!(members(&first).await, [(two, vec![0, 1, 2, 3])]);
    join(&first).await;
    second.logout_user().await.unwrap();
    assert_eq!(members(&first).await, [(one, vec![0, 1, 2, 3])]);
    let third = server.client().await;
    join(&third).await;
    assert_eq!(members(&first).await.len(), 2);
    third.disconnect().await.unwrap();
    eventually(
        "a member whose connection is gone is out of the group",
        async || (members(&first).await == [(one, vec![0, 1, 2, 3])]).then_some(()),
    )
    .await;
    server.stop().await;
}

#[tokio::test]
async fn each_message_goes_to_one_member_also_across_a_rebalance() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path()).await;
    let first = server.client().await;
    let second = server.client().await;
    topic(&first, 2, Durability::Replicated).await;
    first
        .create_consumer_group(&named("s"), &named("t"), "g")
        .await
        .unwrap();
    send(&first, 0, &["a"]).await;
    send(&first, 1, &["b"]).await;

    join(&first).await;
    let mut got: Vec<_> = Vec::new();
    for _ in 0..2 {
        got.extend(support::payloads(&poll(&first).await.unwrap()));
    }
    got.sort();
    assert_eq!(got, ["a", "b"]);

    // The second takes partition 1 over; the first still believes that it has it and is told to ask again.
    join(&second).await;
    send(&first, 0, &["c"]).await;
    send(&first, 1, &["d"]).await;
    let polled = poll(&second).await.unwrap();
    assert_eq!((polled.partition_id, offsets(&polled)), (1, vec![1]));
    for _ in 0..2 {
        let polled = poll(&first).await.unwrap();
        assert_eq!(polled.partition_id, 0);
        got.extend(support::payloads(&polled));
    }
    assert_eq!(got, ["a", "b", "c"]);

    // What the second had goes back, and nothing that it committed comes again.
    send(&first, 1, &["e"]).await;
    second.disconnect().await.unwrap();
    eventually("the first has both partitions", async || {
        (members(&first).await.len() == 1).then_some(())
    })
    .await;
    first
        .join_consumer_group(&named("s"), &named("t"), &named("g"))
        .await
        .unwrap();
    let mut rest = Vec::new();
    for _ in 0..2 {
        rest.extend(support::payloads(&poll(&first).await.unwrap()));
    }
    assert_eq!(rest, ["e"]);
    server.stop().await;
}

#[tokio::test]
async fn only_the_member_that_reads_a_partition_can_store_its_offset() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path()).await;
    let first = server.client().await;
    let second = server.client().await;
    topic(&first, 2, Durability::Replicated).await;
    first
        .create_consumer_group(&named("s"), &named("t"), "g")
        .await
        .unwrap();
    send(&first, 0, &["a"]).await;
    send(&first, 1, &["b"]).await;
    join(&first).await;
    join(&second).await;
    let group = Consumer::group(named("g"));
    let store = async |client: &IggyClient, partition| {
        client
            .store_consumer_offset(&group, &named("s"), &named("t"), Some(partition), 0)
            .await
    };
    store(&first, 0).await.unwrap();
    assert_eq!(store(&first, 1).await.unwrap_err().as_code(), 20);
    store(&second, 1).await.unwrap();
    // Whoever asks may see a group's offset, and a consumer of the same number has its own.
    let seen = second
        .get_consumer_offset(&group, &named("s"), &named("t"), Some(0))
        .await;
    assert_eq!(seen.unwrap().unwrap().stored_offset, 0);
    let same_number = Consumer::new(Identifier::numeric(0).unwrap());
    let seen = second
        .get_consumer_offset(&same_number, &named("s"), &named("t"), Some(0))
        .await;
    assert!(seen.unwrap().is_none());

    // A group of the same name is another group.
    first
        .delete_consumer_group(&named("s"), &named("t"), &named("g"))
        .await
        .unwrap();
    first
        .create_consumer_group(&named("s"), &named("t"), "g")
        .await
        .unwrap();
    let seen = first
        .get_consumer_offset(&group, &named("s"), &named("t"), Some(0))
        .await;
    assert!(seen.unwrap().is_none());
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_is_no_member_is_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path()).await;
    let client = server.client().await;
    topic(&client, 1, Durability::Replicated).await;
    client
        .create_consumer_group(&named("s"), &named("t"), "g")
        .await
        .unwrap();
    send(&client, 0, &["a"]).await;
    assert_eq!(poll(&client).await.unwrap_err().as_code(), 5006);
    join(&client).await;
    assert_eq!(poll(&client).await.unwrap().messages.len(), 1);
    client
        .delete_consumer_group(&named("s"), &named("t"), &named("g"))
        .await
        .unwrap();
    assert!(poll(&client).await.is_err());
    server.stop().await;
}

#[tokio::test]
async fn a_second_connection_can_poll_and_commit_as_the_member_that_the_first_one_is() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path()).await;
    let client = server.client().await;
    topic(&client, 1, Durability::Replicated).await;
    client
        .create_consumer_group(&named("s"), &named("t"), "g")
        .await
        .unwrap();
    send(&client, 0, &["a", "b"]).await;
    let (stream_id, topic_id) = (
        WireIdentifier::named("s").unwrap(),
        WireIdentifier::named("t").unwrap(),
    );
    let group_id = WireIdentifier::named("g").unwrap();
    let join = JoinConsumerGroupRequest {
        stream_id: stream_id.clone(),
        topic_id: topic_id.clone(),
        group_id: group_id.clone(),
    };
    let poll = PollMessagesRequest {
        consumer: WireConsumer::consumer_group(group_id),
        stream_id,
        topic_id,
        partition_id: Some(0),
        strategy: WirePollingStrategy::next(),
        count: 9,
        auto_commit: true,
    }
    .to_bytes();
    let count = |reply: Vec<u8>| u32::from_le_bytes(reply[12..16].try_into().unwrap());

    let mut coordinator = Raw::logged_in(server.address).await;
    coordinator
        .call(JOIN_CONSUMER_GROUP_CODE, &join.to_bytes())
        .await
        .body();
    let mut data = Raw::logged_in(server.address).await;
    let refused = data.call(POLL_MESSAGES_ON_PRIMARY_CODE, &poll).await.body();
    assert_eq!((refused[..4].to_vec(), count(refused)), (vec![0xff; 4], 0));

    for code in [GET_POLL_ROUTING_CODE, GET_CONSUMER_OFFSET_ROUTING_CODE] {
        let route = coordinator.call(code, &poll).await.body();
        let route = PollRoutingResponse::decode_from(&route).unwrap();
        assert_eq!(route.primary.tcp_port, server.address.port());
        let mut wrong = route.consumer_session;
        wrong.session += 1000;
        assert_eq!(
            data.call(ATTACH_CONSUMER_SESSION_CODE, &wrong.to_bytes())
                .await
                .code(),
            40
        );
        data.call(
            ATTACH_CONSUMER_SESSION_CODE,
            &route.consumer_session.to_bytes(),
        )
        .await
        .body();
    }
    assert_eq!(
        count(data.call(POLL_MESSAGES_ON_PRIMARY_CODE, &poll).await.body()),
        2
    );
    assert_eq!(
        count(coordinator.call(POLL_MESSAGES_CODE, &poll).await.body()),
        0
    );
    server.stop().await;
}
