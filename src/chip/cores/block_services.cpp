#include "chip/cores/block_services.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "chip/check/check.hpp"
#include "chip/cores/core_text.hpp"
#include "chip/cores/kernel_waits.hpp"

namespace strata::chip {

using detail::KernelBlock;

void MixedBlock::reset(LaneMask lanes) noexcept {
  live = lanes;
  lanes_out = static_cast<std::uint8_t>((lanes & 1) + (lanes >> 1 & 1) + (lanes >> 2 & 1));
  flags = {};
  waiters = {};
  if (pipes == nullptr) return;
  for (Pipe& pipe : *pipes) {
    pipe.first = 0;
    pipe.count = 0;
    pipe.pusher = -1;
    pipe.popper = -1;
  }
}

namespace {

MixedBlock& mixed_of(const Place& place, std::string_view what) {
  if (place.mixed != nullptr) return *place.mixed;
  fail_misuse(place, fmt::format("{} are between the lanes of one block of a mixed task, and this "
                                 "task has one lane; submit it with mixed()",
                                 what));
}

void check_flag(const Place& place, unsigned flag) {
  if (flag < kFlagsPerCore) return;
  fail_misuse(place,
              fmt::format("there is no flag {}; a core has {}, from 0", flag, kFlagsPerCore));
}

/// Whether the wait of a lane could end now. With the block's mutex.
bool could_end(const MixedBlock& block, const Meeting& meeting, unsigned lane) {
  const MixedBlock::Waiter& waiter = block.waiters[lane];
  switch (waiter.kind) {
    case WaitKind::barrier:
      return meeting.round.load(std::memory_order_acquire) != waiter.index;
    case WaitKind::flag:
      return block.flags[lane][waiter.index] != 0;
    case WaitKind::push:
      return (*block.pipes)[waiter.index].count < kPipeDepth;
    case WaitKind::pop:
      return (*block.pipes)[waiter.index].count != 0;
    default:
      return true;
  }
}

/// Whether every lane of the block that has not returned waits for another of them, or at the
/// barrier for all. Only lanes of the block can end a wait for a flag or pipe, and the barrier
/// opens only once those who wait so have come there: so if one does, none of these waits ever
/// ends. With the block's mutex.
bool never_ends(const MixedBlock& block, const Meeting& meeting) {
  bool within = false;
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    if ((block.live >> lane & 1) == 0) continue;
    const MixedBlock::Waiter& waiter = block.waiters[lane];
    if (waiter.runner == nullptr || could_end(block, meeting, lane)) return false;
    within = within || waiter.kind != WaitKind::barrier;
  }
  return within;
}

[[noreturn]] void fail_never(const Place& place, const MixedBlock& block) {
  const bool alone = block.live == mask_of(place.lane);
  fail_misuse(place, fmt::format("it waits for {}, and can never go on: {}", wait_text(place),
                                 alone ? "the other lanes of the block have returned"
                                       : "all lanes of the block wait for each other"));
}

/// Something has changed that `lane` may wait for. With the block's mutex.
void tell(MixedBlock& block, unsigned lane) {
  const MixedBlock::Waiter& waiter = block.waiters[lane];
  if (waiter.runner != nullptr && waiter.kind != WaitKind::barrier) waiter.runner->wake();
}

void count_change(MixedBlock& block) noexcept {
  // Release: a lane that spins and sees it takes the mutex to look.
  block.changes.fetch_add(1, std::memory_order_release);
}

/// Waits until `step`, called with the block's mutex, has done what it is for.
template <class Step>
void wait_in_block(Place& place, WaitKind kind, unsigned index, const Step& step) {
  MixedBlock& block = *place.mixed;
  std::uint32_t seen = 0;
  const auto attempt = [&] {
    const std::lock_guard lock(block.mutex);
    seen = block.changes.load(std::memory_order_relaxed);
    return step();
  };
  if (attempt()) return;
  const auto changed = [&] {
    return block.changes.load(std::memory_order_relaxed) != seen && attempt();
  };
  if (spin_until(place, changed)) return;
  const Waiting waiting(place, kind, index);
  const Listed listed(place);
  for (;;) {
    check_wanted(place);
    {
      const std::lock_guard lock(block.mutex);
      if (step()) {
        // In the same hold: once it has what it waited for it must not be seen to wait.
        listed.waiter() = {};
        return;
      }
      listed.waiter() = {&waiting.runner(), kind, index};
      if (never_ends(block, place.job->meeting)) fail_never(place, block);
    }
    waiting.sleep();
  }
}

Pipe& pipe_of(const Place& place, unsigned index) {
  MixedBlock& block = mixed_of(place, "pipes");
  if (index >= kPipesPerCluster) {
    fail_misuse(place, fmt::format("there is no pipe {}; a cluster has {}, from 0", index,
                                   kPipesPerCluster));
  }
  const std::lock_guard lock(block.mutex);
  if (block.pipes == nullptr) {
    block.pipes = std::make_unique<std::array<Pipe, kPipesPerCluster>>();
  }
  return (*block.pipes)[index];
}

/// The end of a pipe belongs to the lane that used it first.
void take_end(const Place& place, std::int8_t& end, unsigned index, std::string_view verb) {
  const auto lane = static_cast<std::int8_t>(index_of(place.lane));
  if (end < 0) end = lane;
  if (end == lane) return;
  fail_misuse(place, fmt::format("it {} pipe {}, and so does {}; an end of a pipe is for one lane",
                                 verb, index, lane_text(static_cast<ClusterLane>(end))));
}

void tell_others(MixedBlock& block, const Place& place) {
  count_change(block);
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    if (lane != index_of(place.lane)) tell(block, lane);
  }
}

}  // namespace

