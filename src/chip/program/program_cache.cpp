#include "chip/program/program_cache.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <set>
#include <system_error>
#include <utility>

#include "chip/program/cache_index.hpp"
#include "os/system_error.hpp"

namespace strata::chip {
namespace {

namespace fs = std::filesystem;

/// Entries of one key: a file that goes back and forth between a few contents is compiled once
/// each.
constexpr std::size_t kEntriesPerKey = 8;
constexpr std::chrono::hours kWorkFolderAge{24};

FileStamp stamp_of(const struct stat& status) {
  return {
      .bytes = static_cast<std::uint64_t>(status.st_size),
      .modified_ns = std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec,
      .inode = status.st_ino};
}

/// Reads what is left of an open file.
std::optional<std::string> read_all(int fd, std::size_t expected) {
  std::string bytes(expected + 1, '\0');
  std::size_t done = 0;
  for (;;) {
    if (done == bytes.size()) bytes.resize(bytes.size() * 2);
    const ssize_t got = ::read(fd, bytes.data() + done, bytes.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::nullopt;
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  bytes.resize(done);
  return bytes;
}

std::optional<FileTable::Content> content_of(const std::string& path) {
  const os::UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat before = {};
  if (!file || ::fstat(file.get(), &before) != 0 || !S_ISREG(before.st_mode)) return std::nullopt;
  const auto bytes = read_all(file.get(), static_cast<std::size_t>(before.st_size));
  struct stat after = {};
  if (!bytes || ::fstat(file.get(), &after) != 0) return std::nullopt;
  if (stamp_of(before) != stamp_of(after)) return std::nullopt;
  return FileTable::Content{.stamp = stamp_of(after), .digest = digest_of(*bytes)};
}

/// Whether all that the entry depends on is as it was. Stamps that differ though the content does
/// not are brought up to date in it; `outdated` is set then.
bool still_holds(CacheEntry& entry, FileTable& files, std::int64_t now, bool& outdated) {
  for (const std::string& path : entry.absent) {
    if (files.stamp(path)) return false;
  }
  for (CacheDependency& dependency : entry.dependencies) {
    const auto& stamp = files.stamp(dependency.path);
    if (!stamp) return false;
    if (*stamp == dependency.stamp) continue;
    const auto& content = files.content(dependency.path);
    if (!content || content->digest != dependency.digest) return false;
    if (content->stamp.modified_ns >= now) continue;  // It may change again under this stamp.
    dependency.stamp = content->stamp;
    outdated = true;
  }
  return true;
}

enum class LockResult : std::uint8_t { taken, of_another, unknown };

/// Locks a folder, or says why not: another process has it, or nobody can tell.
LockResult lock_folder(const fs::path& folder, os::UniqueFd& lock, int operation) {
  lock = os::UniqueFd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!lock) return LockResult::unknown;
  while (::flock(lock.get(), operation) != 0) {
    if (errno == EINTR) continue;
    return errno == EWOULDBLOCK ? LockResult::of_another : LockResult::unknown;
  }
  return LockResult::taken;
}

bool is_old(const fs::path& folder) {
  std::error_code failed;
  const auto written = fs::last_write_time(folder, failed);
  return !failed && fs::file_time_type::clock::now() - written > kWorkFolderAge;
}

/// Removes what builds have left that died.
void remove_old_work(const fs::path& folder) {
  std::error_code failed;
  for (auto entry = fs::directory_iterator(folder, failed);
       !failed && entry != fs::directory_iterator(); entry.increment(failed)) {
    std::error_code ignored;
    os::UniqueFd lock;
    const LockResult result = lock_folder(entry->path(), lock, LOCK_EX | LOCK_NB);
    // With the lock, so that nobody takes it for a build's while it goes.
    if (result == LockResult::taken || (result == LockResult::unknown && is_old(entry->path()))) {
      fs::remove_all(entry->path(), ignored);
    }
  }
}

/// The work folders of this process.
struct LiveFolders {
  std::mutex mutex;
  std::set<fs::path> paths;  ///< Guarded by mutex.
};
LiveFolders& live_folders() {
  // Never destroyed: builds may run until the process ends.
  static auto* const folders = new LiveFolders;
  return *folders;
}

}  // namespace

const std::optional<FileStamp>& FileTable::stamp(const std::string& path) {
  const auto known = stamps_.find(path);
  if (known != stamps_.end()) return known->second;
  struct stat status = {};
  std::optional<FileStamp> found;
  if (::stat(path.c_str(), &status) == 0) found = stamp_of(status);
  return stamps_.emplace(path, found).first->second;
}

const std::optional<FileTable::Content>& FileTable::content(const std::string& path) {
  const auto known = contents_.find(path);
  if (known != contents_.end()) return known->second;
  return contents_.emplace(path, content_of(path)).first->second;
}

std::int64_t file_clock_ns() {
  timespec now = {};
  ::clock_gettime(CLOCK_REALTIME_COARSE, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

std::optional<std::string> read_whole_file(const fs::path& path) {
  const os::UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status = {};
  if (!file || ::fstat(file.get(), &status) != 0) return std::nullopt;
  return read_all(file.get(), static_cast<std::size_t>(status.st_size));
}

void write_whole_file(const fs::path& path, std::string_view bytes) {
  const os::UniqueFd file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (!file) os::throw_errno("write " + path.string());
  while (!bytes.empty()) {
    const ssize_t written = ::write(file.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) os::throw_errno("write " + path.string());
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

fs::path ProgramCache::default_folder() {
  const auto variable = [](const char* name) -> std::string {
    const char* const value = std::getenv(name);
    return value == nullptr ? "" : value;
  };
  if (const std::string given = variable("STRATA_CACHE"); !given.empty()) return given;
  if (const std::string given = variable("XDG_CACHE_HOME"); given.starts_with('/')) {
    return fs::path(given) / "strata";
  }
  if (const std::string home = variable("HOME"); !home.empty()) {
    return fs::path(home) / ".cache" / "strata";
  }
  return {};
}

ProgramCache::ProgramCache(const fs::path& folder)
    : folder_(fs::absolute(folder).lexically_normal()) {
  for (const char* const name : {"index", "objects", "programs", "work"}) {
    std::error_code failed;
    fs::create_directories(folder_ / name, failed);
    if (failed) {
      throw SystemError("make the folder " + (folder_ / name).string() +
                            " of the cache for chip programs (STRATA_CACHE says where it is)",
                        failed.value());
    }
  }
}

fs::path ProgramCache::index_path(const Digest& key) const { return folder_ / "index" / key.hex(); }

fs::path ProgramCache::object_path(std::string_view digest) const {
  return folder_ / "objects" / fmt::format("{}.o", digest);
}

fs::path ProgramCache::program_path(std::string_view name) const {
  return folder_ / "programs" / name;
}

std::optional<CacheEntry> ProgramCache::find(const Digest& key, FileTable& files) const {
  const auto text = read_whole_file(index_path(key));
  if (!text) return std::nullopt;
  const std::int64_t now = file_clock_ns();
  for (CacheEntry& entry : parse_index(*text)) {
    bool outdated = false;
    if (!still_holds(entry, files, now, outdated)) continue;
    if (outdated) remember(key, entry);
    return std::move(entry);
  }
  return std::nullopt;
}

void ProgramCache::remember(const Digest& key, CacheEntry entry) const {
  // Of two processes that do this at once, one's entry is lost: it will be made again.
  std::vector<CacheEntry> entries;
  if (const auto text = read_whole_file(index_path(key))) entries = parse_index(*text);
  std::erase_if(entries, [&](const CacheEntry& old) { return same_contents(old, entry); });
  entries.insert(entries.begin(), std::move(entry));
  if (entries.size() > kEntriesPerKey) entries.resize(kEntriesPerKey);
  try {
    put_bytes(index_text(entries), index_path(key));
  } catch (const SystemError&) {
    // A cache that can't be written any more (a full disk) costs time and nothing else.
  }
}

std::optional<std::string> ProgramCache::object(std::string_view digest) const {
  auto bytes = read_whole_file(object_path(digest));
  if (bytes && digest_of(*bytes).hex() == digest) return bytes;
  return std::nullopt;
}

void ProgramCache::put(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) {
    os::throw_errno(fmt::format("move {} to {}", from.string(), to.string()));
  }
}

void ProgramCache::put_bytes(std::string_view bytes, const fs::path& to) const {
  const WorkFolder work(*this);
  const fs::path file = work.path() / "file";
  write_whole_file(file, bytes);
  put(file, to);
}

WorkFolder::WorkFolder(const ProgramCache& cache) {
  const fs::path parent = cache.folder() / "work";
  remove_old_work(parent);
  LiveFolders& live = live_folders();
  for (;;) {
    std::string pattern = (parent / "XXXXXX").string();
    {
      const std::lock_guard lock(live.mutex);
      if (::mkdtemp(pattern.data()) == nullptr) {
        os::throw_errno("make a folder in " + parent.string());
      }
      path_ = pattern;
      live.paths.insert(path_);
    }
    (void)lock_folder(path_, lock_, LOCK_EX);
    // Before it was locked it looked like one that a dead build has left.
    std::error_code unknown;
    if (fs::is_directory(path_, unknown)) return;
    const std::lock_guard lock(live.mutex);
    live.paths.erase(path_);
  }
}

WorkFolder::~WorkFolder() {
  LiveFolders& live = live_folders();
  const std::lock_guard lock(live.mutex);
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  live.paths.erase(path_);
}

void WorkFolder::end_by_signal(int signal) noexcept {
  LiveFolders& live = live_folders();
  // For ever: a build that fails since its folder is gone gets no further than its destructor.
  live.mutex.lock();
  for (const fs::path& path : live.paths) {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  struct sigaction action = {};
  action.sa_handler = SIG_DFL;
  ::sigaction(signal, &action, nullptr);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  (void)::raise(signal);
  ::_exit(128 + signal);
}

}  // namespace strata::chip
