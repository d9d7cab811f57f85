#!/usr/bin/env bash
# usage: demo_test.sh DEMO
# The demo is right at small sizes, says what is wrong with its options, and fails as it should.
set -euo pipefail

demo=$(readlink -f "$1")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

failed=0
# expect CODE TEXT ARGUMENT...: the demo ends with this code and prints this text.
expect() {
  local code=$1 text=$2 status=0
  shift 2
  "$demo" "$@" >output 2>&1 || status=$?
  if [[ $status -ne $code ]] || ! grep -qF -- "$text" output; then
    printf 'demo %s: exit code %d and "%s" expected, but there was %d and:\n' \
      "$*" "$code" "$text" "$status"
    cat output
    failed=1
  fi
}

small=(--size 96 --tile 16 --repeat 1)
expect 0 'right' "${small[@]}" --dot graph.dot
# 6 x 6 tiles: 6 potrf, 15 trsm, 15 syrk, 20 gemm.
expect 0 'tasks            56' "${small[@]}" --dot graph.dot
if [[ $(grep -c 'label=' graph.dot) -ne 56 ]]; then
  echo "graph.dot does not have the 56 tasks"
  failed=1
fi
expect 0 'lanes            3' "${small[@]}" --lanes 3 --dot graph.dot
rm -f "$(dirname "$demo")/cholesky.dot"
expect 0 'cholesky.dot' "${small[@]}"
[[ -f $(dirname "$demo")/cholesky.dot ]] || { echo "no cholesky.dot beside the demo"; failed=1; }
expect 0 'right' --size 101 --tile 17 --seed 7          # Tiles at the edges are smaller.
expect 0 'right' --size 1 --tile 1                      # One task.
expect 1 'not positive definite' "${small[@]}" --diagonal 0
expect 1 "can't write" "${small[@]}" --dot no/such/folder/x.dot
expect 0 'Exit code' --help
expect 2 "there is no option '--sise'" --sise 5
expect 2 "there is no argument '5'" 5
expect 2 '--size needs a value' --size
expect 2 "--size is '0'" --size 0
expect 2 "--size is '12x'" --size 12x
expect 2 "--tile is '-3'" --tile -3
expect 2 "--size is '99999999999999999999'" --size 99999999999999999999
expect 2 "--diagonal is 'much'" --diagonal much
expect 2 '--tile 200 is more than --size 100' --size 100 --tile 200
exit $failed
