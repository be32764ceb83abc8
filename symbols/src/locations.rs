//! The resolved addresses of the stacks of one export.

use std::collections::{BTreeSet, HashMap};
use std::iter;
use std::sync::Arc;

use rtprof_runtime::modules::{CaptureSpan, ClockTime, History, Module};
use rtprof_runtime::stack::Stack;

use crate::file_symbols;
use crate::frames::{Address, Frames, ThreadStart, Visible};
use crate::hash::AddressMap;
use crate::owners::Owners;
use crate::program;
use crate::prune::{self, Class, Cut, Machinery};
use crate::startup::{self, Hidden};
use crate::symbol_cache::{FileState, Line, Symbols};
use crate::symbolizer::{NameSearch, Owned, SearchPriority, Symbolizer};
use crate::view::View;
use crate::wakes;

/// Every distinct address of an export, resolved once.
pub struct Locations {
    symbolizer: Symbolizer,
    /// The module that contains rtprof.
    own_module: Option<usize>,
    /// Return addresses whose module is certain from some time on.
    by_address: AddressMap<usize, (ClockTime, AddressFacts)>,
    /// Addresses of stacks that were captured before that time, with the module that they belonged to then.
    by_owner: HashMap<Owned, AddressFacts>,
    addresses: Vec<Address>,
    /// The addresses of the current stack.
    stack: Vec<u32>,
    /// The rootmost frame of the current stack that is an entry into the allocator.
    entry: Option<usize>,
    startup_frames: bool,
    from_program: bool,
    /// The remark on stacks of the profile that are left out because they have no code of the program.
    without_program: Option<String>,
    /// The hidden part at the outer end of the current stack.
    startup: Option<Hidden>,
    /// The outer end of the previous stack, with its hidden part: most stacks end like the previous one.
    end: (Vec<u32>, Option<Hidden>),
    thread_start: ThreadStart,
}

/// The facts about an address that the innermost loop of an export needs.
#[derive(Clone, Copy)]
struct AddressFacts {
    /// The index in `addresses`.
    at: u32,
    /// Whether the address is an entry into the allocator.
    is_entry: bool,
}

impl Locations {
    /// An empty set of addresses, for stacks that are shown as `view` says.
    pub fn new(view: View) -> Self {
        let symbolizer = Symbolizer::new(view.symbolization);
        Self::of(symbolizer.own_module(), symbolizer, view)
    }

    /// An empty set of addresses of another process, whose program contains rtprof.
    pub fn of_another_process(modules: History, view: View) -> Self {
        Self::of(Some(0), Symbolizer::of(Owners::new(modules), view.symbolization), view)
    }

    fn of(own_module: Option<usize>, symbolizer: Symbolizer, view: View) -> Self {
        Self {
            own_module,
            symbolizer,
            by_address: AddressMap::default(),
            by_owner: HashMap::new(),
            addresses: Vec::new(),
            stack: Vec::new(),
            entry: None,
            startup_frames: view.startup_frames,
            from_program: view.from_program,
            without_program: None,
            startup: None,
            end: (Vec::new(), None),
            thread_start: ThreadStart::default(),
        }
    }

