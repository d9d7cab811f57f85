// Bodies: what the tasks of a program do when they run, and the notes they take.
//
// Thread safety: run() may be called from any number of threads; the rest before and after.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "model.hpp"
#include "trace.hpp"

namespace strata::property {

class Bodies {
 public:
  Bodies(const Program& program, const Model& model);

  /// The body of one member of a node.
  void run(TaskContext& context, int node, int member);
  /// Address of the user buffers' first bytes, to compare with what tasks are given.
  void set_buffers(std::vector<std::byte*> buffers) { buffers_ = std::move(buffers); }

  [[nodiscard]] std::uint64_t now() noexcept { return clock_.fetch_add(1) + 1; }
  void error(std::string message);
  /// Copies the members' notes into the trace, lanes as numbers in the order of `lanes`.
  void collect(Trace& trace, const std::vector<LaneId>& lanes);
  [[nodiscard]] std::vector<std::string> take_errors();

 private:
  struct Note {
    std::uint64_t start = 0;
    std::uint64_t end = 0;
    TaskId id;
    LaneId lane;
    std::atomic<int> runs{0};
  };
  struct NodeNotes {
    std::deque<Note> members;
    std::atomic<int> arrived{0};
  };
  void meet(const Node& node, NodeNotes& notes);
  /// False if they are not even as many as they should be.
  bool check_arguments(TaskContext& context, const Node& node, int index, int member);
  static void wait_for(const std::atomic<int>& arrived, int count);

  const Program& program_;
  const Model& model_;
  std::vector<std::byte*> buffers_;
  std::deque<NodeNotes> notes_;
  std::atomic<int> met_{0};
  std::atomic<std::uint64_t> clock_{0};
  std::mutex mutex_;
  std::vector<std::string> errors_;
};

/// 1-99 yields that often; from 100 sleeps that many microseconds.
void delay(int how_long);

}  // namespace strata::property
