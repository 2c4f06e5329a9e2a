//! What a client is sent.

use super::*;

async fn poll_vectored(
    socket: &mut WebSocket<DuplexStream>,
    pieces: &[&[u8]],
) -> io::Result<usize> {
    let slices: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
    poll_fn(|context| Pin::new(&mut *socket).poll_write_vectored(context, &slices)).await
}

/// Whether a write of `bytes` is ready now.
async fn is_ready(socket: &mut WebSocket<DuplexStream>, bytes: &[u8]) -> bool {
    let mut socket = Pin::new(socket);
    poll_fn(|context| Poll::Ready(socket.as_mut().poll_write(context, bytes).is_ready())).await
}

#[tokio::test]
async fn a_write_is_one_binary_frame_that_is_not_masked() {
    let (mut socket, client) = open(1 << 20, true);
    for length in [1, 125, 126, 65_535] {
        assert_eq!(
            poll_vectored(&mut socket, &[&vec![9; length]])
                .await
                .unwrap(),
            length
        );
    }
    let mut written = 0;
    let pieces: Vec<&[u8]> = vec![b"a", b"", b"bc", &[7; 200]];
    // This stream takes one piece a call.
    while written < 203 {
        let rest = pieces.concat().split_off(written);
        written += poll_vectored(&mut socket, &[&rest]).await.unwrap();
    }
    let sent = sent_at_the_end(socket, client).await;
    let lengths: Vec<_> = sent
        .iter()
        .map(|(first, payload)| (*first, payload.len()))
        .collect();
    let binary = |length| (BINARY, length);
    assert_eq!(
        lengths,
        [
            binary(1),
            binary(125),
            binary(126),
            binary(65_535),
            binary(203),
            (CLOSE, 2)
        ]
    );
    assert_eq!(sent[4].1, pieces.concat());
    assert_eq!(sent[5].1, 1_000_u16.to_be_bytes());
}

#[tokio::test]
async fn pieces_go_out_as_one_frame_without_a_copy() {
    let mut slices = [IoSlice::new(&[]); MAX_PIECES + 1];
    let pieces = [
        IoSlice::new(b"ab"),
        IoSlice::new(b""),
        IoSlice::new(b"cdef"),
    ];
    let count = gather(&mut slices, b"HD", &pieces, 4);
    let gathered: Vec<&[u8]> = slices[..count].iter().map(|slice| &**slice).collect();
    assert_eq!(gathered, [&b"HD"[..], b"ab", b"cd"]);
    assert_eq!(gathered[1].as_ptr(), pieces[0].as_ptr());
    assert_eq!(gather(&mut slices, b"", &pieces, 2), 1);
    let many = vec![IoSlice::new(b"x"); MAX_PIECES];
    assert_eq!(gather(&mut slices, b"HD", &many, 1_000), MAX_PIECES + 1);
}

#[tokio::test]
async fn a_long_write_is_cut_into_frames() {
    let (mut socket, client) = open(1 << 20, true);
    let bytes: Vec<u8> = (0..200_000_u32).map(|n| n as u8).collect();
    socket.write_all(&bytes).await.unwrap();
    let sent = sent_at_the_end(socket, client).await;
    let data: Vec<_> = sent.iter().filter(|(first, _)| *first == BINARY).collect();
    assert_eq!(data.len(), 4);
    let whole: Vec<u8> = data
        .iter()
        .flat_map(|(_, payload)| payload.clone())
        .collect();
    assert_eq!(whole, bytes);
}

#[tokio::test]
async fn a_socket_that_takes_nothing_makes_the_writer_wait_and_nothing_is_kept_for_it() {
    let (mut socket, mut client) = open(10, true);
    assert_eq!(poll_vectored(&mut socket, &[&[1; 100]]).await.unwrap(), 8);
    let rest = [1; 92];
    for _ in 0..100 {
        assert!(!is_ready(&mut socket, &rest).await);
    }
    assert!(socket.head.is_empty());
    let mut some = [0; 10];
    client.read_exact(&mut some).await.unwrap();
    assert_eq!(some, [BINARY, 100, 1, 1, 1, 1, 1, 1, 1, 1]);
    assert_eq!(poll_vectored(&mut socket, &[&rest]).await.unwrap(), 10);
}

#[tokio::test]
async fn a_write_that_was_dropped_after_its_header_goes_on_with_its_bytes() {
    let (mut socket, mut client) = open(2, true);
    assert!(!is_ready(&mut socket, b"hello").await);
    let mut sent = vec![0; 2];
    client.read_exact(&mut sent).await.unwrap();
    let reading = client.read_to_end(&mut sent);
    let writing = async {
        socket.write_all(b"hello").await.unwrap();
        socket.write_all(b"you").await.unwrap();
        socket.shutdown().await.unwrap();
        drop(socket);
    };
    let (result, ()) = tokio::join!(reading, writing);
    result.unwrap();
    let sent = frames_of(&sent);
    assert_eq!(
        sent[..2],
        [(BINARY, b"hello".to_vec()), (BINARY, b"you".to_vec())]
    );
}

#[tokio::test]
async fn a_pong_waits_until_the_data_frame_is_finished() {
    let (mut socket, mut client) = open(12, true);
    assert_eq!(poll_vectored(&mut socket, &[&[1; 20]]).await.unwrap(), 10);
    client.write_all(&frame(0x89, b"?")).await.unwrap();
    client.write_all(&frame(BINARY, b"x")[..5]).await.unwrap();
    let mut room = [0; 8];
    let ready = timeout(Duration::from_millis(50), socket.read(&mut room)).await;
    assert!(ready.is_err(), "there is no whole frame yet");
    let mut sent = Vec::new();
    let writing = async {
        socket.write_all(&[1; 10]).await.unwrap();
        socket.flush().await.unwrap();
        socket.shutdown().await.unwrap();
        drop(socket);
    };
    let (result, ()) = tokio::join!(client.read_to_end(&mut sent), writing);
    result.unwrap();
    let close = (CLOSE, 1_000_u16.to_be_bytes().to_vec());
    assert_eq!(
        frames_of(&sent),
        [(BINARY, vec![1; 20]), (PONG, b"?".to_vec()), close]
    );
}

#[tokio::test]
async fn nothing_is_written_after_a_close_but_the_rest_of_a_frame() {
    let (mut socket, mut client) = open(12, true);
    assert_eq!(poll_vectored(&mut socket, &[&[1; 20]]).await.unwrap(), 10);
    client.write_all(&frame(CLOSE, b"")).await.unwrap();
    assert_eq!(read_all(&mut socket).await, (vec![], None));
    let mut sent = Vec::new();
    let writing = async {
        socket.write_all(&[1; 10]).await.unwrap();
        let error = socket.write_all(b"more").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        socket.shutdown().await.unwrap();
        drop(socket);
    };
    let (result, ()) = tokio::join!(client.read_to_end(&mut sent), writing);
    result.unwrap();
    assert_eq!(frames_of(&sent), [(BINARY, vec![1; 20]), (CLOSE, vec![])]);
}

#[tokio::test]
async fn a_close_in_the_middle_of_a_data_frame_only_ends_the_stream() {
    let (mut socket, mut client) = open(12, true);
    assert_eq!(poll_vectored(&mut socket, &[&[1; 20]]).await.unwrap(), 10);
    timeout(SOON, socket.shutdown()).await.unwrap().unwrap();
    drop(socket);
    let mut sent = Vec::new();
    client.read_to_end(&mut sent).await.unwrap();
    assert_eq!(sent.len(), 12);
}
