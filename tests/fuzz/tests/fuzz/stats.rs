//! Frames of the stat stream, which an autoscaler accepts from any client.

use common::stat::{Stat, WireStatMessage, WireStatMessages};
use common::wire;
use fuzz::{INPUTS, TIME};

/// Goal: no frame causes a panic, and a decoded frame is unchanged after it is encoded and decoded again, as for
/// forwarding.
#[test]
fn any_frame() {
    bolero::check!().with_iterations(INPUTS).with_test_time(TIME).with_type::<Vec<u8>>().for_each(|bytes| {
        if let Ok(messages) = wire::decode(bytes) {
            assert_eq!(wire::decode(&wire::encode(&messages)).map(bits), Ok(bits(messages)));
        }
        let _ = wire::decode_stat(bytes);
    });
}

type Bits = (String, String, Option<(String, [u64; 6])>);

/// Returns messages with floats as bits, because NaN must equal itself.
fn bits(messages: WireStatMessages) -> Vec<Bits> {
    let numbers = |stat: Stat| {
        let floats = [
            stat.average_concurrent_requests,
            stat.average_proxied_concurrent_requests,
            stat.request_count,
            stat.proxied_request_count,
            stat.process_uptime,
        ];
        let [a, b, c, d, e] = floats.map(f64::to_bits);
        (stat.pod_name, [a, b, c, d, e, stat.timestamp.cast_unsigned()])
    };
    messages.messages.into_iter().map(|m| (m.namespace, m.name, m.stat.map(numbers))).collect()
}

type Fields = (String, String, Option<(String, [f64; 5], i64)>);

/// Goal: a valid frame with changed, missing or repeated parts is rejected or decoded. An unchanged frame is decoded to
/// what was encoded.
#[test]
fn any_damaged_frame() {
    let parts = bolero::generator::produce::<(Vec<Fields>, Vec<(u16, u8)>, u16)>();
    bolero::check!().with_iterations(INPUTS).with_test_time(TIME).with_generator(parts).for_each(
        |(entries, changes, cut)| {
            let messages = entries.iter().map(|(namespace, name, stat)| WireStatMessage {
                namespace: namespace.clone(),
                name: name.clone(),
                stat: stat.as_ref().map(|(pod_name, [a, b, c, d, e], timestamp)| Stat {
                    pod_name: pod_name.clone(),
                    average_concurrent_requests: *a,
                    average_proxied_concurrent_requests: *b,
                    request_count: *c,
                    proxied_request_count: *d,
                    process_uptime: *e,
                    timestamp: *timestamp,
                }),
                ..WireStatMessage::default()
            });
            let messages = WireStatMessages { messages: messages.collect() };
            let mut frame = wire::encode(&messages);
            assert_eq!(wire::decode(&frame).map(bits), Ok(bits(messages)));
            for (at, byte) in changes {
                let length = frame.len();
                if let Some(changed) = frame.get_mut(usize::from(*at) % length.max(1)) {
                    *changed = *byte;
                }
            }
            frame.truncate(frame.len().saturating_sub(usize::from(*cut) % 16));
            if let Ok(decoded) = wire::decode(&frame) {
                assert_eq!(wire::decode(&wire::encode(&decoded)).map(bits), Ok(bits(decoded)));
            }
        },
    );
}
