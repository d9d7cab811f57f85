// Conditions of tasks, as the pool of cores evaluates them when a task is ready.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <functional>

#include "support/pool_rig.hpp"

namespace strata::chip {
namespace {

using test::PoolRig;
using Counter = std::atomic<std::uint64_t>;

void count(const Kernel& kernel) { ++*kernel.scalar<Counter*>(0); }

template <class T>
bool runs_if(T element, Compare compare, std::int64_t operand) {
  PoolRig rig("a2a3sim:clusters=1");
  Counter runs{0};
  const std::int64_t dims[2] = {1, 1};
  auto& task = rig.make(&runs);
  task.tensors.push_back({.data = reinterpret_cast<std::byte*>(&element),
                          .dims = dims,
                          .buffer = {},
                          .byte_offset = 0,
                          .dtype = dtype_of<T>,
                          .access = Access::in,
                          .tracking = Tracking::full,
                          .rank = 1,
                          .flags = 0});
  rig.start(task, rig.aiv([](const Kernel& kernel) {
                       if (kernel.tensor_count() == 0) ++*kernel.scalar<Counter*>(0);
                     })
                      .only_if(compare, operand));
  PoolRig::wait(task);
  EXPECT_EQ(PoolRig::error_of(task), "");
  rig.wait_all();
  return runs == 1;
}

TEST(CorePredicates, APredicateComparesNumbersOfAnyWidthAndSign) {
  EXPECT_TRUE(runs_if(std::int8_t{-1}, Compare::less, 0));
  EXPECT_FALSE(runs_if(std::uint8_t{255}, Compare::less, 0));
  EXPECT_TRUE(runs_if(std::uint64_t{1} << 63, Compare::greater, 0));
  EXPECT_TRUE(runs_if(std::uint64_t{5}, Compare::greater, -1));
  EXPECT_FALSE(runs_if(std::int64_t{5}, Compare::equal, 6));
  EXPECT_TRUE(runs_if(std::int16_t{-7}, Compare::equal, -7));
  EXPECT_TRUE(runs_if(std::uint16_t{7}, Compare::not_equal, 8));
  EXPECT_TRUE(runs_if(std::int32_t{7}, Compare::greater_or_equal, 7));
  EXPECT_FALSE(runs_if(std::uint32_t{8}, Compare::less_or_equal, 7));
  EXPECT_TRUE(runs_if(true, Compare::not_equal, 0));
  EXPECT_FALSE(runs_if(false, Compare::not_equal, 0));
}

TEST(CorePredicates, APredicateOnFloatsIsRefused) {
  PoolRig rig("a2a3sim:clusters=1");
  const std::int64_t dims[2] = {1, 1};
  float element = 1;
  auto& task = rig.make();
  task.tensors.push_back({.data = reinterpret_cast<std::byte*>(&element),
                          .dims = dims,
                          .buffer = {},
                          .byte_offset = 0,
                          .dtype = DType::float32,
                          .access = Access::in,
                          .tracking = Tracking::full,
                          .rank = 1,
                          .flags = 0});
  EXPECT_THROW(rig.start(task, rig.aiv(count).only_if(Compare::equal, 1)), ChipError);
}

TEST(CorePredicates, ALongChainOfFalsePredicatesDoesNotNestItsEnds) {
  PoolRig rig("a2a3sim:clusters=1");
  const std::int64_t dims[2] = {1, 1};
  std::int32_t zero = 0;
  int left = 100'000;
  Counter runs{0};
  std::function<void()> next = [&] {
    if (left-- == 0) return;
    auto& task = rig.make(&runs);
    task.tensors.push_back({.data = reinterpret_cast<std::byte*>(&zero),
                            .dims = dims,
                            .buffer = {},
                            .byte_offset = 0,
                            .dtype = DType::int32,
                            .access = Access::in,
                            .tracking = Tracking::full,
                            .rank = 1,
                            .flags = 0});
    task.then = next;
    rig.start(task, rig.aiv(count).only_if(Compare::equal, 1));
  };
  next();
  EXPECT_EQ(rig.ended(), 100'000U);
  EXPECT_EQ(runs, 0U);
}

}  // namespace
}  // namespace strata::chip
