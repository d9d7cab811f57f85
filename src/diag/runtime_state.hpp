// What Strata processes say of their runtime (trace/state_board.hpp), read out of the JSON that
// they wrote: whatever is missing or of another type is as if it were not said, since the process
// that wrote it may be of another build, or mad.
//
// Thread safety: values and free functions; any thread.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace strata::diag {

/// An orchestration that waits for room.
struct BlockedSubmit {
  std::string run;
  std::string scope;
  std::string needs;  ///< "window", "heap", "run", "users".
  std::uint64_t asked = 0;
  double for_s = 0;
};

struct HeapHolder {
  std::uint64_t bytes = 0;
  std::string run;
  std::uint64_t task = 0;  ///< 0: allocate().
  std::string kept_by;     ///< "scope 'root/tiles'".
  /// "task 5 of run 'x' (64 MiB, kept by scope 'root/tiles')"
  [[nodiscard]] std::string to_string() const;
};

struct EngineState {
  std::uint64_t window_used = 0, window_capacity = 0;
  std::uint64_t heap_used = 0, heap_capacity = 0;
  std::uint64_t waiting = 0, ready = 0, at_lanes = 0;
  std::vector<BlockedSubmit> blocked;
  std::vector<HeapHolder> holders;
  nlohmann::json json;  ///< All of it.
};

/// A core that is not idle.
struct CoreState {
  std::string where;  ///< "core 7 (cluster 2, AIV 0)".
  std::string state;  ///< "allotted", "running", "waiting".
  std::string kernel;
  std::uint64_t task = 0;
  std::string task_name;
  std::uint64_t block = 0, blocks = 1;
  double for_s = 0;
  std::string waits_for;
  int thread = 0;
  std::vector<std::string> arguments;
  /// "kernel 'x', task 5 'y', block 1 of 4"
  [[nodiscard]] std::string work() const;
};

struct ChipState {
  std::vector<CoreState> cores;
  double orchestration_for_s = -1;  ///< Negative: none runs.
};

/// What a Worker has sent to one of its workers.
struct ChildState {
  std::string path;
  int pid = 0;
  std::string state;
  std::uint64_t task = 0;  ///< In hand; 0: none.
  std::string task_name;
  std::string callable;
  std::vector<std::string> arguments;
  std::uint64_t sent_ahead = 0, not_sent = 0;
};

struct RuntimeState {
  std::vector<EngineState> engines;
  std::vector<ChipState> chips;
  std::vector<ChildState> children;
  std::vector<std::string> waits;  ///< Of whatever else there is: lines in plain words.
  std::vector<std::string> problems;
};

[[nodiscard]] RuntimeState runtime_state(const nlohmann::json& state);

/// Lines for people, each indented by two and ending with a line feed; "" if there is nothing to
/// say.
[[nodiscard]] std::string to_text(const RuntimeState& state);

/// "64 MiB", "1.5 KiB", "12 bytes"
[[nodiscard]] std::string bytes_text(std::uint64_t bytes);
/// "41 s", "3.2 s", "350 ms"
[[nodiscard]] std::string seconds_text(double seconds);

}  // namespace strata::diag
