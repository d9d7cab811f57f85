// What the supervisor tells a Worker of its children: that one is up, down or late, and messages.
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "ipc/control_channel.hpp"
#include "ipc/sealed_text.hpp"
#include "node/json_fields.hpp"
#include "node/protocol.hpp"
#include "node/worker_progress.hpp"
#include "node/worker_state.hpp"
#include "os/procfs.hpp"
#include "strata/error.hpp"

namespace strata::node {

namespace {

/// The value of a task, which came as a memory of its own.
std::string value_of(const JsonFields& fields, ipc::Message& message) {
  const std::uint64_t bytes = fields.unsigned_integer("bytes");
  if (message.descriptors().size() != 1) throw InvalidArgument("a value without its memory");
  ipc::SealedText value = ipc::read_sealed_text(message.descriptors().front().get(), bytes);
  if (!value.text) throw InvalidArgument("a value that can't be read: " + value.problem);
  if (value.text->size() != bytes) throw InvalidArgument("a value of another length than said");
  return std::move(*value.text);
}

}  // namespace

void WorkerState::child_up(std::size_t child, std::shared_ptr<ipc::MailboxParent> mailbox) {
  engine_->fail_kind(engine_->kind(specs_[child].kind), nullptr);
  endpoints_[child]->up(std::move(mailbox));
  progress_->serve();  // Arms the new mailbox too.
}

void WorkerState::child_down(std::size_t child, const WorkerFault& cause, bool lost) {
  const bool overdue = overdue_[child];
  overdue_[child] = false;
  if (specs_[child].kind == "chip") {
    const LaneId lane = endpoints_[child]->lane();
    chip_memory_.process_gone(lane, cause);
    communicators_.process_gone(
        lane, cause,
        overdue ? Communicators::Ended::for_it_was_cancelled : Communicators::Ended::by_itself);
    domains_.process_gone(lane, cause);
  }
  endpoints_[child]->down(cause, lost);
  if (!lost) return;
  for (std::size_t i = 0; i < endpoints_.size(); ++i) {
    if (specs_[i].kind == specs_[child].kind && !endpoints_[i]->lost()) return;
  }
  // Nobody is left who could run what asks for any worker of the kind.
  engine_->fail_kind(engine_->kind(specs_[child].kind),
                     std::make_exception_ptr(WorkerDied("no " + std::string(specs_[child].kind) +
                                                            " worker is left: " + cause.to_string(),
                                                        cause)));
}

/// Throws InvalidArgument for what is no id that was given out.
CallableId WorkerState::known_callable(const nlohmann::json& id) const {
  if (!id.is_number_unsigned() || id.get<std::uint64_t>() == 0 ||
      id.get<std::uint64_t>() > callables_.count()) {
    throw InvalidArgument("there is no callable " + id.dump());
  }
  return CallableId{id.get<std::uint32_t>()};
}

void WorkerState::child_message(std::size_t child, ipc::Message& message) {
  const nlohmann::json& body = message.body();
  const JsonFields fields(body, "the message");
  const std::string type = fields.text("type");
  Endpoint& endpoint = *endpoints_[child];
  if (type == "registered") {
    for (const nlohmann::json& id : fields.array("ids"))
      endpoint.confirm(known_callable(id));
  } else if (type == "not_registered") {
    endpoint.refuse(known_callable(fields.at("id")), fault_from(fields.at("fault")));
  } else if (type == "task_failed") {
    endpoint.story(fields.unsigned_integer("dispatch"), fault_from(fields.at("fault")));
  } else if (type == "task_value") {
    endpoint.value(fields.unsigned_integer("dispatch"), value_of(fields, message));
  } else {
    throw InvalidArgument("unknown type '" + type + "'");
  }
}

void WorkerState::completions() { progress_->serve(); }

os::Deadline WorkerState::look_at_limits(std::size_t child, std::optional<std::string>& end) {
  std::optional<Endpoint::Overdue> overdue;
  const os::Deadline next = endpoints_[child]->next_timer(overdue);
  if (overdue) {
    end = overdue->why;
    overdue_[child] = true;
    if (specs_[child].kind == "chip") {
      communicators_.about_to_end(endpoints_[child]->lane(),
                                  [this](LaneId lane) { return place_of(lane); });
    }
  }
  const std::string broken = endpoints_[child]->broken();
  if (!broken.empty()) end = "broke its mailbox: " + broken;
  return next;
}

/// Where in the kernel the process behind a lane is; empty if there is none.
std::string WorkerState::place_of(LaneId lane) {
  const std::vector<ProcessStatus> all = supervisor_->processes();
  for (std::size_t child = 0; child < all.size(); ++child) {
    if (endpoints_[child]->lane() != lane) continue;
    if (all[child].pid <= 0) return {};
    const std::string channel = os::wait_channel(all[child].pid);
    return channel.empty() ? "running" : channel;
  }
  return {};
}

std::string WorkerState::task_in_hand(std::size_t child) {
  return endpoints_[child]->task_in_hand();
}

}  // namespace strata::node
