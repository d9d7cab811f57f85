#include "chip/program/program_interface.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <system_error>
#include <utility>
#include <vector>

#include "strata/chip_error.hpp"
#include "strata/version.hpp"
#include "strata_interface_version.hpp"

namespace strata::chip {
namespace {

namespace fs = std::filesystem;

/// In this order.
std::vector<fs::path> usual_places() {
  std::vector<fs::path> places;
  std::error_code failed;
  if (const fs::path executable = fs::read_symlink("/proc/self/exe", failed); !failed) {
    places.push_back(executable.parent_path() / ".." / "include");
  }
  Dl_info library = {};
  if (dladdr(reinterpret_cast<const void*>(&interface_version), &library) != 0 &&
      library.dli_fname != nullptr) {
    const fs::path folder = fs::path(library.dli_fname).parent_path();
    places.push_back(folder / ".." / "include");
    places.push_back(folder / ".." / ".." / "include");  // From lib/x86_64-linux-gnu.
  }
#ifdef STRATA_SOURCE_INCLUDEDIR
  places.emplace_back(STRATA_SOURCE_INCLUDEDIR);
#endif
#ifdef STRATA_INSTALL_INCLUDEDIR
  places.emplace_back(STRATA_INSTALL_INCLUDEDIR);
#endif
  std::vector<fs::path> each_once;
  for (const fs::path& place : places) {
    fs::path normal = place.lexically_normal();
    if (std::find(each_once.begin(), each_once.end(), normal) == each_once.end()) {
      each_once.push_back(std::move(normal));
    }
  }
  return each_once;
}

}  // namespace

std::string_view interface_version() noexcept { return STRATA_INTERFACE_VERSION; }

fs::path find_interface_headers() {
  const char* const given = std::getenv("STRATA_INCLUDE_DIR");
  const bool is_given = given != nullptr && *given != '\0';
  std::string tried;
  bool other_version = false;
  for (const fs::path& place : is_given ? std::vector<fs::path>{given} : usual_places()) {
    const auto version = interface_version_of(place, strata::version());
    if (version == interface_version()) return fs::absolute(place).lexically_normal();
    other_version = other_version || version.has_value();
    tried += fmt::format("\n  {}: {}", place.string(),
                         version ? "headers of another version" : "no strata/kernel.hpp");
  }
  throw ChipError(
      other_version ? ErrorCode::stale_program : ErrorCode::missing_headers,
      fmt::format("can't find the headers that this Strata ({}) was built with, which kernels "
                  "include; {}. Tried:{}",
                  strata::version(),
                  is_given ? "the environment variable STRATA_INCLUDE_DIR says where they are"
                           : "build Strata again if its headers have changed since, or set "
                             "STRATA_INCLUDE_DIR to the folder that has strata/kernel.hpp",
                  tried));
}

}  // namespace strata::chip