    /// Resolves the addresses of all stacks that will be requested. Without this call each stack with an address that
    /// is not in the cache would open the debug information again.
    pub fn prepare<'s>(&mut self, stacks: impl Iterator<Item = Stack<'s>> + Clone) {
        let mut new = AddressMap::<usize, ()>::default();
        let mut before: &[usize] = &[];
        for stack in stacks.clone() {
            // Consecutive records mostly have their outer frames in common.
            let both = stack.addresses.iter().rev().zip(before.iter().rev());
            let common = both.take_while(|(address, other)| address == other).count();
            new.extend(stack[..stack.len() - common].iter().map(|&address| (address, ())));
            before = stack.addresses;
        }
        let mut new: Vec<usize> = new.into_keys().filter(|a| !self.by_address.contains_key(a)).collect();
        // Sorted in the order of the file.
        new.sort_unstable();
        let owners = &mut self.symbolizer.owners;
        let settled: Vec<_> = new.iter().map(|&address| owners.settled(address)).collect();
        let mut wanted: Vec<Owned> = new.iter().zip(&settled).map(|(&at, &(owner, _))| (at, owner)).collect();
        let times: AddressMap<usize, ClockTime> =
            new.iter().zip(&settled).map(|(&address, &(_, from))| (address, from)).collect();
        if times.values().any(|from| *from != ClockTime::START) {
            let mut others = BTreeSet::new();
            for stack in stacks {
                for address in stack.addresses {
                    if times.get(address).is_some_and(|from| !stack.span.is_since(*from)) {
                        others.insert((*address, owners.of(*address, stack.span)));
                    }
                }
            }
            wanted.extend(others);
        }
        let resolved = self.symbolizer.resolve(&wanted);
        for (at, (owned, symbols)) in wanted.into_iter().zip(resolved).enumerate() {
            let known = self.add(owned, symbols);
            match settled.get(at) {
                Some(&(_, from)) => drop(self.by_address.insert(owned.0, (from, known))),
                None => drop(self.by_owner.insert(owned, known)),
            }
        }
    }

    /// Returns the index of the module to which an address belongs, if that is certain.
    pub fn owner(&self, return_address: usize) -> Option<usize> {
        self.symbolizer.owners.settled(return_address).0
    }

    /// Sets the lines of an address, instead of looking them up. Called before [`prepare`](Self::prepare).
    pub fn set_lines(&mut self, return_address: usize, module: Option<usize>, lines: Vec<Line>) {
        let symbols = file_symbols::of_lines(lines);
        let known = self.add((return_address, module), Arc::new(symbols));
        self.by_address.insert(return_address, (ClockTime::START, known));
    }

    /// Returns how many addresses have no name because their file was not read in time.
    pub fn late(&self) -> usize {
        self.symbolizer.late()
    }

    /// Starts to look up the prepared addresses that are not known, and calls `at_end` when that is done.
    pub fn search(self, priority: SearchPriority, at_end: Box<dyn FnOnce() + Send>) -> NameSearch {
        self.symbolizer.search(priority, at_end)
    }

    /// Resolves a stack of return addresses, leaf first, and cuts allocator and profiler off its leaf.
    pub fn allocation(&mut self, stack: Stack<'_>) -> Frames<'_> {
        self.resolve(stack);
        let frames = self.stack.len();
        let cut = prune::cut(Machinery::Allocator, frames, self.entry, |frame| self.classes(frame));
        self.frames(cut)
    }

    /// Resolves a stack of return addresses, leaf first, and cuts the hooks that recorded the event and the profiler
    /// off its leaf.
    pub fn event(&mut self, stack: Stack<'_>) -> Frames<'_> {
        self.resolve(stack);
        let cut = self.event_cut();
        self.frames(cut)
    }

    /// As [`event`](Self::event), also with what the program calls in libraries if stacks begin at its own code.
    pub fn event_from_leaf(&mut self, stack: Stack<'_>) -> Frames<'_> {
        self.resolve(stack);
        let cut = self.event_cut();
        self.frames_from_leaf(cut)
    }

    fn event_cut(&self) -> Cut {
        let hooks = || prune::cut(Machinery::Hooks, self.stack.len(), None, |frame| self.classes(frame));
        self.call_cut().unwrap_or_else(hooks)
    }

    /// Resolves a stack of return addresses, leaf first, of a thread that was running. Nothing is hidden but what lies
    /// between the kernel and the call that the program made.
    pub fn running(&mut self, stack: Stack<'_>) -> Frames<'_> {
        self.resolve(stack);
        let cut = self.call_cut().unwrap_or(Cut::NONE);
        self.frames(cut)
    }

    fn call_cut(&self) -> Option<Cut> {
        let is_foreign = |frame: usize| {
            let module = self.addresses[self.stack[frame] as usize].module;
            module.is_some() && module != self.own_module
        };
        prune::call_cut(self.stack.len(), |frame| self.classes(frame), is_foreign)
    }

    /// Whether a wake with this stack may have been an unlock (`wakes`), where `waited_at` is the stack of the wait.
    pub fn may_be_unlock(&mut self, stack: Stack<'_>, waited_at: Option<Stack<'_>>) -> bool {
        let by_wake = {
            self.resolve(stack);
            wakes::tell_unlock(self.stack.iter().map(|&at| &*self.addresses[at as usize].symbols))
        };
        let Some(waited_at) = waited_at.filter(|_| by_wake != Some(false)) else {
            return by_wake.unwrap_or(true);
        };
        self.resolve(waited_at);
        let site = || self.stack.iter().map(|&at| &*self.addresses[at as usize].symbols);
        // parking_lot's conditions hand their waiters to the lock, and the unlock wakes them.
        if by_wake == Some(true) && !wakes::is_told_apart(site()) {
            return true;
        }
        wakes::tell_unlock(site()).or(by_wake).unwrap_or(true)
    }

    /// Resolves a stack of return addresses, leaf first, and cuts `skip` functions off its leaf.
    pub fn skipped(&mut self, stack: Stack<'_>, skip: usize) -> Frames<'_> {
        self.resolve(stack);
        let lines_of = |frame: usize| self.classes(frame).len();
        let cut = prune::skip_lines(Cut::NONE, skip, self.stack.len(), lines_of);
        self.frames(cut)
    }

    fn frames(&self, cut: Cut) -> Frames<'_> {
        let frames = self.frames_from_leaf(cut);
        if !self.from_program {
            return frames;
        }
        let nothing = Cut { frames: self.stack.len(), lines: 0 };
        let cut = frames.program_cut().unwrap_or(nothing);
        self.frames_from_leaf(cut)
    }

    fn frames_from_leaf(&self, cut: Cut) -> Frames<'_> {
        let visible = Visible { cut, startup: self.startup.filter(|hidden| hidden.leaves_any_after(cut)) };
        let Self { addresses, stack, thread_start, own_module, .. } = self;
        Frames { addresses, stack, visible, thread_start, own_module: *own_module }
    }

    /// Whether stacks begin at the program's code ([`View::from_program`]).
    pub fn are_from_program(&self) -> bool {
        self.from_program
    }

    /// Sets the remark on stacks that have no code of the program, for [`comments`](Self::comments).
    pub fn set_without_program(&mut self, remark: String) {
        self.without_program = Some(remark);
    }

    fn find_startup(&mut self) {
        self.startup = None;
        if self.startup_frames {
            return;
        }
        let (end, hidden) = &self.end;
        if !end.is_empty() && self.stack.ends_with(end) {
            let inner = self.stack.len() - end.len();
            self.startup = hidden.map(|hidden| hidden.after(inner));
            return;
        }
        self.startup = self.startup_here();
        // The end includes the address inside the hidden ones, which was looked at too.
        if let Some(hidden) = self.startup {
            let inner = hidden.from.0.saturating_sub(1);
            self.end.0.clear();
            self.end.0.extend_from_slice(&self.stack[inner..]);
            self.end.1 = Some(hidden.before(inner));
        }
    }

    fn startup_here(&self) -> Option<Hidden> {
        let symbols = |frame: usize| &self.addresses[self.stack[frame] as usize].symbols;
        let hidden = startup::find(self.stack.len(), |frame| symbols(frame).startup)?;
        hidden.leaves_any(self.stack.len(), |frame| symbols(frame).lines.len()).then_some(hidden)
    }

    fn classes(&self, frame: usize) -> &[Class] {
        &self.addresses[self.stack[frame] as usize].symbols.classes
    }

    // The innermost loop of an export: one look-up for each frame of each record.
    fn resolve(&mut self, stack: Stack<'_>) {
        self.stack.clear();
        self.entry = None;
        for &return_address in stack.addresses {
            let known = match self.by_address.get(&return_address) {
                Some(&(from, known)) if stack.span.is_since(from) => known,
                _ => self.look_up(return_address, stack.span),
            };
            if known.is_entry {
                self.entry = Some(self.stack.len());
            }
            self.stack.push(known.at);
        }
        self.find_startup();
    }

    /// Looks up an address that is not known yet, or whose module depends on the time of the capture.
    #[cold]
    fn look_up(&mut self, return_address: usize, span: CaptureSpan) -> AddressFacts {
        if !self.by_address.contains_key(&return_address) {
            self.prepare(iter::once(Stack { addresses: &[return_address], span }));
        }
        if let Some(&(from, known)) = self.by_address.get(&return_address)
            && span.is_since(from)
        {
            return known;
        }
        let owned = (return_address, self.symbolizer.owners.of(return_address, span));
        if let Some(&known) = self.by_owner.get(&owned) {
            return known;
        }
        let symbols = self.symbolizer.resolve(&[owned]).remove(0);
        let known = self.add(owned, symbols);
        self.by_owner.insert(owned, known);
        known
    }

    fn add(&mut self, (return_address, module): Owned, symbols: Arc<Symbols>) -> AddressFacts {
        let known = AddressFacts {
            at: self.addresses.len() as u32,
            is_entry: prune::entry_lines(&symbols.classes) > 0,
        };
        let stand_in =
            if symbols.lines.is_empty() { self.stand_in(return_address, module) } else { "".into() };
        self.addresses.push(Address { return_address, module, symbols, stand_in });
        known
    }

    /// Returns the text shown for a function without a name: its library, but the address for the program's own
    /// functions, because the user can look it up.
    fn stand_in(&self, return_address: usize, module: Option<usize>) -> Arc<str> {
        let library =
            module.map(|at| self.symbolizer.modules()[at]).filter(|module| !module.is_main_executable);
        match library {
            Some(module) => {
                let name = module.path.rsplit('/').next().unwrap_or_default();
                format!("[{}]", name.trim_matches(['[', ']'])).into()
            }
            None => format!("{return_address:#x}").into(),
        }
    }

    /// Returns the addresses that were resolved so far.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Returns the indices in [`addresses`](Self::addresses) of the stack that was resolved last, leaf first.
    pub fn stack(&self) -> &[u32] {
        &self.stack
    }

    /// Returns the line that stands for the start of a thread.
    pub fn thread_start(&self) -> &ThreadStart {
        &self.thread_start
    }

    /// Returns all modules, the main executable first.
    pub fn modules(&self) -> &[&'static Module] {
        self.symbolizer.modules()
    }

    /// Returns what the file of a module provides, for a module in which an address was looked up.
    pub fn file_state(&self, module: usize) -> FileState {
        self.symbolizer.file_state(module)
    }

    /// Returns the modules that a reader of a text profile may search.
    pub fn unambiguous_modules(&self) -> impl Iterator<Item = &'static Module> {
        self.symbolizer.owners.unambiguous()
    }

    /// Returns the comments of a profile, followed by remarks on its addresses.
    pub fn comments(&self, of_profile: &[String]) -> Vec<String> {
        let of_profile = of_profile.iter().cloned();
        let of_names = self.symbolizer.comments().chain(self.comment_on_program());
        of_profile.chain(self.without_program.clone()).chain(of_names).collect()
    }

    /// Returns what the build of the program leaves out, once all its symbols are known.
    fn comment_on_program(&self) -> Option<String> {
        let at = self.symbolizer.own_module().filter(|at| !self.symbolizer.lacks_symbols_of(*at))?;
        let addresses = self.addresses.iter().filter(|address| address.module == Some(at));
        program::comment(self.modules()[at], self.file_state(at), addresses.map(|address| &address.symbols))
    }
}
