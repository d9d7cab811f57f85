// Who is blamed when ranks do not come up. See bring_up_fault.hpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "node/bring_up_fault.hpp"

namespace strata::node {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Step = BringUpFailed::Step;

class BringUpFault : public testing::Test {
 protected:
  static constexpr std::uint32_t kRanks = 3;
  BringUpFault() { board_.reset(kRanks, "shm"); }

  /// Rank `rank` has done all before `step` and is in it.
  void is_in(std::uint32_t rank, Step step) { board_.begin(rank, step); }
  [[nodiscard]] BringUpFailed error(const std::vector<CommunicatorState::Death>& deaths = {},
                                    const std::vector<std::string>& places = {}) {
    return bring_up_failed({"node/chip[0]", "node/chip[5]", "node/chip[2]"}, board_, deaths,
                           Step::load_library, std::chrono::milliseconds(250), places);
  }

  struct Free {
    void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{64}); }
  };
  static std::byte* zeroed() {
    const std::size_t bytes = comm::BringUpBoard::bytes(kRanks);
    auto* const memory = static_cast<std::byte*>(::operator new (bytes, std::align_val_t{64}));
    std::fill_n(memory, bytes, std::byte{0});
    return memory;
  }
  std::unique_ptr<std::byte, Free> memory_{zeroed()};
  comm::BringUpBoard board_{memory_.get()};
};

TEST_F(BringUpFault, IsThatOfTheRankThatWasFirstToSayItFailed) {
  is_in(0, Step::init);
  is_in(1, Step::init);
  is_in(2, Step::barrier);
  board_.fail(1, "no route to rank 0");
  board_.fail(0, "rank 1 has gone");
  const BringUpFailed fault = error();
  EXPECT_EQ(fault.rank(), 1U);
  EXPECT_EQ(fault.step(), Step::init);
  EXPECT_THAT(fault.what(), AllOf(HasSubstr("rank 1 of 3 (node/chip[5]) failed in step 'init'"),
                                  HasSubstr("no route to rank 0"),
                                  HasSubstr("rank 2 (node/chip[2]) in barrier")));
}

TEST_F(BringUpFault, IsThatOfAProcessThatDiedThoughAnotherSpokeBefore) {
  is_in(0, Step::barrier);
  is_in(2, Step::barrier);
  board_.fail(0, "lost its peer");
  board_.fail(2, "its process is gone");
  const BringUpFailed fault = error({{.rank = 2, .by_itself = true, .why = "killed by signal 11"}});
  EXPECT_EQ(fault.rank(), 2U);
  EXPECT_THAT(fault.what(), HasSubstr("killed by signal 11"));
}

TEST_F(BringUpFault, IsNotThatOfAProcessThatWasEndedForItDidNotStop) {
  is_in(0, Step::init);
  is_in(1, Step::init);
  board_.fail(2, "its process is gone");
  board_.fail(0, "told to fail");
  const BringUpFailed fault = error({{.rank = 2, .by_itself = false, .why = "was cancelled"}});
  EXPECT_EQ(fault.rank(), 0U);
  EXPECT_THAT(fault.what(), Not(HasSubstr("was cancelled")));
}

TEST_F(BringUpFault, OfNobodyIsThatOfWhoeverIsFurthestBehind) {
  is_in(0, Step::barrier);
  is_in(1, Step::init);
  is_in(2, Step::barrier);
  EXPECT_EQ(error().rank(), 1U);
  EXPECT_THAT(error().what(), HasSubstr("did not come through within 250 ms"));
}

TEST_F(BringUpFault, IsThatOfTheOnlyRankThatDoesNotWaitAsTheOthersDo) {
  for (const std::uint32_t rank : {0U, 1U, 2U})
    is_in(rank, Step::init);
  const BringUpFailed fault = error({}, {"futex_wait_queue", "futex_wait_queue", "running"});
  EXPECT_EQ(fault.rank(), 2U);
  EXPECT_THAT(fault.what(), AllOf(HasSubstr("did not come through within 250 ms, and it alone"),
                                  HasSubstr("rank 1 (node/chip[5]) in init (futex_wait_queue)"),
                                  HasSubstr("rank 2 (node/chip[2]) in init (running)")));
  // Nothing can be said of these.
  for (const std::vector<std::string>& places :
       {std::vector<std::string>{"a", "a", "a"}, {"a", "b", "c"}, {"a", "a", ""}, {}}) {
    EXPECT_THAT(error({}, places).what(), Not(HasSubstr("it alone")));
  }
  // A rank that is further does not count, so there is no majority.
  is_in(0, Step::barrier);
  EXPECT_THAT(error({}, {"a", "a", "b"}).what(), Not(HasSubstr("it alone")));
}

TEST_F(BringUpFault, InTheRootInformationIsNotThatOfThoseWhoWaitForIt) {
  is_in(0, Step::root_info);
  for (const std::uint32_t rank : {1U, 2U}) {
    is_in(rank, Step::load_library);
    board_.set_through(rank);
  }
  EXPECT_EQ(error().rank(), 0U);
  EXPECT_EQ(error().step(), Step::root_info);
  EXPECT_THAT(error().what(), HasSubstr("rank 1 (node/chip[5]) prepared"));
}

TEST_F(BringUpFault, OfOneThatHasNotBegunIsInTheFirstStep) {
  is_in(0, Step::root_info);
  is_in(1, Step::load_library);
  EXPECT_EQ(error().rank(), 2U);
  EXPECT_EQ(error().step(), Step::load_library);
}

TEST_F(BringUpFault, IsNoneIfAProcessWasGoneBeforeItsRankBegan) {
  is_in(0, Step::init);
  const CommunicatorState::Death before{.rank = 2, .by_itself = true, .why = "killed"};
  const CommunicatorState::Death inside{.rank = 0, .by_itself = true, .why = "crashed"};
  const CommunicatorState::Death ended{.rank = 1, .by_itself = false, .why = "did not stop"};
  EXPECT_TRUE(was_gone_before(board_, {before}));
  EXPECT_TRUE(was_gone_before(board_, {ended, before}));
  EXPECT_FALSE(was_gone_before(board_, {inside}));
  EXPECT_FALSE(was_gone_before(board_, {inside, before})) << "the first is to blame";
  EXPECT_FALSE(was_gone_before(board_, {ended}));
  EXPECT_FALSE(was_gone_before(board_, {}));
}

TEST_F(BringUpFault, TextsThatAreTooLongSayHowLongTheyWere) {
  is_in(0, Step::init);
  board_.fail(0, std::string(20000, 'x'));
  EXPECT_THAT(error().what(), HasSubstr("xxx... (20000 bytes in all)"));
}

}  // namespace
}  // namespace strata::node
