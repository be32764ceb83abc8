//! The threads of this process, as the kernel sees them.

use std::path::Path;

/// Returns the kernel's id of this thread.
pub fn thread_id() -> i32 {
    // SAFETY: a plain system call.
    unsafe { libc::gettid() }
}

/// Returns the nice value of each thread of this name: 0 by default, 19 at most.
pub fn nice_values(name: &str) -> Vec<i64> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux tells");
    let tasks = tasks.map(|task| task.expect("Linux tells").path());
    let is_named =
        |task: &Path| std::fs::read_to_string(task.join("comm")).is_ok_and(|known| known.trim_end() == name);
    tasks.filter(|task| is_named(task)).filter_map(|task| nice_value(&task)).collect()
}

/// Returns the nice value of the current thread.
pub fn own_nice_value() -> i64 {
    nice_value(Path::new("/proc/thread-self")).expect("Linux tells")
}

/// Returns the nice value of a thread; `None` if the thread has ended.
fn nice_value(task: &Path) -> Option<i64> {
    let stat = std::fs::read_to_string(task.join("stat")).ok()?;
    // After the name, which may contain any character, nice is the seventeenth field.
    let after = stat.rsplit_once(')').expect("the name ends").1;
    Some(after.split_whitespace().nth(16).and_then(|nice| nice.parse().ok()).expect("a number"))
}
