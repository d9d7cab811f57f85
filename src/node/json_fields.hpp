// Reading and writing JSON objects whose form is agreed on: every field is there, has its type and
// lies in its range, or InvalidArgument says which is not. Texts are any bytes.
//
// Thread safety: plain values.
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace strata::node {

/// JSON texts are UTF-8; ours may be anything (a path, what a library threw). One that is not UTF-8
/// goes as {"bytes": text} with a character U+0000 to U+00FF for each byte.
[[nodiscard]] nlohmann::json text_to_json(std::string_view text);

/// An object that is being read. `what` says what it is, for messages; both must outlive this.
class JsonFields {
 public:
  /// Throws InvalidArgument unless `json` is an object.
  JsonFields(const nlohmann::json& json, std::string_view what);

  /// The field itself. Throws InvalidArgument if it is missing.
  [[nodiscard]] const nlohmann::json& at(const char* name) const;
  [[nodiscard]] bool has(const char* name) const { return json_.contains(name); }
  [[nodiscard]] std::string text(const char* name) const;
  [[nodiscard]] bool boolean(const char* name) const;
  [[nodiscard]] std::int64_t integer(const char* name, std::int64_t low, std::int64_t high) const;
  [[nodiscard]] std::uint64_t unsigned_integer(const char* name,
                                               std::uint64_t high = UINT64_MAX) const;
  [[nodiscard]] std::uint32_t number32(const char* name) const {
    return static_cast<std::uint32_t>(unsigned_integer(name, UINT32_MAX));
  }
  [[nodiscard]] std::chrono::milliseconds milliseconds(const char* name) const;
  [[nodiscard]] const nlohmann::json& array(const char* name) const;
  [[nodiscard]] std::vector<std::string> texts(const char* name) const;

  /// Throws InvalidArgument: field `name` is not `wanted`.
  [[noreturn]] void refuse(const char* name, std::string_view wanted) const;

 private:
  const nlohmann::json& json_;
  std::string_view what_;
};

}  // namespace strata::node
