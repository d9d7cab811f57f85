#include "node/exit_report.hpp"

#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "os/deadline.hpp"
#include "strata/chip_error.hpp"

namespace strata::node {
namespace {

/// How long the last message may take.
constexpr std::chrono::seconds kLastWords{1};

struct ExitReport {
  WorkerShared* shared = nullptr;
  trace::CrashNote work = nullptr;
  pid_t process = 0;
};

void on_exit_called(int status, void* argument) {
  const ExitReport& report = *static_cast<const ExitReport*>(argument);
  if (::getpid() != report.process) return;  // A child that a task has forked.
  WorkerShared& shared = *report.shared;
  // What hangs from here on is ended by the lifeline thread.
  shared.ending_since_ns.store(os::monotonic_now_ns(), std::memory_order_release);
  std::array<char, 2048> work{};
  const std::size_t bytes = report.work(work.data(), work.size());
  const std::string code(name_of(ErrorCode::chip_exited));
  WorkerFault fault = shared.messages->fault(
      "[" + code + "] exit(" + std::to_string(status) + ") was called" +
      (bytes == 0 ? ", by a thread that runs neither a kernel nor an orchestration" : "") +
      "; a task ends by returning, and fails by throwing");
  fault.state = "ready";
  fault.code = code;
  fault.note.assign(work.data(), bytes);
  std::fflush(nullptr);
  shared.messages->failed(fault, os::Deadline::after(kLastWords));
  ::_exit(status);
}

}  // namespace

void report_exit(WorkerShared& shared, trace::CrashNote work) {
  static ExitReport report;
  if (report.shared != nullptr) return;
  report = {.shared = &shared, .work = work, .process = ::getpid()};
  (void)::on_exit(on_exit_called, &report);
}

}  // namespace strata::node
