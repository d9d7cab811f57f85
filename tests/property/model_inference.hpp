// Inference: fills in the order and the poison of the model's nodes, by the rules of model.hpp.
//
// Thread safety: none; used once, while a model is made.
#pragma once

#include <cstdint>
#include <vector>

#include "model.hpp"

namespace strata::property {

class Inference {
 public:
  Inference(std::vector<Node>& nodes, const std::vector<Instance>& instances,
            const Program& program);
  void run();

 private:
  /// Who wrote and who has read one byte.
  struct Byte {
    int writer = -1;    ///< The last full writer.
    Bits weak_writers;  ///< creator_only writers since.
    Bits readers;       ///< Recorded readers since the last full writer.
    Bits unrecorded;    ///< Writers that no rule orders: no_dep, manual.
    Bits all_writers;   ///< Recorded writers, ever.
    Bits all_readers;
  };
  Byte& byte(int instance, std::int32_t at);
  void find_predecessors(int index);
  void find_sources(Node& node);
  void record(int index);
  void close_over(int index);
  void follow_weak(Node& node, Use& use, Bits& direct);
  void follow_full(Node& node, Use& use, Bits& direct);
  void leave_undefined_alone();
  void settle(int a, int b);

  std::vector<Node>& nodes_;
  const std::vector<Instance>& instances_;
  const Program& program_;
  std::vector<std::vector<Byte>> bytes_;  // by instance
  std::vector<int> lane_last_;            // by lane: the last node that keeps its place there
  bool all_run_ = true;                   ///< Nothing can be skipped or dropped.
  Bits none_;
  Bits waited_required_, waited_permitted_;  // what the host waited for
  Bits direct_required_, direct_permitted_;  // of the node in hand
};

}  // namespace strata::property
