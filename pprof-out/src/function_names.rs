//! Names of single addresses: what a reader asks for that got a profile without names.

use std::sync::Arc;

use rtprof_profiler::sampling;

use crate::symbolizer::{Symbolization, Symbolizer};

/// Looks up names. The debug information that it opens, tens of megabytes for a large program, is released when it is
/// dropped; answers are remembered.
pub struct FunctionNames(Symbolizer);

impl FunctionNames {
    /// For the modules as they are now.
    #[allow(clippy::new_without_default, reason = "it reads the list of modules")]
    pub fn new() -> Self {
        let _workspace = sampling::workspace();
        Self(Symbolizer::new(Symbolization::Full))
    }

    /// The function that has the code at `address`; `None` where nothing is known. Go: `runtime.FuncForPC`.
    ///
    /// Of functions that were inlined there it is the one that they were inlined into: a reader gives the address a
    /// single name, and the innermost one would stand for the whole frame, often one of the standard library's.
    ///
    /// The addresses in a profile lie inside the call, unlike those that it returns to.
    pub fn at(&mut self, address: usize) -> Option<Arc<str>> {
        let _workspace = sampling::workspace();
        let (_, symbols) = self.0.resolve(address.wrapping_add(1));
        let function = symbols.lines.last().map(|line| &line.function).or(symbols.left_out.as_ref())?;
        Some(function.name.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn somewhere() -> usize {
        std::hint::black_box(1)
    }

    #[test]
    fn names_a_function_by_its_first_address() {
        assert_eq!(somewhere(), 1);
        let mut names = FunctionNames::new();
        let name = names.at(somewhere as fn() -> usize as usize).unwrap();
        assert_eq!(&*name, "rtprof_pprof_out::function_names::tests::somewhere");
        for nowhere in [0, 1, usize::MAX] {
            assert_eq!(names.at(nowhere), None);
        }
    }
}
