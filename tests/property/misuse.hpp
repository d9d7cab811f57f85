// Calls that the engine must refuse with InvalidArgument, and after which the run must go on as if
// they had not been made.
//
// Thread safety: as Orchestration.
#pragma once

#include <vector>

#include "bodies.hpp"
#include "strata/strata.hpp"

namespace strata::property {

inline constexpr int kMisuses = 7;

inline void expect_refusal(Orchestration& o, Engine& engine, int which,
                           const std::vector<BufferId>& buffers, const std::vector<LaneId>& lanes,
                           Bodies& bodies) {
  const auto never = [&bodies](TaskContext&) { bodies.error("a refused task was run"); };
  const std::int64_t huge[] = {1 << 20};
  const std::int64_t one[] = {1};
  (void)engine;
  try {
    switch (which % kMisuses) {
      case 0: {  // leaves the buffer
        const Tensor tensor(buffers.at(0), 0, DType::uint8, huge);
        o.submit(never, inout(tensor));
        break;
      }
      case 1: {  // begins before the buffer
        const Tensor tensor(buffers.at(0), -1, DType::uint8, one);
        o.submit(never, in(tensor));
        break;
      }
      case 2: {  // no such buffer
        const Tensor tensor(BufferId{1ULL << 40}, 0, DType::uint8, one);
        o.submit(never, out(tensor));
        break;
      }
      case 3: {  // nothing to read yet
        const Tensor tensor(DType::uint8, {1});
        o.submit(never, in(tensor));
        break;
      }
      case 4: {  // no such lane
        o.submit(never, on(LaneId{100000}));
        break;
      }
      case 5: {  // one lane twice
        std::vector<GroupMember> members;
        members.push_back({.lane = lanes.at(0), .body = Body(never), .tensors = {}, .scalars = {}});
        members.push_back({.lane = lanes.at(0), .body = Body(never), .tensors = {}, .scalars = {}});
        (void)o.submit_group({.members = members, .name = {}, .after = {}});
        break;
      }
      default: {  // no such kind
        o.submit(never, on(KindId{1000}));
        break;
      }
    }
    bodies.error("misuse " + std::to_string(which) + " was accepted");
  } catch (const InvalidArgument&) {
    // As it should be.
  }
}

}  // namespace strata::property
