//! The stacks of a profile as one tree, for flame graphs.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;

use rtprof_runtime::hook;
use rtprof_symbols::frames::Frames;
use rtprof_symbols::symbolizer::Symbolization;
use rtprof_symbols::view::View;

use crate::snapshot::Snapshot;

impl Snapshot {
    /// Returns all stacks as one tree from the outermost function on, for a flame graph.
    pub fn call_tree(&self, symbolization: Symbolization) -> CallTree {
        let _workspace = hook::workspace();
        CallTree::of(self, self.view(symbolization))
    }
}

/// All stacks of a profile as a tree, from the outermost function on. Stacks with the same beginning share its nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallTree {
    /// Name and source file of each function that occurs; the file is empty where it is not known. A function without a
    /// name is listed by its library (`[libc.so.6]`), or by its address in the program.
    pub functions: Vec<(Arc<str>, Arc<str>)>,
    /// Nodes in depth-first order: each node comes after its caller, followed by its own subtree.
    pub nodes: Vec<Node>,
    /// The values of the stacks that end at each node, one for each sample type; node after node.
    pub values: Vec<i64>,
    /// Number of nodes that were left out because they are too small to be seen. Their values were added to the
    /// callers.
    pub folded: usize,
    /// Remarks for the reader about functions without names.
    pub comments: Vec<String>,
}

/// A function, as called by one chain of callers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Node {
    /// The caller's index among the nodes; `None` for the outermost function.
    pub parent: Option<u32>,
    /// The index of its name.
    pub function: u32,
}

/// A page cannot draw more nodes than this; the smallest are folded.
const MANY: usize = 100_000;
/// A node that is less than one part in this many of the total, in every sample type, is less than a tenth of a pixel
/// on a screen.
const TOO_SMALL: i128 = 20_000;

/// A tree under construction: a node's caller always comes before it.
#[derive(Default)]
struct Growing {
    tree: CallTree,
    types: usize,
    functions: HashMap<(Arc<str>, Arc<str>), u32>,
    children: HashMap<(Option<u32>, u32), u32>,
    /// The functions of the current stack, leaf first.
    stack: Vec<u32>,
}

impl CallTree {
    pub(crate) fn of(snapshot: &Snapshot, view: View) -> Self {
        let types = snapshot.sample_types().len();
        let mut growing = Growing { types, ..Growing::default() };
        let all = snapshot.for_each(view, |frames, values| {
            growing.add(frames, values);
            Ok::<(), Infallible>(())
        });
        let Ok(comments) = all;
        let Growing { mut tree, .. } = growing;
        tree.comments = comments;
        if tree.nodes.len() > MANY {
            tree = tree.folded(types, TOO_SMALL);
        }
        tree.in_order(types)
    }

    /// Removes nodes of which no value reaches one `part`th of the total.
    fn folded(mut self, types: usize, part: i128) -> Self {
        let totals = self.totals(types);
        let mut all = vec![0i128; types];
        for (at, _) in self.nodes.iter().enumerate().filter(|(_, node)| node.parent.is_none()) {
            all.iter_mut().zip(&totals[at * types..]).for_each(|(sum, total)| *sum += total.abs());
        }
        let is_seen = |at: usize| {
            let mut values = totals[at * types..][..types].iter().zip(&all);
            values.any(|(total, all)| total.abs() * part >= *all && *total != 0)
        };
        // The new index of each node, or that of the caller into which it is folded.
        let mut places: Vec<Option<u32>> = Vec::with_capacity(self.nodes.len());
        let mut kept = Self {
            functions: std::mem::take(&mut self.functions),
            comments: std::mem::take(&mut self.comments),
            ..Self::default()
        };
        for (at, node) in self.nodes.iter().enumerate() {
            let parent = node.parent.and_then(|parent| places[parent as usize]);
            let values = &self.values[at * types..][..types];
            // An outermost node is always kept, because it has no caller to add it to.
            if is_seen(at) || parent.is_none() {
                places.push(Some(kept.nodes.len() as u32));
                kept.nodes.push(Node { parent, function: node.function });
                kept.values.extend(values);
            } else {
                let into = parent.map_or(0, |parent| parent as usize) * types;
                let sums = &mut kept.values[into..][..types];
                sums.iter_mut().zip(values).for_each(|(sum, value)| *sum = sum.saturating_add(*value));
                places.push(parent);
                kept.folded += 1;
            }
        }
        kept
    }

