// Files without a name, by which `strata test` and its supervisors hand texts to each other, and
// files with one, read and written whole.
//
// Thread safety: free functions; any thread.
#pragma once

#include <string>

#include "os/unique_fd.hpp"

namespace strata::cli::jobs {

/// In the folder for temporary files, or in memory where that can't be written; it is gone once
/// nobody has it open. Throws SystemError.
[[nodiscard]] os::UniqueFd make_unnamed_file();

/// All that is in it, wherever the descriptor's offset is. Throws SystemError.
[[nodiscard]] std::string read_file(int fd);
/// Throws SystemError.
void write_file(int fd, const std::string& text);

/// The whole of a file. Throws SystemError that names it.
[[nodiscard]] std::string read_file(const std::string& path);
/// Puts it in the place of what was there, in one step. Throws SystemError that names the file;
/// then what was there is as it was, and nothing else is left.
void write_file(const std::string& path, const std::string& text);

/// From now on a write beyond this process's limit of the size of files fails, as one to a full
/// disk does, and does not end the process.
void outlive_file_size_limit() noexcept;

}  // namespace strata::cli::jobs
