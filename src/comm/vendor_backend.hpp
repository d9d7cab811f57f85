// VendorBackend: a communicator of a vendor's library.
//
// Thread safety: as Backend.
#pragma once

#include <memory>
#include <string>

#include "comm/backend.hpp"

namespace strata::comm {

/// Loads the library, which stays loaded until the process ends. Throws Error.
[[nodiscard]] std::unique_ptr<Backend> make_vendor_backend(const std::string& library);

}  // namespace strata::comm
