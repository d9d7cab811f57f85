#!/usr/bin/env python3
"""Checks that tools/planted_faults.txt lists exactly the faults that src/ asks for.

usage: check_planted_faults.py [ROOT]    prints each difference, exit code 1 if there is any
"""

import re
import sys
from pathlib import Path

PLANTED = re.compile(r'\bplanted\(\s*"([^"]+)"\s*\)')


def listed(root):
    """The list as (name, [PROGRAM:FILTER, ...]) in its order."""
    faults = []
    for line in (root / "tools/planted_faults.txt").read_text().splitlines():
        words = line.partition("#")[0].split()
        if words:
            faults.append((words[0], words[1:]))
    return faults


def planted(root):
    """Name -> first place, of all faults in src/."""
    places = {}
    for path in sorted((root / "src").rglob("*.[ch]pp")):
        for match in PLANTED.finditer(path.read_text()):
            places.setdefault(match.group(1), path.relative_to(root))
    return places


def check(root):
    names = [name for name, _ in listed(root)]
    places = planted(root)
    problems = [f"tools/planted_faults.txt lists {name} twice"
                for name in sorted({n for n in names if names.count(n) > 1})]
    problems += [f"{places[name]}: tools/planted_faults.txt does not list {name}"
                 for name in sorted(places.keys() - set(names))]
    problems += [f"tools/planted_faults.txt: nothing in src/ is called {name}"
                 for name in sorted(set(names) - places.keys())]
    return problems


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    problems = check(root)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
