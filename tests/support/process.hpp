// What this process holds: threads, descriptors, children, CPU time; and a check that a test gives
// back what it took.
//
// Thread safety: free functions may be called from any thread; a LeakCheck belongs to one.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace strata::test {

struct Holdings {
  std::size_t threads = 0;
  std::size_t descriptors = 0;
  std::size_t children = 0;  ///< Also those that ended and were not waited for.
  friend bool operator==(const Holdings&, const Holdings&) = default;
};
[[nodiscard]] Holdings holdings();
[[nodiscard]] std::string to_string(const Holdings& holdings);

/// Bytes that this process has allocated. (Sanitizers say none; they have means of their own.)
[[nodiscard]] std::size_t allocated_bytes();

/// CPU time of all threads of this process, in user code and in the kernel.
[[nodiscard]] std::chrono::nanoseconds process_cpu_time();

/// How often this process touched memory that was not there, so far; without input or output.
[[nodiscard]] std::size_t page_faults();

/// Fails the running test if, at its end, the process holds more than at its start. Threads that
/// were joined may be listed by the kernel for a moment longer, so what is too much is looked at
/// again until the limit is over.
class LeakCheck {
 public:
  explicit LeakCheck(std::chrono::seconds limit = std::chrono::seconds(20))
      : before_(holdings()), limit_(limit) {}
  ~LeakCheck();
  LeakCheck(const LeakCheck&) = delete;
  LeakCheck& operator=(const LeakCheck&) = delete;

 private:
  Holdings before_;
  std::chrono::seconds limit_;
};

}  // namespace strata::test
