// Submitter: turns steps of a program into calls of the interface: tensors, tasks, groups,
// recordings and replays.
//
// Thread safety: used by whichever run has its turn.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bodies.hpp"

namespace strata::property {

/// The engine's names for what programs number.
struct Places {
  std::vector<KindId> kinds;
  std::vector<LaneId> lanes;
  std::vector<BufferId> buffers;
};

class Submitter {
 public:
  Submitter(const Program& program, Bodies& bodies, const Places& places)
      : program_(program), bodies_(bodies), places_(places) {}

  /// Submits a task or group, whose first node is `node`. `after` as many ids as are known.
  TaskId submit(Orchestration& o, const Step& step, int node, const std::vector<TaskId>& after);
  void allocate(Orchestration& o, const View& view);
  /// Recordings are made in their order, before anything is replayed.
  void record(Engine& engine, int recording);
  void replay(Orchestration& o, const Step& step, int first);

  [[nodiscard]] Tensor tensor_of(const View& view, Tracking tracking) const;
  /// The whole tensor of a storage that was allocated.
  [[nodiscard]] const Tensor& storage(int id) const { return tensors_.at(id); }

 private:
  /// The arguments of one body, kept together while they are submitted.
  struct Pack {
    std::deque<Tensor> tensors;
    std::deque<std::uint64_t> fills;
    std::vector<TensorArg> args;
    std::vector<Scalar> scalars;
    std::vector<std::pair<int, Tensor*>> allocated;
    Body body;
  };
  /// What differs between submitting and recording.
  struct Manner {
    std::function<Body(int member)> body;
    std::vector<Scalar> scalars;  ///< Before the body's own.
    std::vector<TaskId> after;
    int recording = -1;
  };
  TaskId submit_in(const Manner& manner, Orchestration& o, const Step& step);
  void pack(Pack& pack, const Work& work);
  [[nodiscard]] Target target_of(const Step& step) const;

  const Program& program_;
  Bodies& bodies_;
  const Places& places_;
  std::deque<std::string> names_;  // the engine's reports refer to them
  std::map<int, Tensor> tensors_;  // by storage
  std::vector<Recording> recordings_;
};

}  // namespace strata::property
