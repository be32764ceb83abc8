//! The real `go tool pprof` reads the profiles.

use std::time::Duration;

use rtprof::pprof::{self, CpuSource};
use test_support::folder;
use test_support::processor::burn;
use test_support::profile::Profile;
use test_support::{child, go, top};

use super::work::{by, profiled, samples_and_missed};

#[inline(never)]
fn hot() {
    std::hint::black_box(burn(Duration::from_millis(200)));
}

#[test]
fn go_tool_pprof_shows_the_hot_function() {
    child::isolated("go_tool_pprof_shows_the_hot_function", || {
        let toolchains = go::toolchains("go_tool_pprof_shows_the_hot_function");
        let path = folder::tmp().join(format!("cpu-{}.pb.gz", std::process::id()));
        let file = std::fs::File::create(&path).unwrap();
        pprof::start_cpu_profile_with(file, by(CpuSource::Auto, 1000)).unwrap();
        hot();
        pprof::stop_cpu_profile().unwrap();
        // Other tests check the share of `hot`; this test checks that pprof shows the contents of the profile.
        let profile = Profile::read(&std::fs::read(&path).unwrap());
        let samples = profile.samples();
        assert!(samples_and_missed(&profile, "interop::hot") >= 150);
        for go in toolchains {
            let text = go.pprof(&["-top".as_ref(), path.as_os_str()]);
            assert!(text.contains("Type: cpu") && text.contains("Duration: "), "{text}");
            for (value, (index, unit)) in [("samples", "count"), ("cpu", "ns")].into_iter().enumerate() {
                top::check(&go, &path, index, unit, top::expected(&samples, value));
            }
            for report in ["-raw", "-traces", "-list=interop::hot", "-peek=interop::hot"] {
                assert!(!go.pprof(&[report.as_ref(), path.as_os_str()]).is_empty());
            }
        }
        std::fs::remove_file(path).ok();
        profiled(by(CpuSource::Auto, 100), || ());
    });
}
