//! Reads a written profile back, for tests.

use std::io::Read as _;

use prost::Message as _;

use crate::proto::Profile;

/// Decodes a profile that was written with `debug=0`.
pub(crate) fn profile(gzipped: &[u8]) -> Profile {
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(gzipped).read_to_end(&mut plain).unwrap();
    Profile::decode(&*plain).unwrap()
}

/// Renders the profile as text, without the mappings, which differ from run to run.
fn dump(profile: &Profile) -> String {
    use std::fmt::Write as _;
    let text = |at: i64| profile.string_table[at as usize].as_str();
    let mut out = String::new();
    for kind in &profile.sample_type {
        writeln!(out, "sample type {}/{}", text(kind.r#type), text(kind.unit)).unwrap();
    }
    let period = profile.period_type.unwrap();
    writeln!(out, "period {} {}/{}", profile.period, text(period.r#type), text(period.unit)).unwrap();
    writeln!(out, "time {}, duration {}", profile.time_nanos, profile.duration_nanos).unwrap();
    writeln!(out, "default {}", text(profile.default_sample_type)).unwrap();
    writeln!(out, "drop {}", text(profile.drop_frames)).unwrap();
    for &comment in &profile.comment {
        writeln!(out, "comment {}", text(comment)).unwrap();
    }
    for sample in &profile.sample {
        write!(out, "sample {:?} at {:?}", sample.value, sample.location_id).unwrap();
        for label in &sample.label {
            match label.str {
                0 => write!(out, " {}={} {}", text(label.key), label.num, text(label.num_unit)).unwrap(),
                value => write!(out, " {}={:?}", text(label.key), text(value)).unwrap(),
            }
        }
        out.push('\n');
    }
    for location in &profile.location {
        writeln!(out, "location {} mapping {} {:#x}", location.id, location.mapping_id, location.address)
            .unwrap();
    }
    out
}

/// Compares a profile with a file in `testdata`. Set UPDATE_GOLDEN=1 to rewrite the file.
pub(crate) fn assert_golden(profile: &Profile, file: &str) {
    let path = format!("{}/testdata/{file}", env!("CARGO_MANIFEST_DIR"));
    let found = dump(profile);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &found).unwrap();
    }
    assert_eq!(found, std::fs::read_to_string(&path).unwrap());
}

/// Checks that all references in a profile are valid.
pub(crate) fn check(profile: &Profile) {
    assert_eq!(profile.string_table[0], "");
    let strings = profile.string_table.len() as i64;
    for (at, location) in profile.location.iter().enumerate() {
        assert_eq!(location.id, at as u64 + 1);
        assert!(location.mapping_id <= profile.mapping.len() as u64);
        for line in &location.line {
            assert!(line.function_id >= 1 && line.function_id <= profile.function.len() as u64);
        }
    }
    for function in &profile.function {
        for text in [function.name, function.system_name, function.filename] {
            assert!((0..strings).contains(&text));
        }
        assert_ne!(function.name, 0);
    }
    for sample in &profile.sample {
        assert_eq!(sample.value.len(), profile.sample_type.len());
        assert!(!sample.location_id.is_empty());
        for id in &sample.location_id {
            assert!(*id >= 1 && *id <= profile.location.len() as u64);
        }
    }
    let mut sorted = profile.string_table.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!(sorted.len() as i64, strings, "a text twice");
}
