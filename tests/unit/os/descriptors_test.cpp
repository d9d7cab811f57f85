// UniqueFd, Mapping, files in memory, EventFd and Epoll.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "base/fault_point.hpp"
#include "os/epoll.hpp"
#include "os/event_fd.hpp"
#include "os/mapping.hpp"
#include "os/memfd.hpp"
#include "os/procfs.hpp"
#include "os/unique_fd.hpp"
#include "strata/error.hpp"
#include "support/guard.hpp"
#include "support/process.hpp"

namespace strata::os {
namespace {

using namespace std::chrono_literals;

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }
/// By value: the structure is packed, so no reference to its parts is aligned.
std::uint64_t tag_of(const epoll_event& event) { return event.data.u64; }
bool closes_on_exec(int fd) { return (::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0; }

TEST(UniqueFd, ClosesWhatItOwnsAndKeepsErrno) {
  int number = -1;
  {
    const UniqueFd fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    number = fd.get();
    EXPECT_TRUE(fd);
    EXPECT_TRUE(is_open(number));
    errno = 123;
  }
  EXPECT_EQ(errno, 123);
  EXPECT_FALSE(is_open(number));
}

TEST(UniqueFd, MovesAndReleases) {
  UniqueFd a(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int number = a.get();
  UniqueFd b = std::move(a);
  EXPECT_FALSE(a);  // NOLINT(bugprone-use-after-move): what is left is the point.
  EXPECT_EQ(b.get(), number);
  UniqueFd& same = b;
  b = std::move(same);
  EXPECT_TRUE(is_open(number));
  UniqueFd c(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int other = c.get();
  c = std::move(b);
  EXPECT_FALSE(is_open(other));
  EXPECT_EQ(c.release(), number);
  EXPECT_FALSE(c);
  EXPECT_TRUE(is_open(number));
  c.reset(number);
  c.reset();
  EXPECT_FALSE(is_open(number));
}

TEST(UniqueFd, DuplicateIsOfTheSameFileAndClosedOnExec) {
  const UniqueFd memory = make_memfd("one", 8);
  const UniqueFd copy = memory.duplicate();
  EXPECT_NE(copy.get(), memory.get());
  EXPECT_TRUE(closes_on_exec(copy.get()));
  ASSERT_EQ(::pwrite(memory.get(), "x", 1, 0), 1);
  char read = 0;
  EXPECT_EQ(::pread(copy.get(), &read, 1, 0), 1);
  EXPECT_EQ(read, 'x');
  EXPECT_THROW((void)UniqueFd().duplicate(), SystemError);
}

TEST(SystemError, SaysWhatWasTriedAndWhy) {
  try {
    (void)UniqueFd().duplicate();
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "can't duplicate a file descriptor: Bad file descriptor");
    EXPECT_EQ(dynamic_cast<const SystemError&>(error).code(), EBADF);
  }
}

TEST(Memfd, HasItsSizeForEver) {
  const UniqueFd memory = make_memfd("sized", 10'000);
  EXPECT_EQ(size_of_file(memory.get()), 10'000U);
  EXPECT_TRUE(closes_on_exec(memory.get()));
  EXPECT_NE(::ftruncate(memory.get(), 100), 0);
  EXPECT_NE(::ftruncate(memory.get(), 100'000), 0);
  EXPECT_NE(::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_WRITE), 0);
  EXPECT_EQ(require_sealed(memory.get(), 10'000), 10'000U);
  EXPECT_THROW(require_sealed(memory.get(), 10'001), InvalidArgument);
}

TEST(Memfd, OnesThatTheirSenderCanCutAreRefused) {
  const UniqueFd open(::memfd_create("open", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(open.get(), 4096), 0);
  EXPECT_THROW(require_sealed(open.get(), 1), InvalidArgument);
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  EXPECT_THROW(require_sealed(null.get(), 0), InvalidArgument);
  EXPECT_THROW(require_sealed(-1, 0), InvalidArgument);
}

TEST(Memfd, AbsurdSizeFailsWithNameAndSize) {
  const strata::test::LeakCheck leaks;
  try {
    (void)make_memfd("absurd", std::size_t{1} << 63);
    FAIL();
  } catch (const SystemError& error) {
    EXPECT_NE(std::string(error.what()).find("(absurd, 9223372036854775808 bytes)"),
              std::string::npos)
        << error.what();
  }
}

TEST(Mapping, SharedOnesSeeEachOthersWrites) {
  const UniqueFd memory = make_memfd("shared", 8192);
  const Mapping a = Mapping::shared(memory.get(), 8192, Mapping::Populate::yes);
  const Mapping b = Mapping::shared(memory.get(), 4096, Mapping::Populate::no, 4096);
  const Mapping c = Mapping::shared_read_only(memory.get(), 8192);
  a.data()[4097] = std::byte{42};
  EXPECT_EQ(b.data()[1], std::byte{42});
  EXPECT_EQ(c.data()[4097], std::byte{42});
  EXPECT_EQ(a.size(), 8192U);
}

TEST(Mapping, OutlivesTheDescriptorAndIsUnmappedOnce) {
  Mapping a;
  EXPECT_FALSE(a);
  {
    const UniqueFd memory = make_memfd("gone", 4096);
    a = Mapping::shared(memory.get(), 4096);
  }
  a.data()[0] = std::byte{1};
  std::byte* const place = a.data();
  {
    const Mapping b = std::move(a);
    EXPECT_FALSE(a);  // NOLINT(bugprone-use-after-move)
    EXPECT_EQ(b.data(), place);
  }
  EXPECT_NE(::msync(place, 4096, MS_ASYNC), 0);
  EXPECT_EQ(errno, ENOMEM);  // Nothing is mapped there.
}

TEST(Mapping, PopulatedPagesArePresentAtOnce) {
  constexpr std::size_t kPages = 1024;
  const auto present = [](const Mapping& memory) {
    std::vector<unsigned char> pages(kPages);
    EXPECT_EQ(::mincore(memory.data(), memory.size(), pages.data()), 0);
    return std::ranges::count_if(pages, [](unsigned char page) { return (page & 1) != 0; });
  };
  const UniqueFd memory = make_memfd("populated", kPages * 4096);
  EXPECT_EQ(present(Mapping::shared(memory.get(), kPages * 4096)), 0);
  EXPECT_EQ(present(Mapping::shared(memory.get(), kPages * 4096, Mapping::Populate::yes)), kPages);
  EXPECT_EQ(present(Mapping::anonymous(kPages * 4096, Mapping::Populate::yes)), kPages);
}

TEST(Mapping, FailureSaysHowMuchWasAskedFor) {
  try {
    (void)Mapping::anonymous(std::size_t{1} << 60);
    FAIL();
  } catch (const SystemError& error) {
    EXPECT_STREQ(error.what(),
                 "can't map 1152921504606846976 bytes of memory: Cannot allocate memory");
  }
  if (!base::kFaultPoints) return;
  base::set_faults("os.mapping=@2:error:12");
  EXPECT_NO_THROW((void)Mapping::anonymous(1));
  EXPECT_THROW((void)Mapping::anonymous(1), SystemError);
  EXPECT_NO_THROW((void)Mapping::anonymous(1));
  base::set_faults("");
}

TEST(EventFd, SignalsMergeUntilDrained) {
  const EventFd event = EventFd::make();
  EXPECT_FALSE(event.drain());
  event.signal();
  event.signal();
  EXPECT_TRUE(event.drain());
  EXPECT_FALSE(event.drain());
  EXPECT_TRUE(closes_on_exec(event.fd()));
}

TEST(EventFd, FullCountStaysRaisedAndKeepsErrno) {
  const EventFd event = EventFd::make();
  const std::uint64_t most = ~std::uint64_t{1};
  ASSERT_EQ(::write(event.fd(), &most, sizeof most), static_cast<ssize_t>(sizeof most));
  errno = 99;
  event.signal();  // Must not wait.
  EXPECT_EQ(errno, 99);
  EXPECT_TRUE(event.drain());
}

TEST(Epoll, ReportsWhatIsReadyByItsTag) {
  Epoll epoll;
  const EventFd a = EventFd::make();
  const EventFd b = EventFd::make();
  epoll.add(a.fd(), EPOLLIN, 7);
  epoll.add(b.fd(), EPOLLIN, std::uint64_t{1} << 40);
  std::array<epoll_event, 8> room{};
  EXPECT_TRUE(epoll.wait(room, Deadline::after(0s)).empty());
  b.signal();
  auto ready = epoll.wait(room, Deadline::never());
  ASSERT_EQ(ready.size(), 1U);
  EXPECT_EQ(tag_of(ready[0]), std::uint64_t{1} << 40);
  a.signal();
  EXPECT_EQ(epoll.wait(room, Deadline::never()).size(), 2U);
  EXPECT_EQ(epoll.wait(std::span(room).first(1), Deadline::never()).size(), 1U);
  epoll.modify(b.fd(), 0, 0);
  ready = epoll.wait(room, Deadline::never());
  ASSERT_EQ(ready.size(), 1U);
  EXPECT_EQ(tag_of(ready[0]), 7U);
  epoll.remove(a.fd());
  EXPECT_TRUE(epoll.wait(room, Deadline::after(0s)).empty());
  epoll.remove(a.fd());  // Again: nothing.
}

TEST(Epoll, WaitEndsNoEarlierThanTheDeadline) {
  Epoll epoll;
  std::array<epoll_event, 1> room{};
  const Deadline deadline = Deadline::after(2500us);
  EXPECT_TRUE(epoll.wait(room, deadline).empty());
  EXPECT_TRUE(deadline.passed());
}

TEST(Epoll, WaitIsWokenFromAnotherThread) {
  const strata::test::Guard guard("a wait in epoll");
  Epoll epoll;
  const EventFd event = EventFd::make();
  epoll.add(event.fd(), EPOLLIN, 1);
  std::thread waker([&] { event.signal(); });
  std::array<epoll_event, 1> room{};
  EXPECT_EQ(epoll.wait(room, Deadline::never()).size(), 1U);
  waker.join();
}

TEST(Epoll, RefusesWhatCannotBeWatched) {
  Epoll epoll;
  EXPECT_THROW(epoll.add(-1, EPOLLIN, 0), SystemError);
  EXPECT_THROW(epoll.modify(0, EPOLLIN, 0), SystemError);
  const EventFd event = EventFd::make();
  epoll.add(event.fd(), EPOLLIN, 0);
  EXPECT_THROW(epoll.add(event.fd(), EPOLLIN, 0), SystemError);
}

}  // namespace
}  // namespace strata::os
