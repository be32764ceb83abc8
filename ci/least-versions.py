#!/usr/bin/env python3
"""Builds a program with the least versions that the published crates state, and runs it: ci/least-versions/main.rs.

Cargo's `-Z direct-minimal-versions` would also take the least versions of what only tests and benchmarks need."""
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parent.parent
BUILT = ROOT / "target/least-versions"
FEATURES = ["axum", "tokio", "tracing", "interpose"]
# What the program itself uses, of the crates that are pinned and of others.
OF_PROGRAM = {
    "axum": ["http1", "tokio"],
    "lock_api": [],
    "tokio": ["io-util", "macros", "net", "rt-multi-thread", "sync", "time"],
    "tracing": ["std"],
    "tracing-subscriber": ["registry", "std"],
}


def least(requirement):
    """The least version that a requirement like ^1.2 permits."""
    parts = requirement.removeprefix("^").split(".")
    if not all(part.isdigit() for part in parts):
        sys.exit(f"{requirement} is no version: teach ci/least-versions.py what it permits")
    return ".".join((parts + ["0", "0"])[:3])


def pins():
    command = ["cargo", "metadata", "--no-deps", "--format-version=1"]
    packages = json.loads(subprocess.check_output(command, cwd=ROOT))["packages"]
    normal = [
        dependency
        for package in packages
        if package["publish"] != []
        for dependency in package["dependencies"]
        # loom is for models only.
        if dependency["kind"] is None and not dependency.get("path") and dependency["name"] != "loom"
    ]
    return {dependency["name"]: least(dependency["req"]) for dependency in normal}


def manifest(versions):
    wanted = {name: f"={version}" for name, version in versions.items()} | {"tracing": "0.1"}
    lines = [
        '[package]\nname = "least-versions"\nversion = "0.0.0"\nedition = "2024"',
        f"[[bin]]\nname = \"least-versions\"\npath = {json.dumps(str(ROOT / 'ci/least-versions/main.rs'))}",
        '[profile.dev]\nopt-level = 1\ndebug = 1\n[workspace]\n[dependencies]',
        f"rtprof = {{ path = {json.dumps(str(ROOT))}, features = {json.dumps(FEATURES)} }}",
        f"rtprof-cli = {{ path = {json.dumps(str(ROOT / 'cli'))} }}",
    ]
    for name, version in sorted(wanted.items()):
        features = json.dumps(OF_PROGRAM.get(name, []))
        lines.append(f'{name} = {{ version = "{version}", default-features = false, features = {features} }}')
    return "\n".join(lines) + "\n"


def main():
    BUILT.mkdir(parents=True, exist_ok=True)
    (BUILT / "Cargo.lock").unlink(missing_ok=True)
    (BUILT / "Cargo.toml").write_text(manifest(pins()))
    # The program panics once on purpose.
    subprocess.run(["cargo", "run"], cwd=BUILT, env=os.environ | {"RUST_BACKTRACE": "0"}, check=True)


main()
