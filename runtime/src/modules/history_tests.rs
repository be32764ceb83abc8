use super::super::ModuleSet;
use super::super::module::{Generation, Listing, UnwindTables};
use super::*;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::AtomicBool;

const LEN: usize = 0x1000;

fn module(path: &str, start: usize) -> &'static Module {
    Box::leak(Box::new(Module {
        path: path.into(),
        start,
        limit: start + LEN,
        file_offset: 0,
        bias: start,
        build_id: path.as_bytes().to_vec(),
        is_main_executable: path == "program",
        device: None,
        first_seen: std::time::SystemTime::UNIX_EPOCH,
        base: start,
        unwind: UnwindTables::default(),
        loader_name: path.into(),
        loaded: AtomicBool::new(true),
        is_foreign: false,
    }))
}

/// A simulated loader, clock and reader.
struct World {
    loaded: Vec<&'static Module>,
    removed: u64,
    set: ModuleSet,
    clock: u64,
}

impl World {
    fn new(program: &'static Module) -> Self {
        let mut world = Self {
            loaded: vec![program],
            removed: 0,
            set: ModuleSet { first_stay: true, ..ModuleSet::default() },
            clock: 0,
        };
        world.read();
        world
    }

    fn load(&mut self, module: &'static Module) {
        self.loaded.push(module);
    }

    fn unload(&mut self, module: &'static Module) {
        self.loaded.retain(|loaded| !core::ptr::eq(*loaded, module));
        self.removed += 1;
    }

    fn read(&mut self) {
        self.begin();
        self.list();
        self.end();
    }

    fn begin(&mut self) {
        self.clock = 2 * (self.clock / 2 + 1) - 1;
    }

    fn list(&mut self) {
        let generation = Generation { added: 0, removed: self.removed };
        let listing = Listing { modules: self.loaded.clone(), generation };
        self.set = self.set.followed_by(&listing, self.clock / 2 + 1);
    }

    fn end(&mut self) {
        self.clock += 1;
    }

    fn now(&self) -> CaptureSpan {
        CaptureSpan { first: self.clock, last: self.clock }
    }

    fn history(&self) -> History {
        History::new(&self.set.lifetimes)
    }

    /// Returns the path of the owning module, or of those that may own the address.
    fn owner(&self, address: usize, span: CaptureSpan) -> Result<&'static str, Vec<&'static str>> {
        let history = self.history();
        let path = |module: usize| &*history.modules()[module].path;
        match history.owner(address, span) {
            Owner::Module(module) => Ok(path(module)),
            Owner::Unknown => Err(Vec::new()),
            Owner::Contested(all) => Err(all.into_iter().map(path).collect()),
        }
    }
}

const HERE: usize = 0x7000;

#[test]
fn a_reading_between_two_libraries_tells_them_apart() {
    let mut world = World::new(module("program", 0x1000));
    let (a, b) = (module("a", HERE), module("b", HERE));
    world.load(a);
    world.read();
    let of_a = world.now();
    world.unload(a);
    world.read();
    world.load(b);
    world.read();
    let of_b = world.now();
    assert_eq!(world.owner(HERE, of_a), Ok("a"));
    assert_eq!(world.owner(HERE, of_b), Ok("b"));
    assert!(world.owner(HERE, of_a.and(of_b)).is_err());
    assert_eq!(world.owner(HERE, CaptureSpan::UNKNOWN), Err(vec!["b", "a"]));
    assert_eq!(world.owner(0x1000, of_a), Ok("program"));
    assert_eq!(world.owner(0x1000, CaptureSpan::UNKNOWN), Ok("program"));
    assert_eq!(world.owner(0x1000 + LEN, of_a), Err(Vec::new()));
    let history = world.history();
    assert_eq!(history.settled(0x1000), (Owner::Module(0), ClockTime::START));
    assert_eq!(history.settled(1), (Owner::Unknown, ClockTime::START));
    let (owner, from) = history.settled(HERE);
    assert_eq!(owner, history.owner(HERE, of_b));
    assert!(of_b.is_since(from) && !of_a.is_since(from));
}

