//! Shared objects for tests that load and unload them.

use std::ffi::{CStr, CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{child, folder};

pub type Callback = extern "C" fn(*mut c_void);
type CallBack = unsafe extern "C" fn(Callback, *mut c_void);

/// The number of libraries, which differ in the addresses of their code.
pub const VARIANTS: usize = 4;

/// Compiles the variants of the fixture without frame pointers, as distributions do. Called before the children start.
pub fn build(directory: &Path) -> Vec<PathBuf> {
    std::fs::create_dir_all(directory).expect("the build's own folder can be written");
    let source = directory.join("callback.c");
    std::fs::write(&source, include_str!("callback.c")).expect("the build's own folder can be written");
    let build = |variant: usize| {
        let path = directory.join(format!("libcallback{variant}.so"));
        let mut command = Command::new("cc");
        command.args(["-shared", "-fPIC", "-O2", "-fomit-frame-pointer", "-Wl,--build-id"]);
        command.arg(format!("-DPAD={variant}"));
        compile(command, &source, path)
    };
    (0..VARIANTS).map(build).collect()
}

/// Compiles `source` with this command. Returns `into`.
pub fn compile(mut command: Command, source: &Path, into: PathBuf) -> PathBuf {
    command.arg("-o").arg(&into).arg(source);
    let output = child::finish(&mut command);
    assert!(output.status.success(), "{command:?}: {}", child::report(&output));
    into
}

/// Returns the variants, built by the parent of the children that load them.
pub fn libraries(test: &str) -> Vec<PathBuf> {
    let directory = folder::tmp().join("dlopen").join(test);
    if child::any() {
        (0..VARIANTS).map(|variant| directory.join(format!("libcallback{variant}.so"))).collect()
    } else {
        build(&directory)
    }
}

/// Returns a library of this C source, which the parent of the children that load it compiles.
pub fn library(test: &str, source: &str) -> PathBuf {
    library_with(test, source, &[])
}

/// As [`library`], with further options of the compiler.
pub fn library_with(test: &str, source: &str, options: &[&str]) -> PathBuf {
    let folder = folder::tmp().join("libraries");
    let (text, path) = (folder.join(format!("{test}.c")), folder.join(format!("lib{test}.so")));
    if !child::any() {
        std::fs::create_dir_all(&folder).expect("the build's own folder can be written");
        std::fs::write(&text, source).expect("the build's own folder can be written");
        let mut command = Command::new("cc");
        command.args(["-shared", "-fPIC", "-O1", "-pthread", "-ldl"]).args(options);
        return compile(command, &text, path);
    }
    path
}

/// A loaded library.
pub struct Library(*mut c_void);

impl Library {
    pub fn open(path: &Path) -> Self {
        let name = CString::new(path.as_os_str().as_bytes()).expect("no zero in a path");
        // SAFETY: the fixture has no constructors.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null(), "{path:?} was built above");
        Self(handle)
    }

    /// Calls the callback through a function of the library; returns the function's address.
    pub fn call_back_through(&self, name: &CStr, callback: Callback) -> *mut c_void {
        let symbol = self.symbol(name);
        // SAFETY: the fixtures' functions have this type.
        let call_back: CallBack = unsafe { std::mem::transmute(symbol) };
        // SAFETY: the function only calls the callback.
        unsafe { call_back(callback, std::ptr::null_mut()) };
        symbol
    }

    /// Returns the address of a function of the library.
    pub fn symbol(&self, name: &CStr) -> *mut c_void {
        // SAFETY: the library is loaded as long as `self` lives.
        let symbol = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        assert!(!symbol.is_null(), "the fixture has it");
        symbol
    }

    /// Calls the callback through the function that all variants have.
    pub fn call_back(&self, callback: Callback) {
        self.call_back_through(c"call_back", callback);
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: `open` opened the handle; no code of the library is used after this.
        unsafe { libc::dlclose(self.0) };
    }
}
