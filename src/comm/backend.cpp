#include "comm/backend.hpp"

#include <unistd.h>

#include <filesystem>

#include "comm/vendor_backend.hpp"
#include "strata/error.hpp"

namespace strata::comm {
namespace {

constexpr std::string_view kShm = "shm";
constexpr std::string_view kVendor = "vendor:";

/// What ranks on one host need beyond their windows: nothing.
class ShmBackend final : public Backend {
 public:
  std::string root_info() override { return {}; }
  void init(std::string_view, std::uint32_t, std::uint32_t) override {}
  void barrier() override {}
  void destroy() override {}
};

}  // namespace

std::string BackendChoice::to_text() const {
  return vendor_library.empty() ? std::string(kShm) : std::string(kVendor) + vendor_library;
}

BackendChoice parse_backend(std::string_view text) {
  if (text == kShm) return {};
  const std::string option = "communication is '" + std::string(text) + "'";
  if (!text.starts_with(kVendor) || text.size() == kVendor.size()) {
    throw InvalidArgument(option +
                          "; it must be 'shm', or 'vendor:' and the path of a shared library");
  }
  std::string path(text.substr(kVendor.size()));
  if (path.find('/') == std::string::npos) return {.vendor_library = std::move(path)};
  path = std::filesystem::absolute(path).lexically_normal().string();
  if (::access(path.c_str(), R_OK) != 0) {
    throw InvalidArgument(option + ", and there is no file " + path + " that can be read");
  }
  return {.vendor_library = std::move(path)};
}

std::unique_ptr<Backend> make_backend(const BackendChoice& choice) {
  if (choice.vendor_library.empty()) return std::make_unique<ShmBackend>();
  return make_vendor_backend(choice.vendor_library);
}

}  // namespace strata::comm
