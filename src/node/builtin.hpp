// Builtins: functions that the library itself brings for tasks in worker processes: the steps of
// bringing ranks up, and what is built of such.
//
// To add one: a function void(WorkerTask&) in the part that it belongs to, a name here, and a row
// in builtin.cpp. The parent submits Call(worker.builtin(Builtin::name)); like every callable it is
// registered in each worker at its first use. strata-worker and a this_program worker find it in
// the table that is linked into both: nothing is loaded.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "node/this_program.hpp"
#include "strata/callable.hpp"

namespace strata::node {

enum class Builtin : std::uint8_t {
  prepare_rank,  ///< comm/rank_tasks.hpp says what these do.
  init_rank,
  attach_rank,
  destroy_rank,
  collective,  ///< comm/collective_task.hpp.
};
inline constexpr std::size_t kBuiltins = 5;

/// What to add to a Worker for it.
[[nodiscard]] Callable callable_of(Builtin builtin);
/// The function behind Callable::Source::builtin; null if there is none of that name.
[[nodiscard]] const ProgramFunction* find_builtin(std::string_view name) noexcept;

}  // namespace strata::node
