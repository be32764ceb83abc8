//! The string table of a profile.

use std::collections::HashMap;
use std::sync::Arc;

/// Texts in the order of their indices; index 0 is the empty text, as the format requires.
pub(crate) struct StringTable {
    index: HashMap<Arc<str>, i64>,
    texts: Vec<Arc<str>>,
}

impl StringTable {
    pub(crate) fn new() -> Self {
        let empty: Arc<str> = Arc::from("");
        Self { index: HashMap::from([(empty.clone(), 0)]), texts: vec![empty] }
    }

    /// Returns the index of a text, which is added if it is new.
    pub(crate) fn index(&mut self, text: &str) -> i64 {
        match self.index.get(text) {
            Some(&index) => index,
            None => self.add(Arc::from(text)),
        }
    }

    /// Like [`index`](Self::index), without a copy of a text that is shared already.
    pub(crate) fn index_shared(&mut self, text: &Arc<str>) -> i64 {
        match self.index.get(text) {
            Some(&index) => index,
            None => self.add(text.clone()),
        }
    }

    fn add(&mut self, text: Arc<str>) -> i64 {
        let index = self.texts.len() as i64;
        self.texts.push(text.clone());
        self.index.insert(text, index);
        index
    }

    pub(crate) fn texts(&self) -> &[Arc<str>] {
        &self.texts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_share_an_index() {
        let mut strings = StringTable::new();
        assert_eq!(strings.index(""), 0);
        assert_eq!(strings.index("bytes"), 1);
        assert_eq!(strings.index_shared(&Arc::from("bytes")), 1);
        assert_eq!(strings.index("count"), 2);
        assert_eq!(strings.texts().len(), 3);
    }
}
