//! Faults in events of the collector, and of tasks, regions and logs.

use super::Verdict::{self, Crash, Refused, Valid};
use super::bytes::{Events, changed as change, event, with};
use crate::event::EventType as E;

pub(super) fn cases() -> Vec<(&'static str, Vec<u8>, Verdict)> {
    [collector(), annotations()].into_iter().flatten().collect()
}

fn collector() -> Vec<(&'static str, Vec<u8>, Verdict)> {
    let own = |events: Events<'_>| with("end", events);
    let idle = |events: Events<'_>| with("end2", events);
    let other = |tick: u64| {
        change(|t| {
            t.remove("gcdone");
            t.insert("block2", tick, E::GcDone, &[])
        })
    };
    vec![
        (
            "the first GC has number 1",
            change(|t| t.args("gcstart", &[1, 6])),
            Refused("no consistent ordering of events possible"),
        ),
        ("a second GC has number 1", own(&[(123, E::GcStart, &[1, 6]), (124, E::GcDone, &[])]), Valid),
        (
            "GC in a GC",
            with("gcstart", &[(73, E::GcStart, &[1, 6])]),
            Refused("previous GC is not ended before a new one"),
        ),
        ("GCDone twice", own(&[(123, E::GcDone, &[])]), Refused("bogus GC end")),
        (
            "GCDone on another P, in the same tick",
            change(|t| {
                t.remove("gcdone").tick("log", 95).tick("gcstart", 96);
                t.tick("block2", 90).insert("block2", 96, E::GcDone, &[])
            }),
            Refused("bogus GC end"),
        ),
        ("GCDone on another P", other(112), Valid),
        ("the end in a GC", change(|t| t.remove("gcdone")), Crash("a GC is not ended")),
        ("STW", own(&[(123, E::StwStart, &[0]), (124, E::StwDone, &[])]), Valid),
        (
            "STW of kind 7",
            own(&[(123, E::StwStart, &[7]), (124, E::StwDone, &[])]),
            Refused("unknown STW kind 7"),
        ),
        ("STWDone alone", own(&[(124, E::StwDone, &[])]), Refused("bogus STW end")),
        (
            "STW in an STW",
            own(&[(123, E::StwStart, &[0]), (124, E::StwStart, &[0])]),
            Refused("previous STW is not ended before a new one"),
        ),
        ("the end in an STW", own(&[(123, E::StwStart, &[0])]), Crash("an STW is not ended")),
        ("sweeping", own(&[(123, E::GcSweepStart, &[6]), (124, E::GcSweepDone, &[1, 1])]), Valid),
        ("sweeping ends twice", own(&[(124, E::GcSweepDone, &[1, 1])]), Refused("bogus sweeping end")),
        (
            "sweeping begins twice",
            own(&[(123, E::GcSweepStart, &[6]), (124, E::GcSweepStart, &[6])]),
            Refused("previous sweeping is not ended before a new one"),
        ),
        (
            "the end while sweeping",
            own(&[(123, E::GcSweepStart, &[6])]),
            Crash("sweeping on p 0 is not ended"),
        ),
        ("assist", own(&[(123, E::GcMarkAssistStart, &[6]), (124, E::GcMarkAssistDone, &[])]), Valid),
        ("assist that began before", own(&[(124, E::GcMarkAssistDone, &[])]), Valid),
        (
            "assist begins twice",
            own(&[(123, E::GcMarkAssistStart, &[6]), (124, E::GcMarkAssistStart, &[6])]),
            Refused("previous mark assist is not ended before a new one"),
        ),
        ("the end in an assist", own(&[(123, E::GcMarkAssistStart, &[6])]), Valid),
        (
            "STW on a P that runs nothing",
            idle(&[(466, E::StwStart, &[0]), (467, E::StwDone, &[])]),
            Crash("GCSTWStart on a P that runs no goroutine"),
        ),
        (
            "assist on a P that runs nothing",
            idle(&[(466, E::GcMarkAssistStart, &[6]), (467, E::GcMarkAssistDone, &[])]),
            Crash("GCMarkAssistStart on a P that runs no goroutine"),
        ),
        (
            "sweeping on a P that runs nothing",
            idle(&[(466, E::GcSweepStart, &[6]), (467, E::GcSweepDone, &[1, 1])]),
            Valid,
        ),
        (
            "STW ends on a P that runs nothing",
            change(|t| t.insert("end", 123, E::StwStart, &[0]).insert("end2", 466, E::StwDone, &[])),
            Crash("GCSTWDone on a P that runs no goroutine"),
        ),
        (
            "assist ends on a P that runs nothing",
            idle(&[(467, E::GcMarkAssistDone, &[])]),
            Crash("GCMarkAssistDone on a P that runs no goroutine"),
        ),
    ]
}

