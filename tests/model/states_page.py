#!/usr/bin/env python3
"""Checks that the table in docs/reference/worker-states.md is the one of the code.

usage: states_page.py PRINT_TABLE PAGE [--update]

PRINT_TABLE is the program of print_table.cpp. With --update the page gets the table. Exit code 0 if
the page has it (at last), 1 if not.
"""

import subprocess
import sys
from pathlib import Path

BEGIN = "<!-- table: made by tests/model/states_page.py -->\n"
END = "<!-- end of table -->\n"


def main(program, page, update):
    table = subprocess.run([program, "markdown"], check=True, capture_output=True, text=True).stdout
    text = Path(page).read_text()
    before, begin, rest = text.partition(BEGIN)
    there, end, after = rest.partition(END)
    if not begin or not end:
        print(f"{page} has no place for the table, between {BEGIN.strip()} and {END.strip()}")
        return 1
    if there == table:
        return 0
    if update:
        Path(page).write_text(before + BEGIN + table + END + after)
        return 0
    print(f"{page} does not have the table of src/node/child_machine.hpp; give it that by:")
    print(f"  tests/model/states_page.py {program} {page} --update")
    return 1


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4) or sys.argv[3:] not in ([], ["--update"]):
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:] == ["--update"]))
