#include "trace/request_door.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <exception>
#include <new>
#include <string>
#include <utility>

#include "os/memfd.hpp"
#include "os/procfs.hpp"
#include "os/system_error.hpp"
#include "strata/error.hpp"

namespace strata::trace {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

/// The memory of that very process; nothing if it has no such door, or may not be looked at.
std::optional<os::Mapping> find_door(pid_t pid, const DoorKind& kind) {
  const std::string begin = std::string("/memfd:") + kind.name + " ";
  for (const os::OpenDescriptor& each : os::open_descriptors(pid)) {
    if (!each.target.starts_with(begin)) continue;
    const os::UniqueFd fd(
        ::open(fmt::format("/proc/{}/fd/{}", pid, each.fd).c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd) continue;
    try {
      (void)os::require_sealed(fd.get(), kind.layout_bytes);
      os::Mapping mapping = os::Mapping::shared_read_only(fd.get(), kind.layout_bytes);
      const auto& words = *std::launder(reinterpret_cast<const DoorWords*>(mapping.data()));
      const bool ours = words.magic.load(std::memory_order_acquire) == kind.magic &&
                        words.version.load(kRelaxed) == kind.version &&
                        words.layout_bytes.load(kRelaxed) == kind.layout_bytes;
      // A process that was forked has the descriptor too.
      const auto number = static_cast<std::uint64_t>(os::own_number_of(pid));
      if (ours && number != 0 && words.pid.load(kRelaxed) == number) return mapping;
    } catch (const Error&) {
      // Somebody else's memory.
    }
  }
  return std::nullopt;
}

/// Whether the process will be woken by the request.
bool write_request(pid_t pid, const DoorWords& door) {
  const std::string path = fmt::format("/proc/{}/fd/{}", pid, door.pipe_fd.load(kRelaxed));
  struct stat before = {};
  // Looked at first: opening what is no pipe might do something.
  if (::stat(path.c_str(), &before) != 0 || !S_ISFIFO(before.st_mode)) return false;
  // For reading too: a write to a pipe that nobody reads any more would end us.
  const os::UniqueFd pipe(::open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  struct stat opened = {};
  if (!pipe || ::fstat(pipe.get(), &opened) != 0) return false;
  if (!S_ISFIFO(opened.st_mode) || opened.st_ino != door.pipe_inode.load(kRelaxed)) return false;
  const char byte = 1;
  // A pipe that is full has been asked often enough.
  return ::write(pipe.get(), &byte, 1) == 1 || errno == EAGAIN;
}

}  // namespace

RequestDoor RequestDoor::open(const DoorKind& kind) {
  RequestDoor door;
  door.memory_ = os::make_memfd(kind.name, kind.layout_bytes);
  door.mapping_ = os::Mapping::shared(door.memory_.get(), kind.layout_bytes);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) os::throw_errno("making a pipe");
  door.read_end_ = os::UniqueFd(ends[0]);
  door.write_end_ = os::UniqueFd(ends[1]);
  struct stat pipe = {};
  if (::fstat(door.read_end_.get(), &pipe) != 0) os::throw_errno("looking at a pipe");
  // Relaxed up to the magic number, which is what a reader looks at first. The file is all zeros at
  // first, which is what every word begins with.
  auto& words = *std::launder(reinterpret_cast<DoorWords*>(door.data()));
  words.pid.store(static_cast<std::uint64_t>(::getpid()), kRelaxed);
  words.pipe_inode.store(pipe.st_ino, kRelaxed);
  words.pipe_fd.store(static_cast<std::uint32_t>(door.write_end_.get()), kRelaxed);
  words.layout_bytes.store(static_cast<std::uint32_t>(kind.layout_bytes), kRelaxed);
  words.version.store(kind.version, kRelaxed);
  words.magic.store(kind.magic, std::memory_order_release);
  return door;
}

bool RequestDoor::take_requests() const noexcept {
  std::array<char, 256> requests;
  bool any = false;
  while (::read(read_end_.get(), requests.data(), requests.size()) > 0)
    any = true;
  return any;
}

DoorRequest::DoorRequest(os::Mapping mapping) noexcept
    : mapping_(std::move(mapping)), answers_before_(words().answers.load(kRelaxed)) {}

std::optional<DoorRequest> DoorRequest::ask(pid_t pid, const DoorKind& kind) noexcept {
  try {
    auto mapping = find_door(pid, kind);
    if (!mapping) return std::nullopt;
    DoorRequest request(std::move(*mapping));
    if (write_request(pid, request.words())) return request;
  } catch (const std::exception&) {
    // Without memory to ask.
  }
  return std::nullopt;
}

}  // namespace strata::trace
