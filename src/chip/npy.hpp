// Reads and writes .npy files, the format of numpy.save: versions 1.0 and 2.0, row-major, of the
// element types that numpy and Strata both have. Types that numpy does not have (bfloat16, float8,
// packed float4) are kept as unsigned integers of their size.
//
// Thread safety: functions of their arguments.
#pragma once

#include <filesystem>
#include <string>

#include "chip/host_arguments.hpp"

namespace strata::chip {

/// Throws Error that names the file and says what is wrong with it: no such file, not an .npy file,
/// column-major, another byte order, a type of elements that Strata has not, too short or too long.
[[nodiscard]] HostTensor read_npy(const std::filesystem::path& path);
/// Takes the place of a file of that name in one step. Throws Error.
void write_npy(const std::filesystem::path& file, const HostTensor& tensor);

/// The file's tensor as one of `dtype`, which it must be already, save that types numpy does not
/// have may be unsigned integers there. Throws Error with `file` in it.
[[nodiscard]] HostTensor as_dtype(HostTensor tensor, DType dtype,
                                  const std::filesystem::path& file);

}  // namespace strata::chip
