#!/usr/bin/env bash
# Repeats the tests of whole process trees where it hurts: with every CPU taken by others, on one
# core, and under the sanitizers. `./dev soak` builds what this needs and calls it.
#
#   tools/soak.sh [ROUNDS] [FILTER]
#
# ROUNDS is 20 by default; FILTER is a regular expression for the names of tests. Prints, for each
# condition, rounds passed and failed, and how long a round took; then every test that failed, how
# often and under what. The output of failed tests is kept in build/soak/. Exit code 1 if any failed.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."

ROUNDS=${1:-20}
FILTER=${2:-.}
[[ $ROUNDS =~ ^[1-9][0-9]*$ ]] || {
  echo "soak: '$ROUNDS' is not a number of rounds" >&2
  exit 2
}

LOGS=build/soak
rm -rf "$LOGS"
mkdir -p "$LOGS"
: >"$LOGS/failed"

STRESS=''
stop_stress() {
  if [[ -n $STRESS ]]; then
    kill "$STRESS" 2>/dev/null || true
    wait "$STRESS" 2>/dev/null || true
    STRESS=''
  fi
}
trap stop_stress EXIT

# run_once CONDITION ROUND PRESET LABELS [PREFIX...]: one pass over the tests; notes what failed.
run_once() {
  local condition=$1 round=$2 preset=$3 labels=$4
  shift 4
  local log=$LOGS/$condition-$round-$preset.log
  if "$@" ctest --preset "$preset" -L "$labels" -R "$FILTER" --no-tests=ignore -j 1 >"$log" 2>&1; then
    rm "$log"
    return 0
  fi
  # Lines like "  17 - integration_node.NodeStart.X (Failed)".
  sed -n '/The following tests FAILED/,$p' "$log" |
    sed -n "s/^[[:space:]]*[0-9]* - \([^ ]*\).*(\([^()]*\)).*/$condition \1 \2/p" >>"$LOGS/failed"
  return 1
}

# round_under CONDITION ROUND: each condition is a line of the table.
round_under() {
  local condition=$1 round=$2 status=0 prefix=()
  case $condition in
    cpus_taken)
      stress-ng --cpu 8 --timeout 0 --quiet &
      STRESS=$!
      run_once "$condition" "$round" release '^integration' || status=1
      run_once "$condition" "$round" debug '^fault' || status=1
      stop_stress
      ;;
    one_core)
      run_once "$condition" "$round" release '^integration' taskset -c 0 || status=1
      run_once "$condition" "$round" debug '^fault' taskset -c 0 || status=1
      ;;
    asan)
      run_once "$condition" "$round" asan '^(integration|fault)' || status=1
      ;;
    tsan)
      # The thread sanitizer of g++ 12 can't live with much randomisation of addresses.
      if setarch -R true 2>/dev/null; then prefix=(setarch -R); fi
      run_once "$condition" "$round" tsan '(unit|integration|fault).*concurrent' \
        "${prefix[@]}" || status=1
      ;;
  esac
  return "$status"
}

# The bounds that the tests promise, five times.
export STRATA_TEST_TIME_FACTOR=5

table=()
failed=0
for condition in cpus_taken one_core asan tsan; do
  good=0 bad=0 times=()
  for ((round = 1; round <= ROUNDS; ++round)); do
    start=$SECONDS
    if round_under "$condition" "$round"; then good=$((good + 1)); else bad=$((bad + 1)); fi
    times+=($((SECONDS - start)))
    printf 'soak: %s, round %d of %d: %d s, %d failed so far\n' \
      "$condition" "$round" "$ROUNDS" "${times[-1]}" "$bad"
  done
  mapfile -t sorted < <(printf '%s\n' "${times[@]}" | sort -n)
  table+=("$(printf '%-12s %7d %7d %7d s %7d s %7d s' "$condition" "$good" "$bad" "${sorted[0]}" \
    "${sorted[$((ROUNDS / 2))]}" "${sorted[-1]}")")
  if [[ $bad -gt 0 ]]; then failed=1; fi
done

printf '\n%-12s %7s %7s %9s %9s %9s\n' condition passed failed shortest median longest
printf '%s\n' "${table[@]}"
if [[ -s $LOGS/failed ]]; then
  printf '\ntests that failed (times, condition, test, how); their output is in %s:\n' "$LOGS"
  sort "$LOGS/failed" | uniq -c | sort -rn
fi
exit $failed
