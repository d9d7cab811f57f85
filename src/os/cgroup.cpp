#include "os/cgroup.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "os/procfs.hpp"

namespace strata::os {
namespace {

/// Calls `visit` with each line of `text`.
template <class Visit>
void for_each_line(std::string_view text, Visit visit) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    visit(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
}

std::string find_parent_directory() {
  const auto groups = read_small_file("/proc/self/cgroup");
  if (!groups) return {};
  std::string own;
  for_each_line(*groups, [&](std::string_view line) {
    if (line.starts_with("0::")) own = line.substr(3);  // Version 2's only hierarchy.
  });
  // Outside of our namespace there is nothing that we could write to.
  if (own.empty() || own.starts_with("/..")) return {};
  for (const char* mount : {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}) {
    std::string path = own == "/" ? std::string(mount) : mount + own;
    // Only version 2 has this file.
    if (::access((path + "/cgroup.subtree_control").c_str(), F_OK) != 0) continue;
    if (::access(path.c_str(), W_OK) == 0 && ::access((path + "/cgroup.procs").c_str(), W_OK) == 0)
      return path;
  }
  return {};
}

bool write_file(const std::string& path, std::string_view text) noexcept {
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  return fd && ::write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

/// Takes a number and the '-' before it off the front of `text`.
bool take_number(std::string_view& text, std::uint64_t& value) noexcept {
  if (!text.starts_with('-')) return false;
  text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

/// Whether a group of that name is one that create() made, for a process that is no more.
bool is_stale(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return false;
  name.remove_prefix(prefix.size());
  std::uint64_t pid = 0;
  std::uint64_t start_time = 0;
  std::uint64_t count = 0;
  if (!take_number(name, pid) || !take_number(name, start_time) || !take_number(name, count) ||
      !name.empty()) {
    return false;
  }
  const auto owner = read_process(static_cast<pid_t>(pid));
  return !owner || owner->start_time != start_time || owner->state == 'Z';
}

/// The directories in `directory` whose names `wanted` accepts.
template <class Wanted>
std::vector<std::string> subdirectories(const std::string& directory, Wanted wanted) {
  const auto close = [](DIR* open) { ::closedir(open); };
  const std::unique_ptr<DIR, decltype(close)> open(::opendir(directory.c_str()), close);
  std::vector<std::string> found;
  if (open == nullptr) return found;
  while (const dirent* entry = ::readdir(open.get())) {
    const std::string_view name = entry->d_name;
    if (entry->d_type == DT_DIR && name != "." && name != ".." && wanted(name)) {
      found.push_back(directory + "/" + entry->d_name);
    }
  }
  return found;
}

/// Removes a group in which there is no process, with those below it. False if it is still there.
bool remove_group(const std::string& path) {
  for (const std::string& below : subdirectories(path, [](std::string_view) { return true; }))
    (void)remove_group(below);
  return ::rmdir(path.c_str()) == 0 || errno == ENOENT;
}

}  // namespace

std::string Cgroup::parent_directory() { return find_parent_directory(); }

std::optional<Cgroup> Cgroup::create(std::string_view prefix) {
  static std::atomic<std::uint64_t> created{0};  // Numbers only; orders nothing.
  const std::string parent = find_parent_directory();
  if (parent.empty()) return std::nullopt;
  const std::string path = parent + "/" + name_prefix(prefix) +
                           std::to_string(created.fetch_add(1, std::memory_order_relaxed));
  if (::mkdir(path.c_str(), 0755) != 0) return std::nullopt;
  Cgroup group(path, UniqueFd(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)));
  // Not a group that processes may join: below a threaded one, say.
  const auto type = read_small_file(path + "/cgroup.type");
  if (!group.directory_ || !type || !type->starts_with("domain") ||
      type->starts_with("domain invalid")) {
    return std::nullopt;
  }
  return group;
}

std::string Cgroup::name_prefix(std::string_view prefix) {
  const auto self = read_process(::getpid());
  return std::string(prefix) + "-" + std::to_string(::getpid()) + "-" +
         std::to_string(self ? self->start_time : 0) + "-";
}

int Cgroup::end_groups(const std::string& directory, std::string_view name_prefix) {
  int left = 0;
  for (const std::string& path :
       subdirectories(directory, [&](auto name) { return name.starts_with(name_prefix); })) {
    (void)write_file(path + "/cgroup.kill", "1");  // Takes those below along.
    if (!remove_group(path)) ++left;
  }
  return left;
}

int Cgroup::sweep_stale(std::string_view prefix) {
  const std::string parent = find_parent_directory();
  if (parent.empty()) return 0;
  int removed = 0;
  for (const std::string& path :
       subdirectories(parent, [&](auto name) { return is_stale(name, prefix); })) {
    // Nothing is killed: an owner in another namespace of process ids only seems to be gone.
    if (remove_group(path)) ++removed;
  }
  return removed;
}

Cgroup::Cgroup(std::string path, UniqueFd directory) noexcept
    : path_(std::move(path)), directory_(std::move(directory)) {}

Cgroup::Cgroup(Cgroup&& other) noexcept
    : path_(std::exchange(other.path_, {})), directory_(std::move(other.directory_)) {}

Cgroup& Cgroup::operator=(Cgroup&& other) noexcept {
  if (this == &other) return *this;
  remove();
  path_ = std::exchange(other.path_, {});
  directory_ = std::move(other.directory_);
  return *this;
}

Cgroup::~Cgroup() { remove(); }

bool Cgroup::remove() noexcept {
  if (path_.empty()) return true;
  const int saved = errno;
  // A worker that had workers of its own has left their groups in it.
  const bool gone = ::rmdir(path_.c_str()) == 0 || errno == ENOENT || remove_group(path_);
  errno = saved;
  if (gone) path_.clear();
  return gone;
}

bool Cgroup::kill() noexcept {
  if (write_file(path_ + "/cgroup.kill", "1")) return true;
  // Before Linux 5.14: one by one, and again, since they may fork meanwhile.
  for (int tries = 0; tries < 100; ++tries) {
    const auto processes = read_small_file(path_ + "/cgroup.procs");
    if (!processes) return false;
    if (processes->empty()) return true;
    for_each_line(*processes, [](std::string_view line) {
      pid_t pid = 0;
      std::from_chars(line.data(), line.data() + line.size(), pid);
      if (pid > 0) ::kill(pid, SIGKILL);
    });
  }
  return false;
}

bool Cgroup::populated() const {
  const auto events = read_small_file(path_ + "/cgroup.events");
  return events && events->find("populated 1") != std::string::npos;
}

}  // namespace strata::os
