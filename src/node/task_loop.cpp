#include "node/task_loop.hpp"

#include <utility>

#include "chip/chip_runtime.hpp"
#include "node/exception_fault.hpp"
#include "strata/error.hpp"

namespace strata::node {
namespace {

using ipc::CompletionStatus;

}  // namespace

void call_function(const TaskCall& call, WorkerTask::Services& services) {
  if (call.callable.code.function == nullptr) {
    throw InvalidArgument("'" + call.callable.name +
                          "' is an orchestration, which only next-level workers run");
  }
  const TaskContext context(call.arguments, call.place, CancelToken::look, &call.token);
  WorkerTask task(context, services);
  call.callable.code.function(task);
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
        runner_.idle();
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
  if (stuck_ != nullptr) std::rethrow_exception(stuck_);
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
    const auto time_limit = static_cast<std::chrono::nanoseconds::rep>(header.time_limit_ns);
    runner_.run({callable, arguments, place, token_, std::chrono::nanoseconds(time_limit)},
                services_);
    if (token_.seen.load(std::memory_order_relaxed)) {
      completion.status = CompletionStatus::cancelled;
    } else {
      succeed(header.dispatch, services_, completion);
    }
  } catch (const chip::ChipStuck&) {
    stuck_ = std::current_exception();
    fail(frame, stuck_, completion);
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
