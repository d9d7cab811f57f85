// ProcessRecord: what a process writes down about itself in memory that its parent made and can
// read at any time, also after the process has died: who it is, what state it is in, what it does,
// the latest events of each thread, and, if it crashes, how.
//
// The parent creates a record per child and hands the descriptor down; the child attaches to it. A
// Worker's root process creates one for itself. record_layout.hpp has the layout;
// process_record_reader.hpp reads it back; crash_handler.hpp fills in the crash.
//
//   parent:  auto record = ProcessRecord::create({.path = "node/sub[0]", .role = "sub worker"});
//            ... spawn with record.fd() as descriptor 5; record.set_pid(child) ...
//   child:   static ProcessRecord record = ProcessRecord::attach(os::UniqueFd(5));
//            record_into(record); install_crash_handler(record);
//
// Thread safety: begin_task() and end_task() are for the one thread that runs tasks; everything
// else may be called by any thread. No member locks, allocates or makes a system call (save
// create(), attach() and, on machines without a fast clock, reading the clock), so all are safe
// where malloc's or the loader's lock is held. set_step() waits for another set_step() that is in
// progress, and gives up after a while if that thread stopped in the middle.
//
// Invariants
//   (1) A reader never sees half of a text or of a task.
//   (2) Whatever the process does to the record, a reader neither crashes nor waits.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "os/child_process.hpp"
#include "os/mapping.hpp"
#include "os/unique_fd.hpp"
#include "trace/record_layout.hpp"

namespace strata::trace {

/// What a process as a whole is doing. The numbers are a part of the record's layout.
enum class ProcessState : std::uint32_t {
  starting = 0,
  initialising,
  idle,
  running,
  stopping,
  crashed,
};
/// "idle"; "state 77" for a number that this build does not know.
[[nodiscard]] std::string name_of(ProcessState state);

class ProcessRecord {
 public:
  /// Who the process is; never changes.
  struct Identity {
    std::string_view path;  ///< "node/next[0]/sub[1]". The first 1024 bytes are kept in the record.
    std::string_view role;  ///< "sub worker", "chip worker", "next-level worker", "node"
    pid_t parent = 0;       ///< 0: the calling process.
  };

  /// Makes a record, in memory of its own. Throws SystemError.
  [[nodiscard]] static ProcessRecord create(const Identity& identity);
  /// Maps a record that another process made, and writes the caller's pid into it. Closes the
  /// descriptor on exec. Throws SystemError, or Error if it is no record of this version.
  [[nodiscard]] static ProcessRecord attach(os::UniqueFd fd);

  /// Keep it open: others find the record of a living process by it.
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  [[nodiscard]] RecordLayout& layout() noexcept { return *layout_; }
  [[nodiscard]] const RecordLayout& layout() const noexcept { return *layout_; }

  /// For the parent, once it knows.
  void set_pid(pid_t pid) noexcept;
  /// For the parent, once it has waited for the process: how it has ended.
  void set_end(const os::ExitStatus& status) noexcept;
  /// Also records an event.
  void set_state(ProcessState state) noexcept;
  /// What the process does now: "load platform cpu". Texts over 512 bytes are kept by their
  /// beginning and their length. Also records an event.
  void set_step(std::string_view text) noexcept;

  /// The task in hand begins; records task_start too. Names over 120 bytes are kept by their
  /// beginning and their length. Requires that the calling thread is the one that runs tasks.
  void begin_task(std::uint64_t task, std::string_view name, std::string_view callable) noexcept;
  /// The task in hand has ended; records task_end. `status` 0: it went well.
  void end_task(std::uint64_t status = 0) noexcept;

 private:
  ProcessRecord(os::UniqueFd fd, os::Mapping mapping) noexcept;

  os::UniqueFd fd_;
  os::Mapping mapping_;
  RecordLayout* layout_;
};

}  // namespace strata::trace
