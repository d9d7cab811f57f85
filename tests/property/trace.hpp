// Trace: what happened when a program was run through an engine.
//
// All moments are numbers from one counter, so they order what happened without any clock.
//
// Thread safety: plain values.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "strata/strata.hpp"

namespace strata::property {

struct MemberTrace {
  std::uint64_t start = 0;  ///< First thing that the body did.
  std::uint64_t end = 0;    ///< Last thing that the body did; 0 if it did not run.
  int lane = -1;            ///< Counted through all kinds, as in the program.
  int runs = 0;             ///< How often the body was called.
};

struct NodeTrace {
  std::vector<MemberTrace> members;
  TaskId id;  ///< Zero if it is not known.
  std::uint64_t submit_begin = 0;
  std::uint64_t submit_end = 0;    ///< For the host: when it went on.
  bool threw = false;              ///< The host's wait reported invalid bytes.
  std::vector<std::uint8_t> seen;  ///< What the host read.
  std::vector<GraphEdge> why;
};

struct RunTrace {
  std::uint64_t cancelled_at = 0;  ///< When cancel() had returned; 0 if it was not called.
  bool result_cancelled = false;
  bool result_failed = false;
  std::vector<TaskFailure> failed;
  std::vector<TaskFailure> skipped;
  RunStats stats;
  Graph graph;
};

struct Trace {
  std::vector<NodeTrace> nodes;  ///< As the model's.
  std::vector<RunTrace> runs;
  std::vector<std::vector<std::uint8_t>> buffers;
  std::vector<std::pair<int, std::vector<std::uint8_t>>> kept;  ///< Instance and bytes.
  std::vector<std::string> errors;                              ///< What went wrong while it ran.
};

}  // namespace strata::property
