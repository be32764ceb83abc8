//! Faults in events of goroutines and Ps.

use super::Verdict::{self, Crash, Misread, Refused, Valid};
use super::bytes::{Events, T0, batch, changed as change, event, with};
use crate::event::{EventType as E, NO_PROC};

const NO_ORDER: Verdict = Refused("no consistent ordering of events possible");
const TIME_ORDER: Verdict = Refused("time stamps out of order");

/// Returns the trace with an additional batch of another P.
fn on(p: u64, events: Events<'_>) -> Vec<u8> {
    change(|t| {
        let mut bytes = batch(p, T0);
        let mut last = 0;
        for &(tick, of, args) in events {
            bytes.extend(event(of, tick - last, args));
            last = tick;
        }
        t.front = bytes;
        t
    })
}

fn samples(samples: &[[u64; 4]]) -> Vec<u8> {
    change(|t| {
        t.samples = batch(0, T0 + 900);
        samples.iter().for_each(|sample| t.samples.extend(event(E::CpuSample, 0, sample)));
        t
    })
}

pub(super) fn cases() -> Vec<(&'static str, Vec<u8>, Verdict)> {
    [goroutines(), procs(), syscalls()].into_iter().flatten().collect()
}

fn goroutines() -> Vec<(&'static str, Vec<u8>, Verdict)> {
    let own = |events: Events<'_>| with("start1", events);
    vec![
        ("g2 is not created", change(|t| t.remove("create2")), NO_ORDER),
        ("g2 is created twice", with("create2", &[(32, E::GoCreate, &[2, 3, 2])]), NO_ORDER),
        ("an ended g is created", with("end3", &[(790, E::GoCreate, &[2, 3, 0])]), NO_ORDER),
        ("g0 is created", own(&[(22, E::GoCreate, &[0, 3, 0])]), Refused("g 0 already exists")),
        ("no start stack", change(|t| t.args("create2", &[2, 0, 2])), Crash("invalid go create event")),
        (
            "an undefined start stack",
            change(|t| t.args("create2", &[2, 99, 2])),
            Crash("expected id 99 in trace.stack table"),
        ),
        ("GoStart twice", with("start2", &[(36, E::GoStart, &[2, 1])]), NO_ORDER),
        ("GoStartLocal of what runs", with("start2", &[(36, E::GoStartLocal, &[2])]), NO_ORDER),
        ("GoStart with number 0", change(|t| t.args("start2", &[2, 0])), NO_ORDER),
        ("GoStart with number 2", change(|t| t.args("start2", &[2, 2])), NO_ORDER),
        ("GoStartLocal on another P", change(|t| t.replace("start2", E::GoStartLocal, &[2])), Valid),
        (
            "GoStartLocal on another P, before the creation",
            change(|t| t.replace("start2", E::GoStartLocal, &[2]).tick("start2", 30)),
            TIME_ORDER,
        ),
        ("GoStart before the creation", change(|t| t.tick("start2", 30)), TIME_ORDER),
        ("GoUnblock with a wrong number", change(|t| t.args("unblock2", &[2, 3, 6])), NO_ORDER),
        ("GoUnblockLocal on another P", change(|t| t.replace("unblock2", E::GoUnblockLocal, &[2, 6])), Valid),
        ("no GoUnblock", change(|t| t.remove("unblock2")), NO_ORDER),
        ("GoUnblock of what does not wait", with("end", &[(123, E::GoUnblock, &[3, 1, 0])]), NO_ORDER),
        ("GoUnblock twice", with("unblock2", &[(428, E::GoUnblock, &[2, 2, 6])]), NO_ORDER),
        ("GoUnblock of an unknown g", with("end", &[(123, E::GoUnblock, &[77, 2, 0])]), NO_ORDER),
        ("GoUnblock of the dead", with("end3", &[(790, E::GoUnblock, &[2, 4, 0])]), NO_ORDER),
        (
            "GoUnblock on a P that runs nothing",
            change(|t| t.remove("unblock2").insert("block2", 427, E::GoUnblock, &[2, 2, 0])),
            Valid,
        ),
        (
            "GoEnd is missing, another starts",
            change(|t| t.remove("end2")),
            Refused("p 1 is already running g 2 while start g 3"),
        ),
        ("GoEnd twice", with("end2", &[(466, E::GoEnd, &[])]), Refused("g 0 did GoEnd")),
        (
            "GoStop on a P that runs nothing",
            with("end2", &[(466, E::GoStop, &[0])]),
            Refused("g 0 did GoStop"),
        ),
        ("GoBlock on a P that runs nothing", with("end2", &[(466, E::GoBlock, &[0])]), NO_ORDER),
        ("two on a P", change(|t| t.tick("sleep1", 458)), TIME_ORDER),
        (
            "two on a P, in order",
            change(|t| t.remove("sleep1")),
            Refused("p 0 is already running g 1 while start g 3"),
        ),
        (
            "GoSched, then the same number",
            change(|t| {
                t.insert_all("start2", &[(40, E::GoSched, &[7]), (41, E::GoStart, &[2, 2])]);
                t.args("unblock2", &[2, 3, 6]).args("restart2", &[2, 4])
            }),
            Valid,
        ),
        (
            "GoSched, then the next number",
            with("start2", &[(40, E::GoSched, &[7]), (41, E::GoStart, &[2, 3])]),
            NO_ORDER,
        ),
        ("GoPreempt at the end", change(|t| t.replace("end3", E::GoPreempt, &[8])), Valid),
        ("GoStop at the end", change(|t| t.replace("end3", E::GoStop, &[8])), Valid),
        (
            "GoStop, then GoStartLocal",
            change(|t| t.replace("end3", E::GoStop, &[8]).insert("end3", 790, E::GoStartLocal, &[3])),
            NO_ORDER,
        ),
        ("GoStartLabel", change(|t| t.replace("start2", E::GoStartLabel, &[2, 1, 10])), Valid),
        (
            "GoStartLabel without its string",
            change(|t| t.replace("start2", E::GoStartLabel, &[2, 1, 98])),
            Crash("expected id 98 in string table: GoStartLabel"),
        ),
        ("g 2^63", own(&[(22, E::GoCreate, &[1 << 63, 3, 0])]), Misread("g 9223372036854775808 is shown")),
        (
            "GoWaiting",
            change(|t| {
                let waiting: Events<'_> = &[(17, E::GoCreate, &[4, 3, 0]), (18, E::GoWaiting, &[4])];
                t.insert_all("create1", waiting)
                    .insert("unblock2", 428, E::GoUnblock, &[4, 2, 6])
                    .insert_all("end3", &[(790, E::GoStart, &[4, 3]), (790, E::GoEnd, &[])])
            }),
            Valid,
        ),
        ("GoWaiting of an unknown g", with("create1", &[(17, E::GoWaiting, &[4])]), NO_ORDER),
        ("GoWaiting of what has run", with("block2", &[(96, E::GoWaiting, &[2])]), NO_ORDER),
        (
            "own wake",
            with(
                "start1",
                &[(22, E::GoBlockCond, &[6]), (23, E::GoUnblockLocal, &[1, 0]), (24, E::GoStartLocal, &[1])],
            ),
            Valid,
        ),
        (
            "the end while g3 runs",
            change(|t| t.remove("end3").remove("p1stop")),
            Crash("g 3 still runs on p 1"),
        ),
        ("GoCreate on no P", on(NO_PROC, &[(12, E::GoCreate, &[9, 3, 0])]), Valid),
        (
            "GoUnblock on no P",
            change(|t| {
                t.remove("unblock2");
                t.front = [batch(NO_PROC, T0 + 427), event(E::GoUnblock, 0, &[2, 2, 0])].concat();
                t
            }),
            Valid,
        ),
        (
            "a futile wake-up",
            with("start2", &[(36, E::FutileWakeup, &[])]),
            Refused("unexpected event type 36"),
        ),
        ("no Gomaxprocs", change(|t| t.remove("gomaxprocs")), Misread("g 1 loses its name")),
        (
            "Gomaxprocs late",
            change(|t| {
                t.tick("gomaxprocs", 10).remove("gomaxprocs").insert("start1", 22, E::Gomaxprocs, &[2, 0])
            }),
            Misread("g 1 loses its name"),
        ),
        ("a sample before the creation", samples(&[[T0 + 25, 1, 2, 7]]), Refused("g 2 already exists")),
        ("a sample when it is created", samples(&[[T0 + 31, 1, 2, 7]]), Refused("g 2 may already exist")),
        ("a sample before everything", samples(&[[T0 + 1, 1, 2, 7]]), Refused("g 2 already exists")),
        (
            "samples of nobody, of unknown ones, and unsorted",
            samples(&[[T0 + 300, NO_PROC, 0, 7], [T0 + 200, 9, 99, 0], [T0 + 100, 1, 2, 7]]),
            Valid,
        ),
    ]
}

