// ProgramCache: what was compiled and linked before, on disk.
//
//   FOLDER/index/KEY                  what is known of a key: on which files its results depend,
//   and
//                                     which result belongs to which content of them
//   FOLDER/objects/DIGEST.o           compiled sources; the name is the hash of the content
//   FOLDER/programs/NAME-BUILDID.strata
//   FOLDER/work/XXXXXX/               where a build in progress has its files
//
// A key is the hash of all that is known before a compiler has run: source, command line, compiler.
// Which other files matter is known afterwards, so the index has them with their content's hash.
// To see that nothing has changed costs one stat per file; a file whose stat differs is read.
//
// Thread safety: a ProgramCache may be used by several threads, and a folder by several processes:
// there are no locks. A FileTable belongs to one thread.
//
// Invariants
//   (1) Files appear under their name complete (rename), and are never changed after.
//   (2) What is read is verified: the index by a hash in it, objects by their name, programs by the
//       hash in them. What is damaged counts as missing.
//   (3) A folder in work/ is locked (flock) by the build that uses it. One that is not is of a
//   build
//       that has died: the next one removes it. Where there are no locks, after a day.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chip/program/program_hash.hpp"
#include "os/unique_fd.hpp"

namespace strata::chip {

/// What tells without reading whether a file is as it was.
struct FileStamp {
  std::uint64_t bytes = 0;
  std::int64_t modified_ns = 0;  ///< Of the epoch; 0: never equal to that of a file.
  std::uint64_t inode = 0;
  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};

/// Stamps and contents of files, each looked at once.
class FileTable {
 public:
  /// Nothing if there is no such file.
  [[nodiscard]] const std::optional<FileStamp>& stamp(const std::string& path);
  struct Content {
    FileStamp stamp;
    Digest digest;
  };
  /// Nothing if it can't be read, or changes while it is read.
  [[nodiscard]] const std::optional<Content>& content(const std::string& path);

 private:
  std::map<std::string, std::optional<FileStamp>> stamps_;
  std::map<std::string, std::optional<Content>> contents_;
};

/// The clock of file stamps: a file that is written from now on has this stamp or a later one.
[[nodiscard]] std::int64_t file_clock_ns();

struct CacheDependency {
  std::string path;
  FileStamp stamp;
  Digest digest;
};

/// A result and all that it depends on.
struct CacheEntry {
  std::string result;  ///< One word.
  std::vector<CacheDependency> dependencies = {};
  std::vector<std::string> absent = {};  ///< Files that would have been used if they were there.
};

class ProgramCache {
 public:
  /// Makes the folders. Throws SystemError.
  explicit ProgramCache(const std::filesystem::path& folder);
  /// STRATA_CACHE, else strata/ in XDG_CACHE_HOME or ~/.cache; empty if there is none of these.
  [[nodiscard]] static std::filesystem::path default_folder();

  /// The entry of this key whose files are all as they were.
  [[nodiscard]] std::optional<CacheEntry> find(const Digest& key, FileTable& files) const;
  /// Adds an entry; a few older ones of the key are kept.
  void remember(const Digest& key, CacheEntry entry) const;

  /// Content of an object; nothing if it is missing or damaged.
  [[nodiscard]] std::optional<std::string> object(std::string_view digest) const;
  [[nodiscard]] std::filesystem::path object_path(std::string_view digest) const;
  [[nodiscard]] std::filesystem::path program_path(std::string_view name) const;

  /// Puts a file of a work folder in its place. Throws SystemError.
  static void put(const std::filesystem::path& from, const std::filesystem::path& to);
  /// Puts bytes in place. Throws SystemError.
  void put_bytes(std::string_view bytes, const std::filesystem::path& to) const;
  [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_; }

 private:
  [[nodiscard]] std::filesystem::path index_path(const Digest& key) const;
  std::filesystem::path folder_;
};

/// A folder for one build, gone with the object.
class WorkFolder {
 public:
  /// Throws SystemError.
  explicit WorkFolder(const ProgramCache& cache);
  ~WorkFolder();
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

  /// Removes all work folders of this process and ends it by that signal, whose handler is reset.
  /// Builds that are under way end with it, without a word.
  [[noreturn]] static void end_by_signal(int signal) noexcept;

 private:
  std::filesystem::path path_;
  os::UniqueFd lock_;
};

/// Whole content; nothing if it can't be read.
[[nodiscard]] std::optional<std::string> read_whole_file(const std::filesystem::path& path);
/// Writes a new file. Throws SystemError.
void write_whole_file(const std::filesystem::path& path, std::string_view bytes);

}  // namespace strata::chip
