#include "os/adaptive_mutex.hpp"

#include "os/cpu.hpp"

namespace strata::os {

void AdaptiveMutex::lock_contended() noexcept {
  // A holder is gone sooner than a sleep and a wake take, as a rule; but it must be able to run.
  constexpr int kSpins = 100;
  if (spinning_pays()) {
    for (int i = 0; i < kSpins; ++i) {
      cpu_relax();
      // Read before trying: a spin of writes would take the cache line away from the holder.
      if (word_.load(std::memory_order_relaxed) == kFree && try_lock()) return;
    }
  }
  // From here on the word is kContended whenever this thread takes it, too: others may sleep, and
  // this thread can't know. At worst the last of them makes one wake that finds nobody.
  while (word_.exchange(kContended, std::memory_order_acquire) != kFree) {
    futex_wait(word_, kContended);
  }
}

}  // namespace strata::os
