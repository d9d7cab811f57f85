#include "ipc/sealed_text.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "os/system_error.hpp"

namespace strata::ipc {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

}  // namespace

os::UniqueFd make_sealed_text(std::string_view text) {
  os::UniqueFd fd(memfd_create("strata-text", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) os::throw_errno("can't make a file in memory for a text");
  while (!text.empty()) {
    const ssize_t written = write(fd.get(), text.data(), text.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      os::throw_errno("can't write a text of " + std::to_string(text.size()) +
                      " bytes to a file in memory");
    }
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  if (fcntl(fd.get(), F_ADD_SEALS, kSeals | F_SEAL_SEAL) != 0) {
    os::throw_errno("can't seal a file in memory");
  }
  return fd;
}

SealedText read_sealed_text(int fd, std::size_t limit) {
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    return {.text = {}, .problem = "it is not a sealed file in memory"};
  }
  struct stat status {};
  if (fstat(fd, &status) != 0 || status.st_size < 0) {
    return {.text = {}, .problem = "its size is unknown"};
  }
  // Nothing of this can change any more: it is sealed.
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size > limit) {
    return {.text = {},
            .problem = "it has " + std::to_string(size) + " bytes, and " + std::to_string(limit) +
                       " are allowed"};
  }
  std::string text(size, '\0');
  std::size_t at = 0;
  while (at < size) {
    const ssize_t count = pread(fd, text.data() + at, size - at, static_cast<off_t>(at));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return {.text = {}, .problem = "it can't be read"};
    at += static_cast<std::size_t>(count);
  }
  return {.text = std::move(text)};
}

}  // namespace strata::ipc
