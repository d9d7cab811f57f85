// Arguments of a chip program against its signature.

#include <fmt/format.h>

#include "base/access_name.hpp"
#include "chip/chip_runtime.hpp"

namespace strata::chip {

namespace {

/// "tensor argument 2 ('bias') of chip program 'x'"
std::string where(const ChipProgramInfo& program, std::size_t i) {
  const std::string& name = program.signature.tensors[i].name;
  return fmt::format("tensor argument {}{} of chip program '{}'", i,
                     name.empty() ? "" : " ('" + name + "')", program.name);
}

std::string parameters_of(const ChipProgramInfo& program) {
  std::string text;
  for (const TensorParameter& parameter : program.signature.tensors) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", base::name_of(parameter.access),
                        parameter.name.empty() ? "?" : parameter.name);
  }
  for (const std::string& scalar : program.signature.scalars)
    text += fmt::format("{}scalar {}", text.empty() ? "" : ", ", scalar.empty() ? "?" : scalar);
  return text.empty() ? "nothing" : text;
}

}  // namespace

void check_signature(const ChipProgramInfo& program, std::span<const TensorArg> tensors,
                     std::size_t scalars) {
  const ChipSignature& signature = program.signature;
  if (tensors.size() != signature.tensors.size() || scalars != signature.scalars.size()) {
    throw ChipError(ErrorCode::wrong_argument_count,
                    fmt::format("chip program '{}' takes {} tensors and {} scalars ({}), but is "
                                "given {} and {}",
                                program.name, signature.tensors.size(), signature.scalars.size(),
                                parameters_of(program), tensors.size(), scalars));
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorParameter& parameter = signature.tensors[i];
    const TensorArg& given = tensors[i];
    if (given.access != parameter.access) {
      throw ChipError(
          ErrorCode::wrong_argument_mode,
          fmt::format("{} is given as {}(), but the program declares it {}", where(program, i),
                      base::name_of(given.access), base::name_of(parameter.access)));
    }
    if (parameter.dtype && given.tensor->dtype() != *parameter.dtype) {
      throw ChipError(ErrorCode::wrong_argument_dtype,
                      fmt::format("{} is {}, but the program takes {}", where(program, i),
                                  given.tensor->to_string(), strata::name_of(*parameter.dtype)));
    }
    if (parameter.rank && given.tensor->rank() != *parameter.rank) {
      throw ChipError(ErrorCode::wrong_argument_rank,
                      fmt::format("{} is {}, which has {} dimensions, but the program takes {}",
                                  where(program, i), given.tensor->to_string(),
                                  given.tensor->rank(), *parameter.rank));
    }
  }
}

}  // namespace strata::chip
