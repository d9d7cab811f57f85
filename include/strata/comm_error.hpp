// CommError: ranks of a domain that do not agree, or that are gone.
#pragma once

#include <cstdint>
#include <string>

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

}  // namespace strata
