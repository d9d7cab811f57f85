#include "node/child_specs.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "comm/backend.hpp"
#include "node/chip_options.hpp"
#include "node/cpu_shares.hpp"
#include "node/protocol.hpp"
#include "strata/error.hpp"
#include "strata/platform.hpp"

namespace strata::node {

namespace {

unsigned height_of(const WorkerOptions& options) {
  unsigned height = 0;
  for (const WorkerOptions& next : options.next_level)
    height = std::max(height, height_of(next));
  return height + 1;
}

bool is_program(const std::optional<Callable>& callable) {
  return callable && callable->source == Callable::Source::chip_program;
}

}  // namespace

bool runs_this_program(const WorkerOptions& options) {
  const auto is_this = [](const auto& each) { return each.program == WorkerProgram::this_program; };
  return std::any_of(options.subs.begin(), options.subs.end(), is_this) ||
         std::any_of(options.next_level.begin(), options.next_level.end(),
                     [&](const auto& next) { return is_this(next) || runs_this_program(next); });
}

void check_options(const WorkerOptions& options, const std::string& path) {
  const auto refuse = [&](const std::string& why) {
    throw InvalidArgument("WorkerOptions of " + path + ": " + why);
  };
  std::size_t subs = 0;
  for (const SubWorkerOptions& sub : options.subs)
    subs += sub.count;
  if (subs + options.chips.size() + options.next_level.size() == 0) {
    refuse("there are no chips, subs or next_level workers, so no task could run");
  }
  if (options.depth == 0 || options.depth > 64) {
    refuse("depth is " + std::to_string(options.depth) + "; it must be 1 to 64");
  }
  try {
    (void)comm::parse_backend(options.communication);
  } catch (const InvalidArgument& error) {
    refuse(error.what());
  }
  if (options.start_time_limit.count() <= 0) refuse("start_time_limit must be above zero");
  if (options.close_time_limit.count() < 0) refuse("close_time_limit is below zero");
  if (options.cancel_grace.count() < 0) refuse("cancel_grace is below zero");
  for (std::size_t i = 0; i < options.chips.size(); ++i) {
    const ChipOptions& chip = options.chips[i];
    (void)Platform::parse(chip.platform);
    check_run_options(chip.run,
                      "WorkerOptions of " + path + ": chips[" + std::to_string(i) + "].run");
    if (is_program(chip.setup)) refuse("chips[" + std::to_string(i) + "].setup is a chip program");
  }
  if (is_program(options.setup) ||
      std::any_of(options.subs.begin(), options.subs.end(),
                  [&](const SubWorkerOptions& sub) { return is_program(sub.setup); })) {
    refuse("a setup is a function; a chip program can't be one");
  }
  for (std::size_t i = 0; i < options.next_level.size(); ++i) {
    const WorkerOptions& next = options.next_level[i];
    const std::string name = path + "/next[" + std::to_string(i) + "]";
    if (next.program == WorkerProgram::strata_worker && runs_this_program(next)) {
      refuse("workers below " + name + " run this_program, so " + name +
             " itself must: set its `program`");
    }
    check_options(next, name);
  }
}

std::vector<ChildSpec> child_specs(const WorkerOptions& options, const Placement& placement) {
  std::vector<ChildSpec> specs;
  // What every worker process is told.
  const auto add = [&](ChildSpec spec, const std::optional<Callable>& setup, nlohmann::json more) {
    more["path"] = spec.path;
    more["role"] = spec.role;
    more["setup"] = setup ? to_json(*setup) : nlohmann::json();
    spec.configure = std::move(more);
    specs.push_back(std::move(spec));
  };
  const auto [sub, chip, next] = kChildKinds;
  const std::string prefix = options.name + "/";
  std::size_t subs = 0;
  for (const SubWorkerOptions& group : options.subs) {
    for (unsigned i = 0; i < group.count; ++i) {
      add({.path = prefix + "sub[" + std::to_string(subs++) + "]",
           .role = "sub worker",
           .kind = sub,
           .program = group.program},
          group.setup, nlohmann::json::object());
    }
  }
  const CpuShares cpus =
      cpu_shares(options, placement.cpus.empty() ? allowed_cpu_list() : placement.cpus);
  for (std::size_t i = 0; i < options.chips.size(); ++i) {
    const ChipOptions& of_chip = options.chips[i];
    add({.path = prefix + "chip[" + std::to_string(i) + "]", .role = "chip worker", .kind = chip},
        of_chip.setup,
        {{"platform", of_chip.platform}, {"run", to_json(of_chip.run)}, {"cpus", cpus.chips[i]}});
  }
  // What is left of the slab numbers is shared out to the workers below.
  const std::size_t below = options.next_level.size();
  const std::uint32_t own = placement.own_slabs();
  const std::uint32_t each =
      below == 0 ? 0 : (placement.slab_numbers - own) / static_cast<std::uint32_t>(below);
  for (std::size_t i = 0; i < below; ++i) {
    WorkerOptions of_next = options.next_level[i];
    of_next.name = prefix + "next[" + std::to_string(i) + "]";
    add({.path = of_next.name,
         .role = "next-level worker",
         .kind = next,
         .program = of_next.program,
         .height = height_of(of_next)},
        of_next.setup,
        {{"options", to_json(of_next)},
         {"cpus", cpus.next_level[i]},
         {"first_slab", placement.first_slab + own + each * i},
         {"slab_numbers", each}});
  }
  return specs;
}

}  // namespace strata::node
