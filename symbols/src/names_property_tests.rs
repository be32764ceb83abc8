//! Names of random functions, in both manglings, are shortened to what the source code says.

use std::fmt::Write;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::demangle;

const CRATES: [&str; 4] = ["app", "other", "core", "alloc"];
const SEGMENTS: [&str; 6] = ["ids", "Store", "r", "as_", "Fn", "impl_x"];
const TEXTS: [&str; 6] = ["<", ">", "->", "\"", "a\\", " as "];

enum Type {
    Named(Path),
    Byte,
    Text,
    Reference(Box<Self>),
    Slice(Box<Self>),
    Tuple(Vec<Self>),
    Function(Vec<Self>, Box<Self>),
    /// `dyn for<'a> Trait<'a>`
    Object(Path),
}

enum Argument {
    Type(Type),
    Char(char),
    Text(&'static str),
}

/// The path of a type, a trait or a function.
struct Path {
    names: Vec<&'static str>,
    arguments: Vec<Argument>,
}

enum Function {
    Free(Path),
    Inherent(Path, &'static str),
    /// The type, the trait, the module of the `impl`, and the method.
    Trait(Type, Path, Path, &'static str),
}

struct Generator(SmallRng);

impl Generator {
    fn one_in(&mut self, n: u32) -> bool {
        self.0.random_range(0..n) == 0
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.0.random_range(0..of.len())]
    }

    fn module(&mut self) -> Path {
        let mut names = vec![self.pick(&CRATES)];
        while self.one_in(2) {
            names.push(self.pick(&SEGMENTS));
        }
        Path { names, arguments: Vec::new() }
    }

    fn path(&mut self, depth: u32) -> Path {
        let mut path = self.module();
        path.names.push(self.pick(&SEGMENTS));
        while self.one_in(2) {
            path.arguments.push(match self.0.random_range(0..4) {
                0 => Argument::Char(self.pick(&['<', '>', '\'', '"', '-', '(', 'x', 'é'])),
                1 => Argument::Text(self.pick(&TEXTS)),
                _ => Argument::Type(self.kind(depth)),
            });
        }
        path
    }

    fn kind(&mut self, depth: u32) -> Type {
        let Some(depth) = depth.checked_sub(1) else { return Type::Byte };
        match self.0.random_range(0..10) {
            0 => Type::Byte,
            1 => Type::Text,
            2 => Type::Reference(Box::new(self.kind(depth))),
            3 => Type::Slice(Box::new(self.kind(depth))),
            4 => Type::Tuple((0..2).map(|_| self.kind(depth)).collect()),
            5 => Type::Function((0..2).map(|_| self.kind(depth)).collect(), Box::new(self.kind(depth))),
            6 => Type::Object(self.path(depth)),
            _ => Type::Named(self.path(depth)),
        }
    }

    fn function(&mut self) -> Function {
        match self.0.random_range(0..3) {
            0 => Function::Free(self.path(3)),
            1 => Function::Inherent(self.path(3), self.pick(&SEGMENTS)),
            _ => Function::Trait(self.kind(3), self.path(2), self.module(), self.pick(&SEGMENTS)),
        }
    }
}

impl Path {
    fn plain(&self) -> String {
        self.names.join("::")
    }

    fn is_library(&self) -> bool {
        ["core", "alloc"].contains(&self.names[0])
    }

    /// The path in the new mangling. `last` is the namespace of its last name.
    fn new_mangling(&self, last: char) -> String {
        let (krate, names) = self.names.split_first().expect("there is a crate");
        let mut mangled = format!("Cs_{}{krate}", krate.len());
        for (at, name) in names.iter().enumerate() {
            let namespace = if at + 1 == names.len() { last } else { 't' };
            mangled = format!("N{namespace}{mangled}{}{name}", name.len());
        }
        if !self.arguments.is_empty() {
            let arguments: String = self.arguments.iter().map(Argument::new_mangling).collect();
            mangled = format!("I{mangled}{arguments}E");
        }
        mangled
    }

    /// The path as the old mangling has it before its characters are replaced.
    fn old_text(&self) -> String {
        let arguments: Vec<_> = self.arguments.iter().map(Argument::old_text).collect();
        match arguments.is_empty() {
            true => self.plain(),
            false => format!("{}<{}>", self.plain(), arguments.join(",")),
        }
    }
}

impl Argument {
    fn new_mangling(&self) -> String {
        match self {
            Self::Type(kind) => kind.new_mangling(),
            Self::Char(c) => format!("Kc{:x}_", u32::from(*c)),
            Self::Text(text) => {
                let digits = text.bytes().fold(String::new(), |mut digits, byte| {
                    write!(digits, "{byte:02x}").expect("a String takes all");
                    digits
                });
                format!("KRe{digits}_")
            }
        }
    }

    fn old_text(&self) -> String {
        match self {
            Self::Type(kind) => kind.old_text(),
            Self::Char(c) => format!("{c:?}"),
            Self::Text(text) => format!("{text:?}"),
        }
    }
}

impl Type {
    fn new_mangling(&self) -> String {
        let all = |kinds: &[Self]| kinds.iter().map(Self::new_mangling).collect::<String>();
        match self {
            Self::Named(path) => path.new_mangling('t'),
            Self::Byte => "h".to_owned(),
            Self::Text => "e".to_owned(),
            Self::Reference(inner) => format!("R{}", inner.new_mangling()),
            Self::Slice(inner) => format!("S{}", inner.new_mangling()),
            Self::Tuple(kinds) => format!("T{}E", all(kinds)),
            Self::Function(parameters, result) => format!("F{}E{}", all(parameters), result.new_mangling()),
            Self::Object(path) => {
                let bare = Path { names: path.names.clone(), arguments: Vec::new() }.new_mangling('t');
                let arguments: String = path.arguments.iter().map(Argument::new_mangling).collect();
                format!("DG_I{bare}L0_{arguments}EEL_")
            }
        }
    }

