#include "ipc/control_channel.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <system_error>

#include "ipc/control_packet.hpp"
#include "ipc/sealed_text.hpp"
#include "os/system_error.hpp"

namespace strata::ipc {
namespace {

/// Descriptors that one packet carries at most: a message's, and the memfd of its text.
constexpr std::size_t kPacketDescriptors = ControlChannel::kMaxDescriptors + 1;
constexpr std::size_t kPacketBytes = sizeof(ControlHeader) + ControlChannel::kMaxInlineBytes;

/// Room for the control data of one packet, aligned as the kernel wants it.
struct alignas(cmsghdr) DescriptorRoom {
  std::byte bytes[CMSG_SPACE(kPacketDescriptors * sizeof(int))] = {};
};

/// Takes over every descriptor that came with a packet.
std::vector<os::UniqueFd> take_descriptors(msghdr& message) {
  std::vector<os::UniqueFd> descriptors;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof fd);
      descriptors.emplace_back(fd);
    }
  }
  return descriptors;
}

std::vector<int> numbers(const std::vector<os::UniqueFd>& descriptors) {
  std::vector<int> result;
  result.reserve(descriptors.size());
  for (const os::UniqueFd& fd : descriptors)
    result.push_back(fd.get());
  return result;
}

}  // namespace

// ---- Messages -----------------------------------------------------------------------------------

Message::Message(nlohmann::json body, std::vector<os::UniqueFd> descriptors)
    : body_(std::make_unique<nlohmann::json>(std::move(body))),
      descriptors_(std::move(descriptors)) {}
Message::Message(Message&&) noexcept = default;
Message& Message::operator=(Message&&) noexcept = default;
Message::~Message() = default;

std::pair<os::UniqueFd, os::UniqueFd> ControlChannel::make_pair() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    os::throw_errno("can't make the control channel of a worker");
  }
  std::pair result{os::UniqueFd(ends[0]), os::UniqueFd(ends[1])};
  // Where the system's default is so small that a packet does not fit. Best effort: the limit of
  // the system may be lower, and then sends of long texts fail.
  const int bytes = 4 * static_cast<int>(kPacketBytes);
  for (const int end : ends)
    (void)setsockopt(end, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
  return result;
}

ControlChannel::ControlChannel(os::UniqueFd socket, Limits limits)
    : socket_(std::move(socket)), limits_(limits) {}

// ---- Sending ------------------------------------------------------------------------------------

