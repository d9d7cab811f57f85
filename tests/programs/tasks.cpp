// Tasks that do their work, and tasks that fail by a throw. Part of libstrata_test_tasks.so.
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>

#include "strata/worker_task.hpp"
#include "task_begun.hpp"
#include "task_names.hpp"

namespace strata_test {

/// An exception whose type a caller wants to see.
struct OutOfPaper : std::exception {
  [[nodiscard]] const char* what() const noexcept override { return "tray 2 is empty"; }
};

namespace {
/// The bytes that tensor `i` covers; the tests' tensors are contiguous.
std::int64_t elements(const strata::WorkerTask& task, std::size_t i) {
  std::int64_t count = 1;
  for (const std::int64_t extent : task.tensor(i).shape())
    count *= extent;
  return count;
}
void sleep_ms(std::int64_t ms) {
  timespec left{.tv_sec = ms / 1000, .tv_nsec = (ms % 1000) * 1'000'000};
  while (::nanosleep(&left, &left) != 0) {
  }
}
}  // namespace
}  // namespace strata_test

using strata::test::text_of;
using strata_test::begun;
using strata_test::elements;

STRATA_WORKER_FUNCTION(nothing) { begun(task); }

/// inout float32, scalar float: every element times the scalar.
STRATA_WORKER_FUNCTION(scale) {
  for (std::int64_t i = 0; i < elements(task, 0); ++i)
    task.data<float>(0)[i] *= task.scalar<float>(0);
}

/// out float32, scalar float: every element is the scalar.
STRATA_WORKER_FUNCTION(fill) {
  for (std::int64_t i = 0; i < elements(task, 0); ++i)
    task.data<float>(0)[i] = task.scalar<float>(0);
}

/// in float32, in float32, out float32: the sum of the two.
STRATA_WORKER_FUNCTION(add) {
  for (std::int64_t i = 0; i < elements(task, 2); ++i)
    task.data<float>(2)[i] = task.data<float>(0)[i] + task.data<float>(1)[i];
}

/// inout int64: one more in each element.
STRATA_WORKER_FUNCTION(increment) {
  for (std::int64_t i = 0; i < elements(task, 0); ++i)
    ++task.data<std::int64_t>(0)[i];
}

/// out int64: where the element of the task's member is set to 1 + member.
STRATA_WORKER_FUNCTION(mark_member) {
  task.data<std::int64_t>(0)[task.member()] = 1 + task.member();
}

/// Scalar int64: throws a text of that many bytes.
STRATA_WORKER_FUNCTION(fail) {
  begun(task);
  throw std::runtime_error(text_of(static_cast<std::size_t>(task.scalar<std::int64_t>(0))));
}
/// The same, with all descriptors of the process in use.
STRATA_WORKER_FUNCTION(fail_without_descriptors) {
  const rlimit few{.rlim_cur = 64, .rlim_max = 64};
  ::setrlimit(RLIMIT_NOFILE, &few);
  while (::dup(0) >= 0) {
  }
  throw std::runtime_error(text_of(static_cast<std::size_t>(task.scalar<std::int64_t>(0))));
}
STRATA_WORKER_FUNCTION(fail_with_type) { throw strata_test::OutOfPaper(); }
STRATA_WORKER_FUNCTION(fail_with_number) { throw 42; }

/// Scalar int64: milliseconds.
STRATA_WORKER_FUNCTION(nap) {
  begun(task);
  strata_test::sleep_ms(task.scalar<std::int64_t>(0));
}

/// Ends when it is told that nobody wants its result.
STRATA_WORKER_FUNCTION(until_cancelled) {
  begun(task);
  while (!task.cancelled())
    strata_test::sleep_ms(1);
}

/// Scalar int64: returns that many bytes.
STRATA_WORKER_FUNCTION(return_bytes) {
  task.set_value(text_of(static_cast<std::size_t>(task.scalar<std::int64_t>(0))));
}
STRATA_WORKER_FUNCTION(return_nul) { task.set_value(std::string("a\0b", 3)); }
STRATA_WORKER_FUNCTION(return_and_fail) {
  task.set_value("of no use");
  throw std::runtime_error("after all");
}
STRATA_WORKER_FUNCTION(return_pid) { task.set_value(std::to_string(::getpid())); }
STRATA_WORKER_FUNCTION(return_worker) { task.set_value(std::string(task.worker())); }

/// Scalar int64: writes that many lines to stderr, each with its number and a known end.
STRATA_WORKER_FUNCTION(write_lines) {
  begun(task);
  for (std::int64_t i = 0; i < task.scalar<std::int64_t>(0); ++i)
    std::fprintf(stderr, "line %lld of %d ends here\n", static_cast<long long>(i), ::getpid());
  std::fflush(stderr);
}
/// Scalar int64: writes one line of that many bytes to stdout.
STRATA_WORKER_FUNCTION(write_long_line) {
  std::puts(text_of(static_cast<std::size_t>(task.scalar<std::int64_t>(0))).c_str());
  std::fflush(stdout);
}
/// Writes a line without an end, and goes.
STRATA_WORKER_FUNCTION(write_unfinished_line) {
  std::fputs("no newline after this", stderr);
  std::fflush(stderr);
}
