//! Streams for tests: legal ones, as the codec's client side writes them, and the same with damage.
//!
//! What always holds: everything follows from the seed.

use std::num::NonZeroU16;

use bytes::BytesMut;
use bytestring::ByteString;
use rmqtt_codec::v3;
use tokio_util::codec::Encoder as _;

use crate::mqtt::QoS;
use crate::wire::Packet;

/// Random numbers of the SplitMix64 kind: a failing run is repeated by its seed.
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn id(&mut self) -> NonZeroU16 {
        // Small ones, too, which become 0 by the change of one bit.
        let id = if self.one_in(2) {
            self.next() as u16
        } else {
            self.pick(&[1, 2, 256])
        };
        NonZeroU16::new(id).unwrap_or(NonZeroU16::MIN)
    }

    fn bytes(&mut self, at_most: usize) -> Vec<u8> {
        (0..self.below(at_most + 1))
            .map(|_| self.next() as u8)
            .collect()
    }

    fn topic(&mut self) -> ByteString {
        self.pick(&[
            "t",
            "a/b",
            "/",
            "ü/東京/🚀",
            "building/north/room/42/temp",
            "$SYS/x",
        ])
        .into()
    }

    fn filter(&mut self) -> ByteString {
        self.pick(&["t", "a/+/b", "#", "+", "a//#", "ü/+"]).into()
    }

    fn connect(&mut self) -> v3::Packet {
        let username = self.one_in(2).then(|| self.topic());
        let last_will = self.one_in(3).then(|| v3::LastWill {
            qos: (self.below(3) as u8).try_into().unwrap(),
            retain: self.one_in(2),
            topic: self.topic(),
            message: self.bytes(20).into(),
        });
        v3::Packet::Connect(Box::new(v3::Connect {
            protocol: Default::default(),
            clean_session: true,
            keep_alive: self.next() as u16,
            client_id: self.pick(&["", "id", "a-longer-client-id", "é"]).into(),
            last_will,
            password: username
                .as_ref()
                .filter(|_| self.one_in(2))
                .map(|_| self.bytes(10).into()),
            username,
            cert: None,
        }))
    }

    fn packet_after_connect(&mut self) -> v3::Packet {
        let packet_id = self.id();
        match self.below(8) {
            0..=2 => {
                let acknowledged = self.one_in(2);
                v3::Packet::Publish(Box::new(rmqtt_codec::types::Publish {
                    dup: acknowledged && self.one_in(2),
                    retain: self.one_in(2),
                    qos: u8::from(acknowledged).try_into().unwrap(),
                    topic: self.topic(),
                    packet_id: acknowledged.then_some(packet_id),
                    payload: self.bytes(200).into(),
                    properties: None,
                }))
            }
            3 => v3::Packet::PublishAck { packet_id },
            4 => {
                let filter = |random: &mut Self| {
                    (random.filter(), (random.below(3) as u8).try_into().unwrap())
                };
                let topic_filters = (0..=self.below(4)).map(|_| filter(self)).collect();
                v3::Packet::Subscribe {
                    packet_id,
                    topic_filters,
                }
            }
            5 => {
                let topic_filters = (0..=self.below(4)).map(|_| self.filter()).collect();
                v3::Packet::Unsubscribe {
                    packet_id,
                    topic_filters,
                }
            }
            6 => v3::Packet::PingRequest,
            _ => v3::Packet::Disconnect,
        }
    }

    /// A legal stream of up to eight packets.
    pub(super) fn stream(&mut self) -> (Vec<v3::Packet>, Vec<u8>) {
        let mut packets = vec![self.connect()];
        packets.extend((0..self.below(8)).map(|_| self.packet_after_connect()));
        let mut bytes = BytesMut::new();
        for packet in packets.iter().cloned() {
            v3::Codec::new(0).encode(packet, &mut bytes).unwrap();
        }
        (packets, bytes.to_vec())
    }

    /// Damages a stream as a broken client, a broken line or an attacker would.
    pub(super) fn damage(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(3) {
            if bytes.is_empty() {
                return;
            }
            let at = self.below(bytes.len());
            match self.below(7) {
                0 => bytes[at] ^= 1 << self.below(8),
                1 => {
                    bytes[at] =
                        self.pick(&[0x00, 0x01, 0x02, 0x03, 0x7f, 0x80, 0xff, b'+', b'#', b'/'])
                }
                2 => bytes[at] = self.next() as u8,
                3 => drop(bytes.remove(at)),
                4 => bytes.insert(at, self.next() as u8),
                5 => bytes.truncate(at),
                _ => {
                    let end = at + self.below(bytes.len() - at + 1);
                    let copy = bytes[at..end].to_vec();
                    let to = self.below(bytes.len() + 1);
                    bytes.splice(to..to, copy);
                }
            }
        }
    }

    pub(super) fn portions<'a>(&mut self, mut bytes: &'a [u8]) -> Vec<&'a [u8]> {
        let mut portions = Vec::new();
        while !bytes.is_empty() {
            let (portion, rest) = bytes.split_at(self.below(bytes.len().min(40) + 1));
            portions.push(portion);
            bytes = rest;
        }
        portions
    }
}

/// A packet as a client would have written it; `None` for one that is not handed out whole.
pub(super) fn client_packet(packet: &Packet) -> Option<v3::Packet> {
    let id = |id: crate::mqtt::PacketId| NonZeroU16::new(id.get()).unwrap();
    let qos = |qos: QoS| (qos as u8).try_into().unwrap();
    Some(match packet {
        Packet::Connect(connect) if connect.will => return None,
        Packet::Connect(connect) => v3::Packet::Connect(Box::new(v3::Connect {
            protocol: Default::default(),
            clean_session: connect.clean_session,
            keep_alive: connect.keep_alive,
            client_id: connect
                .client_id
                .as_ref()
                .map_or("", |id| id.as_str())
                .into(),
            last_will: None,
            username: connect.username.clone(),
            password: connect
                .password
                .as_ref()
                .map(|password| password.as_bytes().to_vec().into()),
            cert: None,
        })),
        Packet::Publish(publish) => v3::Packet::Publish(Box::new(rmqtt_codec::types::Publish {
            dup: publish.dup,
            retain: publish.retain,
            qos: qos(publish.qos),
            topic: publish.topic.as_str().into(),
            packet_id: publish.packet_id.map(id),
            payload: publish.payload.clone(),
            properties: None,
        })),
        Packet::PubAck(packet_id) => v3::Packet::PublishAck {
            packet_id: id(*packet_id),
        },
        Packet::Subscribe(subscribe) => v3::Packet::Subscribe {
            packet_id: id(subscribe.packet_id),
            topic_filters: subscribe
                .filters
                .iter()
                .map(|(f, asked)| (f.as_str().into(), qos(*asked)))
                .collect(),
        },
        Packet::Unsubscribe(unsubscribe) => v3::Packet::Unsubscribe {
            packet_id: id(unsubscribe.packet_id),
            topic_filters: unsubscribe
                .filters
                .iter()
                .map(|f| f.as_str().into())
                .collect(),
        },
        Packet::PingReq => v3::Packet::PingRequest,
        Packet::Disconnect => v3::Packet::Disconnect,
    })
}
