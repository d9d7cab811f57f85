#include "node/endpoint.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>

#include "base/access_name.hpp"
#include "base/duration_text.hpp"
#include "chip/run_overrun.hpp"
#include "graph/region.hpp"
#include "node/callable_registry.hpp"
#include "node/program_call.hpp"
#include "node/task_text.hpp"
#include "strata/error.hpp"
#include "trace/recorder.hpp"

namespace strata::node {

namespace {

using namespace std::chrono_literals;

/// Tensors of one frame, without allocation for as many as tasks usually have.
class TensorFrames {
 public:
  explicit TensorFrames(std::size_t count) {
    if (count > few_.size()) many_.resize(count);
    all_ = {count > few_.size() ? many_.data() : few_.data(), count};
  }
  [[nodiscard]] std::span<ipc::TensorFrame> all() noexcept { return all_; }

 private:
  std::array<ipc::TensorFrame, 16> few_;
  std::vector<ipc::TensorFrame> many_;
  std::span<ipc::TensorFrame> all_;
};

/// How long a chip may be silent after the limit of a run, at least. Longer than it gives kernels
/// that are slow to return.
constexpr std::chrono::milliseconds kChipGrace = 15 * chip::kGrace;

/// Why a task ends that was cancelled before its worker had it.
std::exception_ptr dropped_error(const TaskContext& context) {
  return cancelled_error(text_of(context) + " was dropped before it began");
}

}  // namespace

Endpoint::Endpoint(std::string path, const EndpointContext& context) noexcept
    : path_(std::move(path)), shared_(context) {}

/// "inout float32[4, 8]" for each tensor, then "scalar 0x5" for each scalar.
std::vector<std::string> Endpoint::argument_texts(const TaskContext& context) {
  std::vector<std::string> texts;
  texts.reserve(context.tensor_count() + context.scalar_count());
  for (std::size_t i = 0; i < context.tensor_count(); ++i) {
    const TensorView tensor = context.tensor(i);
    texts.push_back(fmt::format("{} {}[{}]", base::name_of(tensor.access()),
                                name_of(tensor.dtype()), fmt::join(tensor.shape(), ", ")));
  }
  for (std::size_t i = 0; i < context.scalar_count(); ++i)
    texts.push_back(fmt::format("scalar {:#x}", context.scalar<std::uint64_t>(i)));
  return texts;
}

/// The limit as the worker has it; 0: none.
std::chrono::nanoseconds Endpoint::limit_of(const Call& call,
                                            const ProgramCall* program) const noexcept {
  const std::chrono::nanoseconds of_call = call.time_limit();
  if (program == nullptr) return of_call;
  const auto own = program->use().time_limit();
  const std::chrono::nanoseconds of_run = own ? *own : run_limit_.value_or(0ns);
  if (of_call.count() == 0 || of_run.count() == 0) return std::max(of_call, of_run);
  return std::min(of_call, of_run);
}

/// How long it may go on after its limit. A chip is not told: it keeps the limit itself.
std::chrono::nanoseconds Endpoint::grace_of(const Entry& entry) const noexcept {
  return entry.program ? std::max(cancel_grace_of(entry), kChipGrace) : 0ms;
}

/// Describes one tensor argument for another process. Throws InvalidArgument if the memory is not
/// shared with workers, ChipError if it is a chip's and not for this one, CommError if it is of a
/// domain that is broken.
ipc::TensorFrame Endpoint::frame_of(const TaskContext& context, std::size_t argument) const {
  const detail::TensorRecord& record = context.arguments().tensors[argument];
  const std::span extents(record.dims, record.rank);
  const std::span strides(record.dims + record.rank, record.rank);
  ipc::TensorFrame frame{
      .dtype = record.dtype, .access = record.access, .extents = extents, .strides = strides};
  const graph::Reach reach =
      graph::reach_of(Tensor(record.buffer, 0, record.dtype, extents, strides));
  if (reach.begin == reach.end) return frame;  // No elements: no memory to name.
  const auto what = [&] {
    return text_of(context) + ", tensor argument " + std::to_string(argument);
  };
  const std::byte* data = record.data;
  if (data == nullptr) {
    // Memory that this process has no address for.
    const std::byte* of_chip = shared_.chip_memory->locate(record.buffer, lane_, what());
    if (of_chip == nullptr) of_chip = shared_.domains->locate(record.buffer, lane_, what());
    if (of_chip != nullptr) data = of_chip + record.byte_offset;
  }
  // What the tensor reaches lies in one buffer, so its lowest byte is in the same slab and range.
  const auto place = data == nullptr ? std::nullopt : shared_.slabs->locate(data + reach.begin);
  if (!place || place->generation == 0) {
    throw InvalidArgument(what() +
                          " lies in memory that workers do not share: use Worker::create_buffer, "
                          "or let the runtime allocate it");
  }
  frame.slab = place->slab;
  frame.generation = place->generation;
  frame.reach_begin = place->offset;
  frame.reach_end = place->offset + static_cast<std::uint64_t>(reach.end - reach.begin);
  frame.offset = place->offset + static_cast<std::uint64_t>(-reach.begin);
  return frame;
}

void Endpoint::tell(const Report& report) {
  if (report.give_back) {
    shared_.engine->give_back(report.id);
  } else if (report.value) {
    shared_.engine->complete(report.id, report.error, *report.value);
  } else {
    shared_.engine->complete(report.id, report.error);
  }
}

void Endpoint::tell(const std::vector<Report>& reports) {
  for (const Report& report : reports)
    tell(report);
}

// ---- From the engine ----------------------------------------------------------------------------

void Endpoint::dispatch(DispatchId id, TaskContext& context, Body& body) {
  const ProgramCall* const program = body.target<ProgramCall>();
  const Call* const call = program != nullptr ? &program->call() : body.target<Call>();
  if (call == nullptr) {
    throw InvalidArgument(text_of(context) + " is for " + path_ +
                          ", which is another process: its body must be a strata::Call");
  }
  Entry entry{.id = id,
              .context = &context,
              .call = *call,
              .program = program != nullptr,
              .time_limit = limit_of(*call, program)};
  std::exception_ptr refusal;
  bool give_back = false;
  {
    const std::lock_guard lock(mutex_);
    if (call->callable().value == 0 || call->callable().value > shared_.callables->count()) {
      refusal = std::make_exception_ptr(InvalidArgument(
          text_of(context) + " calls " + shared_.callables->text_of(call->callable()) +
          ": use what Worker::add of this Worker returned"));
    } else if (closed_) {
      refusal = cancelled_error(text_of(context) + " was dropped: the Worker is closed");
    } else if (shared_.any_task_cancelled.load(std::memory_order_seq_cst) &&
               shared_.task_cancelled(context.task())) {
      refusal = cancelled_error(text_of(context) + " was cancelled");
    } else if (context.cancelled()) {
      // A member of a group of which another has failed meanwhile: cancellation() has been here.
      refusal = dropped_error(context);
    } else if (context.named_lane() && (context.task().value <= cutoff_ || lost_)) {
      refusal = died(entry, last_cause_, Begun::no);
    } else if (mailbox_ == nullptr && !context.named_lane()) {
      give_back = true;  // The lane was suspended while the task was on its way here.
    } else {
      const Sent sent = waiting_.empty() ? send(entry, refusal) : Sent::later;
      if (sent == Sent::later) {
        if (call->cancel_grace() && call->time_limit().count() > 0) {
          entry.limit = os::Deadline::after(call->time_limit());
          shared_.timers_changed();
        }
        waiting_.push_back(std::move(entry));
      }
    }
  }
  if (give_back) {
    shared_.engine->give_back(id);
  } else if (refusal != nullptr) {
    std::rethrow_exception(refusal);
  }
}

/// Puts a task into the mailbox. Lock held.
Endpoint::Sent Endpoint::send(Entry& entry, std::exception_ptr& refusal) {
  const std::uint32_t callable = entry.call.callable().value;
  const Confirmed confirmed = callable < confirmed_.size() ? confirmed_[callable] : Confirmed::no;
  if (mailbox_ == nullptr || confirmed == Confirmed::no) return Sent::later;
  if (confirmed == Confirmed::refused) {
    const auto known = std::find_if(refused_.begin(), refused_.end(),
                                    [&](const auto& each) { return each.first == callable; });
    WorkerFault fault = known->second;
    fault.task = text_of(*entry.context);
    refusal = std::make_exception_ptr(RemoteError(fault.to_string(), fault));
    return Sent::never;
  }
  const TaskContext& context = *entry.context;
  const detail::ArgumentBlock& arguments = context.arguments();
  TensorFrames tensors(arguments.tensor_count);
  try {
    if (callable == shared_.collective->load(std::memory_order_relaxed))
      shared_.domains->begin_collective(context);
    for (std::uint32_t i = 0; i < arguments.tensor_count; ++i)
      tensors.all()[i] = frame_of(context, i);
  } catch (...) {
    refusal = std::current_exception();
    return Sent::never;
  }
  const ipc::Submission submission{
      .header = {.dispatch = entry.id.value,
                 .task = context.task().value,
                 .time_limit_ns = static_cast<std::uint64_t>(entry.call.time_limit().count()),
                 .callable = callable,
                 .member = context.member(),
                 .members = context.members()},
      .tensors = tensors.all(),
      .scalars = {arguments.scalars, arguments.scalar_count},
      .name = context.name()};
  trace::record(trace::EventKind::dispatch, context.task().value, lane_.value);
  const auto pushed = mailbox_->push(submission);
  switch (pushed.result) {
    case ipc::MailboxParent::PushResult::pushed:
      entry.ticket = pushed.ticket;
      sent_.push_back(std::move(entry));
      in_flight_.store(static_cast<std::uint32_t>(sent_.size()), std::memory_order_release);
      if (sent_.size() == 1) now_in_hand();
      return Sent::yes;
    case ipc::MailboxParent::PushResult::ring_full:
    case ipc::MailboxParent::PushResult::arena_full:
      return Sent::later;
    case ipc::MailboxParent::PushResult::too_long:
      break;
  }
  refusal = std::make_exception_ptr(InvalidArgument(
      text_of(context) +
      " has more arguments than a mailbox takes: " + std::to_string(arguments.tensor_count) +
      " tensors and " + std::to_string(arguments.scalar_count) + " scalars"));
  return Sent::never;
}

/// Sends what waits, as far as it can go. Lock held.
void Endpoint::send_waiting(std::vector<Report>& reports) {
  while (!waiting_.empty()) {
    Entry& entry = waiting_.front();
    const DispatchId id = entry.id;
    std::exception_ptr refusal;
    const Sent sent = entry.context->cancelled() ? Sent::never : send(entry, refusal);
    if (sent == Sent::later) return;
    if (sent == Sent::never) {
      if (refusal == nullptr) {
        refusal = dropped_error(*entry.context);
      }
      reports.push_back({.id = id, .error = refusal});
    }
    waiting_.pop_front();
  }
}

/// The oldest frame is the one that the worker has in hand, or is about to: its time begins. Lock
/// held.
void Endpoint::now_in_hand() {
  Entry& entry = sent_.front();
  if (entry.time_limit.count() > 0) {
    const std::chrono::nanoseconds grace = grace_of(entry);
    // A limit may be as long as a duration can be.
    entry.limit = os::Deadline::after(
        std::min(entry.time_limit, std::chrono::nanoseconds::max() - grace) + grace);
    shared_.timers_changed();
  }
  if (entry.told) {
    entry.grace = os::Deadline::after(cancel_grace_of(entry));
    shared_.timers_changed();
  }
}

/// Sets the cancel word of a frame. Lock held.
void Endpoint::tell_to_stop(Entry& entry) {
  if (entry.told) return;
  entry.told = true;
  mailbox_->cancel(entry.ticket);
  if (&entry == &sent_.front()) {
    entry.grace = os::Deadline::after(cancel_grace_of(entry));
    shared_.timers_changed();
  }
}

void Endpoint::cancellation() {
  std::vector<Report> reports;
  {
    const std::lock_guard lock(mutex_);
    for (Entry& entry : sent_) {
      if (entry.context->cancelled()) tell_to_stop(entry);
    }
    std::erase_if(waiting_, [&](Entry& entry) {
      if (!entry.context->cancelled()) return false;
      reports.push_back({.id = entry.id, .error = dropped_error(*entry.context)});
      return true;
    });
  }
  tell(reports);
}

bool Endpoint::cancel_task(TaskId task) {
  const auto is_it = [&](const Entry& entry) { return entry.context->task() == task; };
  bool here = false;
  std::vector<Report> reports;
  {
    const std::lock_guard lock(mutex_);
    for (Entry& entry : sent_) {
      if (!is_it(entry)) continue;
      entry.cancelled = true;
      tell_to_stop(entry);
      here = true;
    }
    std::erase_if(waiting_, [&](Entry& entry) {
      if (!is_it(entry)) return false;
      reports.push_back(
          {.id = entry.id, .error = cancelled_error(text_of(*entry.context) + " was cancelled")});
      return true;
    });
  }
  tell(reports);
  return here || !reports.empty();
}

// ---- Completions --------------------------------------------------------------------------------

bool Endpoint::poll() {
  // Acquire is not needed: a stale zero costs a look, which arm() makes up for.
  if (in_flight_.load(std::memory_order_relaxed) == 0) return false;
  bool any = false;
  for (;;) {
    Report report;
    bool told = false;
    std::vector<Report> more;
    {
      const std::lock_guard lock(mutex_);
      if (mailbox_ == nullptr) return any;
      const auto popped = mailbox_->pop();
      if (popped.result == ipc::MailboxParent::PopResult::broken) shared_.timers_changed();
      if (popped.result != ipc::MailboxParent::PopResult::completion) return any;
      any = true;
      Entry entry = std::move(sent_.front());
      sent_.pop_front();
      in_flight_.store(static_cast<std::uint32_t>(sent_.size()), std::memory_order_relaxed);
      if (!sent_.empty()) now_in_hand();
      trace::record(trace::EventKind::completion, entry.context->task().value,
                    static_cast<std::uint64_t>(popped.frame.status));
      if (popped.frame.story_follows != 0 && entry.story == nullptr) {
        entry.story = std::make_unique<Story>();
        entry.story->frame = popped.frame;
        unfinished_.push_back(std::move(entry));
      } else {
        if (entry.story == nullptr) {
          if (popped.frame.status == ipc::CompletionStatus::ok && popped.frame.has_value == 0 &&
              !entry.over_limit) [[likely]] {
            report.id = entry.id;
            told = true;
          } else {
            entry.story = std::make_unique<Story>();
          }
        }
        if (!told) {
          entry.story->frame = popped.frame;
          report = finished(entry);
          told = true;
        }
      }
      if (!waiting_.empty()) send_waiting(more);
    }
    if (told) tell(report);
    tell(more);
  }
}

/// What the engine is told of a task that has ended and whose story is there. Lock held.
Endpoint::Report Endpoint::finished(Entry& entry, const WorkerFault* cause) const {
  Report report{.id = entry.id};
  const ipc::CompletionFrame& frame = entry.story->frame;
  const std::string task = text_of(*entry.context);
  if (entry.over_limit && !(entry.program && entry.story->fault)) {
    report.error = std::make_exception_ptr(DeadlineExceeded(task + " ran longer on " + path_ +
                                                            " than its time limit of " +
                                                            base::duration_text(entry.time_limit)));
    return report;
  }
  const bool told = entry.story->fault || entry.story->value;
  if (frame.story_follows != 0 && !told && cause != nullptr) {
    // It had ended; what it had to say went with its process.
    report.error = died(entry, *cause, Begun::yes);
    return report;
  }
  switch (frame.status) {
    case ipc::CompletionStatus::ok:
      if (entry.story->value) {
        report.value = std::move(entry.story->value);
      } else if (frame.has_value != 0) {
        report.value = std::string(frame.inline_value());
      }
      return report;
    case ipc::CompletionStatus::cancelled:
      report.error = cancelled_error(task + " was cancelled");
      return report;
    case ipc::CompletionStatus::stale_buffer:
      report.error = std::make_exception_ptr(
          InvalidState(task + ": a tensor's memory was released before the task ran on " + path_));
      return report;
    case ipc::CompletionStatus::failed:
    case ipc::CompletionStatus::refused:
      break;
  }
  WorkerFault fault = entry.story->fault.value_or(
      WorkerFault{.path = path_, .cause = "the task failed, and nothing more is known of it"});
  // What comes from further down names the task there.
  if (fault.path == path_ || fault.task.empty()) fault.task = task;
  if (fault.callable.empty()) fault.callable = shared_.callables->text_of(entry.call.callable());
  if (entry.cancelled && fault.type.find("Cancelled") != std::string::npos) {
    report.error = cancelled_error(task + " was cancelled");
  } else {
    report.error = std::make_exception_ptr(RemoteError(fault.to_string(), fault));
  }
  return report;
}

/// Adds to the story of a task, which may have been completed before it.
template <class Add>
void Endpoint::add_to_story(std::uint64_t dispatch, const Add& add) {
  const auto is_it = [&](const Entry& entry) { return entry.id.value == dispatch; };
  std::optional<Report> report;
  {
    const std::lock_guard lock(mutex_);
    const auto completed = std::find_if(unfinished_.begin(), unfinished_.end(), is_it);
    if (completed != unfinished_.end()) {
      add(*completed->story);
      report = finished(*completed);
      unfinished_.erase(completed);
    } else {
      const auto sent = std::find_if(sent_.begin(), sent_.end(), is_it);
      if (sent == sent_.end()) return;  // Its process was given up meanwhile.
      if (sent->story == nullptr) sent->story = std::make_unique<Story>();
      add(*sent->story);
    }
  }
  if (report) tell(*report);
}

void Endpoint::story(std::uint64_t dispatch, WorkerFault fault) {
  add_to_story(dispatch, [&](Story& story) { story.fault = std::move(fault); });
}

void Endpoint::value(std::uint64_t dispatch, std::string bytes) {
  add_to_story(dispatch, [&](Story& story) { story.value = std::move(bytes); });
}

bool Endpoint::arm() {
  const std::lock_guard lock(mutex_);
  // A broken one has nothing more to say; the supervisor has been told.
  return mailbox_ == nullptr || !mailbox_->broken().empty() || mailbox_->arm();
}

void Endpoint::disarm() {
  const std::lock_guard lock(mutex_);
  if (mailbox_ != nullptr) mailbox_->disarm();
}

}  // namespace strata::node
