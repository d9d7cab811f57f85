#include "ipc/lifeline.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <type_traits>

#include "os/system_error.hpp"

namespace strata::ipc {
namespace {

constexpr std::uint32_t kMagic = 0x656e696c;  // "line"

/// The one packet there is.
struct Packet {
  std::uint32_t magic = kMagic;
  std::uint8_t kind = 0;
  std::uint8_t stop = 0;
  std::uint16_t reserved = 0;
  std::uint64_t id = 0;
  std::uint64_t state = 0, task = 0, since_ns = 0;
  std::uint32_t name_length = 0;
  char name[LifelineAnswer::kNameBytes] = {};
  std::uint32_t reserved2 = 0;
};
static_assert(sizeof(Packet) == 128 && std::is_trivially_copyable_v<Packet>);

/// Keeps errno: these functions run in the middle of anything.
class KeepErrno {
 public:
  KeepErrno() noexcept : saved_(errno) {}
  ~KeepErrno() { errno = saved_; }
  KeepErrno(const KeepErrno&) = delete;
  KeepErrno& operator=(const KeepErrno&) = delete;

 private:
  const int saved_;
};

bool send_packet(int fd, const Packet& packet) noexcept {
  const KeepErrno keep;
  for (;;) {
    const ssize_t sent = send(fd, &packet, sizeof packet, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent == static_cast<ssize_t>(sizeof packet)) return true;
    if (sent >= 0 || errno != EINTR) return false;
  }
}

}  // namespace

void LifelineAnswer::set_name(std::string_view text) noexcept {
  name_length = static_cast<std::uint32_t>(text.size());
  const std::size_t here = std::min(text.size(), kNameBytes);
  if (here != 0) std::memcpy(name.data(), text.data(), here);
}

std::string_view LifelineAnswer::name_here() const noexcept {
  return {name.data(), std::min<std::size_t>(name_length, kNameBytes)};
}

std::pair<os::UniqueFd, os::UniqueFd> make_lifeline() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    os::throw_errno("can't make the lifeline of a worker");
  }
  return {os::UniqueFd(ends[0]), os::UniqueFd(ends[1])};
}

bool send_query(int fd, std::uint64_t id) noexcept {
  Packet packet;
  packet.kind = static_cast<std::uint8_t>(LifelineKind::query);
  packet.id = id;
  return send_packet(fd, packet);
}

bool send_answer(int fd, std::uint64_t id, const LifelineAnswer& answer) noexcept {
  Packet packet;
  packet.kind = static_cast<std::uint8_t>(LifelineKind::answer);
  packet.id = id;
  packet.state = answer.state;
  packet.task = answer.task;
  packet.since_ns = answer.since_ns;
  packet.name_length = answer.name_length;
  std::memcpy(packet.name, answer.name.data(), sizeof packet.name);
  return send_packet(fd, packet);
}

bool send_stop(int fd, StopKind kind) noexcept {
  Packet packet;
  packet.kind = static_cast<std::uint8_t>(LifelineKind::stop);
  packet.stop = static_cast<std::uint8_t>(kind);
  return send_packet(fd, packet);
}

LifelineMessage decode_lifeline(const std::byte* bytes, std::size_t size) noexcept {
  const LifelineMessage broken{.kind = LifelineKind::broken};
  if (size != sizeof(Packet)) return broken;
  Packet packet;
  std::memcpy(&packet, bytes, sizeof packet);
  if (packet.magic != kMagic || packet.reserved != 0 || packet.reserved2 != 0) return broken;
  LifelineMessage message{.id = packet.id};
  switch (static_cast<LifelineKind>(packet.kind)) {
    case LifelineKind::query:
      message.kind = LifelineKind::query;
      return message;
    case LifelineKind::answer:
      message.kind = LifelineKind::answer;
      message.answer = {.state = packet.state,
                        .task = packet.task,
                        .since_ns = packet.since_ns,
                        .name_length = packet.name_length};
      std::memcpy(message.answer.name.data(), packet.name, sizeof packet.name);
      return message;
    case LifelineKind::stop:
      if (packet.stop > static_cast<std::uint8_t>(StopKind::now)) return broken;
      message.kind = LifelineKind::stop;
      message.stop = static_cast<StopKind>(packet.stop);
      return message;
    default:
      return broken;
  }
}

LifelineMessage receive_lifeline(int fd) noexcept {
  const KeepErrno keep;
  std::byte buffer[sizeof(Packet) + 1];  // One more, to see that a packet is too long.
  for (;;) {
    const ssize_t size = recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
    if (size > 0) return decode_lifeline(buffer, static_cast<std::size_t>(size));
    if (size == 0) return {.kind = LifelineKind::closed};
    switch (errno) {
      case EINTR:
      case ECONNRESET:  // Reported once, by a peer that left something unread; what it sent comes.
        continue;
      case EAGAIN:
        return {};
      default:
        return {.kind = LifelineKind::broken};
    }
  }
}

void wait_lifeline(int fd, int also) noexcept {
  const KeepErrno keep;
  // poll() skips a negative descriptor.
  pollfd entries[2] = {{.fd = fd, .events = POLLIN, .revents = 0},
                       {.fd = also, .events = POLLIN, .revents = 0}};
  while (poll(entries, 2, -1) < 0 && errno == EINTR) {
  }
}

}  // namespace strata::ipc
