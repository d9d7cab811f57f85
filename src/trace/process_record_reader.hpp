// ProcessRecordReader: reads the record of a process that runs, hangs, is stopped, or is dead.
//
// Everything is copied out and checked; whatever lies in the record, also what a process that ran
// wild scribbled over it, reading neither crashes nor waits. Times of events are exact to some
// tens of nanoseconds: the reader knows one instant on both clocks from when the record was made,
// takes a second one now, and every event lies in between.
//
// Thread safety: const members may be called from any thread.
#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "os/child_process.hpp"
#include "os/mapping.hpp"
#include "trace/event.hpp"
#include "trace/process_record.hpp"

namespace strata::trace {

/// A task that a process had in hand.
struct TaskInHand {
  std::uint64_t task = 0;
  std::string name;
  std::string callable;
  std::chrono::nanoseconds since{0};  ///< CLOCK_MONOTONIC.
};

/// Who a process is and what it does.
struct Card {
  pid_t pid = 0;  ///< 0: not known yet.
  pid_t parent = 0;
  std::chrono::nanoseconds started{0};  ///< CLOCK_MONOTONIC, as all times here.
  std::string path;
  std::string role;
  ProcessState state = ProcessState::starting;
  std::chrono::nanoseconds state_since{0};
  std::string step;  ///< A text that was longer than the record has room for says so at its end.
  std::chrono::nanoseconds step_since{0};
  std::optional<TaskInHand> task;
  std::optional<os::ExitStatus> end;  ///< Of one that its parent has waited for.
  std::chrono::nanoseconds ended{0};  ///< When that was.
};

/// A range of memory of the process that crashed, from /proc/PID/maps.
struct MappedRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t file_offset = 0;
  std::uint64_t inode = 0;
  bool readable = false;
  bool executable = false;
  bool deleted = false;  ///< The file had been deleted or replaced when the process crashed.
  std::string path;      ///< "" where there is none; "[stack]" and the like are not files.
};

/// What /proc/PID/maps says.
[[nodiscard]] std::vector<MappedRange> ranges_of(std::string_view text);

/// A file that was loaded when the process crashed.
struct LoadedModule {
  std::uint64_t begin = 0;
  std::string path;
  std::string build_id;  ///< In hexadecimal, from the memory of the process; "" if it has none.
};

/// How a process crashed. What is not there yet when the process dies is empty.
struct CrashReport {
  CrashStage stage = CrashStage::none;
  std::chrono::nanoseconds at{0};
  int signal = 0;
  int code = 0;               ///< si_code
  pid_t sender = 0;           ///< Who sent the signal; 0 where the fault did.
  std::uint64_t address = 0;  ///< What was accessed, for a fault.
  std::uint64_t pc = 0;
  std::uint32_t thread = 0;
  std::string thread_name;
  std::array<std::uint64_t, kRegisters> registers{};  ///< In the order of <sys/ucontext.h>.
  std::vector<std::uint64_t> frames;  ///< The first is the pc; the others are return addresses.
  std::uint64_t frames_in_all = 0;    ///< More than frames.size() where only some are kept.
  std::string text;                   ///< What an assertion or an uncaught exception said.
  std::string note;                   ///< What the thread was doing: see set_crash_note().
  std::vector<MappedRange> maps;
  std::vector<LoadedModule> modules;
  /// "killed by signal 11 (segmentation fault) at address 0x0": signal, why, where.
  [[nodiscard]] std::string headline() const;
};

class ProcessRecordReader {
 public:
  /// Maps the record. Throws SystemError, or Error if it is no record of this version.
  explicit ProcessRecordReader(int fd);
  explicit ProcessRecordReader(const ProcessRecord& record) : ProcessRecordReader(record.fd()) {}
  /// The record that a living process writes, found among its descriptors; nothing if it has none
  /// or may not be looked at.
  [[nodiscard]] static std::optional<ProcessRecordReader> of_process(pid_t pid);
  /// All records among the descriptors of a living process: its own, and those of its children, of
  /// which some may be dead.
  [[nodiscard]] static std::vector<ProcessRecordReader> held_by(pid_t pid);

  [[nodiscard]] Card card() const;
  /// By thread, in the order in which they recorded their first event.
  [[nodiscard]] std::vector<ThreadEvents> events() const;
  /// Events that were not kept since more threads recorded than there are rings.
  [[nodiscard]] std::uint64_t events_dropped() const noexcept;
  /// Nothing while no crash has begun.
  [[nodiscard]] std::optional<CrashReport> crash() const;
  /// A cycle count of the process on CLOCK_MONOTONIC.
  [[nodiscard]] std::chrono::nanoseconds to_monotonic(std::uint64_t cycles) const noexcept;

 private:
  os::Mapping mapping_;
  const RecordLayout* layout_;
};

}  // namespace strata::trace
