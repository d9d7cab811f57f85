// The build id of an executable on disk: which build of a program it is.
//
// Thread safety: any thread.
#pragma once

#include <string>

namespace strata::cli {

/// In hexadecimal; empty if the file has none, or is no ELF file of this machine.
[[nodiscard]] std::string build_id_of_file(const std::string& path);

}  // namespace strata::cli
