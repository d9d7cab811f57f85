#!/usr/bin/env python3
"""Takes the examples out of Markdown pages, so that they can be compiled.

An example is a complete program in a ```cpp block, with its name in a comment on the line before:

    <!-- example: first_graph -->
    ```cpp
    int main() {}
    ```

A block with `<!-- library: NAME -->` before it is a shared library that such programs load. One of
any language with `<!-- file: FOLDER/NAME -->` before it is a file that they find under that name.

usage: extract_examples.py OUTPUT_DIR PAGE...

Writes OUTPUT_DIR/NAME.cpp for each example and prints the names; libraries are written to
OUTPUT_DIR/library/NAME.cpp, and `library/NAME` is printed; files are written to
OUTPUT_DIR/bin/FOLDER/NAME. A file whose text has not changed is left alone, so that nothing is built
again; files of examples that are gone are removed. In C++, a #line directive makes compilers report
errors where they are, in the page.
"""

import re
import sys
from pathlib import Path

MARK = re.compile(r"^<!--\s*(example|library|file):\s*(\S+)\s*-->\s*$")
NAME = re.compile(r"^[a-z][a-z0-9_]*$")
FILE_NAME = re.compile(r"^([a-z][a-z0-9_]*/)+[a-z][a-z0-9_]*\.[a-z]+$")


class PageError(Exception):
    """Something in a page that can't be an example."""


def examples(page):
    """Yields (path of its file, text) for each example of a page."""
    lines = page.read_text().splitlines()
    for index, line in enumerate(lines):
        mark = MARK.match(line)
        if not mark:
            continue
        where, kind, name = f"{page}:{index + 1}", mark.group(1), mark.group(2)
        if kind == "file" and not FILE_NAME.match(name):
            raise PageError(f"{where}: '{name}': a file has the form folder/name.suffix")
        if kind != "file" and not NAME.match(name):
            raise PageError(f"{where}: '{name}': a name has lower-case letters, digits and '_'")
        block = lines[index + 1].strip() if index + 1 < len(lines) else ""
        if not (block == "```cpp" or (kind == "file" and re.match(r"^```[a-z]+$", block))):
            raise PageError(f"{where}: no ```cpp block follows on the next line")
        try:
            end = lines.index("```", index + 2)
        except ValueError:
            raise PageError(f"{where}: the block has no end") from None
        body = "\n".join(lines[index + 2 : end])
        line = f'#line {index + 3} "{page}"\n' if block == "```cpp" else ""
        path = {"example": f"{name}.cpp", "library": f"library/{name}.cpp", "file": f"bin/{name}"}
        yield path[kind], f"{line}{body}\n"


def extract(output, pages):
    """Brings the folder `output` up to date with the pages; returns the paths of all files."""
    found = {}
    for page in pages:
        for path, text in examples(page):
            if path in found:
                raise PageError(f"{page}: there are two examples '{path}'")
            found[path] = text
    # What was written the last time, since there is more in the folder than that.
    list_of_files = output / "extracted.txt"
    before = list_of_files.read_text().splitlines() if list_of_files.exists() else []
    for path in set(before) - set(found):
        (output / path).unlink(missing_ok=True)
    output.mkdir(parents=True, exist_ok=True)
    list_of_files.write_text("".join(f"{path}\n" for path in found))
    for name, text in found.items():
        path = output / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
    return list(found)


def main():
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        for path in extract(Path(sys.argv[1]), [Path(page) for page in sys.argv[2:]]):
            if not path.startswith("bin/"):
                print(path.removesuffix(".cpp"))
    except (PageError, OSError) as error:
        print(f"extract_examples: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
