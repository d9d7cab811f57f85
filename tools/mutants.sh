#!/usr/bin/env bash
# Proves the tests: plants each fault of tools/planted_faults.txt and asks whether they see it.
# `./dev mutants` builds what this needs and calls it; tools/mutants.py has the options.
set -euo pipefail
exec python3 "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/mutants.py" "$@"
