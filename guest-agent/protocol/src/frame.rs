// SPDX-License-Identifier: MIT OR Apache-2.0
//! How messages lie on the virtio-serial port: one frame each, so that the host notices whatever was
//! lost, cut or changed on the way.
//!
//! | bytes | content |
//! |---|---|
//! | 4 | `TWBT` |
//! | 4 | sequence number: 0, 1, 2 and so on (little endian, as all numbers here) |
//! | 4 | length of the payload |
//! | 4 | CRC-32 (IEEE) over sequence number, length and payload |
//! | length | payload: the message as JSON |
//!
//! [`encode`] is the sender's side, mostly the guest's, and [`Decoder`] the receiver's. Neither reads or writes anything, and
//! neither knows in which order messages make sense.

use std::error::Error;
use std::fmt;
use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Message;

/// What every frame begins with.
pub const MAGIC: [u8; 4] = *b"TWBT";

/// The longest payload, in bytes. A longer one can only be a damaged length.
pub const PAYLOAD_LIMIT: u32 = 16 << 20;

const HEADER: usize = 16;

/// Why the bytes are not the frames that an agent sent.
#[derive(Debug)]
pub enum FrameError {
    /// Something else stands where a frame should begin.
    NoMagic {
        /// What stands there.
        found: Vec<u8>,
    },
    /// The payload would be longer than [`PAYLOAD_LIMIT`].
    TooLong {
        /// The length that the frame states, in bytes.
        length: u32,
    },
    /// The content does not match its checksum.
    Damaged {
        /// The sequence number that the frame states.
        sequence: u32,
    },
    /// One or more frames are missing.
    Gap {
        /// The sequence number that was due.
        expected: u32,
        /// The one that came.
        found: u32,
    },
    /// The frame is whole, but its payload is no message of this protocol.
    NotAMessage {
        /// The frame's sequence number.
        sequence: u32,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

impl fmt::Display for FrameError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMagic { found } => {
                write!(formatter, "a frame should begin, but `{}` stands there", found.escape_ascii())
            }
            Self::TooLong { length } => {
                write!(formatter, "a frame states a length of {length} bytes, above {PAYLOAD_LIMIT}")
            }
            Self::Damaged { sequence } => write!(formatter, "frame {sequence} does not match its checksum"),
            Self::Gap { expected, found } => {
                write!(formatter, "frame {found} came where frame {expected} was due")
            }
            Self::NotAMessage { sequence, .. } => {
                write!(formatter, "frame {sequence} is no message of this protocol")
            }
        }
    }
}

impl Error for FrameError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::NotAMessage { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// One message as a frame.
#[must_use]
pub fn encode<T: Serialize>(sequence: u32, message: &T) -> Vec<u8> {
    let payload = serde_json::to_vec(message).expect("a message has no map, and so no key that is not text");
    let length = u32::try_from(payload.len()).expect("a message is far below 4 GiB");
    let mut frame = Vec::with_capacity(HEADER + payload.len());
    frame.extend(MAGIC);
    frame.extend(sequence.to_le_bytes());
    frame.extend(length.to_le_bytes());
    frame.extend(checksum(sequence, length, &payload).to_le_bytes());
    frame.extend(payload);
    frame
}

/// Takes bytes as they come and gives messages. After an error it gives the same error again: nothing
/// behind a damaged frame can be trusted.
#[derive(Debug)]
pub struct Decoder<T = Message> {
    buffer: Vec<u8>,
    /// Where the first byte that no message was made of lies in the buffer.
    start: usize,
    sequence: u32,
    messages: PhantomData<T>,
}

impl<T> Default for Decoder<T> {
    fn default() -> Self {
        Self::waiting_for(0)
    }
}

impl<T> Decoder<T> {
    /// A decoder that waits for frame 0.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A decoder for a stream that goes on with this frame.
    #[must_use]
    pub fn waiting_for(sequence: u32) -> Self {
        Self { buffer: Vec::new(), start: 0, sequence, messages: PhantomData }
    }

    /// Appends what was read.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.start);
        self.start = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next message with the payload that it was read from, or nothing while its frame is not whole.
    #[expect(clippy::should_implement_trait, reason = "nothing means not yet, which is no iterator's end")]
    pub fn next(&mut self) -> Result<Option<(Vec<u8>, T)>, FrameError>
    where
        T: DeserializeOwned,
    {
        let rest = &self.buffer[self.start..];
        let begin = &rest[..rest.len().min(MAGIC.len())];
        if !MAGIC.starts_with(begin) {
            return Err(FrameError::NoMagic { found: begin.to_vec() });
        }
        let Some((header, rest)) = rest.split_first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let [sequence, length, stated] = [4, 8, 12].map(|at| number(header, at));
        if PAYLOAD_LIMIT < length {
            return Err(FrameError::TooLong { length });
        }
        let Some(payload) = rest.get(..length as usize) else {
            return Ok(None);
        };
        if checksum(sequence, length, payload) != stated {
            return Err(FrameError::Damaged { sequence });
        }
        if sequence != self.sequence {
            return Err(FrameError::Gap { expected: self.sequence, found: sequence });
        }
        let message =
            serde_json::from_slice(payload).map_err(|source| FrameError::NotAMessage { sequence, source })?;
        let payload = payload.to_vec();
        self.start += HEADER + payload.len();
        self.sequence += 1;
        Ok(Some((payload, message)))
    }

