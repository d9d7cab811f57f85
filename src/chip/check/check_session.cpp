#include "chip/check/check_session.hpp"

#include <algorithm>

#include "strata/chip_error.hpp"

namespace strata::chip {
namespace {

/// Sorts of accesses that are told one by one; beyond those they are only counted.
constexpr std::size_t kListed = 100;
/// Tasks whose memory is remembered.
constexpr std::size_t kOwners = 4096;
constexpr std::size_t kFrames = 12;

std::uint64_t calls_of(const Launch& launch) {
  const auto lanes = std::count_if(launch.kernels().begin(), launch.kernels().end(),
                                   [](std::uint16_t id) { return id != KernelId::kNone; });
  return static_cast<std::uint64_t>(lanes) * launch.block_count();
}

std::size_t nearest_of(const CheckedRegions& regions, std::uintptr_t address) {
  std::size_t nearest = 0;
  for (std::size_t i = 1; i < regions.size(); ++i) {
    if (regions[i].distance(address) < regions[nearest].distance(address)) nearest = i;
  }
  return nearest;
}

}  // namespace

CheckSession::CheckSession(const ChipProgramInfo& program)
    : impl_(std::make_unique<Impl>(program)) {
  if (!can_check()) {
    throw ChipError(ErrorCode::bad_configuration,
                    "this build of Strata can't check kernels: it was itself built with a "
                    "sanitizer, which has taken the places that checking needs; use a build "
                    "without STRATA_SANITIZE");
  }
  if (!program.check) {
    throw ChipError(ErrorCode::bad_configuration,
                    "a run of chip program '" + program.name +
                        "' is to be checked, but the program was not built for it; build it with "
                        "ChipBuildOptions::check (strata build --check)");
  }
}

CheckSession::~CheckSession() = default;

std::uint64_t CheckSession::violations() const { return impl_->violations(); }
std::string CheckSession::report() const { return impl_->report(); }

void CheckSession::finish(const std::exception_ptr& run_error) const {
  if (violations() == 0) {
    if (run_error) std::rethrow_exception(run_error);
    return;
  }
  std::string text = report();
  if (run_error) {
    try {
      std::rethrow_exception(run_error);
    } catch (const std::exception& error) {
      text += std::string("\nAnd the run failed: ") + error.what();
    } catch (...) {
      text += "\nAnd the run failed with an exception that is no std::exception";
    }
  }
  throw ChipError(ErrorCode::undeclared_access, text);
}

CheckedBlock::CheckedBlock(CheckSession* session, const TaskContext& task, const Launch& launch,
                           const KernelEntry& entry, const Kernel& kernel) {
  if (session == nullptr) return;
  state_ = std::make_unique<CheckedThread>();
  state_->session = session->impl_.get();
  state_->task = session->impl_->begin_block(task, launch, kernel.info());
  state_->entry = &entry;
  state_->kernel = &kernel;
  // The kernel's frames will lie below the variable of our caller that it gets.
  state_->stack_end = reinterpret_cast<std::uintptr_t>(&kernel);
  outer_ = std::exchange(current_checked_thread, state_.get());
}

CheckedBlock::~CheckedBlock() {
  if (state_ != nullptr) current_checked_thread = outer_;
}

std::shared_ptr<CheckedTask> CheckSession::Impl::begin_block(const TaskContext& context,
                                                             const Launch& launch,
                                                             const detail::KernelBlock& block) {
  const std::lock_guard lock(mutex_);
  LiveTask& live = live_[context.task().value];
  if (live.task == nullptr) {
    live.task = std::make_shared<CheckedTask>(context, launch, block.arguments);
    live.calls_left = calls_of(launch);
    if (owners_.size() == kOwners) owners_.pop_front();
    owners_.push_back({live.task->id(), live.task->name(), live.task->regions()});
  }
  std::shared_ptr<CheckedTask> task = live.task;
  if (--live.calls_left == 0) live_.erase(context.task().value);
  return task;
}

void CheckSession::Impl::note(const CheckedThread& thread, CheckedAccess access, Fault fault,
                              std::uintptr_t address, std::uint64_t bytes, Accessor accessor) {
  const CheckedRegions& regions = *thread.task->regions();
  const std::size_t nearest = nearest_of(regions, address);
  Key key{thread.entry->name, accessor.return_address, access, fault, nearest};
  const std::lock_guard lock(mutex_);
  ++total_;
  if (const auto found = violations_.find(key); found != violations_.end()) {
    ++found->second.count;
    return;
  }
  if (violations_.size() == kListed) {
    ++unlisted_;
    return;
  }
  const detail::KernelBlock& block = thread.kernel->info();
  order_.push_back(key);
  violations_.emplace(std::move(key), Violation{.access = access,
                                                .fault = fault,
                                                .kernel = thread.entry->name,
                                                .task = thread.task->id(),
                                                .task_name = thread.task->name(),
                                                .block = block.block,
                                                .blocks = block.blocks,
                                                .core = block.core,
                                                .cluster = block.cluster,
                                                .lane = block.lane,
                                                .address = address,
                                                .bytes = bytes,
                                                .stack = frames_from(accessor, thread.stack_end),
                                                .regions = thread.task->regions(),
                                                .nearest = nearest});
}

std::uint64_t CheckSession::Impl::violations() const {
  const std::lock_guard lock(mutex_);
  return total_;
}

std::vector<std::uintptr_t> frames_from(Accessor accessor, std::uintptr_t stack_end) {
  std::vector<std::uintptr_t> stack;
  stack.reserve(kFrames);
  stack.push_back(accessor.return_address);
  std::uintptr_t frame = accessor.frame;
  std::uintptr_t below = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  while (stack.size() < kFrames && frame > below && frame < stack_end &&
         frame % sizeof frame == 0) {
    // What a function saves at its begin: its caller's frame, and where it returns to.
    const auto* const saved =
        reinterpret_cast<const std::uintptr_t*>(frame);  // NOLINT(performance-no-int-to-ptr)
    stack.push_back(saved[1]);
    below = frame;
    frame = saved[0];
  }
  return stack;
}

}  // namespace strata::chip
