#include <fmt/format.h>
#include <signal.h>
#include <ucontext.h>

#include <algorithm>

#include "os/child_process.hpp"
#include "trace/process_record_reader.hpp"

namespace strata::trace {
namespace {

/// What is at the address that a fault accessed.
std::string place_of(const CrashReport& report) {
  const std::uint64_t address = report.address;
  if (address < 65536) return "near null";
  // An overflow steps a frame below what the thread has: the stack pointer is close to it.
  constexpr std::uint64_t kOneFrame = 64 * 1024;
  const std::uint64_t stack = report.registers[REG_RSP];
  const bool near_stack = std::max(stack, address) - std::min(stack, address) <= kOneFrame;
  const auto& maps = report.maps;
  const auto range = std::find_if(maps.begin(), maps.end(), [&](const MappedRange& candidate) {
    return address >= candidate.begin && address < candidate.end;
  });
  if (range == maps.end()) {
    if (maps.empty()) return "";
    return near_stack ? "just below the stack: it has probably overflowed" : "far from anything";
  }
  if (!range->readable && near_stack) {
    return "in the guard of the stack: it has probably overflowed";
  }
  return range->path.empty() ? "in memory without a name" : "in " + range->path;
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
  std::string line = fmt::format("killed by signal {} ({})", signal, os::signal_text(signal));
  const bool fault = code > 0 && code != SI_KERNEL;
  if (code == SI_KERNEL && (signal == SIGSEGV || signal == SIGBUS)) {
    line += ": an access to an address that can't exist";
  } else if (fault) {
    const std::string why = reason(signal, code);
    if (!why.empty()) line += ": " + why;
    if (signal == SIGSEGV || signal == SIGBUS) {
      const std::string place = place_of(*this);
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
