// Packets of the control channel: an object of bounded depth, or broken with a reason; and no
// descriptor is left open.
//
// The first byte says what comes with the packet: its lowest two bits how many descriptors of
// something else, bit 7 that the rest of the input is the text of a long message.

#include <fcntl.h>

#include <nlohmann/json.hpp>

#include "fuzz_target.hpp"
#include "ipc/control_channel.hpp"
#include "ipc/control_packet.hpp"
#include "ipc/sealed_text.hpp"

using namespace strata;
using strata::fuzz::require;

namespace {

int depth_of(const nlohmann::json& value) {
  if (!value.is_structured()) return 0;
  int depth = 0;
  for (const nlohmann::json& part : value)
    depth = std::max(depth, depth_of(part));
  return depth + 1;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::uint8_t form = data[0];
  std::string packet(reinterpret_cast<const char*>(data + 1), size - 1);
  std::vector<os::UniqueFd> descriptors;
  if ((form & 0x80U) != 0) {
    descriptors.push_back(ipc::make_sealed_text(packet));
    ipc::ControlHeader header;
    header.kind = ipc::ControlHeader::memfd_text;
    header.descriptors = form & 3U;
    header.length = packet.size();
    packet.assign(reinterpret_cast<const char*>(&header), sizeof header);
  }
  for (unsigned i = 0; i < (form & 3U); ++i)
    descriptors.emplace_back(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int first = descriptors.empty() ? -1 : descriptors.front().get();
  {
    // On the heap and of the exact size, for the sanitizers.
    const std::vector<std::byte> exact(
        reinterpret_cast<const std::byte*>(packet.data()),
        reinterpret_cast<const std::byte*>(packet.data()) + packet.size());
    auto received = ipc::decode_control_packet(exact, std::move(descriptors), 1 << 20);
    if (auto* message = std::get_if<ipc::Message>(&received)) {
      require(message->body().is_object(), "a message is an object");
      require(depth_of(message->body()) <= ipc::ControlChannel::kMaxDepth, "its depth is bounded");
      require(message->descriptors().size() == (form & 3U), "all descriptors are there");
    } else {
      const auto* broken = std::get_if<ipc::ControlChannel::Broken>(&received);
      require(broken != nullptr && !broken->reason.empty(), "what is broken has a reason");
    }
  }
  require(first < 0 || fcntl(first, F_GETFD) < 0, "descriptors are closed");
  return 0;
}
