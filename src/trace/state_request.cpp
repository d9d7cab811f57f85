#include "trace/state_request.hpp"

#include <utility>

#include "trace/state_layout.hpp"
#include "trace/text_words.hpp"

namespace strata::trace {

std::optional<StateRequest> StateRequest::ask(pid_t pid) noexcept {
  auto request = DoorRequest::ask(pid, kStateDoor);
  if (!request) return std::nullopt;
  return StateRequest(std::move(*request));
}

std::optional<std::string> StateRequest::answer() const {
  std::string text;
  const auto& layout = request_.layout<StateLayout>();
  if (!request_.read_answer([&] { text = load_text(layout.text); })) return std::nullopt;
  return text;
}

}  // namespace strata::trace
