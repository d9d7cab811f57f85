#include "node/task_loop.hpp"

#include <utility>

#include "node/exception_fault.hpp"
#include "strata/error.hpp"

namespace strata::node {
namespace {

using ipc::CompletionStatus;

void require_function(const LoadedCallable& callable) {
  if (callable.code.function != nullptr) return;
  throw InvalidArgument("'" + callable.name +
                        "' is an orchestration, which only next-level workers run");
}

void call_on_this_thread(const TaskCall& call, WorkerTask::Services& services) {
  const TaskContext context(call.arguments, call.place, CancelToken::look, &call.token);
  WorkerTask task(context, services);
  call.callable.code.function(task);
}

}  // namespace

void PlainRunner::run(const TaskCall& call, WorkerTask::Services& services) {
  require_function(call.callable);
  call_on_this_thread(call, services);
}

void ChipRunner::run(const TaskCall& call, WorkerTask::Services& services) {
  require_function(call.callable);
  if (lanes_.count() == 1) {  // Nothing to share out.
    call_on_this_thread(call, services);
    return;
  }
  std::vector<WorkerTask::Services> of_lanes(lanes_.count(), services);
  lanes_.run([&](unsigned lane) {
    TaskContext::Place place = call.place;
    place.member = place.member * lanes_.count() + lane;
    place.members *= lanes_.count();
    const TaskContext context(call.arguments, place, CancelToken::look, &call.token);
    WorkerTask task(context, of_lanes[lane]);
    call.callable.code.function(task);
  });
  for (auto& of_lane : of_lanes) {
    if (!of_lane.has_value) continue;
    services = std::move(of_lane);  // The value of the lowest lane that returned one.
    return;
  }
}

TaskLoop::TaskLoop(WorkerShared& shared, TaskRunner& runner) : shared_(shared), runner_(runner) {
  token_.shared = &shared;
  services_.worker = shared.messages->path();
  give_up_ = [this] { return token_.cancelled() || shared_.stopping() != Stop::none; };
}

void TaskLoop::run() {
  ipc::MailboxWorker& mailbox = *shared_.mailbox;
  while (shared_.stopping() == Stop::none) {
    switch (mailbox.wait()) {
      case ipc::MailboxWorker::WaitResult::interrupted:
        continue;
      case ipc::MailboxWorker::WaitResult::broken:
        throw Error("its mailbox is broken: " + std::string(mailbox.broken()));
      case ipc::MailboxWorker::WaitResult::frame:
        break;
    }
    const auto taken = mailbox.take();
    if (taken.result == ipc::MailboxWorker::TakeResult::broken) {
      throw Error("its mailbox is broken: " + std::string(mailbox.broken()));
    }
    if (taken.result == ipc::MailboxWorker::TakeResult::frame) run_frame(taken);
  }
}

void TaskLoop::run_frame(const ipc::MailboxWorker::Taken& taken) {
  const ipc::SubmissionHeader& header = taken.frame.header();
  token_.number = taken.number;
  token_.seen.store(false, std::memory_order_relaxed);
  ipc::CompletionFrame completion;
  completion.dispatch = header.dispatch;
  const LoadedCallable* const callable = shared_.callables.find(header.callable);
  if (token_.cancelled()) {
    completion.status = CompletionStatus::cancelled;
  } else if (callable == nullptr) {
    const auto why = std::make_exception_ptr(
        Error("callable " + std::to_string(header.callable) + " is not registered here"));
    fail(taken.frame, why, completion);
    completion.status = CompletionStatus::refused;
  } else {
    const std::string_view name =
        taken.frame.name().empty() ? std::string_view(callable->name) : taken.frame.name();
    shared_.record->begin_task(header.task, name, callable->name);
    call(taken.frame, *callable, completion);
    shared_.record->end_task(static_cast<std::uint64_t>(completion.status));
  }
  shared_.mailbox->complete(completion);
}

TaskLoop::Arguments TaskLoop::resolve(const ipc::SubmissionView& frame) {
  tensors_.resize(frame.tensor_count());
  std::size_t i = 0;
  for (const ipc::TensorFrame tensor : frame.tensors()) {
    const SlabMap::Resolved resolved = shared_.slabs.resolve(tensor, give_up_);
    switch (resolved.outcome) {
      case SlabMap::Outcome::found:
        break;
      case SlabMap::Outcome::stale:
        return Arguments::stale;
      case SlabMap::Outcome::malformed:
        return Arguments::malformed;
      case SlabMap::Outcome::gave_up:
        return Arguments::gave_up;
    }
    // In a frame the strides lie right behind the extents, which is what a TensorRecord wants.
    tensors_[i++] = {.data = resolved.data,
                     .dims = tensor.extents.data(),
                     .buffer = {},
                     .byte_offset = static_cast<std::int64_t>(tensor.offset),
                     .dtype = tensor.dtype,
                     .access = tensor.access,
                     .tracking = Tracking::full,
                     .rank = static_cast<std::uint8_t>(tensor.extents.size()),
                     .flags = 0};
  }
  return Arguments::ready;
}

void TaskLoop::call(const ipc::SubmissionView& frame, const LoadedCallable& callable,
                    ipc::CompletionFrame& completion) {
  const ipc::SubmissionHeader& header = frame.header();
  try {
    switch (resolve(frame)) {
      case Arguments::ready:
        break;
      case Arguments::stale:
        completion.status = CompletionStatus::stale_buffer;
        return;
      case Arguments::gave_up:
        completion.status = CompletionStatus::cancelled;
        return;
      case Arguments::malformed:
        throw Error("a tensor of the task names bytes that its memory does not have");
    }
    const detail::ArgumentBlock arguments{
        .tensors = tensors_.data(),
        .scalars = frame.scalars().data(),
        .tensor_count = static_cast<std::uint32_t>(tensors_.size()),
        .scalar_count = static_cast<std::uint32_t>(frame.scalars().size())};
    const TaskContext::Place place{.task = {header.task},
                                   .name = frame.name(),
                                   .lane = {},
                                   .member = header.member,
                                   .members = header.members};
    services_.has_value = false;
    runner_.run({callable, arguments, place, token_}, services_);
    if (token_.seen.load(std::memory_order_relaxed)) {
      completion.status = CompletionStatus::cancelled;
    } else {
      succeed(header.dispatch, services_, completion);
    }
  } catch (const Cancelled&) {
    if (token_.cancelled()) {
      completion.status = CompletionStatus::cancelled;
    } else {
      fail(frame, std::current_exception(), completion);
    }
  } catch (...) {
    fail(frame, std::current_exception(), completion);
  }
}

void TaskLoop::succeed(std::uint64_t dispatch, const WorkerTask::Services& services,
                       ipc::CompletionFrame& completion) {
  completion.status = CompletionStatus::ok;
  if (!services.has_value) return;
  if (services.value.size() <= ipc::CompletionFrame::kInlineBytes) {
    completion.set_inline_value(services.value);
    return;
  }
  shared_.messages->task_value(dispatch, services.value);
  completion.has_value = 1;
  completion.story_follows = 1;
}

void TaskLoop::fail(const ipc::SubmissionView& frame, const std::exception_ptr& why,
                    ipc::CompletionFrame& completion) {
  shared_.messages->task_failed(frame.header().dispatch, fault_of(why, fault(frame)));
  completion.status = CompletionStatus::failed;
  completion.has_value = 0;
  completion.value_bytes = 0;
  completion.story_follows = 1;
}

WorkerFault TaskLoop::fault(const ipc::SubmissionView& frame) const {
  const ipc::SubmissionHeader& header = frame.header();
  WorkerFault fault = shared_.messages->fault({});
  fault.state = "ready";
  fault.task = "task " + std::to_string(TaskId{header.task}.number());
  if (!frame.name().empty()) fault.task += " '" + std::string(frame.name()) + "'";
  if (const LoadedCallable* const callable = shared_.callables.find(header.callable)) {
    fault.callable = callable->name;
  }
  return fault;
}

}  // namespace strata::node
