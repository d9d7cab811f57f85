#!/usr/bin/env python3
"""Checks that no include points down the list of layers.

A folder under src/ may include its own headers and those of the folders before it in LAYERS; all may
include the public headers. A public header includes public headers only.

usage: check_layers.py [ROOT]    prints each violation, exit code 1 if there is any
"""

import re
import sys
from pathlib import Path

LAYERS = ["base", "os", "ipc", "trace", "graph", "comm", "chip", "diag", "node", "cluster", "cli"]

# "a/b.hpp" or <strata/b.hpp>, and whatever else stands in an include line.
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')


def includes(path):
    """The (line number, included name) pairs of a file."""
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1)


def source_files(folder):
    return sorted(p for p in folder.rglob("*") if p.suffix in (".hpp", ".cpp"))


def layer_of(name, including, src):
    """The layer that an included name lies in, or None where it is not one of src/."""
    if ".." in Path(name).parts:
        # Relative includes are resolved, so that they can't go around the check.
        target = (including.parent / name).resolve()
        if src.resolve() not in target.parents:
            return None
        return target.relative_to(src.resolve()).parts[0]
    first = Path(name).parts[0]
    return first if first in LAYERS and len(Path(name).parts) > 1 else None


def check(root):
    """All violations under root, as printable lines."""
    src, public = root / "src", root / "include"
    problems = []
    for folder in sorted(p for p in src.iterdir() if p.is_dir()) if src.is_dir() else []:
        if folder.name not in LAYERS:
            problems.append(f"{folder.relative_to(root)}: not a layer; tools/check_layers.py has the list")
            continue
        allowed = LAYERS[: LAYERS.index(folder.name) + 1]
        for path in source_files(folder):
            for number, name in includes(path):
                layer = layer_of(name, path, src)
                if layer is not None and layer not in allowed:
                    problems.append(
                        f"{path.relative_to(root)}:{number}: '{folder.name}' may not include"
                        f" '{name}': '{layer}' is above it"
                    )
    for path in source_files(public):
        for number, name in includes(path):
            if layer_of(name, path, src) is not None:
                problems.append(
                    f"{path.relative_to(root)}:{number}: a public header may not include"
                    f" '{name}' of src/"
                )
    return problems


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    problems = check(root)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
