#!/usr/bin/env python3
"""Checks the Promela models with spin, and that planted faults are found.

Each model in MODELS is gone through whole, and must have no error; then once with each of its
planted faults, and each must have one.

usage: check_models.py [--spin SPIN] [--cc CC] [--table PRINT_TABLE] [NAME...]
       the models named, or all. PRINT_TABLE: the program of print_table.cpp, which the models that
       have the supervisor's table in them need.

Exit code 0 if all is as it should be, 1 if not, 77 where spin or the C compiler is missing.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).resolve().parent


@dataclass
class Model:
    """One file beside this script."""

    file: str
    # Each an environment in which the model must hold: macro definitions for spin.
    holds: list = field(default_factory=lambda: [[]])
    # Macros that each plant one fault; looked for with `fault_with` in addition.
    faults: list = field(default_factory=list)
    fault_with: list = field(default_factory=list)
    # Whether it includes table.pml, which is made from the code each time.
    has_table: bool = False


MODELS = {
    "mailbox": Model(
        file="mailbox.pml",
        holds=[[], ["FRAMES=4", "SLOTS=1"], ["FRAMES=4", "SLOTS=3"], ["LIVE", "FRAMES=2"]],
        faults=[
            "NO_RECHECK",
            "CLEAR_AFTER_CHECK",
            "NO_FENCE_PRODUCER",
            "NO_FENCE_CONSUMER",
            "WAKE_BEFORE_PUBLISH",
            "WAKE_WITHOUT_CLEAR",
            "INTERRUPT_UNCHECKED",
        ],
    ),
    "start_close": Model(
        file="start_close.pml",
        # One place with a long life; two places; and no run of the model goes on for ever.
        holds=[
            ["PROCESSES=1", "SPAWNS=3", "MESSAGES=3", "ROUNDS=2", "OTHERS=2"],
            ["PROCESSES=2"],
            ["PROCESSES=1", "NO_CYCLES"],
        ],
        faults=[
            "FAULT_ASKED_FOR_EVER",
            "FAULT_KILL_IS_TRUSTED",
            "FAULT_CLOSED_CHANNEL_IGNORED",
            "FAULT_BURIED_WHILE_IT_LIVES",
            "FAULT_SETTLE_DOES_NOT_LOOK",
            "FAULT_STOP_DURING_START_FORGOTTEN",
            "FAULT_STOP_OVERTAKES_START",
            "FAULT_START_FAILED_CLOSES",
            "FAULT_WAIT_FOR_STATE",
        ],
        fault_with=["PROCESSES=1", "SPAWNS=3", "MESSAGES=3", "ROUNDS=2"],
        has_table=True,
    ),
}


class CheckFailed(Exception):
    """Spin, or what it made, did not run to its end."""


def run(command, folder):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    output = done.stdout + done.stderr
    if done.returncode != 0:
        raise CheckFailed(f"{' '.join(map(str, command))}\n{output}")
    return output


def count_errors(args, model, macros):
    """How many errors spin finds in the model, and how many states it went through."""
    live = "LIVE" in macros
    cycles = "NO_CYCLES" in macros
    with tempfile.TemporaryDirectory(prefix="strata-model-") as folder:
        defines = [f"-D{macro}" for macro in macros]
        # (A model includes what lies beside it.)
        shutil.copy(FOLDER / model.file, folder)
        if model.has_table:
            Path(folder, "table.pml").write_text(run([args.table, "promela"], folder))
        run([args.spin, "-a", *defines, model.file], folder)
        # Without -DLIVE only safety is asked for, which takes less memory. -DNFAIR: as many
        # processes as fairness has to count. -DNP: every cycle is an error, since no model says
        # what progress is.
        options = ["-DNFAIR=3"] if live else ["-DNP"] if cycles else ["-DSAFETY"]
        run([args.cc, "-O1", "-w", "-DVECTORSZ=4096", "-DCOLLAPSE", *options, "-o", "pan", "pan.c"],
            folder)
        command = ["./pan", "-m2000000", *(["-a", "-f"] if live else ["-l"] if cycles else [])]
        output = run(command, folder)
    errors = re.search(r"errors: (\d+)", output)
    states = re.search(r"^\s*(\S+) states, stored", output, re.MULTILINE)
    if errors is None or states is None:
        raise CheckFailed(f"no result in:\n{output}")
    if "max search depth too small" in output or "out of memory" in output:
        raise CheckFailed(f"it did not go through everything:\n{output}")
    return int(errors.group(1)), states.group(1)


def check(args, name, model):
    """Prints a line per check; true if all are as they should be."""
    good = True
    for macros in model.holds:
        errors, states = count_errors(args, model, macros)
        print(f"{name} {' '.join(macros) or '(as it is)'}: {errors} errors in {states} states",
              flush=True)
        good = good and errors == 0
    for fault in model.faults:
        errors, _ = count_errors(args, model, [*model.fault_with, fault])
        print(f"{name} with {fault}: {'found' if errors else 'NOT FOUND'}", flush=True)
        good = good and errors != 0
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--spin", default="spin")
    parser.add_argument("--cc", default="cc")
    parser.add_argument("--table", metavar="PRINT_TABLE", type=lambda path: Path(path).resolve())
    parser.add_argument("names", nargs="*", choices=[[], *MODELS], metavar="NAME")
    args = parser.parse_args()
    names = args.names or list(MODELS)
    if args.table is None and any(MODELS[name].has_table for name in names):
        parser.error("--table is needed")
    for tool in (args.spin, args.cc):
        if shutil.which(tool) is None:
            print(f"check_models: {tool} is not installed; nothing was checked")
            return 77
    try:
        good = all([check(args, name, MODELS[name]) for name in names])
    except CheckFailed as problem:
        print(f"check_models: {problem}")
        return 1
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
