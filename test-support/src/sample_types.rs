//! The sample types of the built-in profiles as tests expect them: a list that shares nothing with the table in `pprof-out`.

const HEAP: &[(&str, &str)] = &[
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
];

/// Returns name and unit of each value of the profile, in order.
pub fn of(profile: &str) -> &'static [(&'static str, &'static str)] {
    match profile {
        "heap" | "allocs" => HEAP,
        "block" => &[("contentions", "count"), ("delay", "nanoseconds")],
        "mutex" => &[("contentions", "count"), ("delay", "nanoseconds")],
        "profile" => &[("samples", "count"), ("cpu", "nanoseconds")],
        "threadcreate" => &[("threadcreate", "count")],
        "goroutine" => &[("goroutine", "count")],
        "goroutineleak" => &[("goroutineleak", "count")],
        _ => panic!("no built-in profile has the name {profile:?}"),
    }
}

/// Returns the values with the units in which pprof shows whole numbers.
pub fn shown_whole(profile: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    of(profile).iter().map(|&(name, unit)| match unit {
        "nanoseconds" => (name, "ns"),
        "bytes" => (name, "B"),
        unit => (name, unit),
    })
}

/// Returns the line of `go tool pprof -raw`, in which the value that is shown first may have the mark `[dflt]`.
pub fn raw_header(profile: &str) -> String {
    of(profile).iter().map(|(name, unit)| format!("{name}/{unit}")).collect::<Vec<_>>().join(" ")
}
