// Completion frames: what passes the check is within its bounds.

#include <cstring>

#include "fuzz_target.hpp"
#include "ipc/frame.hpp"

using namespace strata;
using strata::fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ipc::CompletionFrame frame;
  if (size < sizeof frame) return 0;
  std::memcpy(&frame, data, sizeof frame);
  if (ipc::check_completion(frame) != nullptr) return 0;
  require(ipc::name_of(frame.status) != "unknown", "its status has a name");
  require(frame.inline_value().size() <= ipc::CompletionFrame::kInlineBytes, "its value is short");
  require(frame.has_value != 0 || frame.inline_value().empty(), "its value is announced");
  return 0;
}