    fn old_text(&self) -> String {
        let all = |kinds: &[Self]| kinds.iter().map(Self::old_text).collect::<Vec<_>>().join(",");
        match self {
            Self::Named(path) => path.old_text(),
            Self::Byte => "u8".to_owned(),
            Self::Text => "str".to_owned(),
            Self::Reference(inner) => format!("&{}", inner.old_text()),
            Self::Slice(inner) => format!("[{}]", inner.old_text()),
            Self::Tuple(kinds) => format!("({})", all(kinds)),
            Self::Function(parameters, result) => format!("fn({}) -> {}", all(parameters), result.old_text()),
            Self::Object(path) => format!("dyn {}", path.old_text()),
        }
    }

    /// The name of a type that has one.
    fn named(&self) -> Option<(&Path, String)> {
        match self {
            Self::Named(path) => Some((path, path.plain())),
            Self::Object(path) => Some((path, format!("dyn {}", path.plain()))),
            Self::Reference(inner) => inner.named(),
            _ => None,
        }
    }
}

impl Function {
    fn new_mangling(&self) -> String {
        match self {
            Self::Free(path) => path.new_mangling('v'),
            Self::Inherent(path, method) => {
                let module = Path { names: path.names[..1].to_vec(), arguments: Vec::new() };
                format!("NvM{}{}{}{method}", module.new_mangling('t'), path.new_mangling('t'), method.len())
            }
            Self::Trait(kind, of_trait, module, method) => format!(
                "NvXs_{}{}{}{}{method}",
                module.new_mangling('t'),
                kind.new_mangling(),
                of_trait.new_mangling('t'),
                method.len()
            ),
        }
    }

    fn old_mangling(&self) -> Vec<String> {
        match self {
            Self::Free(path) => path.names.iter().map(|name| (*name).to_owned()).collect(),
            Self::Inherent(path, method) => {
                let mut segments: Vec<_> = path.names.iter().map(|name| (*name).to_owned()).collect();
                let last = Path { names: vec![path.names[path.names.len() - 1]], arguments: Vec::new() };
                let arguments: Vec<_> = path.arguments.iter().map(Argument::old_text).collect();
                if let Some(of) = segments.last_mut().filter(|_| !arguments.is_empty()) {
                    *of = format!("{}<{}>", last.plain(), arguments.join(","));
                }
                segments.push((*method).to_owned());
                segments
            }
            Self::Trait(kind, of_trait, module, method) if is_foreign(kind, of_trait, module) => {
                let mut segments: Vec<_> = module.names.iter().map(|name| (*name).to_owned()).collect();
                segments.push(format!("<impl {} for {}>", of_trait.old_text(), kind.old_text()));
                segments.push((*method).to_owned());
                segments
            }
            Self::Trait(kind, of_trait, _, method) => {
                vec![format!("<{} as {}>", kind.old_text(), of_trait.old_text()), (*method).to_owned()]
            }
        }
    }

    /// What a profile shows.
    fn shown(&self) -> String {
        match self {
            Self::Free(path) => path.plain(),
            Self::Inherent(path, method) => format!("{}::{method}", path.plain()),
            Self::Trait(kind, of_trait, module, method) => {
                let shown = match kind.named() {
                    _ if is_foreign(kind, of_trait, module) => module.plain(),
                    Some((path, name)) if !path.is_library() || of_trait.is_library() => name,
                    _ => of_trait.plain(),
                };
                format!("{shown}::{method}")
            }
        }
    }
}

/// Whether the program implements the library's trait for the library's type.
fn is_foreign(kind: &Type, of_trait: &Path, module: &Path) -> bool {
    let of_library = kind.named().is_some_and(|(path, _)| path.is_library());
    of_library && of_trait.is_library() && !module.is_library()
}

/// Encodes the segments of a path by the old mangling.
fn old_mangling(segments: &[String]) -> String {
    let mut mangled = "_ZN".to_owned();
    for segment in segments {
        let mut text = String::new();
        for c in segment.replace("::", "..").chars() {
            match c {
                '<' => text += "$LT$",
                '>' => text += "$GT$",
                '(' => text += "$LP$",
                ')' => text += "$RP$",
                '&' => text += "$RF$",
                ',' => text += "$C$",
                '-' => text += ".",
                c if c.is_ascii_alphanumeric() || c == '_' || c == '.' => text.push(c),
                c => write!(text, "$u{:x}$", u32::from(c)).expect("a String takes all"),
            }
        }
        if text.starts_with('$') {
            text.insert(0, '_');
        }
        write!(mangled, "{}{text}", text.len()).expect("a String takes all");
    }
    mangled + "17h0123456789abcdefE"
}

#[test]
fn random_functions() {
    let mut generator = Generator(SmallRng::seed_from_u64(75));
    for _ in 0..5_000 {
        let function = generator.function();
        let mut new = function.new_mangling();
        let mut old = function.old_mangling();
        let mut shown = [function.shown(), function.shown()];
        while generator.one_in(3) {
            new = format!("NC{new}0");
            old.push("{{closure}}".to_owned());
            shown[0] += "::{closure#0}";
            shown[1] += "::{{closure}}";
        }
        if generator.one_in(5) {
            new = format!("NS{new}6vtable");
            shown[0] += "::{shim:vtable#0}";
        }
        for (mangled, shown) in [(format!("_R{new}"), &shown[0]), (old_mangling(&old), &shown[1])] {
            let name = demangle(&mangled);
            assert_ne!(name.full, mangled, "no such name");
            assert_eq!(name.short(), *shown, "{mangled}: {}", name.full);
        }
    }
}
