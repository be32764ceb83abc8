//! Spans and events of the crate tracing, in traces of rtprof.

use std::cell::RefCell;
use std::fmt::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use rtprof_runtime::labels::{self, LabelSet};
use rtprof_tracer::{Region, Suspended, Task, is_enabled, log, start_region};
use tracing_core::field::{Field, Visit};
use tracing_core::span::{Attributes, Id, Record};
use tracing_core::{Event, Subscriber};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::{LookupSpan, SpanRef};

/// Entered spans of one thread beyond which the older half is forgotten. A guard that is held across an await is dropped
/// on another thread, and its span remains here. Spans that are nested more deeply lose their outer regions.
const ENTERED: usize = 8192;

thread_local! {
    static STACK: RefCell<Vec<Entered>> = const { RefCell::new(Vec::new()) };
}

/// A layer for `tracing_subscriber` that puts spans and events into traces, for `go tool trace` or Perfetto:
///
/// - a span is a [`Task`] from its creation until it is closed, a child of its parent span's;
/// - while a thread or an async task is in the span, it has a [`Region`] of the span's task, with the stack at which it
///   entered;
/// - an event is a log message ([`log`]): the event's target is the category, and its level, message and fields are the
///   text; the fields of a span are a message of the category `fields`.
///
/// Other regions and messages of a goroutine that is in a span belong to the span's task.
///
/// ```
/// use tracing_subscriber::filter::LevelFilter;
/// use tracing_subscriber::layer::{Layer, SubscriberExt};
/// use tracing_subscriber::util::SubscriberInitExt;
///
/// let layer = rtprof_hooks::tracing::layer().with_filter(LevelFilter::INFO);
/// tracing_subscriber::registry().with(layer).init();
/// ```
///
/// While nothing is recorded, the layer itself costs a few loads for a span or an event. Without a filter, though, the
/// layer asks for spans and events of every level, and the registry then makes all of them: a span that no other layer
/// wants costs some 65 ns. In a trace a span takes two events, and two more each time that it is entered.
///
/// If a span exists when a trace begins, the trace shows it from the first time that it is entered. If a thread or task
/// is inside a span when a trace begins, the trace shows the span from the next time that it is entered.
#[derive(Clone, Copy, Debug)]
pub struct Layer {
    /// Subscribers number their spans each from 1, and one thread may use several subscribers.
    number: u64,
    /// The fields of spans that are labels, if spans are labels.
    labels: Option<&'static [&'static str]>,
}

impl Default for Layer {
    fn default() -> Self {
        layer()
    }
}

/// Returns the layer: `tracing_subscriber::registry().with(rtprof::tracing::layer())`.
#[must_use = "a subscriber has to have it"]
pub fn layer() -> Layer {
    static LAST: AtomicU64 = AtomicU64::new(0);
    Layer { number: LAST.fetch_add(1, Ordering::Relaxed), labels: None }
}

/// A span that this thread is in.
struct Entered {
    layer: u64,
    span: Id,
    /// The task that was current before, if the span is in a trace.
    before: Option<Suspended>,
    /// The labels that were current before, if the span has labels.
    labels_before: Option<labels::Current>,
    /// Ends when this is dropped.
    _region: Option<Region>,
}

/// What the registry keeps with a span, and drops when the span is closed: its task in the trace that is written.
struct SpanTask(Task);

/// What the registry keeps with a span that has labels.
struct SpanLabels(LabelSet);

/// A task that is current until this is dropped.
struct Current(Suspended);

impl Current {
    fn new(mut task: Suspended) -> Self {
        task.swap();
        Self(task)
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        self.0.swap();
    }
}

/// Runs `f`, which looks into the registry's data of a span. The registry panics then if another layer has panicked while
/// it had the data, for example in a value's `Debug`. Without rtprof the program would go on.
fn caught<T>(f: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(f)).ok()
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> tracing_subscriber::Layer<S> for Layer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if let Some(fields) = self.labels
            && let Some(span) = context.span(id)
        {
            keep_labels(&span, fields, attributes);
        }
        if is_enabled()
            && let Some(span) = context.span(id)
        {
            caught(|| begin(&span));
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
        if (is_enabled() || self.labels.is_some())
            && let Some(span) = context.span(id)
        {
            self.enter(&span);
        }
    }

    fn on_exit(&self, id: &Id, _: Context<'_, S>) {
        self.exit(id);
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        if !is_enabled() {
            return;
        }
        let metadata = event.metadata();
        let mut text = Text(metadata.level().to_string());
        event.record(&mut text);
        // The program may have named another span than the one the thread is in, or none.
        let named = (!event.is_contextual()).then(|| context.event_span(event));
        let _current = named.map(|span| Current::new(span.map_or(Suspended::NONE, |span| task_of(&span))));
        log(metadata.target(), &text.0);
    }
}

