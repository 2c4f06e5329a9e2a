//! Topics and their options with the Rust SDK as the client.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "server_support/mod.rs"]
mod support;

use std::str::FromStr;

use iggy::prelude::*;
use support::{Running, named, topic};

#[tokio::test]
async fn the_options_of_a_topic_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path()).await;
    let client = server.client().await;
    client.create_stream("s").await.unwrap();
    let options = TopicCreateOptions {
        partitions_count: Some(3),
        compression_algorithm: Some(CompressionAlgorithm::Gzip),
        message_expiry: Some(IggyExpiry::from_str("7 days").unwrap()),
        max_topic_size: Some(MaxTopicSize::from_str("10 GiB").unwrap()),
        segment_size: Some(IggyByteSize::from_str("128 MiB").unwrap()),
        durability: Durability::Persisted,
        messages_required_to_save: Some(5),
        ..TopicCreateOptions::default()
    };
    let created = client
        .create_topic(&named("s"), "t", &options)
        .await
        .unwrap();
    let read = client
        .get_topic(&named("s"), &named("t"))
        .await
        .unwrap()
        .unwrap();
    for topic in [&created, &read] {
        assert_eq!(topic.name, "t");
        assert_eq!(topic.partitions_count, 3);
        assert_eq!(
            topic
                .partitions
                .iter()
                .map(|partition| partition.id)
                .collect::<Vec<_>>(),
            [0, 1, 2]
        );
        assert_eq!(topic.compression_algorithm, CompressionAlgorithm::Gzip);
        assert_eq!(Some(topic.message_expiry), options.message_expiry);
        assert_eq!(Some(topic.max_topic_size), options.max_topic_size);
        let stored = TopicCreateOptions::from_resource_options(&topic.options);
        assert_eq!(stored.durability, Durability::Persisted);
        assert_eq!(stored.consumer_offset_durability, Durability::Replicated);
        assert_eq!(stored.segment_size, options.segment_size);
        assert_eq!(stored.messages_required_to_save, Some(5));
        let expiry = &topic.options[&HeaderKey::try_from("message_expiry").unwrap()];
        assert!(expiry.explicit);
        let preallocate = &topic.options[&HeaderKey::try_from("preallocate_segments").unwrap()];
        assert!(!preallocate.explicit);
    }
    let plain = client
        .create_topic(&named("s"), "plain", &TopicCreateOptions::default())
        .await
        .unwrap();
    assert_eq!(plain.partitions_count, 1);
    assert_eq!(plain.message_expiry, IggyExpiry::NeverExpire);
    assert_eq!(plain.max_topic_size, MaxTopicSize::Unlimited);
    assert_eq!(
        TopicCreateOptions::from_resource_options(&plain.options).durability,
        Durability::Replicated
    );
    server.stop().await;
}

#[tokio::test]
async fn options_that_iggy_refuses_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path()).await;
    let client = server.client().await;
    client.create_stream("s").await.unwrap();
    let refused = async |options: TopicCreateOptions| {
        client
            .create_topic(&named("s"), "t", &options)
            .await
            .unwrap_err()
    };
    let raw = |key: &str, value: &str| TopicCreateOptions {
        raw: [(key.to_owned(), value.to_owned())].into(),
        ..TopicCreateOptions::default()
    };
    assert_eq!(
        refused(raw("colour", "red")).await,
        IggyError::UnsupportedOptionKey(String::new())
    );
    assert_eq!(
        refused(raw("segment_size", "many")).await,
        IggyError::InvalidOptionValue(String::new())
    );
    let small_segment = TopicCreateOptions {
        segment_size: Some(IggyByteSize::from(512)),
        ..TopicCreateOptions::default()
    };
    assert_eq!(
        refused(small_segment).await,
        IggyError::InvalidOptionValue(String::new())
    );
    let small_topic = TopicCreateOptions {
        max_topic_size: Some(MaxTopicSize::from_str("1 MiB").unwrap()),
        ..TopicCreateOptions::default()
    };
    assert_eq!(refused(small_topic).await.as_code(), 1019);
    let many = TopicCreateOptions {
        partitions_count: Some(1001),
        ..TopicCreateOptions::default()
    };
    assert_eq!(refused(many).await, IggyError::TooManyPartitions);
    assert!(client.get_topics(&named("s")).await.unwrap().is_empty());
    server.stop().await;
}

#[tokio::test]
async fn topics_are_created_listed_updated_and_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path()).await;
    let client = server.client().await;
    let create = TopicCreateOptions::default();
    let no_stream = IggyError::StreamIdNotFound(Identifier::default());
    let no_topic = IggyError::TopicIdNotFound(Identifier::default(), Identifier::default());
    let taken = IggyError::TopicNameAlreadyExists(String::new(), Identifier::default());

    assert_eq!(
        client
            .create_topic(&named("s"), "t", &create)
            .await
            .unwrap_err(),
        no_stream
    );
    assert!(client.get_topics(&named("s")).await.unwrap().is_empty());
    assert!(
        client
            .get_topic(&named("s"), &named("t"))
            .await
            .unwrap()
            .is_none()
    );
    topic(&client, 1, Durability::Persisted).await;
    assert_eq!(
        client
            .create_topic(&named("s"), "t", &create)
            .await
            .unwrap_err(),
        taken
    );
    client
        .create_topic(&named("s"), "u", &create)
        .await
        .unwrap();

    let update = TopicUpdateOptions {
        message_expiry: Some(IggyExpiry::from_str("1 hour").unwrap()),
        ..TopicUpdateOptions::default()
    };
    client
        .update_topic(&named("s"), &named("t"), "renamed", &update)
        .await
        .unwrap();
    let renamed = client
        .get_topic(&named("s"), &named("renamed"))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (renamed.id, Some(renamed.message_expiry)),
        (0, update.message_expiry)
    );
    let stored = TopicCreateOptions::from_resource_options(&renamed.options);
    assert_eq!(
        (stored.message_expiry, stored.durability),
        (update.message_expiry, Durability::Persisted)
    );
    assert_eq!(
        client
            .update_topic(&named("s"), &named("renamed"), "u", &update)
            .await
            .unwrap_err(),
        taken
    );
    let fixed = TopicUpdateOptions {
        raw: [("durability".to_owned(), "replicated".to_owned())].into(),
        ..TopicUpdateOptions::default()
    };
    assert_eq!(
        client
            .update_topic(&named("s"), &named("u"), "u", &fixed)
            .await
            .unwrap_err(),
        IggyError::UnsupportedOptionKey(String::new())
    );

    let names = async || -> Vec<String> {
        client
            .get_topics(&named("s"))
            .await
            .unwrap()
            .into_iter()
            .map(|topic| topic.name)
            .collect()
    };
    assert_eq!(names().await, ["renamed", "u"]);
    client
        .delete_topic(&named("s"), &named("renamed"))
        .await
        .unwrap();
    assert_eq!(names().await, ["u"]);
    assert_eq!(
        client
            .delete_topic(&named("s"), &named("renamed"))
            .await
            .unwrap_err(),
        no_topic
    );
    assert_eq!(
        client
            .get_stream(&named("s"))
            .await
            .unwrap()
            .unwrap()
            .topics
            .len(),
        1
    );
    server.stop().await;
}