#[test]
fn without_a_reading_between_them_both_are_candidates() {
    let mut world = World::new(module("program", 0x1000));
    let (a, b) = (module("a", HERE), module("b", HERE));
    world.load(a);
    world.read();
    let before = world.now();
    world.unload(a);
    world.load(b);
    world.read();
    assert_eq!(world.owner(HERE, before), Err(vec!["b", "a"]));
    world.read();
    assert_eq!(world.owner(HERE, world.now()), Ok("b"));
}

#[test]
fn a_library_that_was_never_seen_is_not_taken_for_the_next_one() {
    let mut world = World::new(module("program", 0x1000));
    let (a, b) = (module("a", HERE), module("b", HERE));
    world.load(a);
    let of_a = world.now();
    world.unload(a);
    world.load(b);
    world.read();
    let of_b = world.now();
    assert_eq!(world.owner(HERE, of_a), Err(vec!["b"]));
    assert_eq!(world.owner(HERE, of_b), Ok("b"));
}

#[test]
fn a_library_that_comes_back_is_the_same() {
    let mut world = World::new(module("program", 0x1000));
    let a = module("a", HERE);
    let mut span = world.now();
    for round in 0..5 {
        world.load(a);
        world.read();
        span = if round == 0 { world.now() } else { span.and(world.now()) };
        world.unload(a);
        world.read();
        assert_eq!(world.owner(HERE, span), Ok("a"));
    }
}

/// Whatever the order of loading, reading and capturing: an owner that is named is the true one.
#[test]
fn random_histories_never_name_a_wrong_owner() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let program = module("program", 0x1000);
    let libraries: Vec<[&'static Module; 3]> =
        (0..3).map(|place| ["a", "b", "c"].map(|path| module(path, HERE + place * LEN))).collect();
    let (mut told, mut contested) = (0, 0);
    for round in 0..1000 {
        let mut world = World::new(program);
        // Addresses with the span of their captures and their true owners.
        let mut stacks: HashMap<usize, (CaptureSpan, HashSet<&'static str>)> = HashMap::new();
        let mut phase = 0;
        let often = 1 + round % 6;
        for _ in 0..60 {
            let place = &libraries[random(3) as usize];
            let current = world.loaded.iter().copied().find(|loaded| loaded.start == place[0].start);
            match (random(4 + often), current) {
                (0, None) => world.load(place[random(3) as usize]),
                (0, Some(module)) => world.unload(module),
                (1..4, Some(module)) => {
                    let address = module.start + random(40) as usize;
                    let now = world.now();
                    let (span, owners) = stacks.entry(address).or_insert((now, HashSet::new()));
                    *span = span.and(now);
                    owners.insert(&module.path);
                }
                (4.., _) => {
                    [World::begin, World::list, World::end][phase](&mut world);
                    phase = (phase + 1) % 3;
                }
                _ => {}
            }
            if phase != 0 || random(8) > 0 {
                continue;
            }
            // As exports do: the list is read after the records are taken.
            world.read();
            let history = world.history();
            for (&address, (span, owners)) in &stacks {
                match world.owner(address, *span) {
                    Ok(owner) => {
                        assert!(owners.len() == 1 && owners.contains(owner), "{owner} of {owners:?}");
                        told += 1;
                    }
                    Err(_) => contested += 1,
                }
                let (owner, from) = history.settled(address);
                if span.is_since(from) {
                    assert_eq!(owner, history.owner(address, *span));
                }
            }
        }
    }
    assert!(told > 1000 && contested > 1000, "{told} told, {contested} contested");
}

#[test]
fn what_is_no_longer_remembered_is_in_question() {
    let mut world = World::new(module("program", 0x1000));
    let (old, new) = (module("old", HERE), module("new", HERE));
    world.load(old);
    world.read();
    let of_old = world.now();
    world.unload(old);
    world.load(new);
    world.read();
    for other in 0..=super::super::REMEMBERED {
        let other = module("other", 0x10_0000 + other * LEN);
        world.load(other);
        world.read();
        world.unload(other);
        world.read();
    }
    assert!(world.set.lifetimes.iter().all(|lifetime| lifetime.module.path != "old"));
    assert_eq!(world.owner(HERE, of_old), Err(vec!["new"]));
    assert_eq!(world.owner(HERE, world.now()), Ok("new"));
}
