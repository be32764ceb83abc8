//! The stacks of a profile as one tree, for flame graphs.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;

use crate::locations::Frames;
use crate::snapshot::Snapshot;

/// All stacks of a profile from the outermost function on; stacks that begin alike share their beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallTree {
    /// Name and source file of each function that occurs; the file is empty where it is not known, the name is the
    /// address where that is not.
    pub functions: Vec<(Arc<str>, Arc<str>)>,
    /// Each before all that it calls, directly after it or after what an earlier call of the same function called.
    pub nodes: Vec<Node>,
}

/// A function, called by one chain of callers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Node {
    /// The caller's place among the nodes; `None` for the outermost function.
    pub parent: Option<u32>,
    /// The place of its name.
    pub function: u32,
    /// Of the stacks that end here, a value for each sample type.
    pub values: Vec<i64>,
}

/// A tree that grows.
#[derive(Default)]
struct Growing {
    tree: CallTree,
    functions: HashMap<(Arc<str>, Arc<str>), u32>,
    children: HashMap<(Option<u32>, u32), u32>,
    /// The functions of the stack at hand, leaf first.
    stack: Vec<u32>,
}

impl CallTree {
    pub(crate) fn of(snapshot: &Snapshot) -> Self {
        let mut growing = Growing::default();
        let types = snapshot.sample_types().len();
        let all = snapshot.for_each(|frames, values| {
            growing.add(frames, values, types);
            Ok::<(), Infallible>(())
        });
        let Ok(()) = all;
        growing.tree.in_order()
    }

    /// Each node before all that it calls, without another one's between them.
    fn in_order(self) -> Self {
        let mut callees: Vec<Vec<u32>> = vec![Vec::new(); self.nodes.len()];
        let mut next: Vec<u32> = Vec::new();
        // Backwards, so that the first of them is taken from the stack first.
        for (at, node) in self.nodes.iter().enumerate().rev() {
            match node.parent {
                Some(parent) => callees[parent as usize].push(at as u32),
                None => next.push(at as u32),
            }
        }
        let mut new_place = vec![0; self.nodes.len()];
        let mut nodes = Vec::with_capacity(self.nodes.len());
        while let Some(at) = next.pop() {
            let node = &self.nodes[at as usize];
            new_place[at as usize] = nodes.len() as u32;
            nodes.push(Node { parent: node.parent.map(|parent| new_place[parent as usize]), ..node.clone() });
            next.append(&mut callees[at as usize]);
        }
        Self { functions: self.functions, nodes }
    }
}

impl Growing {
    fn add(&mut self, frames: &Frames<'_>, values: &[i64], types: usize) {
        if values.iter().all(|&value| value == 0) {
            return;
        }
        self.stack.clear();
        each_function(frames, |name, file| {
            let next = self.tree.functions.len() as u32;
            let function = *self.functions.entry((name.clone(), file.clone())).or_insert(next);
            if function == next {
                self.tree.functions.push((name, file));
            }
            self.stack.push(function);
        });
        let mut parent = None;
        for &function in self.stack.iter().rev() {
            let next = self.tree.nodes.len() as u32;
            let node = *self.children.entry((parent, function)).or_insert(next);
            if node == next {
                self.tree.nodes.push(Node { parent, function, values: vec![0; types] });
            }
            parent = Some(node);
        }
        if let Some(leaf) = parent {
            let sums = &mut self.tree.nodes[leaf as usize].values;
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum = sum.saturating_add(*value));
        }
    }
}

/// The names and files of a stack's functions, leaf first, inlined ones included.
pub(crate) fn each_function(frames: &Frames<'_>, mut see: impl FnMut(Arc<str>, Arc<str>)) {
    for (address, hidden) in frames.shown() {
        let lines = &address.symbols.lines[hidden..];
        if lines.is_empty() {
            see(format!("{:#x}", address.return_address).into(), "".into());
        }
        for line in lines {
            see(line.function.name.clone(), line.function.file.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(parent: Option<u32>, function: u32, value: i64) -> Node {
        Node { parent, function, values: vec![value] }
    }

    #[test]
    fn a_subtree_lies_together() {
        let tree = CallTree {
            functions: Vec::new(),
            // a; b; a's c; b's d; a's e; c's f
            nodes: vec![
                node(None, 0, 1),
                node(None, 1, 2),
                node(Some(0), 2, 3),
                node(Some(1), 3, 4),
                node(Some(0), 4, 5),
                node(Some(2), 5, 6),
            ],
        };
        let expected = [
            node(None, 0, 1),
            node(Some(0), 2, 3),
            node(Some(1), 5, 6),
            node(Some(0), 4, 5),
            node(None, 1, 2),
            node(Some(4), 3, 4),
        ];
        assert_eq!(tree.in_order().nodes, expected);
    }
}
