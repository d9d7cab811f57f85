#include "trace/state_request.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <new>
#include <utility>

#include "os/memfd.hpp"
#include "os/procfs.hpp"
#include "os/unique_fd.hpp"
#include "strata/error.hpp"
#include "trace/text_words.hpp"

namespace strata::trace {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

/// The state of that very process, if that is what the descriptor is.
std::optional<os::Mapping> state_of(pid_t pid, const std::string& path) {
  const os::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return std::nullopt;
  try {
    (void)os::require_sealed(fd.get(), sizeof(StateLayout));
    os::Mapping mapping = os::Mapping::shared_read_only(fd.get(), sizeof(StateLayout));
    const auto& layout = *std::launder(reinterpret_cast<const StateLayout*>(mapping.data()));
    const bool ours = layout.magic.load(std::memory_order_acquire) == kStateMagic &&
                      layout.version.load(kRelaxed) == kStateVersion &&
                      layout.layout_bytes.load(kRelaxed) == sizeof(StateLayout);
    // A process that was forked has the descriptor too.
    const auto number = static_cast<std::uint64_t>(os::own_number_of(pid));
    if (!ours || number == 0 || layout.pid.load(kRelaxed) != number) return std::nullopt;
    return mapping;
  } catch (const Error&) {
    return std::nullopt;  // Somebody else's memory.
  }
}

bool write_request(pid_t pid, const StateLayout& layout) {
  const std::string path = fmt::format("/proc/{}/fd/{}", pid, layout.pipe_fd.load(kRelaxed));
  struct stat before = {};
  // Looked at first: opening what is no pipe might do something.
  if (::stat(path.c_str(), &before) != 0 || !S_ISFIFO(before.st_mode)) return false;
  // For reading too: a write to a pipe that nobody reads any more would end us.
  const os::UniqueFd pipe(::open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  struct stat opened = {};
  if (!pipe || ::fstat(pipe.get(), &opened) != 0) return false;
  if (!S_ISFIFO(opened.st_mode) || opened.st_ino != layout.pipe_inode.load(kRelaxed)) return false;
  const char byte = 1;
  // A pipe that is full has been asked often enough.
  return ::write(pipe.get(), &byte, 1) == 1 || errno == EAGAIN;
}

}  // namespace

StateRequest::StateRequest(os::Mapping mapping) noexcept
    : mapping_(std::move(mapping)),
      layout_(std::launder(reinterpret_cast<const StateLayout*>(mapping_.data()))),
      answers_before_(layout_->answers.load(kRelaxed)) {}

std::optional<StateRequest> StateRequest::ask(pid_t pid) noexcept {
  try {
    const std::string begin = std::string("/memfd:") + kStateName + " ";
    for (const os::OpenDescriptor& open : os::open_descriptors(pid)) {
      if (!open.target.starts_with(begin)) continue;
      auto mapping = state_of(pid, fmt::format("/proc/{}/fd/{}", pid, open.fd));
      if (!mapping) continue;
      StateRequest request(std::move(*mapping));
      if (!write_request(pid, *request.layout_)) return std::nullopt;
      return request;
    }
  } catch (const std::exception&) {
    // Without memory to ask.
  }
  return std::nullopt;
}

std::optional<std::string> StateRequest::answer() const {
  std::uint64_t answers = 0;
  std::string text;
  const bool whole = read_version(layout_->sequence, [&] {
    answers = layout_->answers.load(kRelaxed);
    if (answers != answers_before_) text = load_text(layout_->text);
  });
  if (!whole || answers == answers_before_) return std::nullopt;
  return text;
}

}  // namespace strata::trace
