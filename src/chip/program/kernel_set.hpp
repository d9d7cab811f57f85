// KernelSet: the kernels of one chip program, as functions of this process.
//
// Thread safety: constant once made. It lives as long as any task that names it.
#pragma once

#include <string>
#include <vector>

#include "strata/kernel.hpp"

namespace strata::chip {

using KernelFunction = void (*)(const Kernel&);

struct KernelEntry {
  std::string name;
  CoreType core = CoreType::aiv;
  KernelFunction function = nullptr;
};

struct KernelSet {
  std::string program;               ///< Name of the chip program.
  std::vector<KernelEntry> kernels;  ///< By function id.
};

}  // namespace strata::chip
