#include "os/futex.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace strata::os {
namespace {

using Word = std::atomic<std::uint32_t>;

// The kernel reads the word itself as 32 bits.
static_assert(sizeof(Word) == sizeof(std::uint32_t) && Word::is_always_lock_free);

/// Who may sleep on a word: threads of this process only, or of others too. The value is the flag
/// of the system call.
enum class Reach : int { process = FUTEX_PRIVATE_FLAG, machine = 0 };

long futex(const Word& word, int operation, Reach reach, std::uint32_t value,
           const timespec* deadline) noexcept {
  return syscall(SYS_futex, &word, operation | static_cast<int>(reach), value, deadline, nullptr,
                 FUTEX_BITSET_MATCH_ANY);
}

// Anything but the answers below means that we called it wrongly. A lock that spins on such an
// error, or that believes it, is worse than a process that stops and says why.
[[noreturn]] void fail(const char* what, int error) noexcept {
  std::fprintf(stderr, "strata: futex %s failed: %s\n", what, std::strerror(error));
  std::abort();
}

/// False if the deadline passed.
bool wait(const Word& word, Reach reach, std::uint32_t expected,
          const timespec* deadline) noexcept {
  // WAIT_BITSET and not WAIT, since its time-out is a point on CLOCK_MONOTONIC: a wait that is
  // repeated after a stray wake does not grow.
  const int saved = errno;
  const long result = futex(word, FUTEX_WAIT_BITSET, reach, expected, deadline);
  const int error = result == 0 ? 0 : errno;
  errno = saved;
  switch (error) {
    case 0:
    case EAGAIN:  // The word no longer held `expected`.
    case EINTR:
      return true;
    case ETIMEDOUT:
      return false;
    default:
      fail("wait", error);
  }
}

int wake(const Word& word, Reach reach, int count) noexcept {
  const int saved = errno;
  const long woken = futex(word, FUTEX_WAKE, reach, static_cast<std::uint32_t>(count), nullptr);
  errno = saved;
  // An error here can only say that the word is gone, see invariant (4): nobody sleeps there.
  return woken < 0 ? 0 : static_cast<int>(woken);
}

/// steady_clock is CLOCK_MONOTONIC in both standard libraries that we build with.
timespec to_timespec(std::chrono::steady_clock::time_point point) noexcept {
  using std::chrono::nanoseconds;
  using std::chrono::seconds;
  auto since_boot = std::chrono::duration_cast<nanoseconds>(point.time_since_epoch());
  // The kernel refuses times before its clock's zero; zero itself has passed as surely.
  if (since_boot < nanoseconds::zero()) since_boot = nanoseconds::zero();
  const auto whole = std::chrono::duration_cast<seconds>(since_boot);
  timespec result{};
  result.tv_sec = static_cast<decltype(result.tv_sec)>(whole.count());
  result.tv_nsec = static_cast<decltype(result.tv_nsec)>((since_boot - whole).count());
  return result;
}

}  // namespace

void futex_wait(const Word& word, std::uint32_t expected) noexcept {
  (void)wait(word, Reach::process, expected, nullptr);
}

bool futex_wait_until(const Word& word, std::uint32_t expected,
                      std::chrono::steady_clock::time_point deadline) noexcept {
  const timespec when = to_timespec(deadline);
  return wait(word, Reach::process, expected, &when);
}

int futex_wake_one(const Word& word) noexcept { return wake(word, Reach::process, 1); }

int futex_wake_all(const Word& word) noexcept { return wake(word, Reach::process, INT_MAX); }

bool futex_wait_shared(const Word& word, std::uint32_t expected, Deadline deadline) noexcept {
  if (deadline.is_never()) return wait(word, Reach::machine, expected, nullptr);
  const timespec when = to_timespec(deadline.time_point());
  return wait(word, Reach::machine, expected, &when);
}

namespace {

/// False if this kernel can't.
bool wait_for_two([[maybe_unused]] const Word& shared,
                  [[maybe_unused]] std::uint32_t expected_shared, [[maybe_unused]] const Word& own,
                  [[maybe_unused]] std::uint32_t expected_own) noexcept {
#if defined(SYS_futex_waitv) && defined(FUTEX_32)
  futex_waitv words[2] = {};
  words[0].val = expected_shared;
  words[0].uaddr = reinterpret_cast<std::uintptr_t>(&shared);
  words[0].flags = FUTEX_32;
  words[1].val = expected_own;
  words[1].uaddr = reinterpret_cast<std::uintptr_t>(&own);
  words[1].flags = FUTEX_32 | FUTEX_PRIVATE_FLAG;
  const int saved = errno;
  const long result = syscall(SYS_futex_waitv, words, 2, 0, nullptr, 0);
  const int error = result >= 0 ? 0 : errno;
  errno = saved;
  switch (error) {
    case 0:
    case EAGAIN:
    case EINTR:
      return true;
    case ENOSYS:
    case EPERM:  // What a filter of system calls may answer to one that it does not know.
      return false;
    default:
      fail("waitv", error);
  }
#else
  return false;
#endif
}

}  // namespace

void futex_wait_two(const Word& shared, std::uint32_t expected_shared, const Word& own,
                    std::uint32_t expected_own, std::chrono::milliseconds patience) noexcept {
  // Relaxed: it only saves a system call that fails.
  static std::atomic<bool> can_not{false};
  if (!can_not.load(std::memory_order_relaxed)) {
    if (wait_for_two(shared, expected_shared, own, expected_own)) return;
    can_not.store(true, std::memory_order_relaxed);
  }
  if (own.load(std::memory_order_acquire) != expected_own) return;
  (void)futex_wait_shared(shared, expected_shared, Deadline::after(patience));
}

int futex_wake_shared(const Word& word, int count) noexcept {
  return wake(word, Reach::machine, count);
}

}  // namespace strata::os
