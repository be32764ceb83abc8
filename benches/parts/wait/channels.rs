//! Channels of std and of rtprof: a message back and forth, and many messages in one direction.

use rtprof_benches::team::{Placement, Team};

use crate::Done;

type PingPong = fn(&Team, Placement, (usize, usize), usize) -> Done;
type Stream = fn(&Team, Placement, Option<usize>, usize) -> Done;

pub(crate) fn ping_pong(whose: &str) -> PingPong {
    match whose {
        "rtprof" => ours::ping_pong,
        "std" => of_std::ping_pong,
        other => panic!("unknown channel {other}"),
    }
}

pub(crate) fn stream(whose: &str) -> Stream {
    match whose {
        "rtprof" => ours::stream,
        "std" => of_std::stream,
        other => panic!("unknown channel {other}"),
    }
}

macro_rules! channels {
    ($name:ident, $mpsc:path) => {
        mod $name {
            use std::sync::atomic::{AtomicU64, Ordering};
            use std::sync::{Arc, Mutex};
            use std::time::Instant;

            use rtprof_benches::descent::at_depth;
            use rtprof_benches::team::{Placement, Team};
            use $mpsc::{Receiver, SyncSender, channel, sync_channel};

            use crate::{Done, warm_up};

            /// Makes `count` round trips between two threads.
            pub(super) fn ping_pong(
                team: &Team,
                place: Placement,
                (way, depth): (usize, usize),
                count: usize,
            ) -> Done {
                let ((ping, pings), (pong, pongs)) = (channel::<usize>(), channel::<usize>());
                // The members learn their numbers only when they run.
                let ends = Mutex::new([Some((pong, pings)), Some((ping, pongs))]);
                let nanos = Arc::new(AtomicU64::new(0));
                let result = Arc::clone(&nanos);
                team.run(2, place, move |me| {
                    let (to, from) = ends.lock().expect("nobody panics")[me].take().expect("one job each");
                    at_depth(way, depth, &mut || {
                        let mut start = Instant::now();
                        for i in 0..warm_up(count) + count {
                            if i == warm_up(count) {
                                start = Instant::now();
                            }
                            if me == 0 {
                                let message = from.recv().expect("the other one sends");
                                to.send(message).expect("the other one receives");
                            } else {
                                to.send(i).expect("the other one receives");
                                assert_eq!(from.recv(), Ok(i));
                            }
                        }
                        if me == 1 {
                            result.store(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
                        }
                    });
                });
                Done {
                    nanos: nanos.load(Ordering::Relaxed) as f64 / count as f64,
                    operations: (warm_up(count) + count) as f64,
                }
            }

            /// Sends `count` messages from one thread to another.
            pub(super) fn stream(team: &Team, place: Placement, bound: Option<usize>, count: usize) -> Done {
                match bound {
                    Some(bound) => {
                        let (to, from) = sync_channel(bound);
                        through(team, place, (to, from), SyncSender::send, count)
                    }
                    None => {
                        let (to, from) = channel();
                        through(team, place, (to, from), |to, message| to.send(message), count)
                    }
                }
            }

            fn through<S: Send + 'static, E: std::fmt::Debug + 'static>(
                team: &Team,
                place: Placement,
                (to, from): (S, Receiver<usize>),
                send: fn(&S, usize) -> Result<(), E>,
                count: usize,
            ) -> Done {
                let (to, from) = (Mutex::new(Some(to)), Mutex::new(Some(from)));
                let nanos = Arc::new(AtomicU64::new(0));
                let result = Arc::clone(&nanos);
                let origin = Instant::now();
                team.run(2, place, move |me| {
                    let now = || origin.elapsed().as_nanos() as u64;
                    if me == 0 {
                        let to = to.lock().expect("nobody panics").take().expect("one job each");
                        for i in 0..warm_up(count) + count {
                            if i == warm_up(count) {
                                result.fetch_sub(now(), Ordering::Relaxed);
                            }
                            send(&to, i).expect("the other one receives");
                        }
                    } else {
                        let from = from.lock().expect("nobody panics").take().expect("one job each");
                        assert_eq!(from.iter().count(), warm_up(count) + count);
                        result.fetch_add(now(), Ordering::Relaxed);
                    }
                });
                Done {
                    nanos: nanos.load(Ordering::Relaxed) as f64 / count as f64,
                    operations: (warm_up(count) + count) as f64,
                }
            }
        }
    };
}

channels!(ours, rtprof::sync::mpsc);
channels!(of_std, std::sync::mpsc);
