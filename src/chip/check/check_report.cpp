// The words of checking mode's reports.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <span>

#include "chip/check/check_session.hpp"
#include "os/procfs.hpp"
#include "trace/process_record_reader.hpp"
#include "trace/symboliser.hpp"

namespace strata::chip {
namespace {

std::string times(std::uint64_t count, const char* one, const char* many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

/// Where a file in memory can be opened, by its inode; empty if nowhere.
std::string memory_file(std::uint64_t inode) {
  for (const os::OpenDescriptor& open : os::open_descriptors(::getpid())) {
    struct stat status {};
    if (open.target.starts_with("/memfd:") && ::fstat(open.fd, &status) == 0 &&
        status.st_ino == inode) {
      return fmt::format("/proc/self/fd/{}", open.fd);
    }
  }
  return "";
}

/// This process as a crash that has not happened: what the symboliser takes.
std::vector<trace::StackFrame> symbolised(const std::vector<std::uintptr_t>& addresses,
                                          bool return_addresses) {
  trace::CrashReport report;
  report.maps = trace::ranges_of(os::read_small_file("/proc/self/maps").value_or(""));
  for (trace::MappedRange& range : report.maps) {
    // A program that could not be loaded from a folder: it has no name, though it is there.
    if (!range.deleted || !range.path.starts_with("/memfd:")) continue;
    if (std::string open = memory_file(range.inode); !open.empty()) {
      range.path = std::move(open);
      range.deleted = false;
    }
  }
  // The first frame of a crash is where it was, those behind it are return addresses.
  if (return_addresses) report.frames.push_back(0);
  report.frames.insert(report.frames.end(), addresses.begin(), addresses.end());
  std::vector<trace::StackFrame> frames = trace::symbolise(report);
  if (return_addresses) frames.erase(frames.begin());
  return frames;
}

std::string file_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

CodePlace::Line line_of(const std::string& file, int line) {
  return {fmt::format("{}:{}", file, line), file.starts_with("/usr/")};
}

const char* lane_name(ClusterLane lane) {
  constexpr std::array kNames = {"AIC", "AIV 0", "AIV 1"};
  return kNames[static_cast<std::size_t>(lane)];
}

std::string task_text(TaskId task, const std::string& name) {
  const std::string number = fmt::format("task {}", task.number());
  return name.empty() ? number : fmt::format("{} '{}'", number, name);
}

/// What is wrong, and where that is among the arguments.
std::string fault_text(const Violation& violation) {
  const CheckedRegions& regions = *violation.regions;
  constexpr std::uint64_t kFar = std::uint64_t{1} << 24;
  const bool far = regions.empty() || regions[violation.nearest].distance(violation.address) > kFar;
  std::string where = far ? "near no tensor argument of the task"
                          : regions[violation.nearest].where(
                                violation.address, fmt::format("tensor {}", violation.nearest));
  switch (violation.fault) {
    case Fault::store_to_input:
      return where + ", which the task only reads";
    case Fault::load_before_store:
      return where + ", before this task has written it";
    case Fault::shared_state: {
      const std::string variable = variable_at(violation.address);
      return fmt::format("{}, which all cores share and no task has declared",
                         variable.empty() ? "a global variable" : "variable " + variable);
    }
    case Fault::constant:
      return "a constant of the program";
    case Fault::undeclared:
      return where;
  }
  return where;
}

}  // namespace

std::vector<CodePlace> code_places(const std::vector<std::uintptr_t>& addresses) {
  std::vector<CodePlace> places;
  places.reserve(addresses.size());
  for (const trace::StackFrame& frame : symbolised(addresses, /*return_addresses=*/true)) {
    CodePlace place{.lines = {}, .module = frame.module};
    if (frame.file.empty()) {
      place.lines.push_back({fmt::format("{}+{:#x}{}", file_name(frame.module), frame.offset,
                                         frame.note.empty() ? "" : " [" + frame.note + "]"),
                             false});
    } else {
      place.lines.push_back(line_of(frame.file, frame.line));
      for (const trace::SourceLine& call : frame.called_at) {
        if (call.line != 0) place.lines.push_back(line_of(call.file, call.line));
      }
    }
    places.push_back(std::move(place));
  }
  return places;
}

std::vector<std::string> lines_of_access(std::span<const CodePlace> stack) {
  std::vector<CodePlace::Line> lines;
  for (const CodePlace& place : stack) {
    // Beyond the kernel's own function are the runtime's.
    if (place.module != stack.front().module) break;
    lines.insert(lines.end(), place.lines.begin(), place.lines.end());
  }
  auto first = std::find_if(lines.begin(), lines.end(),
                            [](const CodePlace::Line& line) { return !line.of_system; });
  if (first == lines.end()) first = lines.begin();
  std::vector<std::string> text;
  for (; first != lines.end(); ++first)
    text.push_back(first->text);
  return text;
}

std::string variable_at(std::uintptr_t address) {
  const trace::StackFrame frame = symbolised({address}, /*return_addresses=*/false).front();
  if (frame.function.empty()) return "";
  return fmt::format("'{}' of {}", frame.function, file_name(frame.module));
}

/// Whose bytes they are, if they are declared by another task.
std::string CheckSession::Impl::owner_text(const Violation& violation) const {
  if (violation.fault != Fault::undeclared) return "";
  const BufferId buffer =
      violation.regions->empty() ? BufferId{} : (*violation.regions)[violation.nearest].buffer();
  for (auto owner = owners_.rbegin(); owner != owners_.rend(); ++owner) {
    for (std::size_t i = 0; i < owner->regions->size(); ++i) {
      const CheckedRegion& region = (*owner->regions)[i];
      if (!region.run_at(violation.address)) continue;
      return fmt::format(
          "\n     it is {}{}",
          region.where(violation.address,
                       fmt::format("tensor {} of {},", i, task_text(owner->task, owner->name))),
          region.buffer() == buffer ? ": a neighbour in the same buffer" : "");
    }
  }
  return "";
}

std::string CheckSession::Impl::violation_text(const Told& told) const {
  const Violation& violation = told.violation;
  std::string text = fmt::format(
      "{}: kernel '{}' {} {} at {:#x}\n     {}{}\n     in {}, block {} of {}, on core {} "
      "(cluster {}, {})",
      told.lines.front(), violation.kernel,
      violation.access == CheckedAccess::load ? "reads" : "writes",
      times(violation.bytes, "byte", "bytes"), violation.address, fault_text(violation),
      owner_text(violation), task_text(violation.task, violation.task_name), violation.block,
      violation.blocks, violation.core, violation.cluster, lane_name(violation.lane));
  if (violation.count > 1) text += fmt::format("; {} times in all", violation.count);
  for (std::size_t i = 1; i < told.lines.size(); ++i)
    text += fmt::format("\n     called at {}", told.lines[i]);
  return text;
}

/// One for each line and argument.
std::vector<CheckSession::Impl::Told> CheckSession::Impl::by_line() const {
  std::vector<std::uintptr_t> addresses;
  for (const Key& key : order_) {
    const auto& stack = violations_.at(key).stack;
    addresses.insert(addresses.end(), stack.begin(), stack.end());
  }
  const std::vector<CodePlace> places = code_places(addresses);
  std::span<const CodePlace> rest = places;
  std::vector<Told> told;
  std::map<std::tuple<std::string, std::string, CheckedAccess, Fault, std::size_t>, std::size_t>
      known;
  for (const Key& key : order_) {
    const Violation& violation = violations_.at(key);
    std::vector<std::string> lines = lines_of_access(rest.first(violation.stack.size()));
    rest = rest.subspan(violation.stack.size());
    const auto [found, is_new] = known.try_emplace(
        {violation.kernel, lines.front(), violation.access, violation.fault, violation.nearest},
        told.size());
    if (is_new) {
      told.push_back({violation, std::move(lines)});
    } else {
      told[found->second].violation.count += violation.count;
    }
  }
  return told;
}

std::string CheckSession::Impl::report() const {
  const std::lock_guard lock(mutex_);
  if (violations_.empty()) return "";
  std::string text =
      fmt::format("chip program '{}' touched what it had not declared, {}:", program_.name,
                  times(total_, "time", "times"));
  std::size_t number = 0;
  for (const Told& told : by_line()) {
    text += fmt::format("\n  {}. {}", ++number, violation_text(told));
  }
  if (unlisted_ > 0) {
    text += fmt::format("\n  and {} at further places, which are not listed",
                        times(unlisted_, "time", "times"));
  }
  text +=
      "\n  Declare what the kernel touches (a tensor of its own, another access mode), or correct "
      "its index.";
  if (!program_.unseen.empty()) {
    text += fmt::format("\n  Not looked into, since they were not compiled for it: {}",
                        fmt::join(program_.unseen, ", "));
  }
  return text;
}

}  // namespace strata::chip
