// Ranks that are processes of their own, started by exec, which share nothing but the windows'
// file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "comm/plain_waits.hpp"
#include "comm/shared_windows.hpp"
#include "os/spawn.hpp"
#include "programs/comm_rank_driver.hpp"
#include "strata/comm_error.hpp"
#include "strata/communicator.hpp"
#include "support/program.hpp"
#include "support/time_bounds.hpp"

namespace strata::comm {
namespace {

using namespace std::chrono_literals;

os::ChildProcess start_rank(int fd, std::uint32_t rank, std::uint32_t size,
                            const std::string& rounds) {
  const std::string path = test::test_program("comm_rank_driver");
  return os::spawn({.path = path,
                    .argv = {path, "3", std::to_string(rank), std::to_string(size), rounds},
                    .envp = os::current_environment(),
                    .descriptors = {{.from = fd, .to = 3}, {.from = 2, .to = 2}}});
}

TEST(CommProcesses, AgreeOverAFileInMemory) {
  for (const std::uint32_t size : {1U, 2U, 4U}) {
    const WindowLayout layout(test::driver_domain(size));
    const os::UniqueFd file = SharedWindows::make(layout);
    std::vector<os::ChildProcess> ranks;
    for (std::uint32_t rank = 0; rank < size; ++rank)
      ranks.push_back(start_rank(file.get(), rank, size, "200"));
    for (os::ChildProcess& rank : ranks) {
      const auto status = rank.wait(os::Deadline::after(test::bound(60s)));
      ASSERT_TRUE(status.has_value()) << "it does not end";
      EXPECT_TRUE(status->clean()) << status->to_string();
    }
  }
}

TEST(CommProcesses, WhoWaitsForOneThatWasKilledGetsItsCause) {
  const WindowLayout layout(test::driver_domain(2));
  const os::UniqueFd file = SharedWindows::make(layout);
  os::ChildProcess other = start_rank(file.get(), 1, 2, "die");
  const SharedWindows windows(layout, file.get());
  const DomainContext domain = windows.context(0);
  std::string error;
  std::jthread me([&] {
    const PlainWaits waits({.deadline = os::Deadline::after(test::bound(60s))});
    const Communicator ranks(waits, domain);
    const auto data = ranks.slice<std::int32_t>("data").first(3001);
    std::vector<std::int32_t> own(3001, 1);  // What rank 0 has in the other's first round.
    std::fill(data.begin(), data.end(), 1);
    const std::int32_t token = 0;
    std::int32_t got = 0;
    try {
      for (int round = 0; round < 2; ++round) {  // The other ends after the first.
        ranks.all_reduce<std::int32_t>(data, data, ReduceOp::sum);
        ranks.all_reduce<std::int32_t>(own, std::span<std::int32_t>(own), ReduceOp::sum);
        ranks.send_recv(&token, 1, 1, &got, 1, 1, DType::int32);
      }
    } catch (const CommError& e) {
      error = e.what();
    }
  });
  const auto status = other.wait(os::Deadline::after(test::bound(60s)));
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(status->value, SIGKILL);
  mark_gone(domain, 1, "rank 1 was " + status->to_string());
  me.join();
  EXPECT_THAT(error, testing::HasSubstr("rank 0 of domain 'processes' waits in all_reduce #3 on "
                                        "channel 0 for rank 1, which has given up: rank 1 was "
                                        "killed by signal 9"));
}

}  // namespace
}  // namespace strata::comm
