#include "ipc/spinner_budget.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "os/cpu.hpp"
#include "os/memfd.hpp"
#include "os/system_error.hpp"
#include "strata/error.hpp"

namespace strata::ipc {
namespace {

constexpr std::uint64_t kMagic = 0x736e6970735f6f4d;  // "Mo_spins"
constexpr int kMaxPlaces = 4096;
/// Places that try_begin looks at, beginning with the one that it had last.
constexpr int kLooks = 8;

struct alignas(64) Page {
  std::uint64_t magic;
  std::uint64_t limit;
};

}  // namespace

os::UniqueFd SpinnerBudget::make(int limit) {
  const Page page{.magic = kMagic,
                  .limit = static_cast<std::uint64_t>(std::clamp(limit, 0, kMaxPlaces))};
  os::UniqueFd fd = os::make_memfd("strata-tree", sizeof(Page) + page.limit * sizeof(Slot));
  if (pwrite(fd.get(), &page, sizeof page, 0) != static_cast<ssize_t>(sizeof page)) {
    os::throw_errno("can't write the page of a tree of processes");
  }
  return fd;
}

int SpinnerBudget::default_limit() noexcept {
  const int cpus = os::allowed_cpus();
  return cpus > 1 ? cpus : 0;
}

SpinnerBudget::SpinnerBudget(int fd) : self_(static_cast<std::uint32_t>(getpid())) {
  const std::size_t size = os::require_sealed(fd, sizeof(Page));
  mapping_ = os::Mapping::shared(fd, size);
  Page page;
  std::memcpy(&page, mapping_.data(), sizeof page);
  if (page.magic != kMagic || page.limit > kMaxPlaces ||
      size != sizeof(Page) + page.limit * sizeof(Slot)) {
    throw Error("the memory given as the page of a tree of processes is none");
  }
  limit_ = static_cast<int>(page.limit);
}

SpinnerBudget::Slot& SpinnerBudget::slot(int index) const noexcept {
  return reinterpret_cast<Slot*>(mapping_.data() + sizeof(Page))[index];
}

SpinnerBudget::Place SpinnerBudget::try_begin() noexcept {
  int index = last_.load(std::memory_order_relaxed);
  for (int looks = std::min(limit_, kLooks); looks > 0; --looks) {
    std::uint32_t none = 0;
    std::atomic<std::uint32_t>& owner = slot(index).owner;
    if (owner.load(std::memory_order_relaxed) == 0 &&
        owner.compare_exchange_strong(none, self_, std::memory_order_relaxed)) {
      return {index};
    }
    // The next time begin there, so that those who spin at the same time find places of their own.
    index = index + 1 < limit_ ? index + 1 : 0;
    last_.store(index, std::memory_order_relaxed);
  }
  return {};
}

void SpinnerBudget::end(Place place) noexcept {
  // Only the owner writes to a place that is taken, or who knows that the owner is dead.
  slot(place.index).owner.store(0, std::memory_order_relaxed);
}

int SpinnerBudget::reclaim(pid_t pid) noexcept {
  int count = 0;
  for (int i = 0; i < limit_; ++i) {
    auto owner = static_cast<std::uint32_t>(pid);
    if (slot(i).owner.compare_exchange_strong(owner, 0, std::memory_order_relaxed)) ++count;
  }
  return count;
}

int SpinnerBudget::sweep() noexcept {
  const int saved = errno;
  int count = 0;
  for (int i = 0; i < limit_; ++i) {
    std::uint32_t owner = slot(i).owner.load(std::memory_order_relaxed);
    if (owner == 0 || owner == self_) continue;
    const auto pid = static_cast<pid_t>(owner);
    const bool gone = pid <= 0 || (kill(pid, 0) != 0 && errno == ESRCH);
    if (gone && slot(i).owner.compare_exchange_strong(owner, 0, std::memory_order_relaxed)) {
      ++count;
    }
  }
  errno = saved;
  return count;
}

int SpinnerBudget::taken() const noexcept {
  int count = 0;
  for (int i = 0; i < limit_; ++i) {
    if (slot(i).owner.load(std::memory_order_relaxed) != 0) ++count;
  }
  return count;
}

}  // namespace strata::ipc
