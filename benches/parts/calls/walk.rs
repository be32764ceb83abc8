//! A walk over all files of a folder that searches each for a word, as ripgrep does.

use std::fs::{File, read_dir};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{available_parallelism, scope};
use std::time::Instant;

use crossbeam_channel::{Receiver, unbounded};
use rtprof_benches::processor::used_by_all;

const WORD: &[u8] = b"rtprof";

/// Returns milliseconds and milliseconds of processor time for one of `times` walks, and the number of files.
///
/// # Panics
/// When the folder cannot be read.
pub(crate) fn measure(folder: &Path, times: usize) -> [f64; 3] {
    let (start, used) = (Instant::now(), used_by_all());
    let files = (0..times).map(|_| walk(folder)).sum::<usize>() / times;
    let used = used_by_all() - used;
    let each = 1e3 / times as f64;
    [start.elapsed().as_secs_f64() * each, used.as_secs_f64() * each, files as f64]
}

/// Lists folders on one thread, and reads files on one thread for each core. Returns the number of files.
fn walk(folder: &Path) -> usize {
    let (found, words) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let (send, receive) = unbounded();
    scope(|scope| {
        for _ in 0..available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| search(&receive, &words));
        }
        let mut folders = vec![folder.to_path_buf()];
        while let Some(folder) = folders.pop() {
            for entry in read_dir(folder).expect("the folder can be read").flatten() {
                match entry.file_type() {
                    // Build output changes, and git's objects are compressed.
                    Ok(kind) if kind.is_dir() => {
                        let is_source = !["target", ".git"].iter().any(|name| entry.file_name() == *name);
                        folders.extend(is_source.then(|| entry.path()));
                    }
                    Ok(kind) if kind.is_file() => {
                        found.fetch_add(1, Ordering::Relaxed);
                        send.send(entry.path()).expect("threads take it");
                    }
                    _ => {}
                }
            }
        }
        drop(send);
    });
    assert!(words.load(Ordering::Relaxed) > 0, "the word is in this file");
    found.load(Ordering::Relaxed)
}

fn search(files: &Receiver<PathBuf>, words: &AtomicUsize) {
    let mut buffer = vec![0; 1 << 16];
    for path in files {
        let Ok(mut file) = File::open(path) else { continue };
        while let Ok(size @ 1..) = file.read(&mut buffer) {
            words.fetch_add(memchr::memmem::find_iter(&buffer[..size], WORD).count(), Ordering::Relaxed);
        }
    }
}
