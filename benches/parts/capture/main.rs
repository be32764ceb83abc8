//! The capture of a stack alone, by our own code and by the methods that a program could use instead.
//!
//! Requests: `depth FRAMES` (answers the recursion that gives our unwinding so many frames),
//! `capture METHOD WAY DEPTH COUNT` (answers ns for one capture and the frames it found).

use std::ffi::{c_int, c_void};
use std::hint::black_box;

use rtprof_benches::descent::{at_depth, depth_for};
use rtprof_benches::processor::Stopwatch;
use rtprof_benches::serve::serve;
use rtprof_runtime::MAX_STACK;

fn main() {
    serve(|request| match request.word() {
        "depth" => {
            let method = method("unwind");
            vec![depth_for(request.number(), timed(method, 0, 1, 1).1) as f64]
        }
        "capture" => {
            let method = method(request.word());
            let way = request.number();
            let depth = request.number();
            let (nanos, frames) = timed(method, way, depth, request.number());
            vec![nanos, frames as f64]
        }
        other => panic!("unknown request {other}"),
    });
}

/// A method of capture: writes addresses into the frames and returns their number.
type Method = fn(&mut [usize; MAX_STACK]) -> usize;

fn method(word: &str) -> Method {
    // The mode is set here, outside the measured loop.
    match word {
        "auto" => {
            rtprof::set_stack_mode(rtprof::StackMode::Auto);
            ours
        }
        "frame-pointers" => {
            rtprof::set_stack_mode(rtprof::StackMode::FramePointers);
            ours
        }
        "unwind" => {
            rtprof::set_stack_mode(rtprof::StackMode::Unwind);
            ours
        }
        "backtrace" => backtrace_locked,
        "backtrace-unsynchronized" => backtrace_unsynchronized,
        "unwind-backtrace" => raw_unwinder,
        other => panic!("unknown method {other}"),
    }
}

fn timed(method: Method, way: usize, depth: usize, count: usize) -> (f64, usize) {
    let mut frames = [0; MAX_STACK];
    let mut result = (0.0, 0);
    at_depth(way, depth, &mut || {
        let mut found = 0;
        for _ in 0..count / 8 {
            found = method(black_box(&mut frames));
        }
        let watch = Stopwatch::start();
        for _ in 0..count {
            found = black_box(method(black_box(&mut frames)));
        }
        result = (watch.nanos_each(count), found);
    });
    result
}

fn ours(frames: &mut [usize; MAX_STACK]) -> usize {
    rtprof_runtime::stack::capture(frames)
}

/// Adds the address of one frame. Returns whether there is room for more.
fn keep(frames: &mut [usize; MAX_STACK], found: &mut usize, address: usize) -> bool {
    frames[*found] = address;
    *found += 1;
    *found < MAX_STACK
}

fn backtrace_locked(frames: &mut [usize; MAX_STACK]) -> usize {
    let mut found = 0;
    backtrace::trace(|frame| keep(frames, &mut found, frame.ip().addr()));
    found
}

fn backtrace_unsynchronized(frames: &mut [usize; MAX_STACK]) -> usize {
    let mut found = 0;
    // SAFETY: this program has one thread.
    unsafe { backtrace::trace_unsynchronized(|frame| keep(frames, &mut found, frame.ip().addr())) };
    found
}

/// The unwinder's state, whose layout is private to the unwinder.
#[repr(C)]
struct Context([u8; 0]);

type OnFrame = extern "C" fn(*mut Context, *mut c_void) -> c_int;

const GO_ON: c_int = 0;
const STOP: c_int = 5;

// SAFETY: the declarations are those of the Itanium C++ ABI; std links the library that has them.
unsafe extern "C" {
    fn _Unwind_Backtrace(on_frame: OnFrame, argument: *mut c_void) -> c_int;
    fn _Unwind_GetIP(context: *mut Context) -> usize;
}

struct Walk<'a> {
    frames: &'a mut [usize; MAX_STACK],
    found: usize,
}

extern "C" fn on_frame(context: *mut Context, argument: *mut c_void) -> c_int {
    // SAFETY: `raw_unwinder` passes a Walk that lives through the call and is not used otherwise during the call.
    let walk = unsafe { &mut *argument.cast::<Walk<'_>>() };
    // SAFETY: the unwinder passes its own context, which is valid during the callback.
    let address = unsafe { _Unwind_GetIP(context) };
    if keep(walk.frames, &mut walk.found, address) { GO_ON } else { STOP }
}

fn raw_unwinder(frames: &mut [usize; MAX_STACK]) -> usize {
    let mut walk = Walk { frames, found: 0 };
    // SAFETY: `on_frame` receives a pointer to a `Walk`, as it expects, and `walk` lives through the call.
    unsafe { _Unwind_Backtrace(on_frame, (&raw mut walk).cast()) };
    walk.found
}
