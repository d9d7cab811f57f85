#include "node/worker_messages.hpp"

#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "node/json_fields.hpp"
#include "node/protocol.hpp"
#include "node/this_program.hpp"
#include "os/mapping.hpp"
#include "os/memfd.hpp"

namespace strata::node {
namespace {

using nlohmann::json;
using SendResult = ipc::ControlChannel::SendResult;

/// How often a sender that finds no room looks again.
constexpr std::chrono::milliseconds kRetry{10};

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

void WorkerMessages::send(const json& body, std::span<const int> descriptors) {
  for (;;) {
    switch (channel_.send(body, descriptors)) {
      case SendResult::sent:
      case SendResult::closed:  // Nobody reads it; the lifeline ends this process.
        return;
      case SendResult::queued:
        queued_();
        return;
      case SendResult::too_long: {
        // Only a fault can be that long, by its text. Say what can be said.
        if (!body.contains("fault")) return;
        const auto& cause = body["fault"]["cause"];
        json shorter = body;
        shorter["fault"] = to_json(fault(
            "failed, with a text of " +
            std::to_string(cause.is_string() ? cause.get_ref<const std::string&>().size() : 0) +
            " bytes, which is too long to be sent"));
        return send(shorter, descriptors);
      }
      case SendResult::overflow:
      case SendResult::failed:
        queued_();
        std::this_thread::sleep_for(kRetry);
        break;
    }
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
  const os::UniqueFd memory = os::make_memfd("strata-value", value.size());
  if (!value.empty()) {
    const auto mapping =
        os::Mapping::shared(memory.get(), value.size(), os::Mapping::Populate::yes);
    std::memcpy(mapping.data(), value.data(), value.size());
  }
  const std::array descriptors{memory.get()};
  send({{"type", "task_value"}, {"dispatch", dispatch}, {"bytes", value.size()}}, descriptors);
}

void WorkerMessages::lost(const std::string& path, const WorkerFault& fault) {
  send({{"type", "lost"}, {"path", text_to_json(path)}, {"fault", to_json(fault)}});
}

void WorkerMessages::failed(const WorkerFault& fault, os::Deadline deadline) {
  send({{"type", "failed"}, {"fault", to_json(fault)}});
  flush(deadline);
}

void WorkerMessages::flush(os::Deadline deadline) {
  while (channel_.wants_write() && channel_.flush() && channel_.wants_write() &&
         !deadline.passed()) {
    std::this_thread::sleep_for(kRetry);
  }
}

}  // namespace strata::node
