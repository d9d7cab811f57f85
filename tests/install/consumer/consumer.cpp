#include "all_headers.hpp"

#include <cstdio>

int main() {
  const auto version = strata::version();
  std::printf("strata %.*s\n", static_cast<int>(version.size()), version.data());
  return version.empty() ? 1 : 0;
}
