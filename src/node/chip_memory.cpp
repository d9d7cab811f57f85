#include "node/chip_memory.hpp"

#include <algorithm>
#include <utility>

#include "strata/chip_error.hpp"

namespace strata::node {

std::string text_of_argument(const TaskSpec& task, std::size_t argument) {
  return "task" + (task.name.empty() ? "" : " '" + std::string(task.name) + "'") +
         ", tensor argument " + std::to_string(argument);
}

void ChipMemory::set_chips(std::vector<Chip> chips) {
  const std::lock_guard lock(mutex_);
  chips_.clear();
  for (Chip& chip : chips)
    chips_.emplace_back().chip = std::move(chip);
}

std::size_t ChipMemory::index_of(LaneId chip) const {
  const auto found = std::find_if(chips_.begin(), chips_.end(),
                                  [&](const State& each) { return each.chip.lane == chip; });
  if (found == chips_.end()) {
    throw InvalidArgument("memory of a chip: lane " + std::to_string(chip.value) +
                          " is no chip of this Worker; use Worker::chip()");
  }
  return static_cast<std::size_t>(found - chips_.begin());
}

ChipMemory::Place ChipMemory::reserve(LaneId chip, std::size_t bytes) {
  if (bytes == 0) throw InvalidArgument("Worker::allocate_on: 0 bytes of a chip's memory");
  const std::lock_guard lock(mutex_);
  const std::size_t index = index_of(chip);
  State& state = chips_[index];
  if (bytes > state.chip.total - state.used) {
    throw ChipError(ErrorCode::out_of_chip_memory,
                    state.chip.path + " (" + state.chip.platform + ") has no room for " +
                        std::to_string(bytes) + " bytes: of its " +
                        std::to_string(state.chip.total) + ", " + std::to_string(state.used) +
                        " are in use by " + std::to_string(state.allocations) +
                        " allocations; release some of them, or keep less on the chip");
  }
  state.used += bytes;
  state.peak = std::max(state.peak, state.used);
  ++state.allocations;
  return {.chip = index, .incarnation = state.incarnation, .bytes = bytes};
}

void ChipMemory::give_back(const Place& place) {
  const std::lock_guard lock(mutex_);
  State& state = chips_[place.chip];
  if (place.incarnation != state.incarnation) return;  // It was all let go of.
  state.used -= place.bytes;
  --state.allocations;
}

void ChipMemory::add(BufferId buffer, const Place& place) {
  const std::lock_guard lock(mutex_);
  places_.emplace(buffer, place);
  any_.store(true, std::memory_order_relaxed);
}

void ChipMemory::remove(BufferId buffer) {
  const std::lock_guard lock(mutex_);
  places_.erase(buffer);
  if (places_.empty()) any_.store(false, std::memory_order_relaxed);
}

ChipMemoryUsage ChipMemory::usage(LaneId chip) const {
  const std::lock_guard lock(mutex_);
  const State& state = chips_[index_of(chip)];
  return {.total = state.chip.total, .used = state.used, .peak = state.peak};
}

bool ChipMemory::lost(const Place& place) const {
  const std::lock_guard lock(mutex_);
  return chips_[place.chip].incarnation != place.incarnation;
}

void ChipMemory::require(const Place& place, const std::string& what) const {
  const std::lock_guard lock(mutex_);
  require_alive(place, what);
}

void ChipMemory::require_alive(const Place& place, const std::string& what) const {
  const State& state = chips_[place.chip];
  if (state.incarnation == place.incarnation) return;
  throw ChipError(ErrorCode::lost_memory,
                  what + ": what was in this memory of " + state.chip.path +
                      " is lost, since the chip's process is gone; allocate it anew and fill it."
                      " The last process ended so: " +
                      state.cause);
}

void ChipMemory::check_arguments(const TaskSpec& task) const {
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < task.tensors.size(); ++i) {
    const auto found = places_.find(task.tensors[i].tensor->buffer());
    if (found == places_.end()) continue;
    const State& state = chips_[found->second.chip];
    const bool by_lane = task.target.by == Target::By::lane;
    if (!by_lane || task.target.index != state.chip.lane.value) {
      throw ChipError(
          ErrorCode::foreign_memory,
          text_of_argument(task, i) + " is memory of " + state.chip.path +
              ", but the task is for " + (by_lane ? "another worker" : "any worker of a kind") +
              ": give it on() that very chip, or use Worker::create_buffer for what several share");
    }
    require_alive(found->second, text_of_argument(task, i));
  }
}

std::byte* ChipMemory::locate(BufferId buffer, LaneId lane, const std::string& what) const {
  if (!any_.load(std::memory_order_relaxed)) return nullptr;
  const std::lock_guard lock(mutex_);
  const auto found = places_.find(buffer);
  if (found == places_.end()) return nullptr;
  const State& state = chips_[found->second.chip];
  if (state.chip.lane != lane) {
    throw ChipError(ErrorCode::foreign_memory,
                    what + " is memory of " + state.chip.path + ", which the task is not for");
  }
  require_alive(found->second, what);
  return found->second.data;
}

void ChipMemory::process_gone(LaneId chip, const WorkerFault& cause) {
  const std::lock_guard lock(mutex_);
  for (State& state : chips_) {
    if (state.chip.lane != chip) continue;
    ++state.incarnation;
    state.used = state.peak = state.allocations = 0;
    state.cause = cause.to_string();
  }
}

}  // namespace strata::node
