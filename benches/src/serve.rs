//! The protocol between driver and subject: a line with a request, a line with numbers.

use std::io::{self, BufRead, Write};

use crate::yardstick::Yardstick;

/// The words of a request, read one after the other.
pub struct Request<'a> {
    words: std::str::SplitWhitespace<'a>,
}

impl<'a> Request<'a> {
    /// Splits a line into its words.
    pub fn new(line: &'a str) -> Self {
        Self { words: line.split_whitespace() }
    }

    /// Returns the next word.
    ///
    /// # Panics
    /// When there is no further word. Driver and subjects are built together, so a mismatch is a bug.
    pub fn word(&mut self) -> &'a str {
        self.words.next().expect("a request ended too early")
    }

    /// Returns the next word as a number.
    ///
    /// # Panics
    /// As [`Request::word`], and when the word is no number.
    pub fn number(&mut self) -> usize {
        let word = self.word();
        word.parse().unwrap_or_else(|_| panic!("{word} is not a number"))
    }
}

/// Answers requests from standard input until it ends. `answer` receives a request and returns its numbers. Every
/// program also answers `yardstick NAME` with the nanoseconds of that [`Yardstick`].
///
/// # Panics
/// When standard output is closed, because the driver has ended.
pub fn serve(mut answer: impl FnMut(&mut Request<'_>) -> Vec<f64>) {
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let line = line.expect("standard input is text");
        let numbers = match line.strip_prefix("yardstick ") {
            Some(name) => vec![Yardstick::parse(name).expect("a yardstick").nanos()],
            None => answer(&mut Request::new(&line)),
        };
        let words: Vec<String> = numbers.iter().map(f64::to_string).collect();
        writeln!(out, "{}", words.join(" "))
            .and_then(|()| out.flush())
            .expect("the driver reads what it asked for");
    }
}
