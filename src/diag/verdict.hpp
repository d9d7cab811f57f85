// What a report comes to, in plain words: who is the reason that a tree of processes does not go
// on, as far as the states of its processes and threads show it.
//
// Findings, the surest first: processes that died, that are stopped, circles of locks, what
// Strata's runtimes say of themselves (runtime_findings.hpp), threads that compute or spin, and
// then whoever waits for something that nobody in the tree is about to do, with those who wait for
// them. Where nothing explains the wait, that is what it says.
//
// Thread safety: a free function; any thread.
#pragma once

#include <string>
#include <vector>

namespace strata::diag {

struct TreeReport;
struct ThreadReport;

/// One line each; never empty.
[[nodiscard]] std::vector<std::string> verdict_of(const TreeReport& report);

/// The innermost function of the thread's stack that is not one of the C or C++ library's, with its
/// place: "in stuck() at stuck.cpp:12"; "" if there is none.
[[nodiscard]] std::string own_function(const ThreadReport& thread);

/// What the thread does, in a few words: "waits: futex: waits on 0x7f00", "runs".
[[nodiscard]] std::string doing_of(const ThreadReport& thread);

}  // namespace strata::diag
