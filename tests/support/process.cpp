#include "support/process.hpp"

#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>
#include <time.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <thread>

namespace strata::test {
namespace {

namespace fs = std::filesystem;

std::size_t entries_of(const fs::path& folder) {
  std::size_t count = 0;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    ++count;
  }
  return count;
}

std::size_t count_children() {
  std::size_t count = 0;
  std::error_code error;
  for (fs::directory_iterator it("/proc/self/task", error), end; !error && it != end;
       it.increment(error)) {
    std::ifstream children(it->path() / "children");
    count += static_cast<std::size_t>(std::distance(std::istream_iterator<std::string>(children),
                                                    std::istream_iterator<std::string>()));
  }
  return count;
}

}  // namespace

Holdings holdings() {
  // A sanitizer's own thread comes with the first thread of the program: not before it was counted.
  static const bool warmed_up = [] {
    std::thread([] {}).join();
    return true;
  }();
  (void)warmed_up;
  return {.threads = entries_of("/proc/self/task"),
          .descriptors = entries_of("/proc/self/fd"),
          .children = count_children()};
}

std::string to_string(const Holdings& h) {
  return std::to_string(h.threads) + " threads, " + std::to_string(h.descriptors) +
         " descriptors, " + std::to_string(h.children) + " children";
}

std::chrono::nanoseconds process_cpu_time() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

std::size_t allocated_bytes() {
  const struct mallinfo2 info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}

std::size_t page_faults() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::size_t>(usage.ru_minflt);
}

LeakCheck::~LeakCheck() {
  const auto deadline = std::chrono::steady_clock::now() + limit_;
  Holdings now = holdings();
  const auto too_much = [this](const Holdings& h) {
    return h.threads > before_.threads || h.descriptors > before_.descriptors ||
           h.children > before_.children;
  };
  while (too_much(now) && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    now = holdings();
  }
  if (too_much(now)) {
    ADD_FAILURE() << "the test left more than it found: before " << to_string(before_) << "; after "
                  << to_string(now);
  }
}

}  // namespace strata::test
