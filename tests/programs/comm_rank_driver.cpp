// One rank of a domain as a process of its own:  comm_rank_driver FD RANK SIZE ROUNDS
//
// FD is the file of the windows. Each round does an all_reduce in the window, one of own memory and
// a message round the ring, with known results. With "die" for ROUNDS the process ends by a signal
// while the others wait for it. Exits with 0 if all was right; else it says on standard error what
// was not.
//
// Thread safety: one thread.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <vector>

#include "comm/plain_waits.hpp"
#include "comm/shared_windows.hpp"
#include "comm_rank_driver.hpp"
#include "strata/communicator.hpp"

namespace {

using namespace strata;

void require(bool right, const char* what) {
  if (!right) throw std::runtime_error(what);
}

void one_round(const Communicator& ranks, std::int32_t round) {
  constexpr std::size_t kCount = 3001;
  const auto me = static_cast<std::int32_t>(ranks.rank());
  const auto size = static_cast<std::int32_t>(ranks.size());
  const std::int32_t sum = size * round + size * (size - 1) / 2;
  const auto data = ranks.slice<std::int32_t>("data").first(kCount);
  for (std::int32_t& x : data)
    x = round + me;
  ranks.all_reduce<std::int32_t>(data, data, ReduceOp::sum);
  for (const std::int32_t x : data)
    require(x == sum, "an all_reduce in the window is wrong");
  std::vector<std::int32_t> own(kCount, round + me);
  ranks.all_reduce<std::int32_t>(own, std::span<std::int32_t>(own), ReduceOp::sum);
  for (const std::int32_t x : own)
    require(x == sum, "an all_reduce of own memory is wrong");
  if (ranks.size() == 1) return;
  const std::uint32_t next = (ranks.rank() + 1) % ranks.size();
  const std::uint32_t previous = (ranks.rank() + ranks.size() - 1) % ranks.size();
  std::int32_t got = -1;
  ranks.send_recv(&me, 1, next, &got, 1, previous, DType::int32);
  require(got == static_cast<std::int32_t>(previous), "a message is wrong");
}

void run(int fd, std::uint32_t rank, std::uint32_t size, const char* rounds) {
  const comm::WindowLayout layout(test::driver_domain(size));
  const comm::SharedWindows windows(layout, fd);
  const DomainContext domain = windows.context(rank);
  const comm::PlainWaits waits({.deadline = os::Deadline::after(std::chrono::seconds(60))});
  const Communicator ranks(waits, domain);
  if (std::strcmp(rounds, "die") == 0) {
    one_round(ranks, 1);
    raise(SIGKILL);
  }
  for (std::int32_t round = 0; round < std::atoi(rounds); ++round)
    one_round(ranks, round);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  try {
    run(std::atoi(argv[1]), static_cast<std::uint32_t>(std::atoi(argv[2])),
        static_cast<std::uint32_t>(std::atoi(argv[3])), argv[4]);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "rank %s: %s\n", argv[2], e.what());
    return 1;
  }
  return 0;
}
