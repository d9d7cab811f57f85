#!/usr/bin/env python3
"""Runs clang-tidy on what we own (src/ and include/), and only on what has changed.

A file is clean for good once clang-tidy had nothing to say about it: a stamp named after the hash of
all that went into that verdict (the file, the project's headers that it includes, its compile
command, .clang-tidy, the version of clang-tidy) is kept in the build folder.

usage: tidy.py --build build/release [--jobs N]    exit code 1 if there is any finding
"""

import argparse
import hashlib
import json
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INCLUDE_DIRS = [ROOT / "src", ROOT / "include"]
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)


def project_headers(path, seen):
    """Adds to `seen` all headers of this project that path includes, directly or not."""
    for name in INCLUDE.findall(path.read_text()):
        for folder in [path.parent, *INCLUDE_DIRS]:
            header = (folder / name).resolve()
            if header.is_file() and ROOT in header.parents:
                if header not in seen:
                    seen.add(header)
                    project_headers(header, seen)
                break


def verdict_key(path, command, common):
    headers = set()
    project_headers(path, headers)
    digest = hashlib.sha256(common)
    digest.update(command.encode())
    for part in [path, *sorted(headers)]:
        digest.update(str(part).encode() + b"\0" + part.read_bytes() + b"\0")
    return digest.hexdigest()


def files_to_check(build):
    """The compile command of each file to look at: all of src/, and, for public headers that
    nothing in src/ includes, the generated file that includes just that header."""
    commands = json.loads((build / "compile_commands.json").read_text())
    # A file that two targets compile is looked at once.
    commands = {Path(c["file"]): c["command"] for c in commands}
    chosen = {path: text for path, text in commands.items() if ROOT / "src" in path.parents}
    reached = set()
    for path in chosen:
        project_headers(path, reached)
    for path, text in commands.items():
        if "verify_interface_header_sets" in str(path):
            if (ROOT / "include/strata" / path.stem) not in reached:
                chosen[path] = text
    return chosen


# A finding starts with its place; the lines after it belong to it.
FINDING = re.compile(r"^(?=/[^\n]*:\d+:\d+: (?:error|warning):)", re.MULTILINE)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    build = options.build.resolve()
    stamps = build / "tidy"
    stamps.mkdir(exist_ok=True)

    version = subprocess.run(["clang-tidy", "--version"], check=True, capture_output=True).stdout
    common = version + (ROOT / ".clang-tidy").read_bytes()
    files = files_to_check(build)
    keys = {path: verdict_key(path, command, common) for path, command in files.items()}
    for old in set(p.name for p in stamps.iterdir()) - set(keys.values()):
        (stamps / old).unlink()
    todo = sorted(path for path, key in keys.items() if not (stamps / key).exists())

    printing, printed = threading.Lock(), set()

    def tidy(path):
        result = subprocess.run(
            ["clang-tidy", "--quiet", "--warnings-as-errors=*",
             f"--header-filter=^{re.escape(str(ROOT))}/(src|include)/", "-p", build, path],
            capture_output=True, text=True)  # fmt: skip
        if result.returncode == 0:
            (stamps / keys[path]).touch()
        # Findings in headers are found once for each file that includes them.
        output = result.stdout or (result.stderr if result.returncode else "")
        for finding in FINDING.split(output):
            with printing:
                if finding.strip() and finding not in printed:
                    printed.add(finding)
                    print(finding.replace(f"{ROOT}/", ""), end="", flush=True)
        return result.returncode == 0

    with ThreadPoolExecutor(options.jobs) as pool:
        clean = sum(pool.map(tidy, todo))
    print(f"{len(files)} files: {len(files) - len(todo)} unchanged, {clean} clean,"
          f" {len(todo) - clean} with findings")  # fmt: skip
    return 0 if clean == len(todo) else 1


if __name__ == "__main__":
    sys.exit(main())
