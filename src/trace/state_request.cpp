#include "trace/state_request.hpp"

#include <exception>
#include <new>
#include <utility>

#include "trace/text_words.hpp"

namespace strata::trace {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

}  // namespace

StateRequest::StateRequest(os::Mapping mapping) noexcept
    : mapping_(std::move(mapping)),
      layout_(std::launder(reinterpret_cast<const StateLayout*>(mapping_.data()))),
      answers_before_(layout_->door.answers.load(kRelaxed)) {}

std::optional<StateRequest> StateRequest::ask(pid_t pid) noexcept {
  try {
    auto mapping = find_door(pid, kStateDoor);
    if (!mapping) return std::nullopt;
    StateRequest request(std::move(*mapping));
    if (write_request(pid, request.layout_->door)) return request;
  } catch (const std::exception&) {
    // Without memory to ask.
  }
  return std::nullopt;
}

std::optional<std::string> StateRequest::answer() const {
  std::uint64_t answers = 0;
  std::string text;
  const bool whole = read_version(layout_->door.sequence, [&] {
    answers = layout_->door.answers.load(kRelaxed);
    if (answers != answers_before_) text = load_text(layout_->text);
  });
  if (!whole || answers == answers_before_) return std::nullopt;
  return text;
}

}  // namespace strata::trace
