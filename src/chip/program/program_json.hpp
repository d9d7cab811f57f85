// StrictObject: a JSON object whose fields are all known, each of its type; what is wrong is said
// with the file and the field.
//
// Thread safety: plain values.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "strata/chip_program.hpp"

namespace strata::chip {

/// Parses a text. Throws ChipError (bad_program_file) that names `file`, also if a field is there
/// twice.
[[nodiscard]] nlohmann::json parse_strictly(std::string_view text, const std::string& file);

class StrictObject {
 public:
  /// `json` must outlive this. `field` is its place in the file, "kernels[2]"; empty for the whole.
  StrictObject(const nlohmann::json& json, std::string file, std::string field);

  [[nodiscard]] bool has(const char* name) const { return json_->contains(name); }
  /// A field that must be there; these throw unless it is and is a ...
  [[nodiscard]] const nlohmann::json& at(const char* name);
  [[nodiscard]] std::string text(const char* name);
  [[nodiscard]] std::string text_or(const char* name, const std::string& otherwise) {
    return has(name) ? text(name) : otherwise;
  }
  [[nodiscard]] bool boolean(const char* name);
  [[nodiscard]] const nlohmann::json& list(const char* name);
  /// Nothing if it is not there.
  [[nodiscard]] std::vector<std::string> texts(const char* name);
  [[nodiscard]] StrictObject object(const char* name);
  [[nodiscard]] std::vector<StrictObject> objects(const char* name);

  /// Throws if there is a field that nobody has asked for.
  void refuse_others() const;
  /// Throws: `problem` with field `name`.
  [[noreturn]] void refuse(std::string_view name, std::string_view problem) const;

 private:
  [[nodiscard]] std::string path_of(std::string_view name) const;

  const nlohmann::json* json_;
  std::string file_;
  std::string field_;
  std::set<std::string, std::less<>> asked_ = {};
};

/// As in program.json.
[[nodiscard]] ChipSignature signature_from(StrictObject object);
[[nodiscard]] nlohmann::json to_json(const ChipSignature& signature);
[[nodiscard]] CoreType core_from(StrictObject& object, const char* name);
[[nodiscard]] std::string_view name_of(CoreType core) noexcept;
[[nodiscard]] std::string_view name_of(ProgramSanitizer sanitizer) noexcept;

}  // namespace strata::chip
