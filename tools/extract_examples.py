#!/usr/bin/env python3
"""Takes the examples out of Markdown pages, so that they can be compiled.

An example is a complete program in a ```cpp block, with its name in a comment on the line before:

    <!-- example: first_graph -->
    ```cpp
    int main() {}
    ```

A block with `<!-- library: NAME -->` before it is a shared library that such programs load.

usage: extract_examples.py OUTPUT_DIR PAGE...

Writes OUTPUT_DIR/NAME.cpp for each example and prints the names; libraries are written to
OUTPUT_DIR/library/NAME.cpp, and `library/NAME` is printed. A file whose text has not changed is left
alone, so that nothing is built again; files of examples that are gone are removed. A #line directive
makes compilers report errors where they are, in the page.
"""

import re
import sys
from pathlib import Path

MARK = re.compile(r"^<!--\s*(example|library):\s*(\S+)\s*-->\s*$")
NAME = re.compile(r"^[a-z][a-z0-9_]*$")


class PageError(Exception):
    """Something in a page that can't be an example."""


def examples(page):
    """Yields (name, text) for each example of a page; names of libraries begin with `library/`."""
    lines = page.read_text().splitlines()
    for index, line in enumerate(lines):
        mark = MARK.match(line)
        if not mark:
            continue
        where, kind, name = f"{page}:{index + 1}", mark.group(1), mark.group(2)
        if not NAME.match(name):
            raise PageError(f"{where}: '{name}': a name has lower-case letters, digits and '_'")
        if index + 1 >= len(lines) or lines[index + 1].strip() != "```cpp":
            raise PageError(f"{where}: no ```cpp block follows on the next line")
        try:
            end = lines.index("```", index + 2)
        except ValueError:
            raise PageError(f"{where}: the block has no end") from None
        body = "\n".join(lines[index + 2 : end])
        if kind == "library":
            name = f"library/{name}"
        yield name, f'#line {index + 3} "{page}"\n{body}\n'


def extract(output, pages):
    """Brings the folder `output` up to date with the pages; returns the names."""
    found = {}
    for page in pages:
        for name, text in examples(page):
            if name in found:
                raise PageError(f"{page}: there are two examples '{name}'")
            found[name] = text
    (output / "library").mkdir(parents=True, exist_ok=True)
    for old in [*output.glob("*.cpp"), *output.glob("library/*.cpp")]:
        if str(old.relative_to(output).with_suffix("")) not in found:
            old.unlink()
    for name, text in found.items():
        path = output / f"{name}.cpp"
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
    return list(found)


def main():
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        for name in extract(Path(sys.argv[1]), [Path(page) for page in sys.argv[2:]]):
            print(name)
    except (PageError, OSError) as error:
        print(f"extract_examples: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