fn procs() -> Vec<(&'static str, Vec<u8>, Verdict)> {
    vec![
        (
            "no ProcStart",
            change(|t| t.remove("p1start").remove("p1stop")),
            Crash("p 1 runs g 2 without ProcStart"),
        ),
        (
            "ProcStart twice",
            with("p1start", &[(31, E::ProcStart, &[2])]),
            Refused("p 1 is running before start"),
        ),
        (
            "ProcStop without ProcStart",
            change(|t| t.remove("p1start")),
            Refused("p 1 is not running before stop"),
        ),
        (
            "ProcStop while a goroutine runs",
            with("start2", &[(36, E::ProcStop, &[])]),
            Refused("p 1 is running a goroutine 2 during stop"),
        ),
        (
            "GoStart before ProcStart",
            change(|t| t.remove("p1start").insert("start2", 36, E::ProcStart, &[2])),
            Crash("p 1 runs g 2 without ProcStart"),
        ),
        ("heap on no P", on(NO_PROC, &[(50, E::HeapAlloc, &[5]), (51, E::HeapGoal, &[6])]), Valid),
        ("ProcStart alone", on(7, &[(50, E::ProcStart, &[5])]), Valid),
    ]
}

fn syscalls() -> Vec<(&'static str, Vec<u8>, Verdict)> {
    let own = |events: Events<'_>| with("start1", events);
    let call = |last: Events<'_>| {
        let first: Events<'_> = &[(22, E::GoSysCall, &[6]), (23, E::GoSysBlock, &[])];
        own(&[first, last].concat())
    };
    vec![
        ("GoSysCall that does not block", own(&[(22, E::GoSysCall, &[6])]), Valid),
        ("GoSysBlock without GoSysCall", change(|t| t.remove("syscall3")), Valid),
        (
            "GoSysCall on a P that runs nothing",
            with("end2", &[(466, E::GoSysCall, &[6])]),
            Refused("g 0 did GoSysCall"),
        ),
        ("GoSysExit without GoSysBlock", change(|t| t.remove("sysblock3").remove("p0stop")), NO_ORDER),
        ("GoSysExit at no time", change(|t| t.args("exit3", &[3, 2, 0])), Valid),
        ("GoSysExit before GoSysBlock", change(|t| t.args("exit3", &[3, 2, T0 + 500])), TIME_ORDER),
        (
            "GoSysExit later than it says",
            change(|t| t.args("exit3", &[3, 2, T0 + 780])),
            Refused("g 3 is not runnable before start"),
        ),
        ("GoSysExit with a wrong number", change(|t| t.args("exit3", &[3, 3, 0])), NO_ORDER),
        (
            "GoSysExitLocal",
            change(|t| t.replace("exit3", E::GoSysExitLocal, &[3, 0])),
            Refused("g 0 is not waiting during syscall exit"),
        ),
        (
            "GoSysExit of what waits otherwise",
            change(|t| t.replace("unblock2", E::GoSysExit, &[2, 2, 0])),
            Crash("g 2 leaves a system call that it is not in"),
        ),
        (
            "GoSysExit of what waits otherwise, with a time",
            change(|t| t.replace("unblock2", E::GoSysExit, &[2, 2, T0 + 420])),
            Refused("stray syscall exit"),
        ),
        (
            "GoUnblock of what is in a system call",
            change(|t| t.replace("exit3", E::GoUnblock, &[3, 2, 0])),
            Misread("g 3 is unblocked in a system call"),
        ),
        (
            "another runs after GoSysBlock",
            change(|t| {
                t.insert("create3", 42, E::GoCreate, &[5, 3, 0]).tick("p0stop", 860);
                t.insert_all("sysblock3", &[(518, E::GoStartLocal, &[5]), (850, E::GoEnd, &[])])
            }),
            Crash("p 0 runs g 5 without ProcStop since g 3's GoSysBlock"),
        ),
        (
            "a thread that keeps its P",
            call(&[
                (24, E::ProcStop, &[]),
                (25, E::ProcStart, &[1]),
                (26, E::GoSysExit, &[1, 2, 0]),
                (27, E::GoStartLocal, &[1]),
            ]),
            Valid,
        ),
        (
            "a thread that does not stop its P",
            change(|t| {
                t.insert_all(
                    "start2",
                    &[
                        (36, E::GoSysCall, &[7]),
                        (37, E::GoSysBlock, &[]),
                        (38, E::GoSysExit, &[2, 2, 0]),
                        (39, E::GoStartLocal, &[2]),
                    ],
                );
                t.args("unblock2", &[2, 4, 6]).args("restart2", &[2, 5])
            }),
            Crash("p 1 runs g 2 without ProcStop since g 2's GoSysBlock"),
        ),
        (
            "GoInSyscall",
            change(|t| {
                t.insert_all("create1", &[(17, E::GoCreate, &[4, 3, 0]), (18, E::GoInSyscall, &[4])]);
                t.insert_all(
                    "end3",
                    &[(790, E::GoSysExit, &[4, 2, 0]), (790, E::GoStart, &[4, 3]), (790, E::GoEnd, &[])],
                )
            }),
            Valid,
        ),
    ]
}
