//! Files and folders that only their owner can read: profiles and traces tell names, paths, labels and messages.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// Creates a file that was not there.
///
/// # Errors
/// Those of the file system; there is such a file, or a link.
pub fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Creates a folder if it does not exist, and checks that files can be created in it, by one of the name `probe`: else that
/// would be found out when the first file is needed. Returns its path from the root, because the program may change its
/// working directory.
///
/// # Errors
/// Those of the file system.
pub fn folder(path: &Path, probe: &str) -> io::Result<PathBuf> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)?;
    let path = fs::canonicalize(path)?;
    let probe = path.join(probe);
    create(&probe).and_then(|_| fs::remove_file(&probe))?;
    Ok(path)
}
