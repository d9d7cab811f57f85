#include "ipc/control_channel.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>

#include "ipc/control_packet.hpp"
#include "ipc/sealed_text.hpp"
#include "os/event_fd.hpp"
#include "os/memfd.hpp"
#include "support/guard.hpp"
#include "support/process.hpp"

namespace strata::ipc {
namespace {

using nlohmann::json;
using Send = ControlChannel::SendResult;

struct Ends {
  explicit Ends(ControlChannel::Limits limits = {}) : Ends(limits, ControlChannel::make_pair()) {}
  ControlChannel a, b;

 private:
  Ends(ControlChannel::Limits limits, std::pair<os::UniqueFd, os::UniqueFd> sockets)
      : a(std::move(sockets.first), limits), b(std::move(sockets.second), limits) {}
};

/// One end is ours, the other sends packets of any bytes.
struct RawEnd {
  RawEnd() : RawEnd(ControlChannel::make_pair()) {}
  os::UniqueFd raw;
  ControlChannel channel;

  void send(std::string_view bytes, std::vector<int> descriptors = {}) const {
    iovec part{.iov_base = const_cast<char*>(bytes.data()), .iov_len = bytes.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    std::vector<char> room(CMSG_SPACE(descriptors.size() * sizeof(int)));
    if (!descriptors.empty()) {
      message.msg_control = room.data();
      message.msg_controllen = room.size();
      cmsghdr* rights = CMSG_FIRSTHDR(&message);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
      std::memcpy(CMSG_DATA(rights), descriptors.data(), descriptors.size() * sizeof(int));
    }
    ASSERT_EQ(sendmsg(raw.get(), &message, 0), static_cast<ssize_t>(bytes.size()));
  }

 private:
  explicit RawEnd(std::pair<os::UniqueFd, os::UniqueFd> sockets)
      : raw(std::move(sockets.first)), channel(std::move(sockets.second)) {}
};

std::string packet(std::string_view text, ControlHeader header = {}) {
  if (header.length == 0) header.length = text.size();
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  return bytes.append(text);
}

/// The message, or a failure that says what came.
Message expect_message(ControlChannel::Received received) {
  if (auto* message = std::get_if<Message>(&received)) return std::move(*message);
  if (auto* broken = std::get_if<ControlChannel::Broken>(&received)) {
    ADD_FAILURE() << "broken: " << broken->reason;
  } else {
    ADD_FAILURE() << "no message, but alternative " << received.index();
  }
  return {json::object(), {}};
}

bool is_broken(const ControlChannel::Received& received) {
  return std::holds_alternative<ControlChannel::Broken>(received);
}
bool is_nothing(const ControlChannel::Received& received) {
  return std::holds_alternative<ControlChannel::Nothing>(received);
}
bool is_closed(const ControlChannel::Received& received) {
  return std::holds_alternative<ControlChannel::Closed>(received);
}

TEST(ControlChannel, MessagesArriveWholeAndInOrder) {
  const strata::test::LeakCheck check;
  Ends ends;
  EXPECT_TRUE(is_nothing(ends.b.receive()));
  for (int i = 0; i < 20; ++i) {
    // Short ones and long ones, around the length at which the way changes.
    const std::string text(i * 7000, static_cast<char>('a' + i));
    EXPECT_EQ(ends.a.send({{"n", i}, {"text", text}}), Send::sent);
    if (i % 3 == 2) {
      for (int k = i - 2; k <= i; ++k) {
        const Message message = expect_message(ends.b.receive());
        EXPECT_EQ(message.body()["n"], k);
        EXPECT_EQ(message.body()["text"].get<std::string>(),
                  std::string(k * 7000, static_cast<char>('a' + k)));
      }
    }
  }
}

TEST(ControlChannel, AroundTheLengthAtWhichATextLeavesThePacket) {
  Ends ends;
  const std::size_t around = json{{"t", ""}}.dump().size();
  for (const int difference : {-1, 0, 1}) {
    const std::string text(ControlChannel::kMaxInlineBytes - around + difference, 'x');
    EXPECT_EQ(ends.a.send({{"t", text}}), Send::sent);
    EXPECT_EQ(expect_message(ends.b.receive()).body()["t"], text);
  }
}

TEST(ControlChannel, ATextOfManyMegabytesArrives) {
  const strata::test::LeakCheck check;
  Ends ends;
  const std::string text(std::size_t{20} << 20U, 'm');
  EXPECT_EQ(ends.a.send({{"text", text}}), Send::sent);
  EXPECT_EQ(expect_message(ends.b.receive()).body()["text"], text);
}

TEST(ControlChannel, DescriptorsComeAlongAndAreClosedOnExec) {
  const strata::test::LeakCheck check;
  Ends ends;
  for (const std::size_t length : {std::size_t{1}, std::size_t{100000}}) {
    const os::EventFd event = os::EventFd::make();
    const std::vector<int> fds(ControlChannel::kMaxDescriptors, event.fd());
    EXPECT_EQ(ends.a.send({{"text", std::string(length, 'x')}}, fds), Send::sent);
    Message message = expect_message(ends.b.receive());
    ASSERT_EQ(message.descriptors().size(), fds.size());
    for (const os::UniqueFd& fd : message.descriptors()) {
      EXPECT_NE(fcntl(fd.get(), F_GETFD) & FD_CLOEXEC, 0);
      os::EventFd::signal(fd.get());
      EXPECT_TRUE(event.drain());
    }
  }
}

TEST(ControlChannel, TooManyDescriptorsAreNotSent) {
  Ends ends;
  const std::vector<int> fds(ControlChannel::kMaxDescriptors + 1, 0);
  EXPECT_EQ(ends.a.send(json::object(), fds), Send::too_long);
  EXPECT_TRUE(is_nothing(ends.b.receive()));
}

TEST(ControlChannel, TextThatIsNotUtf8IsSentWithoutWhatIsWrong) {
  Ends ends;
  EXPECT_EQ(ends.a.send({{"text", "bad \xff byte"}}), Send::sent);
  EXPECT_EQ(expect_message(ends.b.receive()).body()["text"], "bad \xef\xbf\xbd byte");
}

TEST(ControlChannel, WhatTheKernelDoesNotTakeIsQueuedAndFlushedInOrder) {
  Ends ends;
  const std::string text(10000, 'q');
  const os::EventFd event = os::EventFd::make();
  int sent = 0;
  bool queued = false;
  for (; sent < 200; ++sent) {
    const int fd = event.fd();
    const Send result = ends.a.send({{"n", sent}, {"text", text}}, {&fd, 1});
    ASSERT_TRUE(result == Send::sent || result == Send::queued);
    if (result == Send::queued) queued = true;
    EXPECT_FALSE(queued && result == Send::sent) << "it overtook what is queued";
    EXPECT_EQ(ends.a.wants_write(), queued);
  }
  ASSERT_TRUE(queued) << "the test means to fill the socket";
  for (int i = 0; i < sent; ++i) {
    Message message = expect_message(ends.b.receive());
    ASSERT_EQ(message.body()["n"], i);
    ASSERT_EQ(message.descriptors().size(), 1U);
    EXPECT_TRUE(ends.a.flush());
  }
  EXPECT_FALSE(ends.a.wants_write());
}

// Invariant (4)
TEST(ControlChannel, PeerThatDoesNotReadMakesTheQueueOverflow) {
  const strata::test::LeakCheck check;
  Ends by_count({.queued_messages = 10});
  const std::string text(30000, 'q');
  int queued = 0;
  Send result = Send::sent;
  while ((result = by_count.a.send({{"text", text}})) != Send::overflow) {
    if (result == Send::queued) ++queued;
    ASSERT_LE(queued, 10);
  }
  EXPECT_EQ(queued, 10);

  Ends by_bytes({.queued_bytes = 100000});
  queued = 0;
  while ((result = by_bytes.a.send({{"text", text}})) != Send::overflow) {
    if (result == Send::queued) ++queued;
    ASSERT_LE(queued, 3);
  }
  EXPECT_EQ(queued, 3);
}

TEST(ControlChannel, TooLongATextIsNeitherSentNorReceived) {
  auto sockets = ControlChannel::make_pair();
  ControlChannel narrow(std::move(sockets.first), {.message_bytes = 100});
  ControlChannel wide(std::move(sockets.second));
  EXPECT_EQ(narrow.send({{"text", std::string(200, 'x')}}), Send::too_long);
  EXPECT_EQ(wide.send({{"text", std::string(200, 'x')}}), Send::sent);
  EXPECT_TRUE(is_broken(narrow.receive()));
}

TEST(ControlChannel, WhatWasSentBeforeTheEndIsReceivedAfterIt) {
  auto sockets = ControlChannel::make_pair();
  ControlChannel stays(std::move(sockets.first));
  {
    ControlChannel goes(std::move(sockets.second));
    EXPECT_EQ(goes.send({{"last", "words"}}), Send::sent);
    EXPECT_EQ(stays.send({{"never", "read"}}), Send::sent);  // So the kernel says ECONNRESET.
  }
  EXPECT_EQ(expect_message(stays.receive()).body()["last"], "words");
  EXPECT_TRUE(is_closed(stays.receive()));
  EXPECT_TRUE(is_closed(stays.receive()));
  EXPECT_EQ(stays.send(json::object()), Send::closed);
  EXPECT_EQ(stays.send_until(json::object(), os::Deadline::never()), Send::closed);
}

TEST(ControlChannel, ReceiveUntilEndsAtItsDeadline) {
  Ends ends;
  EXPECT_TRUE(is_nothing(ends.b.receive_until(os::Deadline::after(std::chrono::milliseconds(5)))));
  EXPECT_TRUE(is_nothing(ends.b.receive_until(os::Deadline::after(std::chrono::seconds(-1)))));
}

TEST(ControlChannel, SleepingEndsTalkToEachOther) {
  strata::test::Guard guard("messages both ways");
  Ends ends;
  constexpr int kMessages = 2000;
  const std::string text(20000, 't');
  std::thread echo([&] {
    for (int i = 0; i < kMessages; ++i) {
      const Message message = expect_message(ends.b.receive_until(os::Deadline::never()));
      ASSERT_EQ(ends.b.send_until(message.body(), os::Deadline::never()), Send::sent);
    }
  });
  std::thread sender([&] {
    for (int i = 0; i < kMessages; ++i)
      ASSERT_EQ(ends.a.send_until({{"n", i}, {"text", text}}, os::Deadline::never()), Send::sent);
  });
  for (int i = 0; i < kMessages; ++i) {
    ASSERT_EQ(expect_message(ends.a.receive_until(os::Deadline::never())).body()["n"], i);
  }
  sender.join();
  echo.join();
}

TEST(ControlChannel, SendUntilWaitsOnlyUntilItsDeadline) {
  Ends ends({.queued_messages = 2});
  const std::string text(60000, 'q');
  for (;;) {
    const Send result =
        ends.a.send_until({{"text", text}}, os::Deadline::after(std::chrono::milliseconds(5)));
    if (result == Send::overflow) break;
    ASSERT_TRUE(result == Send::sent || result == Send::queued);
  }
}

// ---- Invariant (2) ------------------------------------------------------------------------------

std::string nested(int depth) {
  return "{\"a\":" + std::string(depth - 1, '[') + std::string(depth - 1, ']') + "}";
}

TEST(ControlChannel, DepthIsBounded) {
  RawEnd end;
  end.send(packet(nested(ControlChannel::kMaxDepth)));
  (void)expect_message(end.channel.receive());
  end.send(
      packet(R"({"brackets in a string":"[[[[\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[)"
             R"([[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["})"));
  (void)expect_message(end.channel.receive());
  end.send(packet(nested(ControlChannel::kMaxDepth + 1)));
  EXPECT_TRUE(is_broken(end.channel.receive()));
}

TEST(ControlChannel, WhatIsNoMessageBreaksIt) {
  const strata::test::LeakCheck check;
  const std::vector<std::pair<const char*, std::string>> packets{
      {"shorter than a header", "abc"},
      {"other bytes", std::string(100, 'z')},
      {"another version", packet("{}", {.version = 2})},
      {"an unknown kind", packet("{}", {.kind = 2})},
      {"another length", packet("{}", {.length = 3})},
      {"a length that overflows", packet("{}", {.length = ~std::uint64_t{0}})},
      {"descriptors that did not come", packet("{}", {.descriptors = 1})},
      {"a long text that did not come", packet("", {.kind = 1, .length = 2})},
      {"no JSON", packet("{\"a\":")},
      {"bytes behind it", packet("{} {}")},
      {"no object", packet("[]")},
      {"a number out of range", packet("{\"a\":1e999}")},
      {"text that is not UTF-8", packet("{\"a\":\"\xff\"}")},
      {"very deep", packet(std::string(60000, '['))},
      {"too long a packet", std::string(70000, 'z')},
  };
  for (const auto& [what, bytes] : packets) {
    RawEnd end;
    end.send(bytes);
    EXPECT_TRUE(is_broken(end.channel.receive())) << what;
    end.send(packet("{}"));
    EXPECT_TRUE(is_broken(end.channel.receive())) << "for good: " << what;
  }
}

TEST(ControlChannel, DescriptorsOfWhatIsNoMessageAreClosed) {
  const strata::test::LeakCheck check;
  const os::EventFd event = os::EventFd::make();
  for (const std::size_t count : {1U, 16U, 17U, 18U, 19U, 40U, 253U}) {
    RawEnd end;
    end.send(packet("{}"), std::vector<int>(count, event.fd()));
    EXPECT_TRUE(is_broken(end.channel.receive())) << count;
  }
}

TEST(ControlChannel, LongTextMustBeSealedAndAsLongAsSaid) {
  const strata::test::LeakCheck check;
  const os::UniqueFd good = make_sealed_text("{\"a\":1}");
  const os::UniqueFd unsealed = os::make_memfd("test", 7);  // Its bytes can still be changed.
  const os::EventFd other = os::EventFd::make();
  struct {
    int fd;
    std::uint64_t length;
    bool fine;
  } const cases[] = {{good.get(), 7, true},      {good.get(), 6, false}, {good.get(), 8, false},
                     {unsealed.get(), 7, false}, {other.fd(), 7, false}, {0, 7, false}};
  for (const auto& c : cases) {
    RawEnd end;
    end.send(packet("", {.kind = ControlHeader::memfd_text, .length = c.length}), {c.fd});
    const auto received = end.channel.receive();
    EXPECT_EQ(!is_broken(received), c.fine) << c.length;
  }
}

TEST(ControlChannel, ReceiverWithoutRoomForDescriptorsSaysSo) {
  RawEnd end;
  const os::EventFd event = os::EventFd::make();
  const os::UniqueFd body = make_sealed_text("{}");
  end.send(packet("{}", {.descriptors = 2}), {event.fd(), event.fd()});
  // So that not one more can be opened. (Room that was left below the highest number is filled.)
  std::vector<os::UniqueFd> fill;
  for (int i = 0; i < 64; ++i)
    fill.emplace_back(fcntl(event.fd(), F_DUPFD_CLOEXEC, 0));
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit tight = before;
  tight.rlim_cur = static_cast<rlim_t>(fill.back().get()) + 1;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &tight), 0);
  const auto received = end.channel.receive();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(is_broken(received));
}

}  // namespace
}  // namespace strata::ipc
