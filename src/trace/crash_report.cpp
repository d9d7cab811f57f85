#include <fmt/format.h>
#include <signal.h>

#include <algorithm>

#include "os/child_process.hpp"
#include "trace/process_record_reader.hpp"

namespace strata::trace {
namespace {

/// What is at the address that a fault accessed.
std::string place_of(std::uint64_t address, const std::vector<MappedRange>& maps) {
  if (address < 65536) return "near null";
  const auto range = std::find_if(maps.begin(), maps.end(), [&](const MappedRange& candidate) {
    return address >= candidate.begin && address < candidate.end;
  });
  if (range != maps.end()) {
    return range->path.empty() ? "in memory without a name" : "in " + range->path;
  }
  if (maps.empty()) return "";
  for (const MappedRange& candidate : maps) {
    // The guard below a stack: what a stack overflow runs into.
    constexpr std::uint64_t kNear = 1 << 20;
    if (candidate.path == "[stack]" && address < candidate.begin &&
        candidate.begin - address <= kNear) {
      return "just below the main thread's stack";
    }
  }
  return "where nothing is mapped";
}

std::string reason(int signal, int code) {
  switch (signal) {
    case SIGSEGV:
      if (code == SEGV_MAPERR) return "nothing was mapped there";
      if (code == SEGV_ACCERR) return "the memory may not be accessed that way";
      break;
    case SIGBUS:
      if (code == BUS_ADRALN) return "the address is not aligned";
      if (code == BUS_ADRERR) return "the memory is not there: the file is shorter";
      break;
    case SIGFPE:
      if (code == FPE_INTDIV) return "integer division by zero";
      if (code == FPE_INTOVF) return "integer overflow";
      if (code == FPE_FLTDIV) return "floating-point division by zero";
      break;
    case SIGILL:
      return "illegal instruction";
    default:
      break;
  }
  return "";
}

}  // namespace

std::string CrashReport::headline() const {
  if (stage < CrashStage::partial) return "crashed, and the crash handler did not come far";
  std::string line = fmt::format("crashed with signal {} ({})", signal, os::signal_text(signal));
  const bool fault = code > 0 && code != SI_KERNEL;
  if (code == SI_KERNEL && (signal == SIGSEGV || signal == SIGBUS)) {
    line += ": an access to an address that can't exist";
  } else if (fault) {
    const std::string why = reason(signal, code);
    if (!why.empty()) line += ": " + why;
    if (signal == SIGSEGV || signal == SIGBUS) {
      const std::string place = place_of(address, maps);
      line += fmt::format(", at address {:#x}", address);
      if (!place.empty()) line += " (" + place + ")";
    }
  } else if (sender != 0 && signal != SIGABRT) {
    line += fmt::format(", sent by process {}", sender);
  }
  line += fmt::format(", in thread {}", thread);
  if (!thread_name.empty()) line += " '" + thread_name + "'";
  return line;
}

}  // namespace strata::trace
