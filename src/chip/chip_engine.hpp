// ChipEngine: the graph engine of a chip, with the pool of cores as its one lane, and what is kept
// with it from run to run: buffers and recordings.
//
// Buffers are ranges of addresses. A program that is run again with the same memory gets the same
// buffers, and so the engine's tables about them.
//
// Thread safety: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "chip/argument_ranges.hpp"
#include "chip/cores/core_pool.hpp"
#include "chip/gathering.hpp"
#include "chip/graph_cache.hpp"
#include "chip/program/program.hpp"
#include "strata/engine.hpp"

namespace strata::chip {

class ArgumentDump;
class CoreLane;

class ChipEngine {
 public:
  /// `gathering`: let go of by whoever waits.
  ChipEngine(CorePool& pool, Gathering& gathering, std::size_t window, std::size_t heap,
             ipc::SpinnerBudget* budget);
  ~ChipEngine();
  ChipEngine(const ChipEngine&) = delete;
  ChipEngine& operator=(const ChipEngine&) = delete;

  [[nodiscard]] Engine& engine() noexcept { return *engine_; }
  void set_dump(ArgumentDump* dump) noexcept;
  [[nodiscard]] std::size_t window() const noexcept { return window_; }
  [[nodiscard]] std::size_t heap() const noexcept { return heap_; }

  /// The buffer of these addresses, for run `run`. Within one run the ranges that are asked for are
  /// the same or disjoint.
  [[nodiscard]] BufferId buffer(const AddressRange& range, std::uint64_t run);
  /// A buffer of no bytes, for tensors without elements.
  [[nodiscard]] BufferId empty_buffer() const noexcept { return empty_; }
  /// Forgets the buffers, and so which of their bytes a failed task should have written.
  void forget_buffers();

  [[nodiscard]] GraphCache& graphs(const std::shared_ptr<const Program>& program);
  void forget(const Program& program);

 private:
  /// Beyond these, those that this run does not use go.
  static constexpr std::size_t kMaxBuffers = 64;
  struct KnownBuffer {
    AddressRange range = {};
    BufferId id = {};
    std::uint64_t last_run = 0;
  };
  struct ProgramGraphs {
    std::weak_ptr<const Program> program = {};
    const Program* address = nullptr;
    std::unique_ptr<GraphCache> graphs = {};
  };
  void drop_buffers(std::uint64_t run);

  const std::shared_ptr<CoreLane> lane_;
  const std::size_t window_;
  const std::size_t heap_;
  std::unique_ptr<Engine> engine_;
  BufferId empty_ = {};
  std::vector<KnownBuffer> buffers_ = {};
  std::vector<ProgramGraphs> graphs_ = {};
};

}  // namespace strata::chip
