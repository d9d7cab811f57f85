// What ranks and their parent show each other while ranks come up. See bring_up_board.hpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "comm/backend.hpp"
#include "comm/bring_up_board.hpp"
#include "strata/error.hpp"

namespace strata::comm {
namespace {

using Step = BringUpFailed::Step;

class Board : public testing::Test {
 protected:
  static constexpr std::uint32_t kRanks = 4;
  Board() { board_.reset(kRanks, "vendor:libx.so"); }

  static bool never(const void*) { return false; }
  static bool flag(const void* cancelled) {
    return static_cast<const std::atomic<bool>*>(cancelled)->load();
  }

  struct Free {
    void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{64}); }
  };
  static std::byte* zeroed() {
    const std::size_t bytes = BringUpBoard::bytes(kRanks);
    auto* const memory = static_cast<std::byte*>(::operator new (bytes, std::align_val_t{64}));
    std::fill_n(memory, bytes, std::byte{0});
    return memory;
  }
  std::unique_ptr<std::byte, Free> memory_{zeroed()};
  BringUpBoard board_{memory_.get()};
};

TEST_F(Board, ShowsStepsFailuresAndWhatRanksNeed) {
  EXPECT_EQ(board_.ranks(), kRanks);
  EXPECT_EQ(board_.backend(), "vendor:libx.so");
  EXPECT_FALSE(board_.progress(3).step);
  board_.begin(3, Step::init);
  EXPECT_EQ(board_.progress(3).step, Step::init);
  board_.set_root_info(std::string("a\0b", 3));
  EXPECT_EQ(board_.root_info(), std::string_view("a\0b", 3));
  EXPECT_THROW(board_.set_root_info(std::string(kMaxRootInfo + 1, 'r')), Error);
  EXPECT_FALSE(board_.first_failed());
  board_.fail(2, "first");
  board_.fail(1, "second");
  board_.fail(2, "again");
  EXPECT_EQ(board_.first_failed(), 2U);
  EXPECT_EQ(board_.progress(2).text, "first");
  board_.reset(kRanks, "shm");
  EXPECT_FALSE(board_.first_failed());
  EXPECT_FALSE(board_.progress(3).step);
}

TEST_F(Board, NobodyLeavesAMeetingBeforeAllAreThere) {
  std::atomic<std::uint32_t> there{0};
  std::atomic<bool> early{false};
  std::vector<std::thread> ranks;
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&] {
      there.fetch_add(1);
      if (!board_.meet(never, nullptr) || there.load() != kRanks) early = true;
    });
  }
  for (std::thread& rank : ranks)
    rank.join();
  EXPECT_FALSE(early);
}

TEST_F(Board, AFailureEndsAMeeting) {
  std::thread waits([&] { EXPECT_FALSE(board_.meet(never, nullptr)); });
  board_.fail(1, "no");
  waits.join();
  EXPECT_FALSE(board_.meet(never, nullptr)) << "those who come later don't wait either";
}

TEST_F(Board, ACancellationEndsAMeeting) {
  std::atomic<bool> cancelled{false};
  std::thread waits([&] { EXPECT_FALSE(board_.meet(flag, &cancelled)); });
  cancelled = true;
  waits.join();
}

TEST(BackendChoice, IsShmOrALibrary) {
  EXPECT_EQ(parse_backend("shm").to_text(), "shm");
  EXPECT_FALSE(parse_backend("shm").leaves_something());
  EXPECT_EQ(parse_backend("vendor:libx.so").vendor_library, "libx.so");
  EXPECT_TRUE(parse_backend("vendor:libx.so").leaves_something());
  EXPECT_EQ(parse_backend("vendor:/proc/./self/maps").vendor_library, "/proc/self/maps");
  for (const char* const wrong : {"", "SHM", "vendor", "vendor:", "vendor:./no/such.so"})
    EXPECT_THROW((void)parse_backend(wrong), InvalidArgument) << wrong;
}

}  // namespace
}  // namespace strata::comm
