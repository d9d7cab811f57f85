// Lifeline: the few messages that must be answered whatever a worker is doing, and whose end of
// file says that the parent has died.
//
// A SOCK_SEQPACKET pair with messages of one fixed size. A worker's control thread lives on its end
// of it: it answers "what are you doing", passes on "stop", and ends the process when the parent is
// gone. That thread must get by while a task holds the locks of malloc, the loader or stdio, so the
// functions here make system calls, touch the stack, and do nothing else.
//
// Thread safety: free functions without state. A message is sent and received whole.
//
// Invariants
//   (1) No function here allocates, locks, or blocks (wait_lifeline blocks, until its descriptors
//       say something).
//   (2) Receiving is total: bytes that are no message give `broken`.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "os/unique_fd.hpp"

namespace strata::ipc {

enum class LifelineKind : std::uint8_t {
  nothing,  ///< No message is there.
  query,    ///< To the worker: what are you doing?
  answer,   ///< To the parent.
  stop,     ///< To the worker.
  closed,   ///< The other end is closed: its process has closed it or died.
  broken,   ///< What came is no message, or the socket failed.
};

enum class StopKind : std::uint8_t {
  drain,  ///< Finish the task in hand, then end.
  now,    ///< End without waiting for the task in hand.
};

/// What a worker is doing.
struct LifelineAnswer {
  static constexpr std::size_t kNameBytes = 80;
  std::uint64_t state = 0;     ///< As in the process record.
  std::uint64_t task = 0;      ///< TaskId::value of the task in hand; 0 for none.
  std::uint64_t since_ns = 0;  ///< CLOCK_MONOTONIC, since when it has been so.
  /// Length of the task's name. If it is above kNameBytes, `name` holds the beginning, and the
  /// process record the whole.
  std::uint32_t name_length = 0;
  std::array<char, kNameBytes> name = {};

  void set_name(std::string_view text) noexcept;
  /// As much of the name as is here.
  [[nodiscard]] std::string_view name_here() const noexcept;
};

struct LifelineMessage {
  LifelineKind kind = LifelineKind::nothing;
  std::uint64_t id = 0;             ///< Of a query, and of the answer to it.
  StopKind stop = StopKind::drain;  ///< Of a stop.
  LifelineAnswer answer = {};       ///< Of an answer.
};

/// Two connected, non-blocking ends, closed on exec. Throws SystemError.
[[nodiscard]] std::pair<os::UniqueFd, os::UniqueFd> make_lifeline();

/// False if it could not be sent: the other end is closed or does not read.
[[nodiscard]] bool send_query(int fd, std::uint64_t id) noexcept;
[[nodiscard]] bool send_answer(int fd, std::uint64_t id, const LifelineAnswer& answer) noexcept;
[[nodiscard]] bool send_stop(int fd, StopKind kind) noexcept;

/// The next message, if one is there.
[[nodiscard]] LifelineMessage receive_lifeline(int fd) noexcept;

/// Sleeps until there is something to receive (or the other end is closed), or `also` is readable
/// where it is not negative.
void wait_lifeline(int fd, int also = -1) noexcept;

/// Decodes one packet; what receive_lifeline does with what it read.
[[nodiscard]] LifelineMessage decode_lifeline(const std::byte* bytes, std::size_t size) noexcept;

}  // namespace strata::ipc
