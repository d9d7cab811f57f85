// The arguments of a chip program as the command line of `strata chip` has them.
//
//   --tensor a=x.npy               a file of numpy.save
//   --tensor a=random:7            random values by a seed; shape from --expect a=..., if there is
//   --tensor a=random:7:float32[4,8]
//   --tensor a=zeros:[4,8]         the dtype is that of the signature
//   --scalar n=4096   --scalar eps=1e-5:float64
//
// Thread safety: functions of their arguments.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "chip/host_arguments.hpp"
#include "strata/chip_program.hpp"

namespace strata::cli {

/// "NAME=VALUE" options as they were given, in order.
struct ChipArgumentOptions {
  std::vector<std::string> tensors = {};
  std::vector<std::string> scalars = {};
  std::vector<std::string> outputs = {};   ///< NAME=FILE.npy to write.
  std::vector<std::string> expected = {};  ///< NAME=FILE.npy to compare with.
  bool poison_outputs = false;             ///< Fill what nobody has given with poison, not zeros.
};

struct ChipArguments {
  chip::HostArguments run = {};
  std::map<std::size_t, std::string> outputs = {};        ///< By tensor.
  std::map<std::size_t, chip::HostTensor> expected = {};  ///< By tensor.
};

/// Throws InvalidArgument that names the option, and lists what the program takes if it does not
/// fit; Error for files that can't be read.
[[nodiscard]] ChipArguments read_chip_arguments(const ChipArgumentOptions& options,
                                                const ChipProgramInfo& program);

/// "vector_add takes tensors a (in, float32, rank 1), ... and scalars tile", for messages.
[[nodiscard]] std::string signature_text(const ChipProgramInfo& program);

}  // namespace strata::cli