void set_flag(const KernelBlock& kernel, ClusterLane to, unsigned flag) {
  Place& place = place_of(kernel);
  MixedBlock& block = mixed_of(place, "flags");
  check_flag(place, flag);
  if (index_of(to) >= kLanes || (place.job->lanes & mask_of(to)) == 0) {
    fail_misuse(place,
                fmt::format("it sets a flag of {}, which this task does not use", lane_text(to)));
  }
  const std::lock_guard lock(block.mutex);
  ++block.flags[index_of(to)][flag];
  count_change(block);
  tell(block, index_of(to));
}

void wait_flag(const KernelBlock& kernel, unsigned flag) {
  Place& place = place_of(kernel);
  MixedBlock& block = mixed_of(place, "flags");
  check_flag(place, flag);
  std::uint32_t& mine = block.flags[index_of(place.lane)][flag];
  wait_in_block(place, WaitKind::flag, flag, [&mine] {
    if (mine == 0) return false;
    --mine;
    return true;
  });
}

void push(const KernelBlock& kernel, unsigned index, const void* data, std::size_t bytes) {
  Place& place = place_of(kernel);
  Pipe& pipe = pipe_of(place, index);
  std::vector<std::byte>* message = nullptr;
  wait_in_block(place, WaitKind::push, index, [&] {
    take_end(place, pipe.pusher, index, "pushes into");
    if (pipe.count == kPipeDepth) return false;
    message = &pipe.messages[(pipe.first + pipe.count) % kPipeDepth];
    return true;
  });
  check_service_access(CheckedAccess::load, data, bytes, __builtin_return_address(0));
  // Without the mutex: until it is counted the message is this lane's.
  const auto* const begin = static_cast<const std::byte*>(data);
  message->assign(begin, begin + bytes);
  const std::lock_guard lock(place.mixed->mutex);
  ++pipe.count;
  tell_others(*place.mixed, place);
}

void pop(const KernelBlock& kernel, unsigned index, void* data, std::size_t bytes) {
  Place& place = place_of(kernel);
  Pipe& pipe = pipe_of(place, index);
  const std::vector<std::byte>* message = nullptr;
  wait_in_block(place, WaitKind::pop, index, [&] {
    take_end(place, pipe.popper, index, "pops from");
    if (pipe.count == 0) return false;
    message = &pipe.messages[pipe.first];
    return true;
  });
  if (message->size() != bytes) {
    fail_misuse(place, fmt::format("it pops {} bytes from pipe {}, and the message there has {}",
                                   bytes, index, message->size()));
  }
  check_service_access(CheckedAccess::store, data, bytes, __builtin_return_address(0));
  if (bytes != 0) std::memcpy(data, message->data(), bytes);
  const std::lock_guard lock(place.mixed->mutex);
  pipe.first = (pipe.first + 1) % kPipeDepth;
  --pipe.count;
  tell_others(*place.mixed, place);
}

ListedAtBarrier::ListedAtBarrier(const Place& place, Runner& runner, std::uint32_t round) {
  if (place.mixed == nullptr) return;
  MixedBlock& block = *place.mixed;
  listed_.emplace(place);
  const std::lock_guard lock(block.mutex);
  listed_->waiter() = {&runner, WaitKind::barrier, round};
  // A lane that comes to wait later looks by itself.
  if (never_ends(block, place.job->meeting)) fail_never(place, block);
}

void leave_block(const Place& place) {
  if (place.mixed == nullptr) return;
  MixedBlock& block = *place.mixed;
  const std::lock_guard lock(block.mutex);
  block.live &= static_cast<LaneMask>(~mask_of(place.lane));
  tell_others(block, place);
}

}  // namespace strata::chip
