// run_program: runs a program through a real engine and returns what happened.
//
// The runs' orchestrations take turns, step by step, in the program's order. A hang is the business
// of whoever calls (see support/guard.hpp).
//
// Thread safety: calls on different programs may overlap.
#pragma once

#include "model.hpp"
#include "trace.hpp"

namespace strata::property {

[[nodiscard]] Trace run_program(const Program& program, const Model& model);

}  // namespace strata::property
