#!/usr/bin/env python3
"""Names that the crates re-export from other crates, and that a commit had and the tree has not.

cargo-semver-checks sees the items of one crate at a time, so it misses a `pub use other_crate::name` that is removed; the
crate `rtprof` consists of these. A name that its crate now defines itself is reported too.

    ci/reexports.py COMMIT
"""
import collections
import pathlib
import re
import subprocess
import sys

LOCAL = {"self", "crate", "super"}


def names(tree):
    """Splits `a::{b, c as d, e::{f}}` into (first segment, exported name) pairs."""
    tree = tree.strip()
    if "{" in tree:
        prefix, rest = tree.split("{", 1)
        parts, depth, part = [], 0, ""
        for letter in rest[: rest.rindex("}")]:
            depth += (letter == "{") - (letter == "}")
            if letter == "," and depth == 0:
                parts.append(part)
                part = ""
            else:
                part += letter
        for inner in [*parts, part]:
            if inner.strip():
                for _, name in names(inner):
                    yield prefix.split("::")[0].strip(), name
        return
    path, _, alias = tree.partition(" as ")
    segments = [segment.strip() for segment in path.split("::")]
    yield segments[0], alias.strip() or (path.strip() if segments[-1] == "*" else segments[-1])


def exported(files):
    """Returns the names that each crate re-exports from other crates, for (path, text) pairs."""
    found = collections.defaultdict(set)
    modules = collections.defaultdict(set)
    uses = []
    for path, text in files:
        crate = path.split("/src/")[0] if "/src/" in path else "."
        modules[crate].update(re.findall(r"^(?:pub(?:\([^)]*\))? )?mod (\w+)", text, re.MULTILINE))
        uses += [(crate, tree) for tree in re.findall(r"^pub use ([^;]*);", text, re.MULTILINE)]
    for crate, tree in uses:
        for first, name in names(re.sub(r"\s+", " ", tree)):
            if first not in LOCAL | modules[crate]:
                found[crate].add(name)
    return found


def git(*arguments):
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout


def is_source(path):
    is_published = not path.startswith(("benches/", "tests/", "fuzz/"))
    return is_published and path.endswith(".rs") and (path.startswith("src/") or "/src/" in path)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    commit = sys.argv[1]
    old = [path for path in git("ls-tree", "-r", "--name-only", commit).splitlines() if is_source(path)]
    new = [path for path in git("ls-files").splitlines() if is_source(path) and pathlib.Path(path).exists()]
    before = exported((path, git("show", f"{commit}:{path}")) for path in old)
    after = exported((path, pathlib.Path(path).read_text()) for path in new)
    missing = [f"{crate}: {name}" for crate in sorted(before) for name in sorted(before[crate] - after[crate])]
    print(f"{sum(map(len, before.values()))} names of other crates were re-exported at {commit}; {len(missing)} are missing")
    if missing:
        sys.exit("\n".join(missing))


main()
