// The interface between Strata and chip programs: which version it has, and where its headers are.
//
// A chip program and the library that runs it share layouts and inline code. So a program carries
// the hash of the headers that it was compiled with, the library that of its own, and only equals
// are loaded.
//
// Thread safety: every function may be called from any thread.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace strata::chip {

/// Hash of `version` and of strata/chip.hpp and strata/kernel.hpp below `include` with all that
/// they include of Strata; nothing if one of these headers can't be read.
[[nodiscard]] std::optional<std::string> interface_version_of(const std::filesystem::path& include,
                                                              std::string_view version);

/// What this library was built with.
[[nodiscard]] std::string_view interface_version() noexcept;

/// The folder that has this library's strata/kernel.hpp: what STRATA_INCLUDE_DIR says; else beside
/// this executable, beside the library, where it was installed, where it was built. Throws
/// ChipError (missing_headers, stale_program) that names what was tried.
[[nodiscard]] std::filesystem::path find_interface_headers();

}  // namespace strata::chip
