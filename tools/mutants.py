#!/usr/bin/env python3
"""Plants each fault in turn and checks that the tests find it.

The engine must have been built with STRATA_PLANTED_FAULTS (`./dev mutants` does). A fault is switched
on by the environment variable STRATA_PLANTED_FAULT. Each must make the property suite fail, within
as many programs as --programs says, or else the unit tests that the list names for it. Once, nothing
is planted: then all of it must pass.

usage: mutants.py [--build DIR] [--programs N] [--seed S] [NAME...]
  NAME...  only these faults
exit code: 0 every fault was found, 1 one survived or the tests fail without any, 2 wrong use
"""

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import check_planted_faults  # noqa: E402

# A deadlock is one way in which a fault shows; the tests' own guards end it after so long.
GUARD_SECONDS = 8
# Far above what a run takes; only for faults that keep even the guards from their work.
LIMIT_SECONDS = 900


class Result:
    def __init__(self, found_by, detail, seconds):
        self.found_by, self.detail, self.seconds = found_by, detail, seconds


def run(command, fault):
    """(exit code or None for a time-out, output, seconds) of a command with that fault planted."""
    environment = dict(os.environ, STRATA_GUARD_SECONDS=str(GUARD_SECONDS))
    environment.pop("STRATA_PLANTED_FAULT", None)
    if fault:
        environment["STRATA_PLANTED_FAULT"] = fault
    start = time.monotonic()
    # A group of its own, so that what a hanging program started goes with it.
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.STDOUT, errors="replace",
                          start_new_session=True) as process:
        try:
            output, _ = process.communicate(timeout=LIMIT_SECONDS)
            code = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            output, _ = process.communicate()
            code = None
    return code, output, time.monotonic() - start


def by_property(build, options, fault):
    """How the property suite takes the fault: a Result, with found_by None if it does not see it."""
    command = [str(build / "tests/bin/property_run"), "--programs", str(options.programs),
               "--seed", str(options.seed)]
    code, output, seconds = run(command, fault)
    if code == 0:
        return Result(None, "", seconds)
    found = re.search(r"^found: (.*)$", output, re.MULTILINE)
    return Result("property", found.group(1) if found else last_line(output), seconds)


def by_unit(build, tests, fault):
    """The same for unit tests, given as PROGRAM:FILTER."""
    program, _, pattern = tests.partition(":")
    command = [str(build / "tests/bin" / program), "--gtest_brief=1", "--gtest_filter=" + pattern]
    code, output, seconds = run(command, fault)
    if code == 0:
        return Result(None, "", seconds)
    if re.search(r"0 tests ran|No tests? to run", output):
        return Result(None, "there are no such tests: " + tests, seconds)
    failed = re.search(r"^\[  FAILED  \] (\S+)", output, re.MULTILINE)
    return Result(program, failed.group(1) if failed else last_line(output), seconds)


def last_line(output):
    lines = [line for line in output.splitlines() if line.strip()]
    return lines[-1][:100] if lines else "no output"


def try_fault(build, options, fault, unit_tests):
    result = by_property(build, options, fault)
    seconds = result.seconds
    for tests in unit_tests:
        if result.found_by:
            break
        result = by_unit(build, tests, fault)
        seconds += result.seconds
    result.seconds = seconds
    return result


def print_row(name, result):
    found_by = result.found_by or "SURVIVED"
    print(f"{name:38} {found_by:12} {result.seconds:6.1f} s  {result.detail}", flush=True)


def check_clean(build, options, faults):
    """All that is used below passes when nothing is planted."""
    results = [by_property(build, options, None)]
    results += [by_unit(build, tests, None) for tests in
                sorted({tests for _, unit_tests in faults for tests in unit_tests})]
    for result in results:
        if result.found_by or result.detail:
            print(f"the tests fail with no fault planted: {result.found_by}: {result.detail}")
            return False
    print_row("(nothing planted)", Result("passes", "", sum(r.seconds for r in results)))
    return True


def main():
    parser = argparse.ArgumentParser(prog="mutants")
    parser.add_argument("--build", type=Path, default=ROOT / "build/mutants")
    parser.add_argument("--programs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("name", nargs="*")
    options = parser.parse_args()

    faults = check_planted_faults.listed(ROOT)
    unknown = set(options.name) - {name for name, _ in faults}
    if unknown:
        print("no such fault: " + ", ".join(sorted(unknown)), file=sys.stderr)
        return 2
    if options.name:
        faults = [(name, tests) for name, tests in faults if name in options.name]

    print(f"{'fault':38} {'found by':12} {'time':>8}  how", flush=True)
    if not check_clean(options.build, options, faults):
        return 1
    survivors = []
    for name, unit_tests in faults:
        result = try_fault(options.build, options, name, unit_tests)
        print_row(name, result)
        if not result.found_by:
            survivors.append(name)
    print(f"{len(faults) - len(survivors)} of {len(faults)} faults were found")
    if survivors:
        print("survived: " + ", ".join(survivors))
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
