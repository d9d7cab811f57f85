// CallableTable: the callables that this worker process has loaded, by their ids.
//
// Thread safety: as IdTable's. The service thread adds and takes; a chip program is taken only when
// the parent has said that no task which calls it is left.
#pragma once

#include <memory>
#include <string>

#include "chip/program/program.hpp"
#include "node/id_table.hpp"
#include "node/this_program.hpp"
#include "strata/chip_run_options.hpp"

namespace strata::node {

/// A callable that can be called: a function (one of the pointers in `code`), or a chip program.
struct LoadedCallable {
  std::string name;  ///< Of the function or program, for records and messages.
  ProgramFunction code = {};
  std::shared_ptr<const chip::Program> program = {};
  ChipRunOptions run = {};  ///< Of the chip program.
};

using CallableTable = IdTable<const LoadedCallable>;

}  // namespace strata::node
