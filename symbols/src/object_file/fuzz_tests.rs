//! Damaged files: no look-up panics, whatever a file contains, in a build that checks arithmetic.
//!
//! A C file is compiled with each form of debug information: plain, packed, of an older version, and in a separate
//! file. Bytes of these files are changed, mostly in headers and tables, and all addresses are looked up.
//! `RTPROF_FUZZ_SECS` sets the duration; without it each form is tried a few hundred times.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::*;
use crate::progress::Progress;

const SOURCE: &str = "
    struct pair { int a; struct pair *next; };
    static inline __attribute__((always_inline)) int inlined(struct pair *p) { return p->a + p->next->a; }
    int outer(struct pair *p) { int sum = 0; while (p->next) { sum += inlined(p); p = p->next; } return sum; }
    int other(int x) { struct pair last = {x, 0}, first = {1, &last}; return outer(&first); }
    int main(void) { return other(3); }
";

/// The compiler's options for each form.
const FORMS: [(&str, &[&str]); 5] = [
    ("plain", &["-g"]),
    ("packed", &["-g", "-gz=zlib"]),
    ("older", &["-g", "-gdwarf-4", "-gstrict-dwarf"]),
    ("split", &["-g", "-gsplit-dwarf"]),
    ("stripped", &["-s"]),
];

/// Compiles one form. `None` where there is no compiler.
fn compiled(folder: &Path, (name, options): (&str, &[&str])) -> Option<PathBuf> {
    std::fs::write(folder.join("source.c"), SOURCE).unwrap();
    let program = folder.join(name);
    let mut command = Command::new("cc");
    command.current_dir(folder).args(["-O1", "-fno-inline-functions", "-Wl,--build-id=none"]).args(options);
    let done = command.args(["source.c", "-o"]).arg(&program).status().ok()?;
    assert!(done.success(), "{command:?}");
    Some(program)
}

/// Looks up every address that a file of some kilobytes can have.
fn look_up_all(path: &Path) -> usize {
    let store = Store::new(&Progress::default());
    let mut named = 0;
    if let Some(file) = ObjectFile::open_matching(path, &[], |_| true, None, &store) {
        for address in (0..0x4000).step_by(4).chain([u64::MAX - 1, u64::MAX, 1 << 63, 0x40_1136]) {
            named += usize::from(file.symbol(address).is_some());
            file.lines(address, |line| named += usize::from(line.name.is_some()));
        }
    }
    if let Some(bytes) = store.open(path) {
        let tables = tables(bytes);
        let unwind = parse(&tables).and_then(|elf| indirect::Tables::of(bytes, &elf));
        let starts = (0..0x4000).chain([u64::MAX, 1 << 63]);
        named += unwind.map_or(0, |tables| starts.filter_map(|start| tables.end_of(start)).count());
    }
    named
}

/// Changes a few bytes: single ones, words that are lengths and offsets, and whole ranges.
fn damage(bytes: &mut Vec<u8>, random: &mut SmallRng) {
    for _ in 0..1 + random.random_range(0..6) {
        // Tables of sections and symbols lie near the end, program headers at the beginning.
        let at = match random.random_range(0..4) {
            0 => random.random_range(0..bytes.len().min(64)),
            1 => bytes.len() - 1 - random.random_range(0..bytes.len().min(4096)),
            _ => random.random_range(0..bytes.len()),
        };
        match random.random_range(0..6) {
            0 => bytes[at] ^= 1 << random.random_range(0..8),
            1 => bytes[at] = random.random_range(0..256) as u8,
            2 => fill(bytes, at, 4, 0xff),
            3 => fill(bytes, at, 8, [0, 0x7f, 0x80, 0xff][random.random_range(0..4)]),
            4 => {
                let from = random.random_range(0..bytes.len());
                let len = random.random_range(0..64usize).min(bytes.len() - from.max(at));
                bytes.copy_within(from..from + len, at);
            }
            _ if random.random_range(0..8) == 0 => bytes.truncate(at.max(1)),
            _ => bytes[at] = bytes[at].wrapping_add(1),
        }
    }
}

fn fill(bytes: &mut [u8], at: usize, len: usize, with: u8) {
    let end = (at + len).min(bytes.len());
    bytes[at..end].fill(with);
}

#[test]
fn damaged_files_are_harmless() {
    let folder = std::env::temp_dir().join(format!("rtprof-damaged-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let seconds = std::env::var("RTPROF_FUZZ_SECS").ok().and_then(|text| text.parse().ok());
    let ends = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut forms = Vec::new();
    for form in FORMS {
        let Some(program) = compiled(&folder, form) else {
            return eprintln!("SKIPPED: damaged_files_are_harmless: no C compiler");
        };
        let named = look_up_all(&program);
        assert!(named > 0 || form.0 == "stripped", "{program:?}, undamaged");
        forms.push(program.clone());
        if form.0 == "split" {
            let beside = folder.join("split-source.dwo");
            assert!(beside.exists(), "the compiler names it after program and source");
        }
    }
    for (at, program) in forms.iter().enumerate() {
        let whole = std::fs::read(program).unwrap();
        let beside = folder.join("split-source.dwo");
        let whole_beside = std::fs::read(&beside).unwrap();
        let damaged = folder.join("damaged");
        let mut rounds = 0;
        let share =
            ends.map(|ends| ends.saturating_duration_since(Instant::now()) / (forms.len() - at) as u32);
        let started = Instant::now();
        while share.map_or(rounds < 200, |share| started.elapsed() < share) {
            rounds += 1;
            // This output precedes the message of a failure, and tells how to repeat it.
            let mut random = SmallRng::seed_from_u64(0x9e37_79b9_7f4a_7c15 ^ ((at as u64) << 32) ^ rounds);
            eprintln!("{program:?}, round {rounds}");
            let mut bytes = whole.clone();
            if program.ends_with("split") && rounds % 2 == 0 {
                let mut bytes = whole_beside.clone();
                damage(&mut bytes, &mut random);
                write_old(&beside, &bytes);
            } else {
                damage(&mut bytes, &mut random);
            }
            write_old(&damaged, &bytes);
            look_up_all(&damaged);
        }
        write_old(&beside, &whole_beside);
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Writes a file with an old modification time, because only files that have not changed for a while are trusted.
fn write_old(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).unwrap();
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_modified(std::time::SystemTime::now() - Duration::from_secs(1)).unwrap();
}
