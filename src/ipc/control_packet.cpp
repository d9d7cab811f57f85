#include "ipc/control_packet.hpp"

#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "ipc/control_channel.hpp"
#include "ipc/sealed_text.hpp"

namespace strata::ipc {
namespace {

using Received = ControlChannel::Received;
using Broken = ControlChannel::Broken;

/// Whether the brackets of the text, outside its strings, are nested deeper than allowed. Known
/// before it is parsed, as much else that is done with JSON is recursive.
bool too_deep(std::string_view text) noexcept {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
      continue;
    }
    if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > ControlChannel::kMaxDepth) return true;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

Received parse(std::string_view text, std::vector<os::UniqueFd> descriptors) {
  if (too_deep(text)) return Broken{"a message is nested too deep"};
  nlohmann::json body = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (body.is_discarded()) return Broken{"a message is not JSON"};
  if (!body.is_object()) return Broken{"a message is not a JSON object"};
  return Message(std::move(body), std::move(descriptors));
}

}  // namespace

Received decode_control_packet(std::span<const std::byte> bytes,
                               std::vector<os::UniqueFd> descriptors, std::size_t message_limit) {
  ControlHeader header;
  if (bytes.size() < sizeof header) return Broken{"a packet is shorter than its header"};
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != ControlHeader::kMagic) return Broken{"a packet does not begin as ours do"};
  if (header.version != ControlHeader::kVersion) {
    return Broken{"a packet is of version " + std::to_string(header.version) + ", and this is " +
                  std::to_string(ControlHeader::kVersion)};
  }
  if (header.kind > ControlHeader::memfd_text) return Broken{"a packet is of an unknown kind"};
  const bool long_text = header.kind == ControlHeader::memfd_text;
  if (header.descriptors > ControlChannel::kMaxDescriptors) {
    return Broken{"a message has too many descriptors"};
  }
  const std::size_t expected = std::size_t{header.descriptors} + (long_text ? 1 : 0);
  if (descriptors.size() != expected) {
    return Broken{"a message came with " + std::to_string(descriptors.size()) +
                  " descriptors, not " + std::to_string(expected)};
  }
  if (header.length > message_limit) {
    return Broken{"a message has " + std::to_string(header.length) + " bytes, and " +
                  std::to_string(message_limit) + " are allowed"};
  }
  const auto rest = bytes.subspan(sizeof header);
  if (!long_text) {
    if (rest.size() != header.length) return Broken{"a packet is not as long as its header says"};
    return parse({reinterpret_cast<const char*>(rest.data()), rest.size()}, std::move(descriptors));
  }
  if (!rest.empty()) return Broken{"a packet is not as long as its header says"};
  const os::UniqueFd body = std::move(descriptors.front());
  descriptors.erase(descriptors.begin());
  const SealedText sealed = read_sealed_text(body.get(), message_limit);
  if (!sealed.text) return Broken{"the text of a long message can't be read: " + sealed.problem};
  if (sealed.text->size() != header.length) {
    return Broken{"the text of a long message is not as long as its header says"};
  }
  return parse(*sealed.text, std::move(descriptors));
}

}  // namespace strata::ipc
