#include "comm/window_layout.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "comm/channel.hpp"
#include "comm/plain_waits.hpp"
#include "comm/shared_windows.hpp"
#include "os/memfd.hpp"
#include "strata/communicator.hpp"
#include "strata/error.hpp"

namespace strata::comm {
namespace {

TEST(WindowLayout, SlicesLieBehindWhatCollectivesKeepAndDoNotOverlap) {
  const WindowLayout layout({.size = 3,
                             .slices = {{"a", DType::uint8, 1},
                                        {"b", DType::float32, 5000},
                                        {"none", DType::int64, 0},
                                        {"c", DType::uint64, 2}}});
  std::vector<std::byte*> windows(3, nullptr);
  const DomainContext context = layout.context(1, windows);
  std::uint64_t end = layout.slices_offset();
  ASSERT_EQ(context.slice_count, 4);
  for (std::uint32_t i = 0; i < context.slice_count; ++i) {
    EXPECT_GE(context.slices[i].offset, end);
    EXPECT_EQ(context.slices[i].offset % 64, 0);
    end = context.slices[i].offset + context.slices[i].bytes;
  }
  EXPECT_LE(end, layout.window_bytes());
  const ChannelLayout channel{3, context.small_bytes, context.message_bytes, context.staging_bytes};
  EXPECT_LE(kHeaderBytes + context.channels * context.channel_bytes, layout.slices_offset());
  EXPECT_LE(channel.total(), context.channel_bytes);
}

TEST(WindowLayout, WhatCannotBeIsRefusedWithItsReason) {
  const auto why = [](const DomainSpec& spec) -> std::string {
    try {
      const WindowLayout layout(spec);
    } catch (const InvalidArgument& e) {
      return e.what();
    }
    return "";
  };
  using testing::HasSubstr;
  EXPECT_THAT(why({.name = "x", .size = 0}), HasSubstr("domain 'x' can't be made: it has 0 ranks"));
  EXPECT_THAT(why({.size = 65}), HasSubstr("65 ranks"));
  EXPECT_THAT(why({.size = 2, .channels = 0}), HasSubstr("0 channels"));
  EXPECT_THAT(why({.size = 2, .slices = {{"a"}, {"a"}}}), HasSubstr("two slices are called 'a'"));
  EXPECT_THAT(why({.size = 2, .slices = {{""}}}), HasSubstr("name of slice ''"));
  EXPECT_THAT(why({.size = 2, .slices = {{std::string(32, 'n')}}}), HasSubstr("1 to 31 bytes"));
  EXPECT_THAT(why({.size = 2, .slices = {{"a", DType::int64, ~std::uint64_t{0}}}}),
              HasSubstr("slice 'a' has"));
  EXPECT_THAT(why({.size = 2, .slices = std::vector<SliceSpec>(17)}), HasSubstr("17 slices"));
}

TEST(SharedWindows, AFileThatIsTooSmallIsRefused) {
  const WindowLayout layout({.size = 2});
  const os::UniqueFd small = os::make_memfd("small", 4096);
  EXPECT_THROW(SharedWindows(layout, small.get()), InvalidArgument);
}

TEST(SharedWindows, ADomainOfOneRankWorks) {
  const WindowLayout layout({.size = 1});
  const SharedWindows windows(layout, SharedWindows::make(layout).get());
  const DomainContext domain = windows.context(0);
  const PlainWaits waits;
  const Communicator ranks(waits, domain);
  std::vector<std::int32_t> in = {1, 2, 3};
  std::vector<std::int32_t> out(3);
  ranks.all_reduce<std::int32_t>(in, std::span<std::int32_t>(out), ReduceOp::sum);
  EXPECT_EQ(out, in);
  ranks.barrier();
}

}  // namespace
}  // namespace strata::comm
