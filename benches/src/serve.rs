//! The conversation between driver and subject: a line with a request, a line with numbers.

use std::io::{self, BufRead, Write};

/// The words of one request, handed out one after the other.
pub struct Request<'a> {
    words: std::str::SplitWhitespace<'a>,
}

impl<'a> Request<'a> {
    /// Splits a line into its words.
    pub fn new(line: &'a str) -> Self {
        Self { words: line.split_whitespace() }
    }

    /// The next word.
    ///
    /// # Panics
    /// When there is none. Driver and subjects are built together; a mismatch is a bug to stop at.
    pub fn word(&mut self) -> &'a str {
        self.words.next().expect("a request ended too early")
    }

    /// The next word as a number.
    ///
    /// # Panics
    /// As [`Request::word`], and when it is no number.
    pub fn number(&mut self) -> usize {
        let word = self.word();
        word.parse().unwrap_or_else(|_| panic!("{word} is not a number"))
    }
}

/// Answers requests from standard input until it ends. `answer` gets a request and returns its numbers.
///
/// # Panics
/// When standard output is gone, that is, when the driver is.
pub fn serve(mut answer: impl FnMut(&mut Request<'_>) -> Vec<f64>) {
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let line = line.expect("standard input is text");
        let numbers = answer(&mut Request::new(&line));
        let words: Vec<String> = numbers.iter().map(f64::to_string).collect();
        writeln!(out, "{}", words.join(" "))
            .and_then(|()| out.flush())
            .expect("the driver reads what it asked for");
    }
}
