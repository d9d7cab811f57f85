#include "trace/state_board.hpp"

#include <new>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/exception_text.hpp"
#include "trace/text_words.hpp"

namespace strata::trace {

StateBoard::Entry::Entry(Entry&& other) noexcept
    : board_(std::exchange(other.board_, nullptr)), part_(other.part_) {}

StateBoard::Entry& StateBoard::Entry::operator=(Entry&& other) noexcept {
  if (this == &other) return *this;
  remove();
  board_ = std::exchange(other.board_, nullptr);
  part_ = other.part_;
  return *this;
}

void StateBoard::Entry::remove() noexcept {
  if (board_ == nullptr) return;
  const std::lock_guard lock(board_->mutex_);
  board_->parts_.erase(part_);
  board_ = nullptr;
}

StateBoard& StateBoard::of_process() {
  static auto* const board = new StateBoard;
  return *board;
}

void StateBoard::open() noexcept {
  std::call_once(opened_, [this] {
    try {
      door_ = RequestDoor::open(kStateDoor);
      layout_ = std::launder(reinterpret_cast<StateLayout*>(door_.data()));
    } catch (const std::exception&) {
      // Reports do without what this process would say.
    }
  });
}

void StateBoard::answer() noexcept {
  const std::lock_guard lock(mutex_);
  if (!door_.take_requests()) return;
  try {
    // Names are whatever bytes users gave.
    publish(describe_locked().dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  } catch (const std::exception&) {
    publish(R"({"problem": "it has no memory left to say what it is at"})");
  }
}

void StateBoard::publish(const std::string& text) noexcept {
  const std::string_view kept = text.size() <= kStateBytes
                                    ? std::string_view(text)
                                    : R"({"problem": "what it has to say is too long"})";
  const auto odd = begin_change(layout_->door.sequence);
  store_text(layout_->text, kept);
  layout_->door.answers.store(layout_->door.answers.load(std::memory_order_relaxed) + 1,
                              std::memory_order_relaxed);
  end_change(layout_->door.sequence, odd);
}

nlohmann::json StateBoard::describe() {
  const std::lock_guard lock(mutex_);
  return describe_locked();
}

nlohmann::json StateBoard::describe_locked() {
  nlohmann::json all = nlohmann::json::object();
  for (const Part& part : parts_) {
    nlohmann::json& list = all[part.kind];
    if (list.is_null()) list = nlohmann::json::array();
    try {
      list.push_back(part.describe());
    } catch (...) {
      list.push_back({{"problem", base::message_of(std::current_exception())}});
    }
  }
  return all;
}

StateBoard::Entry StateBoard::add(std::string kind, Describe describe) {
  const std::lock_guard lock(mutex_);
  parts_.push_back({std::move(kind), std::move(describe)});
  return {this, std::prev(parts_.end())};
}

}  // namespace strata::trace
