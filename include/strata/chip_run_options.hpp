// ChipRunOptions: how one run of a chip program is done.
//
// Thread safety: plain values.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace strata {

/// Where a chip orchestration runs.
enum class OrchestrationMode : std::uint8_t {
  /// Concurrently with the cores: tasks start as soon as they may, the window bounds how far the
  /// orchestration is ahead.
  device,
  /// The whole graph is built first, then run. Graphs are kept per shape of the arguments and
  /// replayed. Where the orchestration reads a value, what it has built so far runs first.
  host_graph,
};

/// A path of a folder, or none. Not a std::string: nested in options as those of a Worker, GCC 12
/// warns of that as if it were not initialised.
class FolderPath {
 public:
  FolderPath() noexcept;  ///< None.
  FolderPath(std::string path) noexcept;
  FolderPath(const char* path);
  FolderPath(const FolderPath&);
  FolderPath(FolderPath&&) noexcept;
  FolderPath& operator=(const FolderPath&);
  FolderPath& operator=(FolderPath&&) noexcept;
  ~FolderPath();
  [[nodiscard]] bool empty() const noexcept { return path_.empty(); }
  [[nodiscard]] const std::string& string() const noexcept { return path_; }
  friend bool operator==(const FolderPath&, const FolderPath&) = default;

 private:
  std::string path_;
};

/// What is not set is taken from the environment of the chip's process (the variable in brackets),
/// and otherwise is the default of the platform. Checked at submit.
struct ChipRunOptions {
  std::optional<OrchestrationMode> mode = {};  ///< [STRATA_CHIP_MODE] device or host_graph.
  /// Tasks in flight. [STRATA_CHIP_WINDOW]
  std::optional<std::size_t> window = {};
  /// Bytes for runtime-allocated tensors. [STRATA_CHIP_HEAP]
  std::optional<std::size_t> heap = {};
  /// Host threads that run cores at the same time, blocked ones not counted. [STRATA_CHIP_THREADS]
  std::optional<unsigned> threads = {};
  /// From the start of the run on the chip.
  std::optional<std::chrono::nanoseconds> time_limit = {};
  /// Poison fresh memory and test every access of kernels that were built for it.
  bool check = false;
  /// If set, the order in which ready tasks run is drawn from this seed, one at a time.
  std::optional<std::uint64_t> explore_seed = {};
  /// Keep the graph: its DOT text is a part of the task's value. For small graphs.
  bool keep_graph = false;
  /// Keep what was counted: the task's value is a JSON object with `tasks`, `edges` and
  /// `heap_peak_bytes`, and with `graph` if that is kept, too.
  bool keep_stats = false;
  /// If there is one, a folder for the arguments of tasks that are marked (dumped(),
  /// Launch::dumped()): what a task reads, as it begins, and what it has written, as it ends, as
  /// .npy files, with a list of them. Absolute, as the chip's process has its own current folder.
  /// Each run makes a folder of its own in it; see docs/how-to/dump-arguments.md.
  FolderPath dump_to = {};
  bool dump_all = false;  ///< Those of all tasks, marked or not.
  friend bool operator==(const ChipRunOptions&, const ChipRunOptions&) = default;
};

}  // namespace strata
