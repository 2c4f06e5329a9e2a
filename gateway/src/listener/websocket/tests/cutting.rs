//! How a stream of bytes is cut, into frames, fragments and portions, with Pings and Pongs in it, does not matter.

use super::*;

/// A frame that carries the next `length` bytes.
#[derive(Debug, Clone)]
struct Cut {
    length: usize,
    /// Whether it ends its message.
    is_final: bool,
    /// Control frames behind it: their opcode and length.
    control: Vec<(u8, usize)>,
    mask: [u8; 4],
}

fn cut() -> impl Strategy<Value = Cut> {
    let length = prop_oneof![4 => 0..40_usize, 1 => 100..300_usize, 1 => 65_500..65_600_usize];
    let control = prop::collection::vec(
        (prop_oneof![Just(0x89_u8), Just(0x8a)], 0..=125_usize),
        0..3,
    );
    (length, any::<bool>(), control, any::<[u8; 4]>()).prop_map(
        |(length, is_final, control, mask)| Cut {
            length,
            is_final,
            control,
            mask,
        },
    )
}

/// The frames for `cuts`, and the bytes that they carry.
fn encode(cuts: &[Cut]) -> (Vec<u8>, Vec<u8>) {
    let (mut sent, mut carried) = (Vec::new(), Vec::new());
    let mut is_fragmented = false;
    for (at, cut) in cuts.iter().enumerate() {
        let is_final = cut.is_final || at + 1 == cuts.len();
        let payload: Vec<u8> = (0..cut.length)
            .map(|n| (carried.len() + n * 7) as u8)
            .collect();
        let first = if is_fragmented { 0x00 } else { 0x02 } | if is_final { 0x80 } else { 0 };
        let mut header = announced(first, payload.len() as u64);
        let mask_at = header.len() - 4;
        header[mask_at..].copy_from_slice(&cut.mask);
        sent.extend(header);
        sent.extend(
            payload
                .iter()
                .zip(cut.mask.iter().cycle())
                .map(|(byte, mask)| byte ^ mask),
        );
        carried.extend(payload);
        is_fragmented = !is_final;
        for (opcode, length) in &cut.control {
            sent.extend(frame(*opcode, &vec![1; *length]));
        }
    }
    (sent, carried)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_cutting_carries_the_same_bytes(
        cuts in prop::collection::vec(cut(), 0..12),
        portions in prop::collection::vec(1..400_usize, 1..8),
        rooms in prop::collection::vec(1..300_usize, 1..8),
        is_admitted in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (mut sent, carried) = encode(&cuts);
            sent.extend(frame(CLOSE, &[]));
            let (stream, client) = duplex(256);
            let limits = Limits { max_connect_size: 100_000, ..limits() };
            let mut socket = WebSocket::new(stream, Arc::new(AtomicBool::new(is_admitted)), &limits);
            let (mut hear, mut say) = tokio::io::split(client);
            let sending = async {
                let mut rest = &sent[..];
                for portion in portions.iter().cycle() {
                    if rest.is_empty() {
                        break;
                    }
                    let (now, later) = rest.split_at((*portion).min(rest.len()));
                    say.write_all(now).await.unwrap();
                    rest = later;
                }
            };
            let reading = async {
                let mut got = Vec::new();
                for room in rooms.iter().cycle() {
                    let mut part = vec![0; *room];
                    let count = socket.read(&mut part).await.unwrap();
                    if count == 0 {
                        break;
                    }
                    got.extend_from_slice(&part[..count]);
                }
                socket.shutdown().await.unwrap();
                drop(socket);
                got
            };
            let mut answers = Vec::new();
            let all = async { tokio::join!(sending, reading, hear.read_to_end(&mut answers)) };
            let ((), got, _) = timeout(SOON, all).await.unwrap();
            assert!(got == carried);
            let answers = frames_of(&answers);
            let (last, pongs) = answers.split_last().unwrap();
            assert_eq!(last, &(CLOSE, vec![]));
            assert!(pongs.iter().all(|(first, _)| *first == PONG));
        });
    }
}
