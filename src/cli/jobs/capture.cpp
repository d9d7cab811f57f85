#include "cli/jobs/capture.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "base/duration_text.hpp"
#include "cli/jobs/file_text.hpp"
#include "cli/leftovers.hpp"
#include "cli/program_start.hpp"
#include "cli/program_watch.hpp"
#include "diag/report_text.hpp"
#include "diag/tree_report.hpp"
#include "os/system_error.hpp"
#include "strata/error.hpp"

namespace strata::cli::jobs {
namespace {

using namespace std::chrono_literals;

/// Reads until the end of the file. False at the deadline.
bool read_all(int fd, os::Deadline deadline, std::string& text) {
  std::array<char, 64 << 10> bytes;
  for (;;) {
    pollfd wait{.fd = fd, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&wait, 1, deadline.poll_timeout_ms());
    if (ready == 0 && deadline.passed()) return false;
    if (ready <= 0) continue;
    const ssize_t got = ::read(fd, bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) os::throw_errno("read what a command writes");
    if (got == 0) return true;
    text.append(bytes.data(), static_cast<std::size_t>(got));
  }
}

std::vector<os::SpawnOptions::Descriptor> descriptors_for(int nothing, int rest, int pipe, int fd) {
  std::vector<os::SpawnOptions::Descriptor> descriptors = {
      {nothing, STDIN_FILENO}, {rest, STDOUT_FILENO}, {rest, STDERR_FILENO}};
  std::erase_if(descriptors, [&](const auto& descriptor) { return descriptor.to == fd; });
  descriptors.push_back({pipe, fd});
  return descriptors;
}

}  // namespace

Captured capture(const CaptureOptions& options) {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) os::throw_errno("make a pipe for what a command writes");
  const os::UniqueFd read_end(ends[0]);
  os::UniqueFd write_end(ends[1]);
  const os::UniqueFd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const os::UniqueFd rest = make_unnamed_file();
  const os::Deadline deadline = os::Deadline::after(options.limit);
  os::ChildProcess program = start_program(
      options.command, options.environment,
      descriptors_for(nothing.get(), rest.get(), write_end.get(), options.fd), Group::ours);
  write_end.reset();
  Captured captured;
  const bool all = read_all(read_end.get(), deadline, captured.text);
  const auto status = all ? program.wait(deadline) : std::nullopt;
  if (!status) {
    const diag::TreeReport report = diag::collect_below(::getpid(), {});
    end_leftovers(1s, [] { return false; });
    throw DeadlineExceeded(fmt::format("'{}' had not ended after {}\n{}", options.command.front(),
                                       base::duration_text(options.limit), diag::to_text(report)));
  }
  end_leftovers(1s, [] { return false; });
  captured.rest = read_file(rest.get());
  captured.exit_code = exit_code_of(*status);
  return captured;
}

}  // namespace strata::cli::jobs
