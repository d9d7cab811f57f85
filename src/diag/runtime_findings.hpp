// What the states that Strata processes tell come to: cores in a kernel that does not return, lanes
// that wait for what nobody brings, orchestrations that wait for room and who holds it.
//
// Thread safety: a free function; any thread.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace strata::diag {

struct ProcessReport;
struct ThreadReport;

struct RuntimeFinding {
  std::string line;
  std::vector<pid_t> threads;  ///< Of which it says all there is.
};

/// The surest first. `name`: the process in messages. `doing`: what a thread is in, "loops in f()
/// at a.cpp:3", "waits in ...".
[[nodiscard]] std::vector<RuntimeFinding> runtime_findings(
    const ProcessReport& process, const std::string& name,
    const std::function<std::string(const ThreadReport&)>& doing);

}  // namespace strata::diag
