#include "node/builtin.hpp"

#include <algorithm>
#include <array>
#include <string>

#include "comm/collective_task.hpp"
#include "comm/rank_tasks.hpp"

namespace strata::node {
namespace {

struct Row {
  std::string_view name;
  ProgramFunction code;
};

/// In the order of the enumeration.
constexpr std::array<Row, kBuiltins> kTable = {{
    {"prepare_rank", {.function = comm::prepare_rank}},
    {"init_rank", {.function = comm::init_rank}},
    {"attach_rank", {.function = comm::attach_rank}},
    {"destroy_rank", {.function = comm::destroy_rank}},
    {"collective", {.function = comm::run_collective_task}},
}};

}  // namespace

Callable callable_of(Builtin builtin) {
  return {.source = Callable::Source::builtin,
          .symbol = std::string(kTable.at(static_cast<std::size_t>(builtin)).name)};
}

const ProgramFunction* find_builtin(std::string_view name) noexcept {
  const auto* const found =
      std::find_if(kTable.begin(), kTable.end(), [&](const Row& row) { return row.name == name; });
  return found == kTable.end() ? nullptr : &found->code;
}

}  // namespace strata::node
