#include "ipc/lifeline.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>
#include <thread>

#include "os/event_fd.hpp"
#include "support/guard.hpp"
#include "support/process.hpp"
#include "support/random.hpp"

namespace strata::ipc {
namespace {

TEST(Lifeline, MessagesArriveAsTheyWereSent) {
  const strata::test::LeakCheck check;
  const auto [parent, worker] = make_lifeline();
  EXPECT_EQ(receive_lifeline(worker.get()).kind, LifelineKind::nothing);
  ASSERT_TRUE(send_query(parent.get(), 7));
  ASSERT_TRUE(send_stop(parent.get(), StopKind::now));
  ASSERT_TRUE(send_stop(parent.get(), StopKind::drain));
  const LifelineMessage query = receive_lifeline(worker.get());
  EXPECT_EQ(query.kind, LifelineKind::query);
  EXPECT_EQ(query.id, 7U);
  for (const StopKind kind : {StopKind::now, StopKind::drain}) {
    const LifelineMessage stop = receive_lifeline(worker.get());
    EXPECT_EQ(stop.kind, LifelineKind::stop);
    EXPECT_EQ(stop.stop, kind);
  }
  LifelineAnswer answer{.state = 3, .task = 4, .since_ns = 5};
  answer.set_name("matmul");
  ASSERT_TRUE(send_answer(worker.get(), 7, answer));
  const LifelineMessage message = receive_lifeline(parent.get());
  EXPECT_EQ(message.kind, LifelineKind::answer);
  EXPECT_EQ(message.id, 7U);
  EXPECT_EQ(message.answer.state, 3U);
  EXPECT_EQ(message.answer.task, 4U);
  EXPECT_EQ(message.answer.since_ns, 5U);
  EXPECT_EQ(message.answer.name_length, 6U);
  EXPECT_EQ(message.answer.name_here(), "matmul");
}

TEST(Lifeline, LongNameSaysHowLongItIs) {
  LifelineAnswer answer;
  const std::string name(1000, 'n');
  answer.set_name(name);
  EXPECT_EQ(answer.name_length, 1000U);
  EXPECT_EQ(answer.name_here(), name.substr(0, LifelineAnswer::kNameBytes));
}

TEST(Lifeline, EndOfFileComesAfterWhatWasSent) {
  auto [parent, worker] = make_lifeline();
  ASSERT_TRUE(send_query(worker.get(), 1));  // Stays unread: the kernel then says ECONNRESET.
  ASSERT_TRUE(send_stop(parent.get(), StopKind::drain));
  parent.reset();
  EXPECT_EQ(receive_lifeline(worker.get()).kind, LifelineKind::stop);
  EXPECT_EQ(receive_lifeline(worker.get()).kind, LifelineKind::closed);
  EXPECT_FALSE(send_query(worker.get(), 1));
}

TEST(Lifeline, PeerThatDoesNotReadBlocksNobody) {
  const auto [parent, worker] = make_lifeline();
  int sent = 0;
  while (send_query(parent.get(), 1) && sent < 1000000)
    ++sent;
  EXPECT_LT(sent, 1000000);
  EXPECT_GT(sent, 10);
}

TEST(Lifeline, KeepsErrno) {
  auto [parent, worker] = make_lifeline();
  errno = 1234;
  (void)receive_lifeline(worker.get());
  EXPECT_EQ(errno, 1234);
  worker.reset();
  errno = 1234;
  EXPECT_FALSE(send_query(parent.get(), 1));
  EXPECT_EQ(errno, 1234);
}

TEST(Lifeline, WaitReturnsForAMessageForTheOtherDescriptorAndAtTheEnd) {
  strata::test::Guard guard("wait on a lifeline");
  auto [parent, worker] = make_lifeline();
  const os::EventFd event = os::EventFd::make();
  {
    const int fd = parent.get();
    std::thread other([fd] { (void)send_query(fd, 1); });
    wait_lifeline(worker.get());
    EXPECT_EQ(receive_lifeline(worker.get()).kind, LifelineKind::query);
    other.join();
  }
  event.signal();
  wait_lifeline(worker.get(), event.fd());
  EXPECT_EQ(receive_lifeline(worker.get()).kind, LifelineKind::nothing);
  EXPECT_TRUE(event.drain());
  parent.reset();
  wait_lifeline(worker.get(), event.fd());
  EXPECT_EQ(receive_lifeline(worker.get()).kind, LifelineKind::closed);
}

// Invariant (2)
TEST(Lifeline, BytesThatAreNoMessageAreBroken) {
  const auto [parent, worker] = make_lifeline();
  strata::test::Random random(1);
  ASSERT_TRUE(send_stop(parent.get(), StopKind::now));
  std::array<std::byte, 200> good{};
  const ssize_t size = recv(worker.get(), good.data(), good.size(), 0);
  ASSERT_GT(size, 0);
  const auto length = static_cast<std::size_t>(size);
  EXPECT_EQ(decode_lifeline(good.data(), length).kind, LifelineKind::stop);
  EXPECT_EQ(decode_lifeline(good.data(), length - 1).kind, LifelineKind::broken);
  EXPECT_EQ(decode_lifeline(good.data(), length + 1).kind, LifelineKind::broken);
  EXPECT_EQ(decode_lifeline(good.data(), 0).kind, LifelineKind::broken);
  for (int i = 0; i < 20000; ++i) {
    std::array<std::byte, 200> bytes = good;
    for (std::uint64_t changes = random.below(4) + 1; changes > 0; --changes)
      bytes[random.below(length)] = static_cast<std::byte>(random.below(256));
    const LifelineMessage message = decode_lifeline(bytes.data(), length);
    ASSERT_TRUE(message.kind == LifelineKind::query || message.kind == LifelineKind::answer ||
                message.kind == LifelineKind::stop || message.kind == LifelineKind::broken);
    ASSERT_LE(message.answer.name_here().size(), LifelineAnswer::kNameBytes);
  }
}

}  // namespace
}  // namespace strata::ipc
