#include "trace/stack_request.hpp"

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "trace/text_words.hpp"

namespace strata::trace {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

/// Copies out of the arena, whole words as they are written by others.
std::string bytes_of(const StackLayout& layout, std::uint64_t at, std::uint64_t bytes) {
  if (at % 8 != 0 || at > kStackArenaBytes || bytes > kStackArenaBytes - at) return {};
  std::string copy(static_cast<std::size_t>(bytes), '\0');
  for (std::size_t i = 0; i < copy.size(); i += 8) {
    const std::uint64_t word = layout.arena[(at + i) / 8].load(kRelaxed);
    std::memcpy(copy.data() + i, &word, std::min<std::size_t>(8, copy.size() - i));
  }
  return copy;
}

CopiedThread thread_of(const StackLayout& layout, const StackSlot& slot, StackStage stage) {
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
  thread.stack = bytes_of(layout, slot.at.load(kRelaxed), slot.bytes.load(kRelaxed));
  return thread;
}

StackAnswer answer_of(const StackLayout& layout) {
  StackAnswer answer;
  answer.signal = static_cast<int>(layout.signal.load(kRelaxed));
  answer.took = std::chrono::nanoseconds(static_cast<std::int64_t>(layout.took_ns.load(kRelaxed)));
  const std::uint32_t round = layout.round.load(kRelaxed);
  const std::size_t used = std::min<std::size_t>(layout.slots_used.load(kRelaxed), kStackSlots);
  answer.threads.reserve(used);
  for (std::size_t i = 0; i < used; ++i) {
    const StackSlot& slot = layout.slots[i];
    // Acquire: pairs with the release of `whole`.
    const std::uint32_t word = slot.stage.load(std::memory_order_acquire);
    if (word >> 8 != round) continue;  // Somebody is late with an earlier one.
    answer.threads.push_back(thread_of(layout, slot, static_cast<StackStage>(word & 0xff)));
  }
  return answer;
}

}  // namespace

StackRequest::StackRequest(os::Mapping mapping) noexcept
    : mapping_(std::move(mapping)),
      layout_(std::launder(reinterpret_cast<const StackLayout*>(mapping_.data()))),
      answers_before_(layout_->door.answers.load(kRelaxed)) {}

std::optional<StackRequest> StackRequest::ask(pid_t pid) noexcept {
  try {
    auto mapping = find_door(pid, kStackDoor);
    if (!mapping) return std::nullopt;
    StackRequest request(std::move(*mapping));
    if (write_request(pid, request.layout_->door)) return request;
  } catch (const std::exception&) {
    // Without memory to ask.
  }
  return std::nullopt;
}

std::optional<StackAnswer> StackRequest::answer() const {
  std::optional<StackAnswer> answer;
  const bool whole = read_version(layout_->door.sequence, [&] {
    answer.reset();
    if (layout_->door.answers.load(kRelaxed) != answers_before_) answer = answer_of(*layout_);
  });
  return whole ? std::move(answer) : std::nullopt;
}

}  // namespace strata::trace
