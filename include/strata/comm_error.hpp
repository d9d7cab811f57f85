// CommError: ranks of a domain that do not agree, or that are gone. BringUpFailed: ranks that did
// not find each other.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "strata/error.hpp"

namespace strata {

class CommError : public Error {
 public:
  enum class Cause : std::uint8_t {
    mismatch,   ///< The ranks called different things; the domain can be used further.
    rank_left,  ///< A rank gave up in the middle, or has died; its channels are broken.
    misuse,     ///< A call that can't work, whatever the others do.
  };
  CommError(Cause cause, const std::string& message) : Error(message), cause_(cause) {}
  [[nodiscard]] Cause cause() const noexcept { return cause_; }

 private:
  Cause cause_;
};

/// A communicator could not be brought up. All its ranks have been told and none is left in it; it
/// can be tried again at once.
class BringUpFailed : public Error {
 public:
  enum class Step : std::uint8_t { load_library, root_info, init, barrier, attach, destroy };
  BringUpFailed(std::uint32_t rank, Step step, const std::string& message)
      : Error(message), rank_(rank), step_(step) {}
  /// The rank that failed first, died or did not come through in time.
  [[nodiscard]] std::uint32_t rank() const noexcept { return rank_; }
  [[nodiscard]] Step step() const noexcept { return step_; }

 private:
  std::uint32_t rank_;
  Step step_;
};

/// "root_info", ...
[[nodiscard]] std::string_view name_of(BringUpFailed::Step step) noexcept;

}  // namespace strata
