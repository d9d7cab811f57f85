#include "node/worker_program.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include "strata/error.hpp"

namespace strata::node {
namespace {

constexpr char kName[] = "strata-worker";

/// Opens a program, or says in `why_not` why it is none.
os::UniqueFd open_program(const std::string& path, std::string& why_not) {
  os::UniqueFd file(open(path.c_str(), O_PATH | O_CLOEXEC));
  struct stat status = {};
  if (!file || fstat(file.get(), &status) != 0) {
    why_not = std::strerror(errno);
  } else if (!S_ISREG(status.st_mode)) {
    why_not = "not a file";
  } else if (faccessat(AT_FDCWD, path.c_str(), X_OK, AT_EACCESS) != 0) {
    why_not = std::string("can't be executed: ") + std::strerror(errno);
  } else {
    return file;
  }
  return {};
}

OpenProgram open_given(const std::string& path, const std::string& given_by) {
  std::string why_not;
  os::UniqueFd file = open_program(path, why_not);
  if (!file) {
    throw InvalidState("the program of worker processes, " + path + " as given by " + given_by +
                       ", can't be used: " + why_not);
  }
  return {.path = path, .file = std::move(file)};
}

/// Where strata-worker may be, without what the caller gave; each place once.
std::vector<std::string> usual_places() {
  std::vector<std::string> places;
  const auto add = [&](const std::filesystem::path& directory) {
    std::string place = (directory / kName).lexically_normal().string();
    if (std::find(places.begin(), places.end(), place) != places.end()) return;
    places.push_back(std::move(place));
  };
  std::error_code failed;
  const auto executable = std::filesystem::read_symlink("/proc/self/exe", failed);
  if (!failed) {
    add(executable.parent_path());
    add(executable.parent_path() / ".." / "bin");
  }
#ifdef STRATA_BUILD_BINDIR
  add(STRATA_BUILD_BINDIR);
#endif
#ifdef STRATA_INSTALL_BINDIR
  add(STRATA_INSTALL_BINDIR);
#endif
  const char* const path = std::getenv("PATH");
  std::string_view rest = path == nullptr ? "" : path;
  while (!rest.empty()) {
    const auto end = rest.find(':');
    const std::string_view directory = rest.substr(0, end);
    if (!directory.empty()) add(std::filesystem::path(directory));
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  return places;
}

}  // namespace

OpenProgram find_worker_program(const std::string& option) {
  if (!option.empty()) return open_given(option, "WorkerOptions::worker_program");
  if (const char* const path = std::getenv("STRATA_WORKER_PROGRAM"); path != nullptr && *path) {
    return open_given(path, "the environment variable STRATA_WORKER_PROGRAM");
  }
  std::string tried;
  for (const auto& path : usual_places()) {
    std::string why_not;
    if (os::UniqueFd file = open_program(path, why_not)) {
      return {.path = path, .file = std::move(file)};
    }
    tried += "\n  " + path + ": " + why_not;
  }
  throw InvalidState(std::string("can't find the program ") + kName +
                     "; give its path by WorkerOptions::worker_program or the environment variable"
                     " STRATA_WORKER_PROGRAM. Tried:" +
                     tried);
}

}  // namespace strata::node
