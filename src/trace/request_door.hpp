// RequestDoor: memory in which a process answers, on request, whoever may look at its descriptors,
// beside the pipe at which it takes the requests.
//
// No signal is involved: who asks finds the memory, a memfd, by its name among the descriptors of
// the process, opens the pipe by /proc/PID/fd/N and writes a byte. That the pipe is the one which
// this very process reads is seen by its inode, which no other pipe has, so nothing can reach a
// process that took over the number of another.
//
// Everything is fixed, as in record_layout.hpp, and as there every reader takes what it finds as
// untrusted.
//
// Thread safety: a door is constant once open() has returned; take_requests() is for one thread at
// a time. The functions of those who ask: any thread.
//
// Invariants
//   (1) An answer that a reader accepts is one that was written as a whole: `sequence` is odd while
//       it changes and different afterwards.
//   (2) Nothing but a byte into a pipe of the very process reaches it, so one that is no Strata
//       process, or that got the number of one, does not notice.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "os/mapping.hpp"
#include "os/unique_fd.hpp"
#include "trace/record_layout.hpp"

namespace strata::trace {

/// What the memory begins with.
struct DoorWords {
  Word magic;
  HalfWord version;
  HalfWord layout_bytes;
  Word pid;          ///< Of the process, as it numbers itself. A fork has another.
  Word pipe_inode;   ///< Of the pipe for requests ...
  HalfWord pipe_fd;  ///< ... and its descriptor in the process.
  HalfWord sequence;
  Word answers;  ///< How many there were; written with the answer.
};

/// What is behind a door.
struct DoorKind {
  const char* name;  ///< Of the memfd.
  std::uint64_t magic;
  std::uint32_t version;
  std::size_t layout_bytes;
};

class RequestDoor {
 public:
  RequestDoor() noexcept = default;
  /// All zeros but for the words at the beginning. Throws SystemError.
  [[nodiscard]] static RequestDoor open(const DoorKind& kind);

  /// Readable when somebody has asked; -1 where there is no door.
  [[nodiscard]] int request_fd() const noexcept { return read_end_.get(); }
  /// Whether there were requests; takes them all. No lock, no allocation.
  [[nodiscard]] bool take_requests() const noexcept;
  /// The memory. Requires that the door is open.
  [[nodiscard]] std::byte* data() const noexcept { return mapping_.data(); }

 private:
  os::UniqueFd memory_;
  os::UniqueFd read_end_;
  os::UniqueFd write_end_;
  os::Mapping mapping_;
};

/// The memory of that very process; nothing if it has no such door, or may not be looked at. Throws
/// std::bad_alloc only.
[[nodiscard]] std::optional<os::Mapping> find_door(pid_t pid, const DoorKind& kind);
/// Whether the process will be woken by the request.
[[nodiscard]] bool write_request(pid_t pid, const DoorWords& door);

}  // namespace strata::trace
