//! Spans and events of the crate tracing, in traces of rtprof.

use std::cell::RefCell;
use std::fmt::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};

use rtprof_tracer::{Region, Suspended, Task, is_enabled, log, start_region};
use tracing_core::field::{Field, Visit};
use tracing_core::span::{Attributes, Id, Record};
use tracing_core::{Event, Subscriber};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::{LookupSpan, SpanRef};

/// Entered spans of one thread beyond which the oldest is forgotten. A guard that is held across an await is dropped on
/// another thread, and its span remains here.
const ENTERED: usize = 128;

thread_local! {
    static STACK: RefCell<Vec<Entered>> = const { RefCell::new(Vec::new()) };
}

/// A layer for `tracing_subscriber` that puts spans and events into traces, for `go tool trace` or Perfetto:
///
/// - a span is a [`Task`] from its creation until it is closed, a child of its parent span's;
/// - while a thread or an async task is in the span, that is a [`Region`] of it, with the stack at which it entered;
/// - an event is a log message ([`log`]): its target is the category, its level, message and fields are the text; the
///   fields of a span are a message of the category `fields`.
///
/// Other regions and messages of a goroutine that is in a span belong to the span's task.
///
/// ```
/// use tracing_subscriber::layer::SubscriberExt;
/// use tracing_subscriber::util::SubscriberInitExt;
///
/// tracing_subscriber::registry().with(rtprof_hooks::tracing::layer()).init();
/// ```
///
/// While nothing is recorded, a span or an event costs a few loads. Where every function is a span, give the layer a
/// filter (`with_filter(LevelFilter::INFO)`): a span takes two events of a trace, and two more each time that it is
/// entered.
///
/// A span that exists when a trace begins is in it from the first time that it is entered. A span that is entered when
/// a trace begins is in it from the next time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Layer {
    _private: (),
}

/// Returns the layer: `tracing_subscriber::registry().with(rtprof::tracing::layer())`.
pub fn layer() -> Layer {
    Layer { _private: () }
}

/// A span that this thread is in.
struct Entered {
    span: Id,
    /// The task that was current before.
    before: Suspended,
    /// Ends when this is dropped.
    _region: Region,
}

/// What the registry keeps with a span: its task in the trace that is written.
struct SpanTask(Task);

/// How many there are: while there is none, spans that are closed need not be looked up.
static SPAN_TASKS: AtomicUsize = AtomicUsize::new(0);

impl SpanTask {
    fn new(task: Task) -> Self {
        SPAN_TASKS.fetch_add(1, Ordering::Relaxed);
        Self(task)
    }
}

impl Drop for SpanTask {
    fn drop(&mut self) {
        SPAN_TASKS.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> tracing_subscriber::Layer<S> for Layer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if is_enabled()
            && let Some(span) = context.span(id)
        {
            begin(&span);
            log_fields(&span, |visitor| attributes.record(visitor));
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if is_enabled()
            && let Some(span) = context.span(id)
        {
            log_fields(&span, |visitor| values.record(visitor));
        }
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        if is_enabled()
            && let Some(span) = context.span(id)
        {
            enter(&span);
        }
    }

    fn on_exit(&self, id: &Id, _: Context<'_, S>) {
        exit(id);
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        if !is_enabled() {
            return;
        }
        let metadata = event.metadata();
        let mut text = Text(metadata.level().to_string());
        event.record(&mut text);
        // The span is another than the thread is in if the program has named one.
        match context.event_span(event).filter(|_| !event.is_contextual()) {
            Some(span) => within(&span, || log(metadata.target(), &text.0)),
            None => log(metadata.target(), &text.0),
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        // The task ends here. The registry would end it when it uses the span's place again.
        // A thread that closes a span with a task has seen that task begin.
        if SPAN_TASKS.load(Ordering::Relaxed) != 0
            && let Some(span) = context.span(&id)
        {
            let task = span.extensions_mut().remove::<SpanTask>();
            drop(task);
        }
    }
}

/// Begins the task of a span, and those of the spans around it that have none yet in this trace.
fn begin<'a, R: LookupSpan<'a>>(span: &SpanRef<'a, R>) {
    let is_begun =
        |span: &SpanRef<'a, R>| span.extensions().get::<SpanTask>().is_some_and(|task| task.0.is_recorded());
    if is_begun(span) {
        return;
    }
    for span in span.scope().from_root() {
        if is_begun(&span) {
            continue;
        }
        // A task that begins is current. This one is only where its span is entered.
        let mut current = Suspended::NONE;
        current.swap();
        let task = match span.parent() {
            Some(parent) => match parent.extensions().get::<SpanTask>() {
                Some(parent) => parent.0.child(span.name()),
                None => Task::new(span.name()),
            },
            None => Task::new(span.name()),
        };
        current.swap();
        let task = SpanTask::new(task);
        // A span that two threads enter at the same time: the task of the first remains.
        let mut extensions = span.extensions_mut();
        let stale = match extensions.get_mut::<SpanTask>() {
            Some(known) if known.0.is_recorded() => Some(task),
            _ => extensions.replace(task),
        };
        drop(extensions);
        drop(stale);
    }
}

fn enter<'a, R: LookupSpan<'a>>(span: &SpanRef<'a, R>) {
    begin(span);
    let mut before = current_in(span);
    before.swap();
    let entered = Entered { span: span.id(), before, _region: start_region(span.name()) };
    // On a thread that ends, the span is not entered.
    let _ = STACK.try_with(|stack| {
        let mut stack = stack.borrow_mut();
        if stack.len() == ENTERED {
            stack.remove(0);
        }
        stack.push(entered);
    });
}

/// Leaves a span. It need not be the last that the thread has entered.
fn exit(span: &Id) {
    let left = STACK.try_with(|stack| {
        let mut stack = stack.borrow_mut();
        let at = stack.iter().rposition(|entered| entered.span == *span)?;
        let mut left = stack.remove(at);
        match stack.get_mut(at) {
            // The span entered after it is still current, and returns to what was before both.
            Some(next) => core::mem::swap(&mut next.before, &mut left.before),
            None => left.before.swap(),
        }
        Some(left)
    });
    drop(left);
}

/// Returns the task of a span, to make it current.
fn current_in<'a, R: LookupSpan<'a>>(span: &SpanRef<'a, R>) -> Suspended {
    span.extensions().get::<SpanTask>().map_or(Suspended::NONE, |task| Suspended::of(&task.0))
}

/// Runs `f` while the span's task is current.
fn within<'a, R: LookupSpan<'a>>(span: &SpanRef<'a, R>, f: impl FnOnce()) {
    let mut current = current_in(span);
    current.swap();
    f();
    current.swap();
}

/// Writes the fields of a span, if it has any, as a message of its task.
fn log_fields<'a, R: LookupSpan<'a>>(span: &SpanRef<'a, R>, record: impl FnOnce(&mut Text)) {
    let mut text = Text(String::new());
    record(&mut text);
    if !text.0.is_empty() {
        within(span, || log("fields", &text.0));
    }
}

/// The message and the fields of an event or a span, as text.
struct Text(String);

impl Text {
    fn add(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        if !self.0.is_empty() {
            self.0.push(' ');
        }
        // Writing to a string fails only if the value's own formatting does.
        let _ = match field.name() {
            "message" => self.0.write_fmt(value),
            name => write!(self.0, "{name}={value}"),
        };
    }
}

impl Visit for Text {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, format_args!("{value:?}"));
    }
}
