// TreeReport: what a tree of processes was doing at a moment, gathered from outside: no process of
// the tree can hang the report or be left out of it. Those of Strata are asked, too, what their
// runtime is at; what they answer while we look is in the report, and those that do not answer are
// there without.
//
//   look, ask ── window ── look again ── stacks, process by process ── locks and verdict
//
// Processes and threads come and go meanwhile: who is gone is an entry without content.
//
// Thread safety: collect() may be called from any thread; a report is a value.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "diag/native_stack.hpp"
#include "diag/python_stack.hpp"
#include "diag/thread_look.hpp"
#include "trace/process_record_reader.hpp"

namespace strata::diag {

struct ThreadReport {
  pid_t thread = 0;
  std::string name;
  char state = '?';
  std::string wait_channel;
  std::string doing;  ///< Its system call in words; "" if it is in none, or not known.
  std::optional<SystemCall> call;
  std::chrono::nanoseconds cpu_time{0};
  /// Share of a CPU that it used or stood in the queue for between the two looks.
  double busy = 0;
  bool ran = false;  ///< It ran between the two looks.
  NativeStack stack;
  std::vector<PythonFrame> python;  ///< As far as faulthandler told.
  pid_t lock_owner = 0;  ///< Thread that holds the lock it waits for; 0: none, or not known.
  pid_t joins = 0;       ///< Thread for whose end it waits.
};

/// What a Strata process says of itself in its process record.
struct StrataReport {
  trace::Card card;
  std::vector<trace::ThreadEvents> events;
  std::optional<trace::CrashReport> crash;
  /// What its runtime is at, as trace/state_board.hpp has it; null if it did not say.
  nlohmann::json state;
  std::string state_note;  ///< Why it did not.
  /// Of the task in hand, as the Worker says that sent it: "inout float32[4, 8]".
  std::vector<std::string> task_arguments;
};

struct ProcessReport {
  pid_t pid = 0;
  pid_t ppid = 0;
  int depth = 0;  ///< 0 for the root.
  char state = '?';
  std::string name;  ///< Of its program, 15 bytes of it.
  std::vector<std::string> command_line;
  std::chrono::nanoseconds age{0};
  std::chrono::nanoseconds cpu_time{0};
  double busy = 0;                 ///< Of all its threads.
  std::optional<int> wait_status;  ///< Of one that has ended and was not waited for.
  std::vector<ThreadReport> threads;
  std::string note;         ///< Why there are no stacks.
  std::string stacks_note;  ///< Why it has not taken them itself, if it was to.
  std::optional<StrataReport> strata;
  bool is_python = false;
  std::string python;
  std::string python_note;
  /// Pipes by name, "pipe:[123]", that it can read from or write to.
  std::vector<std::string> reads_from;
  std::vector<std::string> writes_to;

  [[nodiscard]] bool ended() const noexcept { return state == 'Z' || state == 'X'; }
  [[nodiscard]] bool stopped() const noexcept { return state == 'T' || state == 't'; }
  /// "node/chip[1]", or the command line as far as it says what it is.
  [[nodiscard]] std::string title() const;
};

/// A worker process that its parent has buried: what it left in its process record, of which a
/// Worker keeps those of the last few.
struct DeadReport {
  pid_t held_by = 0;  ///< The process that has the record.
  StrataReport strata;
};

struct TreeReport {
  std::string when;                      ///< Local time of day and date.
  std::chrono::nanoseconds taken_at{0};  ///< CLOCK_MONOTONIC.
  std::chrono::nanoseconds window{0};    ///< Between the two looks.
  std::chrono::nanoseconds took{0};      ///< In all.
  /// Of that, all stacks; and of that, until the last was copied: the rest is finding the frames
  /// and naming them.
  std::chrono::nanoseconds stacks_took{0};
  std::chrono::nanoseconds copying_took{0};
  std::vector<ProcessReport> processes;  ///< Depth first, so that each stands below its parent.
  std::vector<DeadReport> dead;          ///< In the order in which they ended.
  std::vector<std::string> verdict;      ///< One finding a line; never empty.
};

struct CollectOptions {
  std::chrono::milliseconds window{200};
  /// Of processes that have not answered within the window. On a machine that is busy a thread
  /// that would answer at once may have to wait for a CPU as long as that.
  std::chrono::milliseconds answer_limit{1000};
  std::chrono::milliseconds limit{20'000};  ///< In all; what is not there by then is left out.
  std::size_t events = 20;                  ///< Of the flight recorder, of each process.
  pid_t leave_out = 0;                      ///< This process and what is below it.
  /// StackTaker::process: those that can take the stacks of their threads are asked to; of the
  /// others they are taken from outside.
  StackTaker stacks = StackTaker::outside;
  std::chrono::milliseconds stacks_limit{500};  ///< Until then they must have done so.
};

/// Of a process and all below it. No processes if it does not exist.
[[nodiscard]] TreeReport collect(pid_t root, const CollectOptions& options);
/// Of all below it only.
[[nodiscard]] TreeReport collect_below(pid_t root, const CollectOptions& options);

}  // namespace strata::diag
