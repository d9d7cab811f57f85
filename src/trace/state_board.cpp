#include "trace/state_board.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/exception_text.hpp"
#include "os/memfd.hpp"
#include "os/system_error.hpp"
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
      os::UniqueFd memory = os::make_memfd(kStateName, sizeof(StateLayout));
      os::Mapping mapping = os::Mapping::shared(memory.get(), sizeof(StateLayout));
      int ends[2];
      if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) os::throw_errno("making a pipe");
      os::UniqueFd read_end(ends[0]);
      os::UniqueFd write_end(ends[1]);
      struct stat pipe = {};
      if (::fstat(read_end.get(), &pipe) != 0) os::throw_errno("looking at a pipe");
      // Relaxed up to the magic number, which is what a reader looks at first.
      constexpr auto kRelaxed = std::memory_order_relaxed;
      // The file is all zeros at first, which is what every word begins with.
      auto* const layout = std::launder(reinterpret_cast<StateLayout*>(mapping.data()));
      layout->pid.store(static_cast<std::uint64_t>(::getpid()), kRelaxed);
      layout->pipe_inode.store(pipe.st_ino, kRelaxed);
      layout->pipe_fd.store(static_cast<std::uint32_t>(write_end.get()), kRelaxed);
      layout->layout_bytes.store(sizeof(StateLayout), kRelaxed);
      layout->version.store(kStateVersion, kRelaxed);
      layout->magic.store(kStateMagic, std::memory_order_release);
      memory_ = std::move(memory);
      mapping_ = std::move(mapping);
      write_end_ = std::move(write_end);
      layout_ = layout;
      read_end_ = std::move(read_end);
    } catch (const std::exception&) {
      // Reports do without what this process would say.
    }
  });
}

void StateBoard::answer() noexcept {
  std::array<char, 256> requests{};
  const std::lock_guard lock(mutex_);
  bool any = false;
  while (::read(read_end_.get(), requests.data(), requests.size()) > 0)
    any = true;
  if (!any) return;
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
  const auto odd = begin_change(layout_->sequence);
  store_text(layout_->text, kept);
  layout_->answers.store(layout_->answers.load(std::memory_order_relaxed) + 1,
                         std::memory_order_relaxed);
  end_change(layout_->sequence, odd);
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
