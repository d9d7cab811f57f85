#include "comm/vendor_backend.hpp"

#include <dlfcn.h>

#include <cstring>
#include <string_view>
#include <utility>

#include "comm/vendor_interface.h"
#include "strata/error.hpp"

namespace strata::comm {
namespace {

std::string loader_error() {
  const char* const text = dlerror();
  return text == nullptr ? "the loader does not say why" : text;
}

/// The functions of one library.
class VendorLibrary {
 public:
  explicit VendorLibrary(std::string path) : path_(std::move(path)) {
    void* const handle = dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) throw Error("can't load library " + path_ + ": " + loader_error());
    decltype(&strata_vendor_version) version = nullptr;
    find(handle, "strata_vendor_version", version);
    if (version() != STRATA_VENDOR_VERSION) {
      throw Error("library " + path_ + " has version " + std::to_string(version()) +
                  " of the interface; this Strata needs " + std::to_string(STRATA_VENDOR_VERSION));
    }
    find(handle, "strata_vendor_root_info", root_info);
    find(handle, "strata_vendor_init", init);
    find(handle, "strata_vendor_barrier", barrier);
    find(handle, "strata_vendor_destroy", destroy);
    find(handle, "strata_vendor_error_text", error_text);
  }

  void check(int result, const char* call) const {
    if (result == 0) return;
    const char* const text = error_text(result);
    throw Error(std::string(call) + " of " + path_ + " returned " + std::to_string(result) + ": " +
                (text == nullptr ? "unknown" : text));
  }

  decltype(&strata_vendor_root_info) root_info = nullptr;
  decltype(&strata_vendor_init) init = nullptr;
  decltype(&strata_vendor_barrier) barrier = nullptr;
  decltype(&strata_vendor_destroy) destroy = nullptr;
  decltype(&strata_vendor_error_text) error_text = nullptr;

 private:
  template <class Function>
  void find(void* handle, const char* name, Function& function) const {
    dlerror();
    function = reinterpret_cast<Function>(dlsym(handle, name));
    if (function != nullptr) return;
    throw Error("library " + path_ + " has no function " + name +
                ", which a communication library needs (vendor_interface.h): " + loader_error());
  }

  std::string path_;
};

class VendorBackend final : public Backend {
 public:
  explicit VendorBackend(const std::string& library) : library_(library) {}

  std::string root_info() override {
    strata_vendor_root root = {};
    library_.check(library_.root_info(&root), "strata_vendor_root_info");
    if (root.bytes > sizeof root.data) {
      throw Error("strata_vendor_root_info made " + std::to_string(root.bytes) +
                  " bytes of root information, more than there is room for");
    }
    return {reinterpret_cast<const char*>(root.data), root.bytes};
  }
  void init(std::string_view root_info, std::uint32_t rank, std::uint32_t size) override {
    strata_vendor_root root = {};
    if (root_info.size() > sizeof root.data) throw Error("root information of another library");
    root.bytes = static_cast<std::uint32_t>(root_info.size());
    std::memcpy(root.data, root_info.data(), root_info.size());
    library_.check(library_.init(&root, rank, size, &comm_), "strata_vendor_init");
  }
  void barrier() override { library_.check(library_.barrier(comm_), "strata_vendor_barrier"); }
  void destroy() override {
    if (comm_ == nullptr) return;
    library_.check(library_.destroy(std::exchange(comm_, nullptr)), "strata_vendor_destroy");
  }

 private:
  VendorLibrary library_;
  strata_vendor_comm* comm_ = nullptr;
};

}  // namespace

std::unique_ptr<Backend> make_vendor_backend(const std::string& library) {
  return std::make_unique<VendorBackend>(library);
}

}  // namespace strata::comm
