// FolderPath: nothing of it is inline, so that no compiler follows a std::string into the options
// of its users.

#include <utility>

#include "strata/chip_run_options.hpp"

namespace strata {

FolderPath::FolderPath() noexcept = default;
FolderPath::FolderPath(std::string path) noexcept : path_(std::move(path)) {}
FolderPath::FolderPath(const char* path) : path_(path) {}
FolderPath::FolderPath(const FolderPath&) = default;
FolderPath::FolderPath(FolderPath&&) noexcept = default;
FolderPath& FolderPath::operator=(const FolderPath&) = default;
FolderPath& FolderPath::operator=(FolderPath&&) noexcept = default;
FolderPath::~FolderPath() = default;

}  // namespace strata
