// Checks of limits, CPUs, memory, and the programs and libraries that Strata needs beside it.
#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <exception>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

#include "cli/doctor_checks.hpp"
#include "cli/elf_build_id.hpp"
#include "node/worker_program.hpp"
#include "os/cpu.hpp"
#include "os/procfs.hpp"

namespace strata::cli {
namespace {

constexpr std::uint64_t kKiB = 1024;
constexpr std::uint64_t kMiB = 1024 * kKiB;
constexpr std::uint64_t kGiB = 1024 * kMiB;

std::string bytes_text(std::uint64_t bytes) {
  if (bytes >= kGiB) return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / kGiB);
  if (bytes >= kMiB) return fmt::format("{:.0f} MiB", static_cast<double>(bytes) / kMiB);
  return fmt::format("{} KiB", bytes / kKiB);
}

std::string limit_text(rlim_t value, bool bytes) {
  if (value == RLIM_INFINITY) return "unlimited";
  return bytes ? bytes_text(value) : std::to_string(value);
}

/// One resource limit, with what is a little and what is too little.
struct Limit {
  const char* subject;
  __rlimit_resource_t resource;
  bool bytes;
  rlim_t little;
  rlim_t too_little;
  const char* why;
  const char* advice;
};

constexpr Limit kLimits[] = {
    {"open files", RLIMIT_NOFILE, false, 256, 64,
     "a Worker has about 8 for itself and 6 for each process below it", "ulimit -n 1024"},
    {"processes", RLIMIT_NPROC, false, 512, 32,
     "all processes and threads of this user count; a worker process has 3 and its lanes",
     "ulimit -u 4096"},
    {"stack", RLIMIT_STACK, true, kMiB, 256 * kKiB, "of the thread that runs the tasks",
     "ulimit -s 8192"},
    {"file size", RLIMIT_FSIZE, true, RLIM_INFINITY, kMiB,
     "holds for shared memory as well: buffers beyond it fail", "ulimit -f unlimited"},
    {"address space", RLIMIT_AS, true, RLIM_INFINITY, 512 * kMiB,
     "shared memory is mapped as a whole in every process", "ulimit -v unlimited"},
    {"locked memory", RLIMIT_MEMLOCK, true, 0, 0,
     "only drivers of some devices need more than a little", ""},
};

Finding check_limit(const Limit& limit) {
  rlimit now{};
  ::getrlimit(limit.resource, &now);
  std::string found = limit_text(now.rlim_cur, limit.bytes);
  if (now.rlim_max != now.rlim_cur) {
    found += fmt::format(" (may be raised to {})", limit_text(now.rlim_max, limit.bytes));
  }
  found += fmt::format("; {}", limit.why);
  // RLIM_INFINITY is the largest number.
  if (now.rlim_cur < limit.too_little) return {limit.subject, Health::missing, found, limit.advice};
  if (now.rlim_cur < limit.little) return {limit.subject, Health::warning, found, limit.advice};
  return {limit.subject, Health::ok, found, ""};
}

/// The directory of this process's cgroup (v2), then those above it.
std::vector<std::string> cgroup_directories() {
  const std::string text = os::read_small_file("/proc/self/cgroup").value_or("");
  std::string path;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("0::")) path = line.substr(3);
  }
  std::vector<std::string> directories;
  for (const char* const mount : {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}) {
    for (std::string at = path; !at.empty(); at.erase(at.rfind('/'))) {
      directories.push_back(mount + (at == "/" ? "" : at));
      if (at == "/") break;
    }
    directories.emplace_back(mount);
  }
  return directories;
}

/// The least of a limit over this cgroup and those above; nothing if there is none.
template <class Parse>
std::optional<double> least_in_cgroups(const char* file, Parse parse) {
  std::optional<double> least;
  for (const std::string& directory : cgroup_directories()) {
    const std::optional<std::string> text = os::read_small_file(directory + "/" + file);
    if (!text || text->starts_with("max")) continue;
    if (const std::optional<double> value = parse(*text)) {
      least = std::min(least.value_or(*value), *value);
    }
  }
  return least;
}

