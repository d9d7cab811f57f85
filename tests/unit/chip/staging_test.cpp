// Platforms with memory of their own: what is copied in and out, and what is not touched.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "runtime_support.hpp"

namespace strata::chip::test {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr std::string_view kStaged = "a2a3sim:clusters=2,staging=1";

/// Where the kernel saw its first tensor.
const void* seen_at;
void look(const Kernel& kernel) { seen_at = kernel.tensor(0).data(); }

std::vector<KernelEntry> with_look() {
  std::vector<KernelEntry> kernels = test_kernels();
  kernels.push_back({"look", CoreType::aiv, look});
  return kernels;
}

TEST(Staging, KernelsSeeACopyAndTheHostGetsTheResult) {
  TestChip chip(kStaged);
  std::vector<float> a(100, 1.0F), b(100, 2.0F), sum(100);
  chip.run(program_of(
               [](ChipOrchestration& o) {
                 o.submit(o.aiv("look"), in(o.tensor(0)));
                 o.submit(o.aiv("add"), in(o.tensor(0)), in(o.tensor(1)), out(o.tensor(2)));
               },
               with_look()),
           Arguments().add(Access::in, a).add(Access::in, b).add(Access::out, sum));
  EXPECT_THAT(sum, Each(3.0F));
  EXPECT_NE(seen_at, static_cast<const void*>(a.data()));
}

TEST(Staging, CopyIsAlignedAsTheOriginal) {
  TestChip chip(kStaged);
  std::vector<float> data(100);
  for (const std::size_t first : {0U, 1U, 3U, 17U}) {
    chip.run(program_of([](ChipOrchestration& o) { o.submit(o.aiv("look"), in(o.tensor(0))); },
                        with_look()),
             Arguments().add(Access::in, data.data() + first, {8}));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(seen_at) % 64,
              reinterpret_cast<std::uintptr_t>(data.data() + first) % 64);
  }
}

TEST(Staging, BytesBetweenTheElementsOfAViewAreNotTouched) {
  TestChip chip(kStaged);
  static std::vector<float>* host;
  std::vector<float> data(64, 1.0F);
  host = &data;
  // The host changes what lies between the rows of a column tile while the run goes on.
  const auto program = program_of([](ChipOrchestration& o) {
    o.submit(o.aiv("increase"), inout(o.tensor(0).select(1, 0)), scalar(1.0F));
    o.wait(o.tensor(0));
    for (std::size_t i = 0; i < host->size(); ++i)
      if (i % 8 >= 2) (*host)[i] = 5.0F;
  });
  chip.run(program, Arguments().add(Access::inout, data.data(), {8, 2}, {8, 1}));
  for (std::size_t i = 0; i < data.size(); ++i)
    EXPECT_EQ(data[i], i % 8 == 0 ? 2.0F : i % 8 == 1 ? 1.0F : 5.0F) << i;
}

TEST(Staging, InputsAreNotCopiedBack) {
  TestChip chip(kStaged);
  std::vector<float> data(8, 1.0F);
  chip.run(
      [](ChipOrchestration& o) {
        o.submit(o.aiv("increase"), inout(o.tensor(0)), scalar(1.0F));  // Against its word.
      },
      Arguments().add(Access::in, data));
  EXPECT_THAT(data, Each(1.0F));
}

TEST(Staging, ArgumentsThatOverlapShareOneCopy) {
  TestChip chip(kStaged);
  std::vector<float> data(48, 1.0F);
  chip.run(
      [](ChipOrchestration& o) {
        for (int i = 0; i < 5; ++i) {
          o.submit(o.aiv("increase"), inout(o.tensor(0)), scalar(1.0F));
          o.submit(o.aiv("increase"), inout(o.tensor(1)), scalar(1.0F));
        }
      },
      Arguments().add(Access::inout, data.data(), {32}).add(Access::inout, data.data() + 16, {32}));
  for (std::size_t i = 0; i < data.size(); ++i)
    EXPECT_EQ(data[i], i >= 16 && i < 32 ? 11.0F : 6.0F) << i;
}

TEST(Staging, NothingIsCopiedBackFromARunThatFailed) {
  TestChip chip(kStaged);
  std::vector<float> data(8, 1.0F);
  (void)chip.refusal(
      ErrorCode::kernel_threw,
      [](ChipOrchestration& o) {
        o.submit(o.aiv("increase"), inout(o.tensor(0)), scalar(1.0F));
        o.submit(o.aiv("fails"), inout(o.tensor(0)));
      },
      Arguments().add(Access::inout, data));
  EXPECT_THAT(data, Each(1.0F));
}

TEST(Staging, ReversedAndRepeatedViewsAreCopiedElementByElement) {
  TestChip chip(kStaged);
  std::vector<float> data(16, 1.0F), one(1, 4.0F);
  chip.run(
      [](ChipOrchestration& o) {
        // Tensor 1 repeats its only element.
        o.submit(o.aiv("add"), in(o.tensor(0)), in(o.tensor(1)), out(o.tensor(0)));
      },
      Arguments()
          .add(Access::inout, data.data() + 15, {8}, {-2})
          .add(Access::in, one.data(), {8}, {0}));
  for (std::size_t i = 0; i < data.size(); ++i)
    EXPECT_EQ(data[i], i % 2 == 1 ? 5.0F : 1.0F) << i;
}

TEST(Staging, ChipMemoryIsUsedInPlace) {
  TestChip chip(kStaged);
  std::vector<float> on_chip(64), host(8, 3.0F);
  const Arguments arguments =
      Arguments().add(Access::inout, on_chip.data() + 8, {8}).add(Access::in, host);
  const AddressRange memory{reinterpret_cast<std::uintptr_t>(on_chip.data()),
                            reinterpret_cast<std::uintptr_t>(on_chip.data() + on_chip.size())};
  const auto program = program_of(
      [](ChipOrchestration& o) {
        o.submit(o.aiv("look"), in(o.tensor(0)));
        o.submit(o.aiv("add"), in(o.tensor(0)), in(o.tensor(1)), out(o.tensor(0)));
      },
      with_look());
  (void)chip.runtime().run(
      {.program = program, .arguments = arguments.block(), .on_chip = {&memory, 1}});
  EXPECT_EQ(seen_at, static_cast<const void*>(on_chip.data() + 8));
  EXPECT_EQ(on_chip[8], 3.0F);
}

TEST(Staging, MoreThanTheChipHasRoomForIsRefused) {
  TestChip chip("a2a3sim:clusters=1,staging=1,memory=1M");
  std::vector<float> data(300'000);
  EXPECT_THAT(chip.refusal(
                  ErrorCode::out_of_chip_memory, [](ChipOrchestration&) {},
                  Arguments().add(Access::in, data)),
              HasSubstr("take 1200"));
}

TEST(Staging, ExternalMemoryWithinAnArgumentMeansItsCopy) {
  TestChip chip(kStaged);
  std::vector<float> data(16, 1.0F);
  chip.run(
      [](ChipOrchestration& o) {
        auto* const memory = o.scalar<float*>(0);
        o.submit(o.aiv("increase"), inout(o.external(memory, DType::float32, {16})), scalar(1.0F));
        o.submit(o.aiv("increase"), inout(o.tensor(0)), scalar(1.0F));
      },
      Arguments().add(Access::inout, data).scalar(data.data()));
  EXPECT_THAT(data, Each(3.0F));
}

}  // namespace
}  // namespace strata::chip::test
