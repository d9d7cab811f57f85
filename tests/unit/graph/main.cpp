// Runs the tests of src/graph with two watchers around each: a guard against deadlocks, and a count
// of threads, since an engine that has ended must leave none.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <thread>

#include "support/guard.hpp"

namespace {

std::size_t threads_of_this_process() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<std::size_t>(std::distance(begin(tasks), end(tasks)));
}

class Watchers : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo& test) override {
    guard_ = std::make_unique<strata::test::Guard>(std::string(test.test_suite_name()) + "." +
                                                   test.name());
    threads_ = threads_of_this_process();
  }

  void OnTestEnd(const testing::TestInfo& /*test*/) override {
    // A joined thread may be seen for a moment longer, so it is looked at more than once.
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    std::size_t now = threads_of_this_process();
    while (now > threads_ && std::chrono::steady_clock::now() < give_up) {
      std::this_thread::yield();
      now = threads_of_this_process();
    }
    EXPECT_LE(now, threads_) << "the test left threads behind";
    guard_.reset();
  }

  std::unique_ptr<strata::test::Guard> guard_;
  std::size_t threads_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  testing::UnitTest::GetInstance()->listeners().Append(new Watchers);
  return RUN_ALL_TESTS();
}
