//! Names of single addresses, for a reader whose profile has no names.

use std::sync::Arc;

use rtprof_runtime::hook;
use rtprof_runtime::modules::CaptureSpan;

use crate::startup::THREAD_START;
use crate::symbol_cache::Symbols;
use crate::symbolizer::{NameSearch, Owned, SearchPriority, Symbolization, Symbolizer};

/// Returns the functions that contain the code at `addresses`, in the same order; `None` where nothing is known. Go:
/// `runtime.FuncForPC`. Debug information, tens of megabytes for a large program, is opened once for all of them;
/// results are cached.
///
/// If functions were inlined at an address, the result is the function into which they were inlined, without std's
/// start-up code, as in profiles. The reason is that a reader gives the address a single name: the innermost function,
/// often of the standard library, would stand for the whole frame.
///
/// The addresses must lie inside the call, as in a profile; they are not return addresses. An address at which several
/// libraries were loaded in turn has no name here, because it does not show which of them is meant.
pub fn function_names(addresses: &[usize], symbolization: Symbolization) -> Vec<Option<Arc<str>>> {
    let _workspace = hook::workspace();
    let mut symbolizer = Symbolizer::new(symbolization);
    let owned = owned(&mut symbolizer, addresses);
    let name = |symbols: Arc<Symbols>| {
        if symbols.startup.is_thread_start() {
            return Some(Arc::from(THREAD_START));
        }
        // The lines that profiles hide are left out.
        let shown = symbols.startup.lines_shown().filter(|shown| *shown > 0).unwrap_or(symbols.lines.len());
        Some(symbols.lines.get(shown.checked_sub(1)?)?.function.name.clone())
    };
    symbolizer.resolve(&owned).into_iter().map(name).collect()
}

/// Starts a search for the names of the functions at `addresses`, as `Snapshot::find_names` does for a profile.
pub fn find_function_names(addresses: &[usize], at_end: impl FnOnce() + Send + 'static) -> NameSearch {
    let at_end: Box<dyn FnOnce() + Send> = Box::new(at_end);
    let _workspace = hook::workspace();
    let mut symbolizer = Symbolizer::new(Symbolization::Known);
    let owned = owned(&mut symbolizer, addresses);
    symbolizer.resolve(&owned);
    symbolizer.search(SearchPriority::Low, at_end)
}

/// Returns the return addresses of calls at `addresses`, and their modules.
fn owned(symbolizer: &mut Symbolizer, addresses: &[usize]) -> Vec<Owned> {
    let owned = |address: &usize| {
        let return_address = address.wrapping_add(1);
        (return_address, symbolizer.owners.of(return_address, CaptureSpan::UNKNOWN))
    };
    addresses.iter().map(owned).collect()
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
        let here = somewhere as fn() -> usize as usize;
        let names = function_names(&[0, here, 1, usize::MAX, here], Symbolization::Full);
        let name = Some(Arc::from("rtprof_symbols::function_names::tests::somewhere"));
        assert_eq!(names, [None, name.clone(), None, None, name]);
    }
}
