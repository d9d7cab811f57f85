// LogPump: what a program and its workers write to their stderr, line by line to ours.
//
// A thread reads the pipe that is the program's stderr. Lines that a Worker marked have their
// prefix; the others get the program's name. If nobody takes our lines the thread waits, and so, in
// the end, does a program that writes more: as it would on a terminal that is stopped. Nothing is
// dropped, and the thread that forwards signals and ends processes never waits for it.
//
// Thread safety: all members are for one thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "node/log_sink.hpp"
#include "os/event_fd.hpp"
#include "os/unique_fd.hpp"

namespace strata::cli {

struct LogPumpOptions {
  std::string program;   ///< What stands in front of the lines that have no prefix.
  std::string log_file;  ///< Gets all lines, too; empty: none.
  bool prefix = true;
  bool timestamps = false;
};

class LogPump {
 public:
  /// Makes the pipe and, if asked for, the file. Throws SystemError.
  explicit LogPump(LogPumpOptions options);
  /// Leaves a thread behind that can't finish.
  ~LogPump();
  LogPump(const LogPump&) = delete;
  LogPump& operator=(const LogPump&) = delete;

  /// The end that is the program's stderr; close_write_end() once the program has it.
  [[nodiscard]] int write_end() const noexcept;
  void close_write_end();
  /// "device:inode" of the pipe, for node::kLogStreamVariable.
  [[nodiscard]] std::string stream_name() const;

  /// Begins to read.
  void start();
  /// All that should be in the log is in the pipe now, whoever may hold it open.
  void stop_when_empty();
  /// Readable once that is taken, too.
  [[nodiscard]] int finished_fd() const noexcept;

  /// A message of our own.
  void message(LogLevel level, std::string_view text);

 private:
  struct State;
  std::shared_ptr<State> state_;  ///< Shared with the thread, which may be stuck.
  os::UniqueFd write_end_;
  std::thread thread_;
};

}  // namespace strata::cli
