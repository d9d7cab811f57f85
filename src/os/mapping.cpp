#include "os/mapping.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <string>

#include "base/fault_point.hpp"
#include "os/system_error.hpp"

namespace strata::os {
namespace {

int flags_of(Mapping::Populate populate) noexcept {
  return populate == Mapping::Populate::yes ? MAP_POPULATE : 0;
}

}  // namespace

Mapping::~Mapping() {
  if (data_ == nullptr) return;
  const int saved = errno;
  ::munmap(data_, size_);
  errno = saved;
}

Mapping Mapping::map(std::size_t bytes, int protection, int flags, int fd, std::size_t offset) {
  void* data = MAP_FAILED;
  if (const int error = base::fault_error("os.mapping"); error != 0) {
    errno = error;
  } else {
    data = ::mmap(nullptr, bytes, protection, flags, fd, static_cast<off_t>(offset));
  }
  if (data == MAP_FAILED) throw_errno("can't map " + std::to_string(bytes) + " bytes of memory");
  return Mapping(static_cast<std::byte*>(data), bytes);
}

Mapping Mapping::shared(int fd, std::size_t bytes, Populate populate, std::size_t offset) {
  return map(bytes, PROT_READ | PROT_WRITE, MAP_SHARED | flags_of(populate), fd, offset);
}

Mapping Mapping::shared_read_only(int fd, std::size_t bytes) {
  return map(bytes, PROT_READ, MAP_SHARED, fd, 0);
}

Mapping Mapping::anonymous(std::size_t bytes, Populate populate) {
  return map(bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags_of(populate), -1,
             0);
}

}  // namespace strata::os
