// ControlChannel: typed messages with descriptors, of any length, between a parent and a worker.
//
// A SOCK_SEQPACKET pair. A message is a JSON object and up to 16 descriptors; a text of more than
// 64 KiB travels as a sealed memfd beside a short packet. Both ends are non-blocking, and what the
// kernel does not take waits in a bounded queue, so neither side can stop the other: a peer that
// does not read makes `send` say so.
//
// Thread safety: send(), send_until(), flush() and wants_write() may be called by any thread;
// receive() and receive_until() by one at a time, also while others send.
//
// Invariants
//   (1) Messages arrive whole, in the order in which they were sent, each once.
//   (2) Receiving is total: bytes that are no message, too many descriptors, a body that is not
//       sealed or not as long as said, JSON that is malformed, too deep or no object give Broken
//       with the reason, and every descriptor that came is closed. Broken is for good.
//   (3) Received descriptors are closed on exec.
//   (4) The queue never holds more than the limits say.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "os/deadline.hpp"
#include "os/unique_fd.hpp"

namespace strata::ipc {

/// What was received. Moves only.
class Message {
 public:
  Message(nlohmann::json body, std::vector<os::UniqueFd> descriptors);
  Message(Message&&) noexcept;
  Message& operator=(Message&&) noexcept;
  ~Message();
  /// Always an object.
  [[nodiscard]] const nlohmann::json& body() const noexcept { return *body_; }
  /// The caller may move them out.
  [[nodiscard]] std::vector<os::UniqueFd>& descriptors() noexcept { return descriptors_; }

 private:
  std::unique_ptr<nlohmann::json> body_;
  std::vector<os::UniqueFd> descriptors_;
};

class ControlChannel {
 public:
  static constexpr std::size_t kMaxDescriptors = 16;
  static constexpr std::size_t kMaxInlineBytes = 64 << 10;
  static constexpr int kMaxDepth = 100;  ///< Of the JSON.

  struct Limits {
    std::size_t queued_messages = 4096;
    std::size_t queued_bytes = std::size_t{256} << 20U;
    std::size_t message_bytes = std::size_t{256} << 20U;  ///< Of one text, sent or received.
  };

  struct Nothing {};  ///< No message is there (yet).
  struct Closed {};   ///< The other end is closed, and all that it sent was received.
  struct Broken {
    std::string reason;
  };
  using Received = std::variant<Message, Nothing, Closed, Broken>;

  enum class SendResult : std::uint8_t {
    sent,      ///< The kernel has it.
    queued,    ///< It waits for room: call flush() when the socket is writable.
    overflow,  ///< The queue is full: the peer does not read. Not queued.
    too_long,  ///< Above Limits::message_bytes or kMaxDescriptors. Not queued.
    closed,    ///< The other end is closed.
    failed,    ///< No memfd or descriptor could be made for it. Not queued.
  };

  /// Two connected, non-blocking ends, closed on exec. Throws SystemError.
  [[nodiscard]] static std::pair<os::UniqueFd, os::UniqueFd> make_pair();

  explicit ControlChannel(os::UniqueFd socket, Limits limits);
  explicit ControlChannel(os::UniqueFd socket) : ControlChannel(std::move(socket), Limits{}) {}
  ControlChannel(const ControlChannel&) = delete;
  ControlChannel& operator=(const ControlChannel&) = delete;

  [[nodiscard]] int fd() const noexcept { return socket_.get(); }

  /// Sends or queues; never blocks. The descriptors are duplicated where it is queued, so the
  /// caller keeps its own. Text that is not UTF-8 is sent with U+FFFD in place of what is wrong.
  [[nodiscard]] SendResult send(const nlohmann::json& body, std::span<const int> descriptors = {});
  /// The same, and sleeps until the kernel has all that was queued. `queued` if the deadline
  /// passed first.
  [[nodiscard]] SendResult send_until(const nlohmann::json& body, os::Deadline deadline,
                                      std::span<const int> descriptors = {});
  /// Whether something is queued, so that its owner should wait for the socket to be writable.
  [[nodiscard]] bool wants_write() const;
  /// Gives the kernel what it takes. False if the other end is closed.
  bool flush();

  /// The next message, if it is there; never blocks.
  [[nodiscard]] Received receive();
  /// Sleeps until there is one; Nothing if the deadline passed first. Flushes meanwhile what was
  /// queued before the call.
  [[nodiscard]] Received receive_until(os::Deadline deadline);

 private:
  struct Packet {
    std::string bytes;  ///< Header and inline text.
    std::vector<os::UniqueFd> descriptors;
    std::size_t cost = 0;  ///< Bytes it counts for in the queue, the memfd's included.
  };
  enum class Written : std::uint8_t { all, would_block, closed, failed };
  [[nodiscard]] Written write(std::string_view bytes, std::span<const int> descriptors) const;
  [[nodiscard]] bool flush_locked();
  [[nodiscard]] Received broken(std::string reason);

  const os::UniqueFd socket_;
  const Limits limits_;
  mutable std::mutex mutex_;  ///< Guards the queue, and the order of what is sent.
  std::deque<Packet> queue_;
  std::size_t queued_bytes_ = 0;
  bool peer_closed_ = false;  ///< A send met EPIPE.
  // The receiver's.
  std::string broken_;
  std::unique_ptr<std::byte[]> buffer_;
};

/// Decodes one packet and the descriptors that came with it; what receive() does with what it read.
[[nodiscard]] ControlChannel::Received decode_control_packet(std::span<const std::byte> bytes,
                                                             std::vector<os::UniqueFd> descriptors,
                                                             std::size_t message_limit);

}  // namespace strata::ipc