Finding check_cpus() {
  const long online = ::sysconf(_SC_NPROCESSORS_ONLN);
  const int allowed = os::allowed_cpus();
  const std::optional<double> quota = least_in_cgroups("cpu.max", [](const std::string& text) {
    double time = 0;
    double period = 0;
    std::istringstream(text) >> time >> period;
    return period > 0 ? std::optional(time / period) : std::nullopt;
  });
  std::string found = fmt::format("{} of {} online ones may be used", allowed, online);
  if (quota) found += fmt::format(", {:.2g} of their time (cgroup quota)", *quota);
  if (quota && *quota < allowed) {
    return {"CPUs", Health::warning, found,
            "processes that wait by spinning use the quota up and are then stopped for a while: "
            "give the container whole CPUs (cpuset) instead"};
  }
  if (allowed == 1) {
    return {"CPUs", Health::warning, found,
            "with one, each hand-off between processes is a switch of the kernel: give it two"};
  }
  return {"CPUs", Health::ok, found, ""};
}

Finding check_clock() {
  std::string source =
      os::read_small_file("/sys/devices/system/clocksource/clocksource0/current_clocksource")
          .value_or("unknown");
  while (source.ends_with('\n'))
    source.pop_back();
  std::ifstream cpuinfo("/proc/cpuinfo");
  bool constant = false;
  for (std::string line; std::getline(cpuinfo, line);) {
    if (!line.starts_with("flags")) continue;
    constant = line.find(" constant_tsc") != std::string::npos &&
               line.find(" nonstop_tsc") != std::string::npos;
    break;
  }
  const std::string found = fmt::format("{}; the time stamp counter {}", source,
                                        constant ? "runs at one rate" : "may change its rate");
  if (source == "tsc" || source == "kvm-clock" || source == "hyperv_clocksource_tsc_page") {
    if (constant) return {"clock", Health::ok, found, ""};
    return {"clock", Health::warning, found, "times in traces may be wrong by a few per cent"};
  }
  return {"clock", Health::warning, found,
          "each look at the clock is a system call: have the kernel use tsc (clocksource=tsc)"};
}

std::uint64_t meminfo(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(name + ":")) {
      std::uint64_t kib = 0;
      std::istringstream(line.substr(name.size() + 1)) >> kib;
      return kib * kKiB;
    }
  }
  return 0;
}

Finding check_memory() {
  const std::string text = os::read_small_file("/proc/meminfo").value_or("");
  std::uint64_t available = meminfo(text, "MemAvailable");
  std::string found = fmt::format("{} available of {}", bytes_text(available),
                                  bytes_text(meminfo(text, "MemTotal")));
  const std::optional<double> most = least_in_cgroups("memory.max", [](const std::string& value) {
    double bytes = 0;
    std::istringstream(value) >> bytes;
    return std::optional(bytes);
  });
  if (most) {
    available = std::min(available, static_cast<std::uint64_t>(*most));
    found +=
        fmt::format(", at most {} (cgroup limit)", bytes_text(static_cast<std::uint64_t>(*most)));
  }
  if (available < 512 * kMiB) {
    return {"memory", Health::warning, found,
            "a Worker's heap is 256 MiB unless WorkerOptions::heap says less"};
  }
  return {"memory", Health::ok, found, ""};
}

Finding check_overcommit() {
  const std::string mode = os::read_small_file("/proc/sys/vm/overcommit_memory").value_or("0");
  if (!mode.starts_with('2'))
    return {"overcommit", Health::ok, "memory counts when it is used", ""};
  return {"overcommit", Health::warning, "memory counts when it is asked for",
          "reservations may fail although memory is free: sysctl vm.overcommit_memory=0"};
}

Finding check_worker_program() {
  try {
    const node::OpenProgram program = node::find_worker_program("");
    const std::string id = build_id_of_file(program.path);
    return {"strata-worker", Health::ok,
            fmt::format("{} (build id {})", program.path, id.empty() ? "none" : id), ""};
  } catch (const std::exception& error) {
    return {"strata-worker", Health::missing, error.what(),
            "install it beside this program, or set STRATA_WORKER_PROGRAM to its path"};
  }
}

Finding check_symbols() {
  if (void* const library = ::dlopen("libdw.so.1", RTLD_LAZY | RTLD_LOCAL)) {
    ::dlclose(library);
    return {"libdw", Health::ok, "stacks of crashed workers have functions and lines", ""};
  }
  return {"libdw", Health::warning, "stacks of crashed workers have modules and offsets only",
          "install libdw (Debian: libdw1)"};
}

}  // namespace

std::vector<Finding> check_limits() {
  std::vector<Finding> findings;
  for (const Limit& limit : kLimits)
    findings.push_back(check_limit(limit));
  return findings;
}

std::vector<Finding> check_machine() {
  return {check_cpus(), check_clock(), check_memory(), check_overcommit()};
}

std::vector<Finding> check_programs() { return {check_worker_program(), check_symbols()}; }

}  // namespace strata::cli