impl Layer {
    /// Also labels what is sampled inside a span: with the name of the span (key `span`), and with those of its fields that
    /// are in `fields`, whether a trace is recorded or not. Inner spans add their labels to those of outer ones, and replace
    /// equal keys. The labels are those of [`set_labels`](rtprof_runtime::labels::set_labels): CPU, heap, block and
    /// mutex profiles have them, and the goroutine profile has those of a task that awaits inside a span.
    ///
    /// Choose fields with few different values, such as `route`: profiles keep 1,024 distinct sets of labels, and count
    /// all further sets as one. A field counts if it has a value when the span is created. Each time that a span is
    /// entered, its labels are added to the thread's labels in a new set, and the number of this set is looked up in a
    /// table of the process.
    ///
    /// ```
    /// use tracing_subscriber::layer::SubscriberExt;
    ///
    /// let layer = rtprof_hooks::tracing::layer().with_labels(&["route", "tenant"]);
    /// # let _subscriber =
    /// tracing_subscriber::registry().with(layer);
    /// ```
    pub fn with_labels(self, fields: &'static [&'static str]) -> Self {
        Self { labels: Some(fields), ..self }
    }

    fn enter<'a, R: LookupSpan<'a>>(&self, span: &SpanRef<'a, R>) {
        let task = is_enabled().then(|| {
            caught(|| begin(span));
            task_of(span)
        });
        let labels = self.labels.and_then(|_| labels_in(span));
        if task.is_none() && labels.is_none() {
            return;
        }
        // On a thread that ends, the span is not entered.
        let _ = STACK.try_with(|stack| {
            let (mut before, mut labels_before) = (task, labels);
            if let Some(task) = &mut before {
                task.swap();
            }
            if let Some(labels) = &mut labels_before {
                labels.swap();
            }
            let region = before.is_some().then(|| start_region(span.name()));
            let entered =
                Entered { layer: self.number, span: span.id(), before, labels_before, _region: region };
            let forgotten = {
                let mut stack = stack.borrow_mut();
                let oldest = if stack.len() < ENTERED { 0 } else { ENTERED / 2 };
                let forgotten: Vec<Entered> = stack.drain(..oldest).collect();
                stack.push(entered);
                forgotten
            };
            drop(forgotten);
        });
    }

    /// Leaves a span. It need not be the last that the thread has entered: a span that was entered after it is still
    /// current then, and returns to what was before both.
    fn exit(&self, span: &Id) {
        let left = STACK.try_with(|stack| {
            let mut stack = stack.borrow_mut();
            let at =
                stack.iter().rposition(|entered| entered.layer == self.number && entered.span == *span)?;
            let mut left = stack.remove(at);
            let later = &mut stack[at..];
            if let Some(before) = &mut left.before {
                match later.iter_mut().find_map(|entered| entered.before.as_mut()) {
                    Some(next) => core::mem::swap(next, before),
                    None => before.swap(),
                }
            }
            if let Some(before) = &mut left.labels_before {
                match later.iter_mut().find_map(|entered| entered.labels_before.as_mut()) {
                    Some(next) => core::mem::swap(next, before),
                    None => before.swap(),
                }
            }
            Some(left)
        });
        drop(left);
    }
}

/// Keeps the labels of a new span with it: its name, and the values of these fields.
fn keep_labels<'a, R: LookupSpan<'a>>(
    span: &SpanRef<'a, R>,
    fields: &'static [&'static str],
    attributes: &Attributes<'_>,
) {
    let mut values = Values { fields, values: Vec::new() };
    attributes.record(&mut values);
    let values = values.values.iter().map(|(name, value)| (*name, value.as_str()));
    let pairs: Vec<(&str, &str)> = [("span", span.name())].into_iter().chain(values).collect();
    let labels = SpanLabels(labels::labels(&pairs));
    caught(|| drop(span.extensions_mut().replace(labels)));
}

/// Returns the labels of this thread inside a span.
fn labels_in<'a, R: LookupSpan<'a>>(span: &SpanRef<'a, R>) -> Option<labels::Current> {
    let own = caught(|| span.extensions().get::<SpanLabels>().map(|labels| labels.0.clone())).flatten()?;
    Some(labels::current().with(own))
}

/// The values of some fields.
struct Values {
    fields: &'static [&'static str],
    values: Vec<(&'static str, String)>,
}

impl Visit for Values {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.values.extend(self.fields.contains(&field.name()).then(|| (field.name(), value.to_owned())));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if self.fields.contains(&field.name()) {
            self.values.push((field.name(), format!("{value:?}")));
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
        let current = Current::new(Suspended::NONE);
        let task = match span.parent() {
            Some(parent) => match parent.extensions().get::<SpanTask>() {
                Some(parent) => parent.0.child(span.name()),
                None => Task::new(span.name()),
            },
            None => Task::new(span.name()),
        };
        drop(current);
        let task = SpanTask(task);
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

/// Returns the task of a span, to make it current.
fn task_of<'a, R: LookupSpan<'a>>(span: &SpanRef<'a, R>) -> Suspended {
    let task = caught(|| span.extensions().get::<SpanTask>().map(|task| Suspended::of(&task.0)));
    task.flatten().unwrap_or(Suspended::NONE)
}

/// Writes the fields of a span, if it has any, as a message of its task.
fn log_fields<'a, R: LookupSpan<'a>>(span: &SpanRef<'a, R>, record: impl FnOnce(&mut Text)) {
    let mut text = Text(String::new());
    record(&mut text);
    if !text.0.is_empty() {
        let _current = Current::new(task_of(span));
        log("fields", &text.0);
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
