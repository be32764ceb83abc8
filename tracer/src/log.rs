//! Log messages in the trace.

use crate::record::cut;
use crate::task;
use crate::thread::{is_enabled, record_any};

/// Writes a message of a category to the trace, for the current goroutine and the current [`Task`](crate::Task), if
/// there is one. At most 1,024 bytes of each text are kept. While nothing is recorded this is one load. Go:
/// `trace.Log`.
///
/// May be called in a signal handler. If the handler interrupts another event, the message belongs to no goroutine.
#[inline]
pub fn log(category: &str, message: &str) {
    if is_enabled() {
        write(category, message);
    }
}

#[cold]
#[inline(never)]
fn write(category: &str, message: &str) {
    record_any(|writer| {
        if !writer.count_if_lost() {
            let (category, stack) = (writer.string(category), writer.stack());
            writer.write_log(task::current(), category, stack, cut(message).as_bytes());
        }
    });
}