    /// Bytes of a frame that is not whole. Anything but 0 at the end means that the guest was cut off.
    #[must_use]
    pub fn left_over(&self) -> usize {
        self.buffer.len() - self.start
    }
}

fn checksum(sequence: u32, length: u32, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&sequence.to_le_bytes());
    hasher.update(&length.to_le_bytes());
    hasher.update(payload);
    hasher.finalize()
}

fn number(header: &[u8; HEADER], at: usize) -> u32 {
    u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Histogram, Machine, Phase, WorkloadResult};

    fn messages() -> Vec<Message> {
        let mut latency = Histogram::new();
        [0, 7, 7_190, 1 << 40, u64::MAX].into_iter().for_each(|value| latency.record(value));
        let machine = Machine { command_line: "quiet \"ä\n".to_owned(), ..Machine::default() };
        vec![
            Message::Hello { protocol: crate::PROTOCOL, agent: "0.1.0".to_owned() },
            Message::Machine(Box::new(machine)),
            Message::Phase { phase: Phase::WindowOpen, guest_ns: u64::MAX },
            Message::Result(Box::new(WorkloadResult::Pingpong {
                name: "wake".to_owned(),
                expected: 5,
                latency,
                window_ns: 1,
            })),
            Message::Done { results: 1 },
        ]
    }

    fn stream(messages: &[Message]) -> Vec<u8> {
        (0..).zip(messages).flat_map(|(sequence, message)| encode(sequence, message)).collect()
    }

    /// All messages up to the end or the first error, in words.
    fn decode(pieces: &[&[u8]]) -> (Vec<Message>, String) {
        let mut decoder = Decoder::<Message>::new();
        let mut decoded = Vec::new();
        for piece in pieces {
            decoder.push(piece);
            loop {
                match decoder.next() {
                    Ok(Some((payload, message))) => {
                        assert_eq!(payload, serde_json::to_vec(&message).unwrap());
                        decoded.push(message);
                    }
                    Ok(None) => break,
                    Err(error) => {
                        assert_eq!(decoder.next().unwrap_err().to_string(), error.to_string());
                        return (decoded, error.to_string());
                    }
                }
            }
        }
        (decoded, format!("{} left over", decoder.left_over()))
    }

    fn check(bytes: &[u8], expected: (&[Message], &str)) {
        assert_eq!(decode(&[bytes]), (expected.0.to_vec(), expected.1.to_owned()));
    }

    #[test]
    fn layout_is_fixed() {
        let frame = encode(1, &Message::Done { results: 2 });
        let payload = br#"{"done":{"results":2}}"#;
        assert_eq!(frame[..12], *b"TWBT\x01\0\0\0\x16\0\0\0");
        assert_eq!(frame[16..], *payload);
        assert_eq!(frame[12..16], crc32fast::hash(&[&frame[4..12], payload].concat()).to_le_bytes());
    }

    #[test]
    fn whole_streams_come_back() {
        let messages = messages();
        check(&stream(&messages), (&messages, "0 left over"));
        check(b"", (&[], "0 left over"));
    }

    #[test]
    fn every_split_gives_the_same_messages() {
        let messages = messages();
        let bytes = stream(&messages);
        for at in 0..=bytes.len() {
            let (first, second) = bytes.split_at(at);
            assert_eq!(
                decode(&[first, second]),
                (messages.clone(), "0 left over".to_owned()),
                "split at {at}"
            );
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(decode(&single), (messages, "0 left over".to_owned()));
    }

    #[test]
    fn every_truncation_shows() {
        let messages = messages();
        let bytes = stream(&messages);
        let ends: Vec<usize> = (0..=messages.len()).map(|count| stream(&messages[..count]).len()).collect();
        for at in 0..bytes.len() {
            let whole = ends.iter().rposition(|end| *end <= at).unwrap();
            let expected = format!("{} left over", at - ends[whole]);
            check(&bytes[..at], (&messages[..whole], &expected));
        }
    }

    #[test]
    fn no_flipped_bit_goes_unnoticed() {
        let messages = messages();
        let bytes = stream(&messages);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let (decoded, end) = decode(&[&flipped]);
            assert_ne!(end, "0 left over", "bit {bit}");
            assert_eq!(decoded, messages[..decoded.len()], "bit {bit}");
        }
    }

    #[test]
    fn errors_say_what_is_wrong() {
        let done = Message::Done { results: 0 };
        let mut long = encode(0, &done);
        long[8..12].copy_from_slice(&(PAYLOAD_LIMIT + 1).to_le_bytes());
        let mut damaged = encode(0, &done);
        damaged[20] ^= 1;
        check(b"T\nWBT", (&[], "a frame should begin, but `T\\nWB` stands there"));
        check(b"x", (&[], "a frame should begin, but `x` stands there"));
        check(&long, (&[], "a frame states a length of 16777217 bytes, above 16777216"));
        check(&damaged, (&[], "frame 0 does not match its checksum"));
        check(&encode(1, &done), (&[], "frame 1 came where frame 0 was due"));
        let gap = [encode(0, &done), encode(2, &done)].concat();
        check(&gap, (std::slice::from_ref(&done), "frame 2 came where frame 1 was due"));
        let twice = [encode(0, &done), encode(0, &done)].concat();
        check(&twice, (&[done], "frame 0 came where frame 1 was due"));
    }

    #[test]
    fn a_strange_payload_is_no_message() {
        let payload = b"{}";
        let mut frame = MAGIC.to_vec();
        frame.extend(0_u32.to_le_bytes());
        frame.extend(2_u32.to_le_bytes());
        frame.extend(checksum(0, 2, payload).to_le_bytes());
        frame.extend(payload);
        check(&frame, (&[], "frame 0 is no message of this protocol"));
    }
}
