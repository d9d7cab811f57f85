#include "node/callable_registry.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "node/chip_options.hpp"
#include "node/protocol.hpp"
#include "strata/error.hpp"

namespace strata::node {
namespace {

/// Callables in one message.
constexpr std::size_t kAtOnce = 500;

}  // namespace

CallableRegistry::CallableRegistry(std::function<void(CallableId)> unused)
    : unused_(
          std::make_shared<UnusedPrograms>([this, unused = std::move(unused)](CallableId program) {
            {
              const std::lock_guard lock(mutex_);
              entries_[program.value - 1].forgotten = true;
            }
            unused(program);
          })) {}

CallableRegistry::~CallableRegistry() { stop(); }

CallableRegistry::Added CallableRegistry::add(const Callable& callable) {
  const bool is_program = callable.source == Callable::Source::chip_program;
  if ((callable.symbol.empty() && !is_program) ||
      (callable.library.empty() && callable.source != Callable::Source::program &&
       callable.source != Callable::Source::builtin)) {
    throw InvalidArgument("Worker::add: the callable names no function and no chip program");
  }
  std::optional<ChipProgramInfo> info;
  std::string key = to_json(callable).dump();
  if (is_program) {
    // The file is looked at anew each time: another one may have taken its place.
    info = ChipProgramInfo::read(callable.library);
    check_run_options(callable.run, "Worker::add: chip program '" + info->name + "'");
    key += info->build_id;
  }
  const std::lock_guard lock(mutex_);
  const auto next = static_cast<std::uint32_t>(entries_.size() + 1);
  const auto [place, added] = ids_.emplace(key, next);
  if (!added) return {.id = {place->second}, .is_new = false};
  entries_.push_back({.callable = callable, .key = std::move(key)});
  if (info) {
    entries_.back().build_id = info->build_id;
    auto use =
        std::make_shared<const ProgramUse>(CallableId{next}, callable.run.time_limit, unused_);
    programs_.add(next, std::make_shared<KnownProgram>(std::move(*info), std::move(use)));
  }
  count_.store(next, std::memory_order_relaxed);
  return {.id = {next}, .is_new = true};
}

void CallableRegistry::remove(CallableId program) {
  const auto* const known = programs_.find(program.value);
  if (known == nullptr) {
    throw InvalidArgument("Worker::remove: " + text_of(program) +
                          " is no chip program of this Worker; only those can be removed");
  }
  // Let go of without the lock: it may be the last, and what is told then takes it.
  const std::shared_ptr<const ProgramUse> own = (*known)->remove();
  const std::lock_guard lock(mutex_);
  const auto found = ids_.find(entries_[program.value - 1].key);
  if (found != ids_.end() && found->second == program.value) ids_.erase(found);
}

std::string CallableRegistry::text_of(CallableId id) const {
  const std::lock_guard lock(mutex_);
  if (id.value == 0 || id.value > entries_.size()) {
    return "callable " + std::to_string(id.value) + ", which was never added";
  }
  const Callable& callable = entries_[id.value - 1].callable;
  if (const KnownProgram* const known = program(id)) {
    return "chip program '" + known->info().name + "' (" + callable.library + ")";
  }
  return callable.to_string();
}

CallableRegistry::Batch CallableRegistry::batch(std::size_t known) const {
  const std::lock_guard lock(mutex_);
  Batch batch;
  batch.known = std::min(known + kAtOnce, entries_.size());
  for (std::size_t i = known; i < batch.known; ++i) {
    const Entry& entry = entries_[i];
    if (entry.forgotten) continue;
    nlohmann::json told = to_json(entry.callable);
    told["id"] = i + 1;
    if (!entry.build_id.empty()) told["build_id"] = entry.build_id;
    batch.entries.push_back(std::move(told));
  }
  return batch;
}

}  // namespace strata::node
