//! The real `go tool pprof` reads what is written.

use std::path::PathBuf;
use std::time::Duration;

use rtprof::pprof::CpuSource;

use crate::support::{child, go, top};
use crate::work::{burn, by, profiled};

#[inline(never)]
fn hot() {
    std::hint::black_box(burn(Duration::from_millis(200)));
}

#[test]
fn go_tool_pprof_shows_the_hot_function() {
    child::isolated("go_tool_pprof_shows_the_hot_function", || {
        let toolchains = go::toolchains("go_tool_pprof_shows_the_hot_function");
        let path =
            PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("cpu-{}.pb.gz", std::process::id()));
        rtprof::pprof::start_cpu_profile_with(
            std::fs::File::create(&path).unwrap(),
            by(CpuSource::Auto, 1000),
        )
        .unwrap();
        hot();
        rtprof::pprof::stop_cpu_profile().unwrap();
        for go in toolchains {
            let text = go.pprof(&["-top".as_ref(), path.as_os_str()]);
            assert!(text.contains("Type: cpu") && text.contains("Duration: "), "{text}");
            for (index, unit, least) in [("cpu", "ms", 150), ("samples", "", 150)] {
                let rows = top::rows(&go, &path, index, unit);
                let (_, row) =
                    rows.iter().find(|(name, _)| name.ends_with("interop::hot")).expect("it is there");
                assert!(row.cum >= least, "{index}: {row:?}");
            }
            for report in ["-raw", "-traces", "-list=interop::hot", "-peek=interop::hot"] {
                assert!(!go.pprof(&[report.as_ref(), path.as_os_str()]).is_empty());
            }
        }
        std::fs::remove_file(path).ok();
        profiled(by(CpuSource::Auto, 100), || ());
    });
}
