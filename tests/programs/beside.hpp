// Path of a file in the folder of the test libraries, found from within one of them.
#pragma once

#include <dlfcn.h>

#include <string>

namespace strata_test {

inline std::string beside(const std::string& name) {
  static const char anchor = 0;
  Dl_info info{};
  ::dladdr(&anchor, &info);
  const std::string own = info.dli_fname;
  return own.substr(0, own.rfind('/') + 1) + name;
}

}  // namespace strata_test
