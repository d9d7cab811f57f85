#include "cli/chip_arguments.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/access_name.hpp"
#include "chip/check/check.hpp"
#include "chip/npy.hpp"
#include "chip/random_values.hpp"
#include "strata/error.hpp"

namespace strata::cli {
namespace {

struct Option {
  std::string_view flag;
  std::string text;
  std::string name;
  std::string value;
  [[noreturn]] void fail(const std::string& why) const {
    throw InvalidArgument(fmt::format("{} {}: {}", flag, text, why));
  }
};

Option split(std::string_view flag, const std::string& text) {
  const std::size_t equals = text.find('=');
  Option option{.flag = flag, .text = text, .name = {}, .value = {}};
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
    option.fail("it has the form NAME=VALUE");
  }
  option.name = text.substr(0, equals);
  option.value = text.substr(equals + 1);
  return option;
}

std::optional<DType> dtype_named(std::string_view name) {
  for (std::uint8_t i = 0; i < kDTypes; ++i) {
    if (name_of(static_cast<DType>(i)) == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

template <class T>
std::optional<T> number(std::string_view text) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || rest != end || text.empty()) return std::nullopt;
  return value;
}

/// "float32[4,8]", "[4,8]", "float32".
struct TypeText {
  std::optional<DType> dtype;
  std::optional<std::vector<std::int64_t>> shape;
};

TypeText parse_type(const Option& option, std::string_view text) {
  TypeText type;
  const std::size_t bracket = text.find('[');
  if (const std::string_view name = text.substr(0, bracket); !name.empty()) {
    type.dtype = dtype_named(name);
    if (!type.dtype) option.fail(fmt::format("there is no type '{}' of elements", name));
  }
  if (bracket == std::string_view::npos) return type;
  if (!text.ends_with(']')) option.fail("a shape has the form [4,8]");
  std::string_view rest = text.substr(bracket + 1, text.size() - bracket - 2);
  type.shape.emplace();
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    std::string_view part = rest.substr(0, comma);
    while (part.starts_with(' '))
      part.remove_prefix(1);
    const auto extent = number<std::int64_t>(part);
    if (!extent || *extent < 0) option.fail("a shape has the form [4,8]");
    type.shape->push_back(*extent);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  if (type.shape->size() > static_cast<std::size_t>(kMaxRank)) {
    option.fail(fmt::format("a tensor has {} dimensions at most", kMaxRank));
  }
  return type;
}

/// Whether a value of a type of integers can be that.
bool fits_in(DType type, std::int64_t value) {
  switch (type) {
    case DType::boolean:
      return value == 0 || value == 1;
    case DType::int8:
      return std::in_range<std::int8_t>(value);
    case DType::uint8:
      return std::in_range<std::uint8_t>(value);
    case DType::int16:
      return std::in_range<std::int16_t>(value);
    case DType::uint16:
      return std::in_range<std::uint16_t>(value);
    case DType::int32:
      return std::in_range<std::int32_t>(value);
    case DType::uint32:
      return std::in_range<std::uint32_t>(value);
    case DType::uint64:
      return value >= 0;
    default:
      return true;
  }
}

/// Makes the tensors and scalars of one command line.
class Reader {
 public:
  Reader(const ChipArgumentOptions& options, const ChipProgramInfo& program)
      : options_(options), program_(program), given_(program.signature.tensors.size()) {}

  ChipArguments read() {
    for (const std::string& text : options_.expected)
      read_expected(split("--expect", text));
    arguments_.run.tensors.resize(given_.size());
    for (const std::string& text : options_.tensors)
      read_tensor(split("--tensor", text));
    for (std::size_t i = 0; i < given_.size(); ++i) {
      if (!given_[i]) make_output(i);
    }
    for (const std::string& text : options_.outputs)
      read_output(split("--output", text));
    check_expected();
    read_scalars();
    return std::move(arguments_);
  }

 private:
  [[nodiscard]] const TensorParameter& parameter(std::size_t i) const {
    return program_.signature.tensors[i];
  }

  std::size_t tensor_index(const Option& option) const {
    const auto& tensors = program_.signature.tensors;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].name == option.name) return i;
    }
    option.fail(fmt::format("there is no tensor '{}'; {}", option.name, signature_text(program_)));
  }

  void read_expected(const Option& option) {
    const std::size_t i = tensor_index(option);
    if (arguments_.expected.contains(i)) option.fail("it was given before");
    chip::HostTensor tensor = chip::read_npy(option.value);
    if (parameter(i).dtype)
      tensor = chip::as_dtype(std::move(tensor), *parameter(i).dtype, option.value);
    tensor.name = option.name;
    arguments_.expected[i] = std::move(tensor);
  }

  void read_output(const Option& option) {
    const std::size_t i = tensor_index(option);
    std::error_code unknown;
    const std::filesystem::path file = option.value;
    if (std::filesystem::is_directory(file, unknown)) option.fail("that is a folder");
    if (file.has_parent_path() && !std::filesystem::is_directory(file.parent_path(), unknown)) {
      option.fail(fmt::format("there is no folder {}", file.parent_path().string()));
    }
    if (!arguments_.outputs.emplace(i, option.value).second) option.fail("it was given before");
  }

  /// Before the run, since nothing can be compared after it otherwise.
  void check_expected() const {
    for (const auto& [i, expected] : arguments_.expected) {
      const chip::HostTensor& found = arguments_.run.tensors[i];
      if (expected.dtype == found.dtype && expected.shape == found.shape) continue;
      throw InvalidArgument(
          fmt::format("--expect {}=...: the file has {}[{}], and the tensor is {}[{}]", found.name,
                      name_of(expected.dtype), fmt::join(expected.shape, ","), name_of(found.dtype),
                      fmt::join(found.shape, ",")));
    }
  }

  void read_tensor(const Option& option) {
    const std::size_t i = tensor_index(option);
    if (given_[i]) option.fail("the tensor was given before");
    chip::HostTensor tensor = tensor_of(option, i);
    tensor.name = option.name;
    tensor.access = parameter(i).access;
    if (parameter(i).dtype && tensor.dtype != *parameter(i).dtype) {
      option.fail(
          fmt::format("its elements are {}; {}", name_of(tensor.dtype), signature_text(program_)));
    }
    if (parameter(i).rank && tensor.shape.size() != static_cast<std::size_t>(*parameter(i).rank)) {
      option.fail(
          fmt::format("it has {} dimensions; {}", tensor.shape.size(), signature_text(program_)));
    }
    arguments_.run.tensors[i] = std::move(tensor);
    given_[i] = true;
  }

  chip::HostTensor tensor_of(const Option& option, std::size_t i) const {
    std::string_view value = option.value;
    const auto take = [&](std::string_view word) {
      if (value != word && !value.starts_with(std::string(word) + ":")) return false;
      value.remove_prefix(std::min(word.size() + 1, value.size()));
      return true;
    };
    if (take("zeros")) return empty_tensor(option, i, value);
    if (!take("random")) {
      chip::HostTensor tensor = chip::read_npy(option.value);
      if (!parameter(i).dtype) return tensor;
      return chip::as_dtype(std::move(tensor), *parameter(i).dtype, option.value);
    }
    // A seed, a type, or both.
    std::uint64_t seed = 1;
    const std::size_t colon = std::min(value.find(':'), value.size());
    if (const auto given = number<std::uint64_t>(value.substr(0, colon))) {
      seed = *given;
      value.remove_prefix(std::min(colon + 1, value.size()));
    }
    chip::HostTensor tensor = empty_tensor(option, i, value);
    chip::fill_random(tensor, seed);
    return tensor;
  }

  /// Of the type in `text`; what that does not say comes from --expect and the signature.
  chip::HostTensor empty_tensor(const Option& option, std::size_t i, std::string_view text) const {
    TypeText type = parse_type(option, text);
    if (const auto expected = arguments_.expected.find(i); expected != arguments_.expected.end()) {
      if (!type.shape) type.shape = expected->second.shape;
      if (!type.dtype) type.dtype = expected->second.dtype;
    }
    if (!type.dtype) type.dtype = parameter(i).dtype;
    if (!type.dtype) {
      option.fail(
          "the type of its elements is missing, and the program takes any: NAME=random:1:"
          "float32[4,8]");
    }
    if (!type.shape) {
      option.fail("its shape is missing: NAME=random:1:[4,8], NAME=zeros:[4,8]");
    }
    chip::HostTensor tensor{.dtype = *type.dtype, .shape = std::move(*type.shape)};
    tensor.bytes.resize(chip::bytes_of(tensor.dtype, tensor.shape));
    return tensor;
  }

  /// A tensor that the command line does not give: what the program writes, of the expected shape.
  void make_output(std::size_t i) {
    const TensorParameter& p = parameter(i);
    const Option option{.flag = "--tensor", .text = p.name + "=...", .name = p.name, .value = {}};
    if (p.access != Access::out) option.fail("it is missing; " + signature_text(program_));
    if (!arguments_.expected.contains(i)) {
      option.fail(
          fmt::format("the shape of output '{0}' is not known: give --tensor "
                      "{0}=zeros:[...], or --expect {0}=FILE.npy",
                      p.name));
    }
    chip::HostTensor tensor = empty_tensor(option, i, "");
    tensor.name = p.name;
    tensor.access = p.access;
    if (options_.poison_outputs) {
      const std::size_t size = size_of(tensor.dtype);
      for (std::size_t at = 0; at < tensor.bytes.size(); at += size)
        std::memcpy(tensor.bytes.data() + at, chip::poison_of(tensor.dtype), size);
    }
    arguments_.run.tensors[i] = std::move(tensor);
  }

  void read_scalars() {
    const auto& names = program_.signature.scalars;
    std::vector<bool> given(names.size());
    arguments_.run.scalars.resize(names.size());
    for (const std::string& text : options_.scalars) {
      const Option option = split("--scalar", text);
      const auto found = std::find(names.begin(), names.end(), option.name);
      if (found == names.end()) {
        option.fail(
            fmt::format("there is no scalar '{}'; {}", option.name, signature_text(program_)));
      }
      const auto i = static_cast<std::size_t>(found - names.begin());
      if (given[i]) option.fail("the scalar was given before");
      arguments_.run.scalars[i] = scalar_bits(option);
      given[i] = true;
    }
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (given[i]) continue;
      throw InvalidArgument(
          fmt::format("--scalar {}=...: it is missing; {}", names[i], signature_text(program_)));
    }
  }

  static std::uint64_t scalar_bits(const Option& option) {
    const std::size_t colon = std::min(option.value.find(':'), option.value.size());
    const std::string_view text = std::string_view(option.value).substr(0, colon);
    const auto integer = number<std::int64_t>(text);
    const auto positive = number<std::uint64_t>(text);
    const auto real = number<double>(text);
    std::optional<DType> type;
    if (colon < option.value.size()) {
      const std::string_view name = std::string_view(option.value).substr(colon + 1);
      type = dtype_named(name);
      if (!type) option.fail(fmt::format("there is no type '{}'", name));
    } else {
      type = integer || positive ? DType::int64 : DType::float32;
    }
    if (!real) option.fail(fmt::format("'{}' is no number", text));
    if (*type == DType::float64) return std::bit_cast<std::uint64_t>(*real);
    if (*type == DType::float32) {
      const auto single = static_cast<float>(*real);
      if (std::isinf(single) && !std::isinf(*real)) does_not_fit(option, text, *type);
      return std::bit_cast<std::uint32_t>(single);
    }
    if (*type == DType::float16 || *type == DType::bfloat16 || size_of(*type) == 0) {
      option.fail("scalars are integers, float32 or float64");
    }
    if (!integer && !positive) option.fail(fmt::format("'{}' is no integer", text));
    const bool fits = integer ? fits_in(*type, *integer) : *type == DType::uint64;
    if (!fits && colon < option.value.size()) does_not_fit(option, text, *type);
    return integer ? static_cast<std::uint64_t>(*integer) : *positive;
  }

  [[noreturn]] static void does_not_fit(const Option& option, std::string_view text, DType type) {
    option.fail(fmt::format("{} does not fit in {}", text, name_of(type)));
  }

  const ChipArgumentOptions& options_;
  const ChipProgramInfo& program_;
  std::vector<bool> given_;  ///< By tensor.
  ChipArguments arguments_;
};

}  // namespace

std::string signature_text(const ChipProgramInfo& program) {
  std::string text = fmt::format("chip program '{}' takes", program.name);
  for (const TensorParameter& tensor : program.signature.tensors) {
    text += fmt::format(" tensor '{}' ({}", tensor.name, base::name_of(tensor.access));
    if (tensor.dtype) text += fmt::format(", {}", name_of(*tensor.dtype));
    if (tensor.rank) text += fmt::format(", rank {}", *tensor.rank);
    text += "),";
  }
  for (const std::string& scalar : program.signature.scalars)
    text += fmt::format(" scalar '{}',", scalar);
  if (text.ends_with(',')) {
    text.pop_back();
  } else {
    text += " no arguments";
  }
  return text;
}

ChipArguments read_chip_arguments(const ChipArgumentOptions& options,
                                  const ChipProgramInfo& program) {
  return Reader(options, program).read();
}

}  // namespace strata::cli
