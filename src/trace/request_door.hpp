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
// a time. DoorRequest: any thread.
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
#include <new>
#include <optional>

#include "os/mapping.hpp"
#include "os/unique_fd.hpp"
#include "trace/record_layout.hpp"
#include "trace/text_words.hpp"

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

/// One request, of another process. It is not waited for: ask several, do something else, and then
/// look who has answered. A value; const members from any thread.
class DoorRequest {
 public:
  /// Nothing if it takes no such requests, or may not be looked at. Never throws.
  [[nodiscard]] static std::optional<DoorRequest> ask(pid_t pid, const DoorKind& kind) noexcept;

  /// The memory, `Layout` being that of the kind.
  template <class Layout>
  [[nodiscard]] const Layout& layout() const noexcept {
    return *std::launder(reinterpret_cast<const Layout*>(mapping_.data()));
  }
  /// Whether it has answered since it was asked; then copy() was called, the last time for a
  /// version that is whole. Neither crashes nor waits, whatever the process does to the memory.
  template <class Copy>
  [[nodiscard]] bool read_answer(Copy copy) const {
    bool answered = false;
    const bool whole = read_version(words().sequence, [&] {
      answered = words().answers.load(std::memory_order_relaxed) != answers_before_;
      if (answered) copy();
    });
    return whole && answered;
  }

 private:
  explicit DoorRequest(os::Mapping mapping) noexcept;
  [[nodiscard]] const DoorWords& words() const noexcept { return layout<DoorWords>(); }

  os::Mapping mapping_;
  std::uint64_t answers_before_;
};

}  // namespace strata::trace
