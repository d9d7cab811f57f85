// What a fuzzer is: one function that takes any bytes. It ends the program with require() where
// what must hold does not; a crash, or what a sanitizer finds, is as bad.
//
// Thread safety: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

/// Returns 0.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace strata::fuzz {

inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: does not hold: %s\n", what);
  std::abort();
}

}  // namespace strata::fuzz
