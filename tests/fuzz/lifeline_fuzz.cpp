// Packets of the lifeline: of a known kind, with a name within its field, or broken.

#include "fuzz_target.hpp"
#include "ipc/lifeline.hpp"

using namespace strata;
using strata::fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const ipc::LifelineMessage message =
      ipc::decode_lifeline(reinterpret_cast<const std::byte*>(data), size);
  require(message.kind == ipc::LifelineKind::query || message.kind == ipc::LifelineKind::answer ||
              message.kind == ipc::LifelineKind::stop || message.kind == ipc::LifelineKind::broken,
          "it is a message or broken");
  require(message.stop <= ipc::StopKind::now, "its kind of stop is known");
  require(message.answer.name_here().size() <= ipc::LifelineAnswer::kNameBytes, "its name is here");
  return 0;
}
