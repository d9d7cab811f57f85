// LogSink: where the log lines of a Worker and of all processes below it leave this process.
//
// A line appears on stderr as
//
//   [node/chip[1]] what the worker process wrote
//   [node] strata: warning: what Strata itself has to say
//
// Whoever hands a line over never waits for stderr: lines go into a bounded queue, and one thread,
// started with the first line, writes them. A stderr that takes nothing (a stopped terminal, a full
// pipe) costs lines, which are counted and told of, and never time.
//
// A Worker that is itself a worker process, or that runs under `strata run`, puts kPrefixed in
// front of each line, so that whoever reads its stderr knows that the prefix is there already.
//
// Thread safety: all members may be called from any thread, the destructor aside.
//
// Invariants
//   (1) Each line leaves with one write() of its own or together with whole others. Where that is
//       no more than PIPE_BUF bytes nobody can write between them; a longer line is still whole
//       unless another process writes to the same pipe meanwhile.
//   (2) Lines leave in the order in which they were handed over.
//   (3) Every line leaves or is counted as dropped. The oldest are dropped, at most until the queue
//       has room, and a line in their place says how many.
//   (4) No call but flush() and the destructor waits for stderr, and those at most as long as they
//       say. All signals are blocked in the thread that writes: none of the program's is taken by
//       it, and a closed stderr ends nothing.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "os/deadline.hpp"
#include "strata/worker.hpp"

namespace strata::node {

/// Name of the variable that overrides WorkerOptions::log_level.
inline constexpr const char* kLogLevelVariable = "STRATA_LOG_LEVEL";

/// Set by `strata run` to "device:inode" of the pipe that it reads: a Worker whose stderr is that
/// pipe marks its lines with kPrefixed.
inline constexpr const char* kLogStreamVariable = "STRATA_LOG_STREAM";

/// "debug", "info", "warning", "error" or "off"; nothing for any other text.
[[nodiscard]] std::optional<LogLevel> log_level_from(std::string_view name) noexcept;

struct LogSinkOptions {
  int fd = STDERR_FILENO;             ///< Not owned. Must stay open, also after the
                                      ///< LogSink if flush() has failed.
  LogLevel level = LogLevel::info;    ///< Of Strata's own messages. The environment overrides it.
  bool marked = false;                ///< Always put kPrefixed in front: a worker process does.
  std::size_t queue_bytes = 4 << 20;  ///< More than this waits only if it is one single line.
};

class LogSink {
 public:
  explicit LogSink(LogSinkOptions options = {});
  /// Waits for what is queued, at most half a second; what stderr has not taken by then is lost.
  ~LogSink();
  LogSink(const LogSink&) = delete;
  LogSink& operator=(const LogSink&) = delete;

  /// A message of Strata's own about the process at `path`, left out if below the level. Every line
  /// of a text of several has the prefix.
  void message(LogLevel level, std::string_view path, std::string_view text);
  /// A line, without its line break, that the worker process at `path` wrote. One that begins with
  /// kPrefixed comes from below that process and is passed on with the prefix that it has.
  void worker_line(std::string_view path, std::string_view line);

  /// Waits until all that was handed over before is written or dropped; false at the deadline.
  bool flush(os::Deadline deadline);

  /// The level in force: what workers further down are to use.
  [[nodiscard]] LogLevel level() const noexcept;
  void set_level(LogLevel level) noexcept;
  [[nodiscard]] bool enabled(LogLevel level) const noexcept;
  /// Lines dropped so far.
  [[nodiscard]] std::uint64_t dropped() const noexcept;

 private:
  struct State;
  std::shared_ptr<State> state_;  ///< Shared with the thread, which may be stuck in a write().
};

}  // namespace strata::node
