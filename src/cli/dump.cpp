// `strata dump`: what a process and all below it are doing, with the stack of every thread.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "cli/commands.hpp"
#include "diag/report_text.hpp"
#include "diag/tree_report.hpp"

namespace strata::cli {

int dump(const DumpOptions& options) {
  diag::CollectOptions collect{.events = options.last};
  if (options.stacks == "own") collect.stacks = diag::StackTaker::process;
  if (options.pid != ::getpid()) collect.leave_out = ::getpid();
  const diag::TreeReport report = diag::collect(options.pid, collect);
  if (report.processes.empty()) {
    std::fprintf(stderr, "strata dump: there is no process %d\n", options.pid);
    return 1;
  }
  const std::string text = options.json ? diag::dump(diag::to_json(report)) : diag::to_text(report);
  const bool written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  return written ? 0 : 1;
}

}  // namespace strata::cli
