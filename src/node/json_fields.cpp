#include "node/json_fields.hpp"

#include <cstddef>
#include <optional>

#include "strata/error.hpp"

namespace strata::node {
namespace {

/// Length of the UTF-8 sequence at the beginning of `text`; 0 if it is none. Follows table 3-7 of
/// the Unicode standard: no overlong forms, no surrogates.
std::size_t utf8_sequence(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xC2 && first <= 0xDF   ? 2
                             : first >= 0xE0 && first <= 0xEF ? 3
                             : first >= 0xF0 && first <= 0xF4 ? 4
                                                              : 0;
  if (length == 0 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if (byte(i) < 0x80 || byte(i) > 0xBF) return 0;
  }
  const unsigned char second = byte(1);
  if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ||
      (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F)) {
    return 0;
  }
  return length;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = utf8_sequence(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

/// The bytes of {"bytes": text}; nothing if the text has another character than U+0000 to U+00FF.
std::optional<std::string> bytes_of(const std::string& text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto first = static_cast<unsigned char>(text[i]);
    if (first < 0x80) {
      bytes += text[i];
      continue;
    }
    if ((first != 0xC2 && first != 0xC3) || i + 1 == text.size()) return std::nullopt;
    const auto second = static_cast<unsigned char>(text[++i]);
    bytes += static_cast<char>((first & 0x03U) << 6U | (second & 0x3FU));
  }
  return bytes;
}

std::optional<std::string> text_from(const nlohmann::json& json) {
  if (json.is_string()) return json.get<std::string>();
  if (!json.is_object() || json.size() != 1) return std::nullopt;
  const auto bytes = json.find("bytes");
  if (bytes == json.end() || !bytes->is_string()) return std::nullopt;
  return bytes_of(bytes->get_ref<const std::string&>());
}

}  // namespace

nlohmann::json text_to_json(std::string_view text) {
  if (is_utf8(text)) return std::string(text);
  std::string characters;
  characters.reserve(text.size() * 2);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80) {
      characters += c;
    } else {
      characters += static_cast<char>(0xC0U | byte >> 6U);
      characters += static_cast<char>(0x80U | (byte & 0x3FU));
    }
  }
  auto json = nlohmann::json::object();
  json["bytes"] = std::move(characters);
  return json;
}

JsonFields::JsonFields(const nlohmann::json& json, std::string_view what)
    : json_(json), what_(what) {
  if (!json.is_object()) {
    throw InvalidArgument(std::string(what) + " is " + json.type_name() +
                          ", where a JSON object is expected");
  }
}

void JsonFields::refuse(const char* name, std::string_view wanted) const {
  throw InvalidArgument(std::string(what_) + ": field \"" + name + "\" is not " +
                        std::string(wanted));
}

const nlohmann::json& JsonFields::at(const char* name) const {
  const auto found = json_.find(name);
  if (found == json_.end()) {
    throw InvalidArgument(std::string(what_) + ": field \"" + name + "\" is missing");
  }
  return *found;
}

std::string JsonFields::text(const char* name) const {
  if (auto text = text_from(at(name))) return *std::move(text);
  refuse(name, "a text");
}

bool JsonFields::boolean(const char* name) const {
  const auto& json = at(name);
  if (!json.is_boolean()) refuse(name, "true or false");
  return json.get<bool>();
}

std::int64_t JsonFields::integer(const char* name, std::int64_t low, std::int64_t high) const {
  const auto& json = at(name);
  if (json.is_number_unsigned()) {
    const auto value = json.get<std::uint64_t>();
    if (value <= INT64_MAX && static_cast<std::int64_t>(value) >= low &&
        static_cast<std::int64_t>(value) <= high) {
      return static_cast<std::int64_t>(value);
    }
  } else if (json.is_number_integer()) {
    const auto value = json.get<std::int64_t>();
    if (value >= low && value <= high) return value;
  }
  refuse(name, "an integer from " + std::to_string(low) + " to " + std::to_string(high));
}

std::uint64_t JsonFields::unsigned_integer(const char* name, std::uint64_t high) const {
  const auto& json = at(name);
  // An integer that was parsed is unsigned where it can be; one that was assigned is as assigned.
  if (json.is_number_unsigned()) {
    const auto value = json.get<std::uint64_t>();
    if (value <= high) return value;
  } else if (json.is_number_integer()) {
    const auto value = json.get<std::int64_t>();
    if (value >= 0 && static_cast<std::uint64_t>(value) <= high) {
      return static_cast<std::uint64_t>(value);
    }
  }
  refuse(name, "an integer from 0 to " + std::to_string(high));
}

std::chrono::milliseconds JsonFields::milliseconds(const char* name) const {
  return std::chrono::milliseconds(integer(name, INT64_MIN, INT64_MAX));
}

const nlohmann::json& JsonFields::array(const char* name) const {
  const auto& json = at(name);
  if (!json.is_array()) refuse(name, "a list");
  return json;
}

std::vector<std::string> JsonFields::texts(const char* name) const {
  std::vector<std::string> texts;
  for (const auto& element : array(name)) {
    auto text = text_from(element);
    if (!text) refuse(name, "a list of texts");
    texts.push_back(*std::move(text));
  }
  return texts;
}

}  // namespace strata::node
