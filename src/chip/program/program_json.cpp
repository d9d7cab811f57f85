#include "chip/program/program_json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/access_name.hpp"
#include "strata/chip_error.hpp"

namespace strata::chip {
namespace {

using nlohmann::json;

constexpr int kMaxRank = 64;

std::optional<DType> dtype_named(std::string_view name) {
  for (std::uint8_t i = 0; i < kDTypes; ++i) {
    if (strata::name_of(static_cast<DType>(i)) == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

std::string names_of_dtypes() {
  std::string names;
  for (std::uint8_t i = 0; i < kDTypes; ++i) {
    if (i > 0) names += ", ";
    names += strata::name_of(static_cast<DType>(i));
  }
  return names;
}

TensorParameter parameter_from(StrictObject& object) {
  TensorParameter parameter;
  parameter.name = object.text("name");
  const std::string access = object.text("access");
  const auto* const known = std::ranges::find(base::kAccesses, access, &base::name_of);
  if (known == base::kAccesses.end()) {
    object.refuse("access", fmt::format("is '{}'; it may be in, out or inout", access));
  }
  parameter.access = *known;
  if (object.has("dtype")) {
    const std::string name = object.text("dtype");
    parameter.dtype = dtype_named(name);
    if (!parameter.dtype) {
      object.refuse("dtype", fmt::format("is '{}'; it may be {}", name, names_of_dtypes()));
    }
  }
  if (object.has("rank")) {
    const json& rank = object.at("rank");
    if (!rank.is_number_integer() || rank < 0 || rank > kMaxRank) {
      object.refuse("rank", fmt::format("must be a whole number from 0 to {}", kMaxRank));
    }
    parameter.rank = rank.get<int>();
  }
  object.refuse_others();
  return parameter;
}

}  // namespace

json parse_strictly(std::string_view text, const std::string& file) {
  std::vector<std::set<std::string>> open;  // Names so far, of each object that is being read.
  std::string twice;
  const json::parser_callback_t watch = [&](int, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::object_start) {
      open.emplace_back();
    } else if (event == json::parse_event_t::object_end) {
      open.pop_back();
    } else if (event == json::parse_event_t::key) {
      const auto name = value.get<std::string>();
      if (!open.back().insert(name).second && twice.empty()) twice = name;
    }
    return true;
  };
  json parsed;
  try {
    parsed = json::parse(text, watch);
  } catch (const json::exception& error) {
    throw ChipError(ErrorCode::bad_program_file, fmt::format("{}: {}", file, error.what()));
  }
  if (!twice.empty()) {
    throw ChipError(ErrorCode::bad_program_file,
                    fmt::format("{}: field '{}' is there twice", file, twice));
  }
  return parsed;
}

StrictObject::StrictObject(const json& json, std::string file, std::string field)
    : json_(&json), file_(std::move(file)), field_(std::move(field)) {
  if (json.is_object()) return;
  throw ChipError(ErrorCode::bad_program_file,
                  fmt::format("{}: {} must be an object", file_,
                              field_.empty() ? "what it holds" : "field '" + field_ + "'"));
}

std::string StrictObject::path_of(std::string_view name) const {
  return field_.empty() ? std::string(name) : fmt::format("{}.{}", field_, name);
}

void StrictObject::refuse(std::string_view name, std::string_view problem) const {
  throw ChipError(ErrorCode::bad_program_file,
                  fmt::format("{}: field '{}' {}", file_, path_of(name), problem));
}

const json& StrictObject::at(const char* name) {
  asked_.emplace(name);
  const auto found = json_->find(name);
  if (found == json_->end()) refuse(name, "is missing");
  return *found;
}

std::string StrictObject::text(const char* name) {
  const json& value = at(name);
  if (!value.is_string()) refuse(name, "must be a text");
  auto text = value.get<std::string>();
  if (text.empty()) refuse(name, "is empty");
  if (text.find('\0') != std::string::npos) refuse(name, "has a zero byte in it");
  return text;
}

bool StrictObject::boolean(const char* name) {
  const json& value = at(name);
  if (!value.is_boolean()) refuse(name, "must be true or false");
  return value.get<bool>();
}

const json& StrictObject::list(const char* name) {
  const json& value = at(name);
  if (!value.is_array()) refuse(name, "must be a list");
  return value;
}

std::vector<std::string> StrictObject::texts(const char* name) {
  std::vector<std::string> texts;
  if (!has(name)) return texts;
  const json& values = list(name);
  texts.reserve(values.size());
  for (const json& value : values) {
    if (!value.is_string() || value.get_ref<const std::string&>().empty() ||
        value.get_ref<const std::string&>().find('\0') != std::string::npos) {
      refuse(fmt::format("{}[{}]", name, texts.size()), "must be a text, and not empty");
    }
    texts.push_back(value.get<std::string>());
  }
  return texts;
}

StrictObject StrictObject::object(const char* name) { return {at(name), file_, path_of(name)}; }

std::vector<StrictObject> StrictObject::objects(const char* name) {
  std::vector<StrictObject> objects;
  const json& values = list(name);
  objects.reserve(values.size());
  for (const json& value : values)
    objects.emplace_back(value, file_, fmt::format("{}[{}]", path_of(name), objects.size()));
  return objects;
}

void StrictObject::refuse_others() const {
  for (const auto& item : json_->items()) {
    if (asked_.contains(item.key())) continue;
    std::string known;
    for (const std::string& name : asked_)
      known += (known.empty() ? "" : ", ") + name;
    refuse(item.key(), "is unknown; here is also: " + known);
  }
}

ChipSignature signature_from(StrictObject object) {
  ChipSignature signature;
  if (object.has("tensors")) {
    for (StrictObject& tensor : object.objects("tensors"))
      signature.tensors.push_back(parameter_from(tensor));
  }
  signature.scalars = object.texts("scalars");
  std::set<std::string_view> names;
  for (const TensorParameter& tensor : signature.tensors) {
    if (!names.insert(tensor.name).second) {
      object.refuse("tensors", fmt::format("has two arguments named '{}'", tensor.name));
    }
  }
  for (const std::string& scalar : signature.scalars) {
    if (!names.insert(scalar).second) {
      object.refuse("scalars", fmt::format("has a second argument named '{}'", scalar));
    }
  }
  object.refuse_others();
  return signature;
}

json to_json(const ChipSignature& signature) {
  json tensors = json::array();
  for (const TensorParameter& parameter : signature.tensors) {
    json tensor = {{"name", parameter.name}, {"access", base::name_of(parameter.access)}};
    if (parameter.dtype) tensor["dtype"] = strata::name_of(*parameter.dtype);
    if (parameter.rank) tensor["rank"] = *parameter.rank;
    tensors.push_back(std::move(tensor));
  }
  return {{"tensors", std::move(tensors)}, {"scalars", signature.scalars}};
}

CoreType core_from(StrictObject& object, const char* name) {
  const std::string core = object.text(name);
  if (core == name_of(CoreType::aic)) return CoreType::aic;
  if (core == name_of(CoreType::aiv)) return CoreType::aiv;
  object.refuse(name, fmt::format("is '{}'; it may be aic or aiv", core));
}

std::string_view name_of(CoreType core) noexcept { return core == CoreType::aic ? "aic" : "aiv"; }

std::string_view name_of(ProgramSanitizer sanitizer) noexcept {
  switch (sanitizer) {
    case ProgramSanitizer::none:
      return "none";
    case ProgramSanitizer::address:
      return "address";
    case ProgramSanitizer::thread:
      return "thread";
  }
  return "none";
}

}  // namespace strata::chip