fn annotations() -> Vec<(&'static str, Vec<u8>, Verdict)> {
    let idle = |events: Events<'_>| with("end2", events);
    let misuse = Refused("misuse of region in goroutine 1");
    vec![
        (
            "a task twice",
            with("task", &[(53, E::UserTaskCreate, &[1, 0, 7, 6])]),
            Refused("task id conflicts (id:1)"),
        ),
        ("a task again", with("taskend", &[(128, E::UserTaskCreate, &[1, 0, 7, 6])]), Valid),
        ("the end of an unknown task", with("taskend", &[(128, E::UserTaskEnd, &[5, 6])]), Valid),
        (
            "a task ends elsewhere",
            change(|t| t.remove("taskend").insert("restart2", 440, E::UserTaskEnd, &[1, 5])),
            Valid,
        ),
        ("a task of an unknown one", with("task", &[(53, E::UserTaskCreate, &[2, 9, 7, 6])]), Valid),
        (
            "task 0, of another",
            with("task", &[(53, E::UserTaskCreate, &[0, 1, 7, 6])]),
            Crash("task 0 is created"),
        ),
        ("a task of its own", change(|t| t.args("task", &[1, 1, 7, 6])), Crash("task 1 is part of itself")),
        (
            "two tasks of each other",
            with("task", &[(53, E::UserTaskCreate, &[2, 3, 7, 6]), (54, E::UserTaskCreate, &[3, 2, 7, 6])]),
            Crash("task 2 is part of itself"),
        ),
        ("a task on a P that runs nothing", idle(&[(466, E::UserTaskCreate, &[2, 0, 7, 0])]), Valid),
        ("a region of another name", change(|t| t.args("end", &[1, 1, 9, 6])), misuse),
        ("a region of another task", change(|t| t.args("end", &[0, 1, 8, 6])), misuse),
        ("a region that began before", change(|t| t.remove("begin")), Valid),
        (
            "a region ends elsewhere",
            change(|t| t.remove("end").insert("restart2", 440, E::UserRegion, &[1, 1, 8, 5])),
            Valid,
        ),
        ("a region that does not end", change(|t| t.remove("end")), Valid),
        (
            "regions that overlap",
            change(|t| {
                t.insert("begin", 58, E::UserRegion, &[1, 0, 9, 6]).insert(
                    "end",
                    123,
                    E::UserRegion,
                    &[1, 1, 9, 6],
                )
            }),
            misuse,
        ),
        (
            "a region without a stack",
            change(|t| t.args("begin", &[1, 0, 8, 0])),
            Crash("a region begins without a stack"),
        ),
        (
            "a region of an undefined stack",
            change(|t| t.args("begin", &[1, 0, 8, 99])),
            Crash("a region begins without a stack"),
        ),
        ("a region that ends without a stack", change(|t| t.args("end", &[1, 1, 8, 0])), Valid),
        ("a goroutine of a region", with("begin", &[(58, E::GoCreate, &[5, 3, 2])]), Valid),
        (
            "a goroutine of a region, without a stack",
            change(|t| {
                t.insert("begin", 58, E::GoCreate, &[5, 3, 0]);
                t.insert_all("sleep1", &[(449, E::GoStartLocal, &[5]), (450, E::GoEnd, &[])])
            }),
            Crash("g 5 is created without a stack, in a region of task 1"),
        ),
        (
            "a goroutine of a region of no task, without a stack",
            change(|t| {
                t.args("begin", &[0, 0, 8, 6]).args("end", &[0, 1, 8, 6]);
                t.insert("begin", 58, E::GoCreate, &[5, 3, 0]);
                t.insert_all("sleep1", &[(449, E::GoStartLocal, &[5]), (450, E::GoEnd, &[])])
            }),
            Valid,
        ),
        (
            "a goroutine of a goroutine of a region, without a stack",
            change(|t| {
                // g2 is created in the region, and creates g5.
                t.remove("begin").insert("start1", 22, E::UserRegion, &[1, 0, 8, 6]);
                t.insert("restart2", 440, E::GoCreate, &[5, 3, 0]);
                t.insert_all("sleep1", &[(449, E::GoStart, &[5, 1]), (450, E::GoEnd, &[])])
            }),
            Crash("g 5 is created without a stack, in a region of task 1"),
        ),
        (
            "regions one in another",
            with("begin", &[(58, E::UserRegion, &[1, 0, 9, 6]), (59, E::UserRegion, &[1, 1, 9, 6])]),
            Valid,
        ),
        (
            "a region of mode 2",
            with("begin", &[(58, E::UserRegion, &[1, 2, 8, 6])]),
            Refused("invalid user region mode"),
        ),
        (
            "a region on a P that runs nothing",
            idle(&[(466, E::UserRegion, &[0, 0, 8, 0]), (467, E::UserRegion, &[0, 1, 8, 0])]),
            Crash("UserRegion on a P that runs no goroutine"),
        ),
        (
            "a region ends on a P that runs nothing",
            idle(&[(467, E::UserRegion, &[0, 1, 8, 0])]),
            Crash("UserRegion on a P that runs no goroutine"),
        ),
        (
            "a log on a P that runs nothing",
            change(|t| {
                t.insert_raw("end2", &[event(E::UserLog, 0, &[0, 9, 0]), b"\x02hi".to_vec()].concat())
            }),
            Valid,
        ),
    ]
}
