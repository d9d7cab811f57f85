// WorkerMessages: what a worker process says to its parent over the control channel (protocol.hpp).
//
// A message that the kernel does not take at once waits in the channel's queue, which the service
// thread empties. One that finds the queue full makes its sender wait: nothing is ever dropped
// while there is a parent to read it. Where the system gives neither memory nor descriptors for a
// message, its sender tries for a second; then it sends what is short of the fault in it, and after
// another second, or where there is no fault in it, it throws Error.
//
// Thread safety: all members from any thread, but for the ones that say otherwise.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ipc/control_channel.hpp"
#include "os/deadline.hpp"
#include "strata/worker_error.hpp"

namespace strata::node {

class WorkerMessages {
 public:
  /// `queued` is called when something waits for room, so that someone flushes. Takes over the
  /// descriptor.
  WorkerMessages(os::UniqueFd socket, std::function<void()> queued);

  [[nodiscard]] ipc::ControlChannel& channel() noexcept { return channel_; }

  void hello();
  void step(std::string_view text);
  void ready();
  void registered(const std::vector<std::uint32_t>& ids);
  void not_registered(std::uint32_t id, const WorkerFault& fault);
  void task_failed(std::uint64_t dispatch, const WorkerFault& fault);
  /// The value travels in a sealed memory. Throws SystemError if there is none for it, Error if it
  /// can't be sent.
  void task_value(std::uint64_t dispatch, std::string_view value);
  /// The last message of a worker that could not start or go on; waits until it is sent, at most
  /// until the deadline. What can't be sent goes to stderr.
  void failed(const WorkerFault& fault, os::Deadline deadline);
  /// Gives the kernel what is queued, at most until the deadline.
  void flush(os::Deadline deadline);

  /// Who this worker is, for faults. For the main thread, before others ask.
  void set_identity(std::string path, std::string role);
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] const std::string& role() const noexcept { return role_; }
  /// A fault of this process with that cause.
  [[nodiscard]] WorkerFault fault(std::string cause) const;

 private:
  /// Waits for room until the deadline.
  void send(const nlohmann::json& body, std::span<const int> descriptors = {},
            os::Deadline deadline = os::Deadline::never());

  ipc::ControlChannel channel_;
  std::function<void()> queued_;
  std::string path_;
  std::string role_;
};

}  // namespace strata::node
