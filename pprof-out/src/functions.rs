//! The functions of an export with their ids.

use std::collections::HashMap;
use std::sync::Arc;

use crate::proto;
use crate::strings::StringTable;
use rtprof_symbols::hash::AddressMap;
use rtprof_symbols::symbol_cache::Function;

/// The functions of an export with their ids.
#[derive(Default)]
pub(crate) struct Functions {
    // Nearly every look-up finds the same object; two equal objects exist only if the process-wide cache was emptied in
    // between.
    by_object: AddressMap<usize, u64>,
    by_content: HashMap<Arc<Function>, u64>,
    functions: Vec<Arc<Function>>,
}

impl Functions {
    /// Returns the id of a function, assigned at the first call.
    pub(crate) fn id(&mut self, function: &Arc<Function>) -> u64 {
        let object = Arc::as_ptr(function) as usize;
        if let Some(&id) = self.by_object.get(&object) {
            return id;
        }
        let next = self.functions.len() as u64 + 1;
        let id = *self.by_content.entry(function.clone()).or_insert(next);
        if id == next {
            self.functions.push(function.clone());
        }
        self.by_object.insert(object, id);
        id
    }

    /// Returns the functions in the order of their ids.
    pub(crate) fn encoded<'a>(
        &'a self,
        strings: &'a mut StringTable,
    ) -> impl Iterator<Item = proto::Function> + 'a {
        self.functions.iter().zip(1..).map(|(function, id)| proto::Function {
            id,
            name: strings.index_shared(&function.name),
            system_name: strings.index_shared(&function.system_name),
            filename: strings.index_shared(&function.file),
            start_line: 0,
        })
    }
}
