#include "trace/recorder.hpp"

#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "trace/process_record.hpp"

namespace strata::trace {
namespace {

/// Written before the generation that says that it counts.
std::atomic<RecordLayout*> recording_layout{nullptr};
/// Generations given out. Written by record_into() only.
std::atomic<std::uint64_t> generations{0};

/// Whether a thread of this process exists.
bool thread_exists(std::uint32_t thread) noexcept {
  return syscall(SYS_tgkill, getpid(), static_cast<pid_t>(thread), 0) == 0 || errno != ESRCH;
}

bool take(RingArea& ring, std::uint32_t owner, std::uint32_t thread) noexcept {
  if (!ring.owner.compare_exchange_strong(owner, thread, std::memory_order_acq_rel)) return false;
  std::array<char, 16> name{};
  prctl(PR_GET_NAME, name.data());
  for (std::size_t i = 0; i < ring.thread_name.size(); ++i) {
    std::uint64_t word;
    std::memcpy(&word, name.data() + i * 8, 8);
    ring.thread_name[i].store(word, std::memory_order_relaxed);
  }
  // What the thread before has left is not ours. Release: with it come owner and name.
  ring.first.store(ring.position.load(std::memory_order_relaxed), std::memory_order_release);
  return true;
}

/// A ring that nobody has, or else one whose thread has ended. The thread's own id in a ring means
/// the latter too: ids are used again.
RingArea* find_ring(RecordLayout& layout, std::uint32_t thread) noexcept {
  for (RingArea& ring : layout.rings) {
    if (ring.owner.load(std::memory_order_relaxed) == kRingFree && take(ring, kRingFree, thread)) {
      return &ring;
    }
  }
  for (RingArea& ring : layout.rings) {
    const std::uint32_t owner = ring.owner.load(std::memory_order_relaxed);
    if ((owner == thread || !thread_exists(owner)) && take(ring, owner, thread)) return &ring;
  }
  return nullptr;
}

/// A forked child has its parent's memory mapped; it must not write there.
void forget_record_in_forked_child() noexcept {
  detail::recording_generation.store(0, std::memory_order_relaxed);
}

}  // namespace

void record_into(ProcessRecord& record) noexcept {
  static const int registered = pthread_atfork(nullptr, nullptr, forget_record_in_forked_child);
  (void)registered;
  recording_layout.store(&record.layout(), std::memory_order_relaxed);
  detail::recording_generation.store(generations.fetch_add(1, std::memory_order_relaxed) + 1,
                                     std::memory_order_release);
}

void stop_recording() noexcept { detail::recording_generation.store(0, std::memory_order_relaxed); }

void detail::take_ring() noexcept {
  const int error = errno;
  const auto generation = recording_generation.load(std::memory_order_acquire);
  if (generation == 0) return;
  RecordLayout& layout = *recording_layout.load(std::memory_order_relaxed);
  thread_ring = {generation, find_ring(layout, static_cast<std::uint32_t>(syscall(SYS_gettid)))};
  errno = error;
}

void detail::drop_event() noexcept {
  if (recording_generation.load(std::memory_order_acquire) == 0) return;
  recording_layout.load(std::memory_order_relaxed)
      ->events_dropped.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace strata::trace
