#!/usr/bin/env bash
# usage: word_count_test.sh WORD_COUNT
# It counts right, says where its tasks ran, and refuses what it can't read.
set -euo pipefail

program=$(readlink -f "$1")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

failed=0
# expect CODE TEXT ARGUMENT...: it ends with this code and prints this text.
expect() {
  local code=$1 text=$2 status=0
  shift 2
  "$program" "$@" >output 2>&1 || status=$?
  if [[ $status -ne $code ]] || ! grep -qE -- "$text" output; then
    printf 'word_count %s: exit code %d and "%s" expected, but there was %d and:\n' \
      "$*" "$code" "$text" "$status"
    cat output
    failed=1
  fi
}

expect 0 '^right$'
for worker in 'chip\[0\]' 'chip\[1\]' 'sub\[[01]\]'; do
  grep -qE "^  node/$worker +ran [0-9]+ tasks" output || { echo "nothing ran on $worker"; failed=1; }
done
printf 'One fish, two fish; red fish. BLUE fish' >fish
expect 0 '^ +4  fish$' fish
printf 'word' >one
expect 0 '1 words, 1 different' one
: >nothing
expect 0 'is empty' nothing
printf '... 123 ...\n' >no_words
expect 0 '0 words, 0 different' no_words
# Many times the same, and one long word.
for _ in {1..2000}; do printf 'so it goes on and on '; done >long
printf 'a%.0s' {1..100000} >>long
expect 0 '^ +4000  on$' long
expect 1 "can't read 'no/such/file'" no/such/file
expect 1 "can't read '/'" /
expect 0 'Exit code' --help
expect 2 'Exit code' --no-such-option
expect 2 'Exit code' one nothing
exit $failed
