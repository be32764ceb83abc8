#!/usr/bin/env python3
"""Checks that Markdown files link to files and headings that exist, and name paths of the repository that exist."""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).parent.parent
PATH = re.compile(r"`((?:[\w-]+/)+[\w.-]+\.(?:rs|sh|py|md|toml|lock|png|svg))`")


def tracked():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True)
    return listed.stdout.splitlines()


def without_code(text):
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def anchor(heading):
    """Returns the anchor that GitHub gives a heading."""
    heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip()).lower()
    return re.sub(r"[^\w\- ]", "", heading).replace(" ", "-")


def main():
    files = tracked()
    texts = {name: without_code((ROOT / name).read_text()) for name in files if name.endswith(".md")}
    headings = {name: re.findall(r"^#+ (.*)", text, re.MULTILINE) for name, text in texts.items()}
    anchors = {name: set(map(anchor, found)) for name, found in headings.items()}
    wrong = []
    for name, text in texts.items():
        folder = pathlib.PurePosixPath(name).parent
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, heading = target.partition("#")
            full = (ROOT / folder / path).resolve().relative_to(ROOT.resolve()).as_posix() if path else name
            if not (ROOT / full).exists():
                wrong.append(f"{name}: no file {target}")
            elif heading and heading not in anchors.get(full, {heading}):
                wrong.append(f"{name}: no heading {target}")
        for path in PATH.findall(text):
            # A path may leave out the crate's folder.
            if not any(known == path or known.endswith(f"/{path}") for known in files) and not path.startswith("target/"):
                wrong.append(f"{name}: no path {path}")
    if wrong:
        sys.exit("\n".join(wrong))


main()
