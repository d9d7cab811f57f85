#!/usr/bin/env bash
# Installs a build into an empty prefix, moves it, and builds a small program against it twice: by
# find_package(Strata) and by pkg-config. Then programs with worker processes, which find what they
# need without any environment variable.
#
# usage: install_test.sh CMAKE BUILD_DIR GENERATOR COMPILER BUILD_TYPE
set -euo pipefail

cmake=$1 build=$2 generator=$3 compiler=$4 build_type=$5
consumer=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/consumer
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$cmake" --install "$build" --prefix "$work/first" >/dev/null
mv "$work/first" "$work/prefix"

# A program that includes every installed header, so that none needs a file that stayed behind.
(cd "$work/prefix/include" && find strata -name '*.hpp' | sort) |
  sed 's/.*/#include <&>/' >"$work/all_headers.hpp"

"$cmake" -S "$consumer" -B "$work/cmake" -G "$generator" -DCMAKE_PREFIX_PATH="$work/prefix" \
  -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_BUILD_TYPE="$build_type" \
  -DCONSUMER_INCLUDE="$work" >/dev/null
"$cmake" --build "$work/cmake"
"$work/cmake/consumer"
# The chip program has been built, and is not built again.
test -f "$work/cmake/consumer.strata"
cp -p "$work/cmake/consumer.strata" "$work/consumer.strata"
"$cmake" --build "$work/cmake"
test ! "$work/cmake/consumer.strata" -nt "$work/consumer.strata"
unset STRATA_WORKER_PROGRAM
"$work/cmake/this_program"
"$work/cmake/with_library" "$work/prefix/bin/strata-worker" by_package
# A program that is installed beside strata-worker finds it by itself.
cp "$work/cmake/with_library" "$work/prefix/bin"
"$work/prefix/bin/with_library" "$work/prefix/bin/strata-worker"
"$work/prefix/bin/strata" --version

PKG_CONFIG_PATH=$(dirname "$(find "$work/prefix" -name strata.pc)")
export PKG_CONFIG_PATH
read -ra cflags <<<"$(pkg-config --cflags strata)"
read -ra libs <<<"$(pkg-config --libs strata)"
"$compiler" -std=c++20 -I "$work" "${cflags[@]}" "$consumer/consumer.cpp" -o "$work/consumer" \
  "${libs[@]}" -Wl,-rpath,"$(pkg-config --variable=libdir strata)"
"$work/consumer"
