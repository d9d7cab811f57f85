#include "node/worker_messages.hpp"

#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "ipc/sealed_text.hpp"
#include "node/json_fields.hpp"
#include "node/protocol.hpp"
#include "node/this_program.hpp"
#include "strata/error.hpp"

namespace strata::node {
namespace {

using nlohmann::json;
using SendResult = ipc::ControlChannel::SendResult;

/// How often a sender that finds no room looks again.
constexpr std::chrono::milliseconds kRetry{10};
/// How long a sender waits for descriptors or memory that the system does not have.
constexpr std::chrono::seconds kPatience{1};
/// Parts of a fault up to this many bytes are sent where the whole is too much.
constexpr std::size_t kSmallPart = 1024;

/// The message with what is short of its fault, and `why` in place of the cause; nothing if there
/// is no fault in it.
std::optional<json> shortened(const json& body, WorkerFault why) {
  const auto fault = body.find("fault");
  if (fault == body.end()) return std::nullopt;
  const auto cause = fault->find("cause");
  const bool is_text = cause != fault->end() && cause->is_string();
  why.cause =
      "failed, with a text" +
      (is_text ? " of " + std::to_string(cause->get_ref<const std::string&>().size()) + " bytes"
               : std::string()) +
      ", " + why.cause;
  json shorter = body;
  shorter["fault"] = to_json(why);
  for (const auto& [key, value] : fault->items()) {
    if (key == "cause" || !value.is_string()) continue;
    if (value.get_ref<const std::string&>().size() <= kSmallPart) shorter["fault"][key] = value;
  }
  return shorter;
}

}  // namespace

WorkerMessages::WorkerMessages(os::UniqueFd socket, std::function<void()> queued)
    : channel_(std::move(socket)), queued_(std::move(queued)) {}

void WorkerMessages::set_identity(std::string path, std::string role) {
  path_ = std::move(path);
  role_ = std::move(role);
}

WorkerFault WorkerMessages::fault(std::string cause) const {
  return {.path = path_, .role = role_, .pid = getpid(), .cause = std::move(cause)};
}

void WorkerMessages::send(const json& body, std::span<const int> descriptors,
                          os::Deadline deadline) {
  std::optional<json> shorter;
  os::Deadline patience;  // Begins with the first failure.
  for (;;) {
    switch (channel_.send(shorter ? *shorter : body, descriptors)) {
      case SendResult::sent:
      case SendResult::closed:  // Nobody reads it; the lifeline ends this process.
        return;
      case SendResult::queued:
        queued_();
        return;
      case SendResult::too_long:
        // Only a fault can be that long, by its text. Say what can be said.
        if (shorter) return;
        shorter = shortened(body, fault("which is too long to be sent"));
        if (!shorter) return;
        continue;
      case SendResult::overflow:
        break;
      case SendResult::failed:
        if (patience.is_never()) patience = os::Deadline::after(kPatience);
        if (!patience.passed()) break;
        if (!shorter) {
          shorter = shortened(body, fault("but this process has no descriptor or no memory left to "
                                          "send it"));
          patience = os::Deadline::never();
          if (shorter) continue;
        }
        throw Error(
            "can't send a message to the parent process: this process has no descriptor or no"
            " memory left for it");
    }
    if (deadline.passed()) return;
    queued_();
    std::this_thread::sleep_for(kRetry);
  }
}

void WorkerMessages::hello() {
  send({{"type", "hello"},
        {"pid", getpid()},
        {"build_id", own_build_id()},
        {"protocol", kProtocol}});
}

void WorkerMessages::step(std::string_view text) {
  send({{"type", "step"}, {"text", text_to_json(text)}});
}

void WorkerMessages::ready() { send({{"type", "ready"}, {"build_id", own_build_id()}}); }

void WorkerMessages::registered(const std::vector<std::uint32_t>& ids) {
  send({{"type", "registered"}, {"ids", ids}});
}

void WorkerMessages::not_registered(std::uint32_t id, const WorkerFault& fault) {
  send({{"type", "not_registered"}, {"id", id}, {"fault", to_json(fault)}});
}

void WorkerMessages::task_failed(std::uint64_t dispatch, const WorkerFault& fault) {
  send({{"type", "task_failed"}, {"dispatch", dispatch}, {"fault", to_json(fault)}});
}

void WorkerMessages::task_value(std::uint64_t dispatch, std::string_view value) {
  const os::UniqueFd memory = ipc::make_sealed_text(value);
  const std::array descriptors{memory.get()};
  send({{"type", "task_value"}, {"dispatch", dispatch}, {"bytes", value.size()}}, descriptors);
}

void WorkerMessages::failed(const WorkerFault& fault, os::Deadline deadline) {
  try {
    send({{"type", "failed"}, {"fault", to_json(fault)}}, {}, deadline);
  } catch (const std::exception& error) {
    // Its log is what is left to say it.
    std::fprintf(stderr, "strata worker %s, pid %d: %s\n%s\n", path_.c_str(), getpid(),
                 fault.cause.c_str(), error.what());
  }
  flush(deadline);
}

void WorkerMessages::flush(os::Deadline deadline) {
  while (channel_.wants_write() && channel_.flush() && channel_.wants_write() &&
         !deadline.passed()) {
    std::this_thread::sleep_for(kRetry);
  }
}

}  // namespace strata::node
