//! What a thread waits for, by the function of the C library in which it waits.
//!
//! The hooks note why a thread waits only while they watch it. Of any other thread the kernel says that it is in a system
//! call, and its stack says in which one.

use rtprof_runtime::goroutine::wait_reason::WaitReason;
use rtprof_runtime::stack::Stack;
use rtprof_symbols::locations::Locations;

/// The most functions from the leaf that are looked at: a few of the C library's own lie between its exported function and the
/// system call.
const NEAR: usize = 5;

/// Returns what a thread with this stack waits for, if a function at its leaf shows it.
pub(crate) fn reason(stack: Stack<'_>, locations: &mut Locations) -> Option<WaitReason> {
    let shown = locations.event_from_leaf(stack);
    let lines = shown.shown().flat_map(|(_, lines)| lines).take(NEAR);
    lines.map(|line| &*line.function.name).find_map(of_call)
}

/// Returns what a function of the C library waits for. `None` for those that may do something else, such as `read`.
fn of_call(name: &str) -> Option<WaitReason> {
    let name = name.trim_start_matches('_').trim_start_matches("libc_");
    Some(match name {
        "nanosleep" | "clock_nanosleep" | "usleep" | "sleep" => WaitReason::Sleep,
        "accept" | "accept4" | "connect" | "recv" | "recvfrom" | "recvmsg" | "send" | "sendmsg"
        | "sendto" => WaitReason::Net,
        "epoll_pwait" | "epoll_pwait2" | "epoll_wait" | "poll" | "ppoll" | "pselect" | "select" => {
            WaitReason::Net
        }
        "pthread_join" | "pthread_timedjoin_np" | "pthread_clockjoin_np" => WaitReason::Join,
        "pthread_mutex_lock" | "pthread_mutex_timedlock" | "pthread_mutex_clocklock" => WaitReason::MutexLock,
        "pthread_rwlock_rdlock" | "pthread_rwlock_timedrdlock" => WaitReason::RwLockRead,
        "pthread_rwlock_wrlock" | "pthread_rwlock_timedwrlock" => WaitReason::RwLockWrite,
        "pthread_cond_wait" | "pthread_cond_timedwait" | "pthread_cond_clockwait" => WaitReason::CondWait,
        "pthread_barrier_wait" => WaitReason::Barrier,
        "sem_wait" | "sem_timedwait" | "sem_clockwait" => WaitReason::Semaphore,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_show_what_they_wait_for() {
        for (name, reason) in [
            ("clock_nanosleep", Some(WaitReason::Sleep)),
            ("__clock_nanosleep", Some(WaitReason::Sleep)),
            ("__libc_accept", Some(WaitReason::Net)),
            ("pthread_cond_wait", Some(WaitReason::CondWait)),
            ("read", None),
            ("syscall", None),
            ("app::sleep", None),
        ] {
            assert_eq!(of_call(name), reason, "{name}");
        }
    }
}
