//! The name of a task's future, as the program would name it.
//!
//! Libraries wrap futures: each of a hundred tasks would be a `tracing::instrument::Instrumented`, or a `Pin<Box<..>>`. The
//! type inside is the async function, or what is nearest to it.

use core::any;

/// Returns the name of the type of a future, without wrappers.
pub(super) fn program_type<F>() -> &'static str {
    without_wrappers(any::type_name::<F>())
}

fn without_wrappers(mut name: &str) -> &str {
    while let Some(inside) = inside(name) {
        name = inside;
    }
    name
}

/// The wrappers: the crate of each, and its name. The wrapped future is its first argument. Modules between them change with
/// a crate's version.
const WRAPPERS: [(&str, &[&str]); 14] = [
    ("rtprof_hooks", &["Instrumented", "Labelled"]),
    ("alloc", &["Box"]),
    ("async_compat", &["Compat"]),
    ("core", &["AssertUnwindSafe", "Pin"]),
    (
        "futures_util",
        &[
            "Abortable",
            "AndThen",
            "CatchUnwind",
            "ErrInto",
            "Flatten",
            "Fuse",
            "Inspect",
            "InspectErr",
            "InspectOk",
            "IntoFuture",
            "Map",
            "MapErr",
            "MapInto",
            "MapOk",
            "MapOkOrElse",
            "NeverError",
            "OrElse",
            "Remote",
            "Shared",
            "Then",
            "TryFlatten",
            "UnitError",
            "UnwrapOrElse",
        ],
    ),
    ("metrics_util", &["Instrumented"]),
    ("opentelemetry", &["WithContext"]),
    ("sentry_core", &["SentryFuture"]),
    ("tokio", &["Coop", "Timeout", "Unconstrained"]),
    ("tokio_util", &["RunUntilCancelledFuture", "TokioContext"]),
    ("tower", &["ResponseFuture"]),
    ("tower_http", &["ResponseFuture"]),
    ("tracing", &["Instrumented", "WithDispatch"]),
    ("tracing_futures", &["Instrumented", "WithDispatch"]),
];

/// The modules of tower and tower-http whose `ResponseFuture` has the wrapped future as its first argument.
const TOWERS: [&str; 5] = ["buffer::", "limit::", "load_shed::", "timeout::", "trace::"];

/// The type inside a known wrapper.
fn inside(name: &str) -> Option<&str> {
    let (path, arguments) = name.strip_suffix('>')?.split_once('<')?;
    let (krate, rest) = path.split_once("::")?;
    let kind = rest.rsplit("::").next()?;
    // In other modules of tower, types of this name have another first argument.
    let is_other = kind == "ResponseFuture" && !TOWERS.iter().any(|module| rest.starts_with(module));
    let is_wrapper = !is_other && WRAPPERS.iter().any(|(of, kinds)| *of == krate && kinds.contains(&kind));
    is_wrapper.then(|| first(arguments)).filter(|inside| !inside.is_empty())
}

/// Returns the first of several type arguments, after lifetimes.
fn first(arguments: &str) -> &str {
    let (argument, rest) = cut(arguments);
    if argument.starts_with('\'') { first(rest.trim_start()) } else { argument }
}

/// Returns the text up to the first comma that separates arguments, and what follows.
fn cut(arguments: &str) -> (&str, &str) {
    let mut depth = 0_u32;
    let mut before = b' ';
    let comma = arguments.bytes().position(|byte| {
        match byte {
            b'<' | b'(' | b'[' => depth += 1,
            // Not the end of an arrow.
            b'>' if before != b'-' => depth = depth.saturating_sub(1),
            b')' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        before = byte;
        byte == b',' && depth == 0
    });
    comma.map_or((arguments, ""), |comma| (&arguments[..comma], &arguments[comma + 1..]))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use core::future::Ready;
    use core::panic::AssertUnwindSafe;
    use core::pin::Pin;

    use super::super::{Instrumented, Labelled};
    use super::*;

    #[test]
    fn a_task_is_named_by_what_the_program_wrote() {
        assert_eq!(program_type::<Ready<u8>>(), "core::future::ready::Ready<u8>");
        type Twice = Instrumented<Labelled<Instrumented<Ready<Instrumented<u8>>>>>;
        let named = "core::future::ready::Ready<rtprof_hooks::task::instrumented::Instrumented<u8>>";
        assert_eq!(program_type::<Twice>(), named);
        type Boxed = AssertUnwindSafe<Pin<Box<Pin<Box<Ready<(u8, fn(u8) -> u8)>>>>>>;
        assert_eq!(program_type::<Boxed>(), "core::future::ready::Ready<(u8, fn(u8) -> u8)>");
        let unknown = program_type::<Pin<Box<dyn Future<Output = ()> + Send>>>();
        assert!(unknown.starts_with("dyn core::future::future::Future<Output = ()>"), "{unknown}");
    }

    #[test]
    fn the_future_inside_libraries_wrappers() {
        let serve = "app::serve::{{closure}}";
        for name in [
            "tracing::instrument::Instrumented<app::serve::{{closure}}>",
            "tracing::instrument::Instrumented<tokio::task::coop::unconstrained::Unconstrained<app::serve::{{closure}}>>",
            "futures_util::future::future::map::Map<app::serve::{{closure}}, app::main::{{closure}}>",
            "futures_util::future::future::Map<app::serve::{{closure}}, fn(u8) -> (u8, u8)>",
            "futures_util::abortable::Abortable<core::pin::Pin<alloc::boxed::Box<app::serve::{{closure}}>>>",
            "tokio::time::timeout::Timeout<app::serve::{{closure}}>",
            "tower::timeout::future::ResponseFuture<app::serve::{{closure}}>",
            "tokio_util::sync::cancellation_token::RunUntilCancelledFuture<'_, app::serve::{{closure}}>",
        ] {
            assert_eq!(without_wrappers(name), serve, "{name}");
        }
        for name in [
            serve,
            "app::Instrumented<app::serve::{{closure}}>",
            "app::serve<tracing::instrument::Instrumented<u8>>::{{closure}}",
            "futures_util::future::select_all::SelectAll<app::serve::{{closure}}>",
            "Instrumented<u8>",
            "tower::retry::future::ResponseFuture<app::Policy, app::Service, app::Request>",
            "tracing::instrument::Instrumented<'_>",
            "(app::A, tracing::instrument::Instrumented<u8>)",
            "tracing::instrument::Instrumented<",
            "",
        ] {
            assert_eq!(without_wrappers(name), name);
        }
    }
}
