// Child: runs a peer program (peers/peer.hpp) and reads what it measured.
//
// Thread safety: free functions without state.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "harness.hpp"

namespace strata::bench {

/// What a program wrote, and how it ended.
struct ChildOutput {
  std::string out;
  std::string error;    ///< What it wrote to standard error.
  std::string failure;  ///< Empty if it ended with code 0; otherwise how it ended.
};

/// Runs a program to its end, or kills it after `limit`.
ChildOutput run_child(const std::vector<std::string>& command, std::chrono::seconds limit);

/// Where the peer programs are: bench-peers beside this program.
std::string peer_path(std::string_view peer);

/// Calls the peer for one measure. If its program was not built, the outcome says which package to
/// install.
Outcome measure_peer(std::string_view peer, std::string_view package, const std::string& measure,
                     unsigned threads, double budget_ms);

/// Runs a program that prints a line "OWNER/FIGURE VALUE" for each figure, in `unit`. A figure
/// whose owner is not the program itself is that peer's: "raw-ring/round-trip" of `mailbox` is
/// "round-trip@raw-ring".
Outcome measure_lines(std::string_view program, const std::vector<std::string>& arguments,
                      const std::string& unit);

}  // namespace strata::bench