    /// Returns the values of each node plus those of its subtree.
    fn totals(&self, types: usize) -> Vec<i128> {
        let mut totals: Vec<i128> = self.values.iter().map(|&value| i128::from(value)).collect();
        for (at, node) in self.nodes.iter().enumerate().rev() {
            let Some(parent) = node.parent else { continue };
            for value in 0..types {
                totals[parent as usize * types + value] += totals[at * types + value];
            }
        }
        totals
    }

    /// Sorts the nodes depth-first: each caller before its callees, and each subtree contiguous.
    fn in_order(self, types: usize) -> Self {
        // Linked lists through the nodes: a node's first callee, and the next callee of the same caller.
        let mut first: Vec<Option<u32>> = vec![None; self.nodes.len()];
        let mut sibling: Vec<Option<u32>> = vec![None; self.nodes.len()];
        let mut outermost = None;
        // Backwards, so that each list keeps the original order.
        for (at, node) in self.nodes.iter().enumerate().rev() {
            let list = node.parent.map_or(&mut outermost, |parent| &mut first[parent as usize]);
            sibling[at] = list.replace(at as u32);
        }
        let mut new_place = vec![0; self.nodes.len()];
        let mut nodes = Vec::with_capacity(self.nodes.len());
        let mut values = Vec::with_capacity(self.values.len());
        let mut next: Vec<u32> = outermost.into_iter().collect();
        while let Some(at) = next.pop() {
            let node = self.nodes[at as usize];
            new_place[at as usize] = nodes.len() as u32;
            nodes.push(Node { parent: node.parent.map(|parent| new_place[parent as usize]), ..node });
            values.extend(&self.values[at as usize * types..][..types]);
            next.extend(sibling[at as usize]);
            next.extend(first[at as usize]);
        }
        Self { nodes, values, ..self }
    }
}

impl Growing {
    fn add(&mut self, frames: &Frames<'_>, values: &[i64]) {
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
                self.tree.nodes.push(Node { parent, function });
                self.tree.values.resize(self.tree.values.len() + self.types, 0);
            }
            parent = Some(node);
        }
        if let Some(leaf) = parent {
            let sums = &mut self.tree.values[leaf as usize * self.types..];
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum = sum.saturating_add(*value));
        }
    }
}

/// Passes the names and files of a stack's functions to `see`, leaf first, inlined ones included.
pub(crate) fn each_function(frames: &Frames<'_>, mut see: impl FnMut(Arc<str>, Arc<str>)) {
    for (address, lines) in frames.shown() {
        if lines.is_empty() {
            see(address.stand_in.clone(), "".into());
        }
        for line in lines {
            see(line.function.name.clone(), line.function.file.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(nodes: &[(Option<u32>, u32, i64)]) -> CallTree {
        CallTree {
            nodes: nodes.iter().map(|&(parent, function, _)| Node { parent, function }).collect(),
            values: nodes.iter().map(|&(.., value)| value).collect(),
            ..CallTree::default()
        }
    }

    #[test]
    fn a_subtree_lies_together() {
        // a; b; a's c; b's d; a's e; c's f
        let grown = tree(&[
            (None, 0, 1),
            (None, 1, 2),
            (Some(0), 2, 3),
            (Some(1), 3, 4),
            (Some(0), 4, 5),
            (Some(2), 5, 6),
        ]);
        let expected = tree(&[
            (None, 0, 1),
            (Some(0), 2, 3),
            (Some(1), 5, 6),
            (Some(0), 4, 5),
            (None, 1, 2),
            (Some(4), 3, 4),
        ]);
        assert_eq!(grown.in_order(1), expected);
    }

    #[test]
    fn what_is_too_small_is_its_callers() {
        // a (1000) calls b (8), which calls c (1); and d (-20), which calls e (19). f is small and has no caller.
        let grown = tree(&[
            (None, 0, 1000),
            (Some(0), 1, 8),
            (Some(1), 2, 1),
            (Some(0), 3, -20),
            (Some(3), 4, 19),
            (None, 5, 1),
        ]);
        let folded = grown.folded(1, 100);
        let expected =
            CallTree { folded: 3, ..tree(&[(None, 0, 1000 + 8 + 1 - 20), (Some(0), 4, 19), (None, 5, 1)]) };
        assert_eq!(folded, expected);
    }
}