ControlChannel::Written ControlChannel::write(std::string_view bytes,
                                              std::span<const int> descriptors) const {
  iovec part{.iov_base = const_cast<char*>(bytes.data()), .iov_len = bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  DescriptorRoom room;
  if (!descriptors.empty()) {
    message.msg_control = room.bytes;
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(rights), descriptors.data(), descriptors.size_bytes());
  }
  for (;;) {
    if (sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return Written::all;
    switch (errno) {
      case EINTR:
        continue;
      case EAGAIN:
      case ETOOMANYREFS:  // So many descriptors are under way that the peer must take some first.
        return Written::would_block;
      case EPIPE:
      case ECONNRESET:
      case ENOTCONN:
        return Written::closed;
      default:
        return Written::failed;
    }
  }
}

bool ControlChannel::flush_locked() {
  while (!queue_.empty() && !peer_closed_) {
    const Packet& packet = queue_.front();
    const Written written = write(packet.bytes, numbers(packet.descriptors));
    if (written == Written::would_block) return true;
    // A packet that the kernel refuses for good leaves a hole in what the peer is told: no use in
    // going on.
    if (written != Written::all) peer_closed_ = true;
    queued_bytes_ -= packet.cost;
    queue_.pop_front();
  }
  if (peer_closed_) {
    queue_.clear();
    queued_bytes_ = 0;
  }
  return !peer_closed_;
}

bool ControlChannel::flush() {
  const std::lock_guard lock(mutex_);
  return flush_locked();
}

bool ControlChannel::wants_write() const {
  const std::lock_guard lock(mutex_);
  return !queue_.empty();
}

ControlChannel::SendResult ControlChannel::send(const nlohmann::json& body,
                                                std::span<const int> descriptors) {
  const std::string text = body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (text.size() > limits_.message_bytes || descriptors.size() > kMaxDescriptors) {
    return SendResult::too_long;
  }
  ControlHeader header;
  header.length = text.size();
  header.descriptors = static_cast<std::uint8_t>(descriptors.size());
  std::vector<int> fds;
  os::UniqueFd memfd;
  const bool long_text = text.size() > kMaxInlineBytes;
  if (long_text) {
    header.kind = ControlHeader::memfd_text;
    try {
      memfd = make_sealed_text(text);
    } catch (const SystemError&) {
      return SendResult::failed;
    }
    fds.push_back(memfd.get());
  }
  fds.insert(fds.end(), descriptors.begin(), descriptors.end());
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  if (!long_text) bytes += text;

  const std::lock_guard lock(mutex_);
  if (!flush_locked()) return SendResult::closed;
  if (queue_.empty()) {
    switch (write(bytes, fds)) {
      case Written::all:
        return SendResult::sent;
      case Written::closed:
        peer_closed_ = true;
        return SendResult::closed;
      case Written::failed:
        return SendResult::failed;
      case Written::would_block:
        break;
    }
  }
  const std::size_t cost = text.size() + sizeof header;
  if (queue_.size() >= limits_.queued_messages || queued_bytes_ + cost > limits_.queued_bytes) {
    return SendResult::overflow;
  }
  Packet packet{.bytes = std::move(bytes), .descriptors = {}, .cost = cost};
  if (long_text) packet.descriptors.push_back(std::move(memfd));
  for (const int fd : descriptors) {
    // The caller's may be closed by the time of the flush.
    os::UniqueFd copy(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!copy) return SendResult::failed;
    packet.descriptors.push_back(std::move(copy));
  }
  queue_.push_back(std::move(packet));
  queued_bytes_ += cost;
  return SendResult::queued;
}

ControlChannel::SendResult ControlChannel::send_until(const nlohmann::json& body,
                                                      os::Deadline deadline,
                                                      std::span<const int> descriptors) {
  SendResult result = send(body, descriptors);
  while (result == SendResult::queued || result == SendResult::overflow) {
    pollfd entry{.fd = socket_.get(), .events = POLLOUT, .revents = 0};
    const int ready = poll(&entry, 1, deadline.poll_timeout_ms());
    if (ready < 0 && errno != EINTR) return SendResult::failed;
    if (!flush()) return SendResult::closed;
    if (result == SendResult::overflow) {
      result = send(body, descriptors);
    } else if (!wants_write()) {
      result = SendResult::sent;
    }
    if (result != SendResult::sent && deadline.passed()) break;
  }
  return result;
}

// ---- Receiving ----------------------------------------------------------------------------------

ControlChannel::Received ControlChannel::broken(std::string reason) {
  broken_ = std::move(reason);
  return Broken{broken_};
}

ControlChannel::Received ControlChannel::receive() {
  if (!broken_.empty()) return Broken{broken_};
  // One byte more than a packet has, to see that one is too long.
  if (!buffer_) buffer_ = std::make_unique_for_overwrite<std::byte[]>(kPacketBytes + 1);
  iovec part{.iov_base = buffer_.get(), .iov_len = kPacketBytes + 1};
  DescriptorRoom room;
  msghdr message{};
  ssize_t size;
  for (;;) {
    message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = room.bytes;
    message.msg_controllen = sizeof room.bytes;
    size = recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (size >= 0) break;
    // ECONNRESET is reported once, where the peer left something unread; what it sent comes still.
    if (errno == EINTR || errno == ECONNRESET) continue;
    if (errno == EAGAIN) return Nothing{};
    return broken("receiving failed: " + std::generic_category().message(errno));
  }
  std::vector<os::UniqueFd> descriptors = take_descriptors(message);
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    return broken(
        "a message came with more descriptors than allowed, or than this process may "
        "open");
  }
  if (size == 0) return Closed{};
  if (static_cast<std::size_t>(size) > kPacketBytes) return broken("a packet is too long");
  Received received = decode_control_packet({buffer_.get(), static_cast<std::size_t>(size)},
                                            std::move(descriptors), limits_.message_bytes);
  if (auto* why = std::get_if<Broken>(&received)) return broken(std::move(why->reason));
  return received;
}

ControlChannel::Received ControlChannel::receive_until(os::Deadline deadline) {
  for (;;) {
    Received received = receive();
    if (!std::holds_alternative<Nothing>(received)) return received;
    if (deadline.passed()) return received;
    pollfd entry{.fd = socket_.get(),
                 .events = static_cast<short>(wants_write() ? POLLIN | POLLOUT : POLLIN),
                 .revents = 0};
    const int ready = poll(&entry, 1, deadline.poll_timeout_ms());
    if (ready < 0 && errno != EINTR) {
      return broken("waiting failed: " + std::generic_category().message(errno));
    }
    if ((entry.revents & POLLOUT) != 0) (void)flush();
  }
}

}  // namespace strata::ipc
