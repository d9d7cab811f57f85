// Backend: the communication library that brings ranks together, as far as domains need it.
//
// One object is one rank's place in one communicator. `shm` is for chips of this host: their
// windows lie in memory that all have mapped, so there is nothing to do. A vendor's library is
// loaded (vendor_interface.h).
//
// Calls may block until the other ranks make theirs, or crash: whoever calls them is in a process
// of its own that can be ended.
//
// Thread safety: one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace strata::comm {

class Backend {
 public:
  virtual ~Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  /// Rank 0: what all ranks need to find each other.
  [[nodiscard]] virtual std::string root_info() = 0;
  /// Joins the others. Once.
  virtual void init(std::string_view root_info, std::uint32_t rank, std::uint32_t size) = 0;
  virtual void barrier() = 0;
  /// Leaves. The destructor does not: where a crash has taken the others it could block.
  virtual void destroy() = 0;

 protected:
  Backend() = default;
};

/// WorkerOptions::communication, taken apart.
struct BackendChoice {
  std::string vendor_library = {};  ///< Absolute, or a bare file name; empty: shm.
  [[nodiscard]] std::string to_text() const;
  /// Whether leaving a communicator does anything that the end of the process would not do.
  [[nodiscard]] bool leaves_something() const noexcept { return !vendor_library.empty(); }
};
/// Throws InvalidArgument unless it is "shm" or "vendor:PATH" where PATH, if it has a slash, can be
/// read.
[[nodiscard]] BackendChoice parse_backend(std::string_view text);

/// Loads the library, if need be. Throws Error that says why that can't be.
[[nodiscard]] std::unique_ptr<Backend> make_backend(const BackendChoice& choice);

}  // namespace strata::comm
