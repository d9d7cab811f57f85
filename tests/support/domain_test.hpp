// DomainTest: the fixture of tests with domains, and short ways to run the chip program `ranks`.
//
// Thread safety: as GoogleTest's.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "programs/chip/ranks/ranks.hpp"
#include "strata/comm_error.hpp"
#include "support/chip_test.hpp"

namespace strata::test {

class DomainTest : public ChipTest {
 protected:
  static const std::string& ranks_file() {
    static const std::string file = chip_program("ranks");
    return file;
  }

  void SetUp() override {
    ranks_file();
    ChipTest::SetUp();
  }
  void TearDown() override {
    outs_.clear();
    ChipTest::TearDown();
  }

  static WorkerOptions chips(std::size_t count,
                             const std::string& platform = "a2a3sim:clusters=1") {
    WorkerOptions options;
    options.chips.assign(count, ChipOptions{.platform = platform});
    return options;
  }
  /// Starts a Worker, with memory for each chip's `out`.
  Worker& start_ranks(WorkerOptions options) {
    const std::size_t count = options.chips.size();
    ChipTest::start(std::move(options));
    ranks_ = worker_->add(Callable::chip_program(ranks_file()));
    outs_.clear();
    for (std::size_t i = 0; i < count; ++i)
      outs_.push_back(worker_->create_buffer(kOut * sizeof(std::int64_t)));
    return *worker_;
  }

  [[nodiscard]] DomainOptions over(const std::vector<std::size_t>& indices,
                                   std::string name = "test") const {
    DomainOptions options{.name = std::move(name),
                          .slices = {{"numbers", DType::int64, 64}, {"flags", DType::uint8, 64}}};
    for (const std::size_t index : indices)
      options.chips.push_back(worker_->chip(index));
    return options;
  }
  [[nodiscard]] DomainOptions over_first(std::size_t count) const {
    std::vector<std::size_t> all(count);
    for (std::size_t i = 0; i < count; ++i)
      all[i] = i;
    return over(all);
  }

  /// One task on all ranks. Rank r writes to its chip's `out`.
  TaskId submit_ranks(Orchestration& run, const Domain& domain, RankWay way,
                      std::int64_t argument = 0) {
    const std::size_t size = domain.size();
    std::vector<Tensor> tensors;
    std::vector<std::array<TensorArg, 2>> arguments(size);
    std::vector<GroupMember> members(size);
    const std::array<Scalar, 2> scalars{scalar(way), scalar(argument)};
    tensors.reserve(2 * size);
    for (std::uint32_t rank = 0; rank < size; ++rank) {
      const Tensor& context = tensors.emplace_back(domain.context(rank));
      const Tensor& out = tensors.emplace_back(out_tensor(domain.chip(rank)));
      arguments[rank] = {in(context), inout(out)};
      members[rank] = {.lane = domain.chip(rank),
                       .body = Call(ranks_),
                       .tensors = arguments[rank],
                       .scalars = scalars};
    }
    return run.submit_group({.members = members, .name = "ranks"});
  }
  [[nodiscard]] std::size_t index_of(LaneId chip) const {
    std::size_t index = 0;
    while (worker_->chip(index) != chip)
      ++index;
    return index;
  }
  [[nodiscard]] Tensor out_tensor(LaneId chip) const {
    return outs_[index_of(chip)].tensor(DType::int64, {kOut});
  }
  [[nodiscard]] std::int64_t out(LaneId chip, std::size_t i = 0) const {
    return std::atomic_ref(outs_[index_of(chip)].as<std::int64_t>()[i]).load();
  }

  /// All ranks of the domain work together now.
  void expect_works(const Domain& domain, std::int64_t argument = 1) {
    const Run run = worker_->submit([&](Orchestration& o) {
      // What a run before has left invalid.
      for (std::uint32_t rank = 0; rank < domain.size(); ++rank)
        o.overwrite(out_tensor(domain.chip(rank)));
      submit_ranks(o, domain, RankWay::sum_up, argument);
    });
    ASSERT_NO_THROW(run.result());
    const std::int64_t size = domain.size();
    for (std::uint32_t rank = 0; rank < domain.size(); ++rank)
      EXPECT_EQ(out(domain.chip(rank)), size * argument + size * (size - 1) / 2) << "rank " << rank;
  }
  [[nodiscard]] std::vector<ProcessStatus> processes_with(int pid) const {
    std::vector<ProcessStatus> found;
    for (const ProcessStatus& each : worker_->processes()) {
      if (each.pid == pid) found.push_back(each);
    }
    return found;
  }

  static constexpr std::int64_t kOut = 16;
  CallableId ranks_;
  std::vector<Buffer> outs_;  ///< By chip.
};

}  // namespace strata::test
