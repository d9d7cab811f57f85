#include "comm/bring_up_board.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "comm/signal.hpp"
#include "os/deadline.hpp"

namespace strata::comm {
namespace {

constexpr std::uint32_t kFailed = 0x80000000U;
constexpr std::uint32_t kNoting = 0xffffffffU;

/// How long a cancellation may go unnoticed.
constexpr std::chrono::milliseconds kLook{5};

template <std::size_t Size>
std::uint32_t copy_text(char (&to)[Size], std::string_view from) noexcept {
  const std::size_t bytes = std::min(from.size(), Size);
  std::memcpy(to, from.data(), bytes);
  return static_cast<std::uint32_t>(bytes);
}

}  // namespace

std::size_t BringUpBoard::bytes(std::uint32_t ranks) noexcept {
  return sizeof(Shared) + ranks * sizeof(Cell);
}

void BringUpBoard::reset(std::uint32_t ranks, std::string_view backend) noexcept {
  value_of(shared_.gate).store(0, std::memory_order_relaxed);
  shared_.failures.store(0, std::memory_order_relaxed);
  shared_.began_ns.store(0, std::memory_order_relaxed);
  shared_.ranks = ranks;
  shared_.root_bytes = 0;
  shared_.backend_bytes = copy_text(shared_.backend, backend);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    Cell& of = cell(rank);
    of.step.store(0, std::memory_order_relaxed);
    of.through.store(0, std::memory_order_relaxed);
    of.failed.store(0, std::memory_order_release);
  }
}

void BringUpBoard::set_root_info(std::string_view root_info) {
  if (root_info.size() > kMaxRootInfo) {
    throw Error("the communication library made " + std::to_string(root_info.size()) +
                " bytes of root information; there is room for " + std::to_string(kMaxRootInfo));
  }
  shared_.root_bytes = copy_text(shared_.root, root_info);
}

RankProgress BringUpBoard::progress(std::uint32_t rank) const {
  const Cell& of = cell(rank);
  RankProgress progress;
  const std::uint32_t step = of.step.load(std::memory_order_acquire);
  if (step != 0) progress.step = static_cast<BringUpFailed::Step>(step - 1);
  progress.through = of.through.load(std::memory_order_acquire) != 0;
  const std::uint32_t failed = of.failed.load(std::memory_order_acquire);
  if (failed == 0 || failed == kNoting) return progress;  // It died while it was about to say.
  progress.failed = failed;
  progress.text.assign(of.text, std::min<std::size_t>(of.text_bytes, kMaxFailureText));
  if (of.text_bytes > kMaxFailureText) {
    progress.text += "... (" + std::to_string(of.text_bytes) + " bytes in all)";
  }
  return progress;
}

std::string BringUpBoard::backend() const { return {shared_.backend, shared_.backend_bytes}; }

std::string_view BringUpBoard::root_info() const noexcept {
  return {shared_.root, shared_.root_bytes};
}

std::chrono::nanoseconds BringUpBoard::since_first_step() const noexcept {
  const std::int64_t began = shared_.began_ns.load(std::memory_order_acquire);
  return std::chrono::nanoseconds(began == 0 ? 0 : os::monotonic_now_ns() - began);
}

void BringUpBoard::begin(std::uint32_t rank, BringUpFailed::Step step) noexcept {
  std::int64_t none = 0;
  shared_.began_ns.compare_exchange_strong(none, os::monotonic_now_ns(), std::memory_order_acq_rel);
  cell(rank).through.store(0, std::memory_order_relaxed);
  cell(rank).step.store(1 + static_cast<std::uint32_t>(step), std::memory_order_release);
}

void BringUpBoard::set_through(std::uint32_t rank) noexcept {
  cell(rank).through.store(1, std::memory_order_release);
}

bool BringUpBoard::meet(bool (*cancelled)(const void*), const void* token) noexcept {
  value_of(shared_.gate).fetch_add(1, std::memory_order_seq_cst);
  if (waiters_of(shared_.gate).load(std::memory_order_seq_cst) != 0) wake(shared_.gate);
  for (;;) {
    const std::uint32_t seen = load(shared_.gate);
    if ((seen & kFailed) != 0) return false;
    if (seen >= shared_.ranks) return true;
    if (cancelled(token)) return false;
    sleep_while(shared_.gate, seen, os::Deadline::after(kLook));
  }
}

void BringUpBoard::fail(std::uint32_t rank, std::string_view text) noexcept {
  Cell& of = cell(rank);
  std::uint32_t none = 0;
  if (!of.failed.compare_exchange_strong(none, kNoting, std::memory_order_acq_rel)) return;
  (void)copy_text(of.text, text);
  of.text_bytes = static_cast<std::uint32_t>(text.size());
  of.failed.store(1 + shared_.failures.fetch_add(1, std::memory_order_acq_rel),
                  std::memory_order_release);
  value_of(shared_.gate).fetch_or(kFailed, std::memory_order_seq_cst);
  if (waiters_of(shared_.gate).load(std::memory_order_seq_cst) != 0) wake(shared_.gate);
}

std::optional<std::uint32_t> BringUpBoard::first_failed() const noexcept {
  std::optional<std::uint32_t> first;
  std::uint32_t number = kNoting;
  for (std::uint32_t rank = 0; rank < shared_.ranks; ++rank) {
    const std::uint32_t failed = cell(rank).failed.load(std::memory_order_acquire);
    if (failed == 0 || failed >= number) continue;
    number = failed;
    first = rank;
  }
  return first;
}

}  // namespace strata::comm
