#include "cli/jobs/file_text.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "os/memfd.hpp"
#include "os/system_error.hpp"
#include "strata/error.hpp"

namespace strata::cli::jobs {

os::UniqueFd make_unnamed_file() {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(error);
  if (!error) {
    os::UniqueFd file(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    if (file) return file;
  }
  return os::make_memfd("strata-test", 0);
}

std::string read_file(int fd) {
  std::string text;
  std::array<char, 64 << 10> bytes;
  for (;;) {
    const ssize_t got = ::pread(fd, bytes.data(), bytes.size(), static_cast<off_t>(text.size()));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) os::throw_errno("read a file");
    if (got == 0) return text;
    text.append(bytes.data(), static_cast<std::size_t>(got));
  }
}

void write_file(int fd, const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t got = ::write(fd, text.data() + done, text.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) {
      // Somebody has made it non-blocking, for whom we share it with.
      pollfd wait{.fd = fd, .events = POLLOUT, .revents = 0};
      (void)::poll(&wait, 1, -1);
      continue;
    }
    if (got < 0) os::throw_errno("write a file");
    done += static_cast<std::size_t>(got);
  }
}

std::string read_file(const std::string& path) {
  const os::UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) os::throw_errno("read '" + path + "'");
  return read_file(file.get());
}

void write_file(const std::string& path, const std::string& text) {
  const std::filesystem::path target(path);
  std::error_code error;
  // A device or a pipe is written to; a file is replaced, so that nobody sees half of it.
  const bool special =
      std::filesystem::exists(target, error) && !std::filesystem::is_regular_file(target, error);
  const std::string written = special ? path : path + ".new";
  const int flags = O_WRONLY | O_CLOEXEC | O_CREAT | (special ? 0 : O_TRUNC);
  const os::UniqueFd file(::open(written.c_str(), flags, 0666));
  if (!file) os::throw_errno("write '" + path + "'");
  int code = 0;
  try {
    write_file(file.get(), text);
    if (!special && ::rename(written.c_str(), path.c_str()) != 0) code = errno;
  } catch (const SystemError& why) {
    code = why.code();
  }
  if (code == 0) return;
  if (!special) (void)::unlink(written.c_str());
  throw SystemError("write '" + path + "'", code);
}

void outlive_file_size_limit() noexcept { (void)::signal(SIGXFSZ, SIG_IGN); }

}  // namespace strata::cli::jobs
