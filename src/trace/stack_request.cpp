#include "trace/stack_request.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace strata::trace {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

/// Copies out of the arena, whole words as they are written by others; nothing of a copy that can't
/// be one.
std::string bytes_of(const StackLayout& layout, std::uint64_t at, std::uint64_t bytes) {
  if (at % 8 != 0 || at > kStackArenaBytes || bytes > kStackArenaBytes - at) return {};
  if (bytes > kMostStackBytes) return {};
  std::string copy(static_cast<std::size_t>(bytes), '\0');
  for (std::size_t i = 0; i < copy.size(); i += 8) {
    const std::uint64_t word = layout.arena[(at + i) / 8].load(kRelaxed);
    std::memcpy(copy.data() + i, &word, std::min<std::size_t>(8, copy.size() - i));
  }
  return copy;
}

/// `room`: how many bytes of stacks the answer may still take.
CopiedThread thread_of(const StackLayout& layout, const StackSlot& slot, StackStage stage,
                       std::size_t room) {
  CopiedThread thread;
  thread.thread = static_cast<pid_t>(slot.thread.load(kRelaxed));
  thread.stage = stage;
  thread.call = static_cast<long>(slot.call.load(kRelaxed));
  if (stage != StackStage::whole) return thread;
  for (std::size_t i = 0; i < thread.general.size(); ++i)
    thread.general[i] = slot.general[i].load(kRelaxed);
  thread.pc = slot.pc.load(kRelaxed);
  thread.thread_pointer = slot.thread_pointer.load(kRelaxed);
  thread.begin = slot.begin.load(kRelaxed);
  const std::uint64_t bytes = slot.bytes.load(kRelaxed);
  if (bytes <= room) thread.stack = bytes_of(layout, slot.at.load(kRelaxed), bytes);
  if (thread.stack.empty()) thread.stage = StackStage::no_room;
  return thread;
}

StackAnswer answer_of(const StackLayout& layout) {
  StackAnswer answer;
  answer.signal = static_cast<int>(layout.signal.load(kRelaxed));
  answer.took = std::chrono::nanoseconds(static_cast<std::int64_t>(layout.took_ns.load(kRelaxed)));
  const std::uint32_t round = layout.round.load(kRelaxed);
  const std::size_t used = std::min<std::size_t>(layout.slots_used.load(kRelaxed), kStackSlots);
  answer.threads_in_all = layout.threads.load(kRelaxed);
  answer.threads.reserve(used);
  std::size_t room = kStackArenaBytes;  // Copies that overlap would be more than there is.
  for (std::size_t i = 0; i < used; ++i) {
    const StackSlot& slot = layout.slots[i];
    // Acquire: pairs with the release of `whole`.
    const std::uint32_t word = slot.stage.load(std::memory_order_acquire);
    if (word >> 8 != round) continue;  // Somebody is late with an earlier one.
    answer.threads.push_back(thread_of(layout, slot, static_cast<StackStage>(word & 0xff), room));
    room -= answer.threads.back().stack.size();
  }
  return answer;
}

}  // namespace

std::optional<StackRequest> StackRequest::ask(pid_t pid) noexcept {
  auto request = DoorRequest::ask(pid, kStackDoor);
  if (!request) return std::nullopt;
  return StackRequest(std::move(*request));
}

std::optional<StackAnswer> StackRequest::answer() const {
  StackAnswer answer;
  const auto& layout = request_.layout<StackLayout>();
  if (!request_.read_answer([&] { answer = answer_of(layout); })) return std::nullopt;
  return answer;
}

}  // namespace strata::trace
