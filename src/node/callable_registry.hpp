// CallableRegistry: the callables that one Worker was given, and what is known of each.
//
// Thread safety: all members from any thread. program() takes no lock.
//
// Invariants
//   (1) An id is given out once. The same callable has the same id, until it is removed.
//   (2) A removed program is told to be unused once, when no task that calls it is left and none
//       can come; until then new worker processes are told of it as of any other.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "node/id_table.hpp"
#include "node/program_call.hpp"
#include "strata/callable.hpp"
#include "strata/chip_program.hpp"

namespace strata::node {

/// A chip program that a Worker was given.
class KnownProgram {
 public:
  KnownProgram(ChipProgramInfo info, std::shared_ptr<const ProgramUse> use)
      : info_(std::move(info)), use_(std::move(use)) {}
  [[nodiscard]] const ChipProgramInfo& info() const noexcept { return info_; }
  /// For a new task; null once the program was removed.
  [[nodiscard]] std::shared_ptr<const ProgramUse> use() const {
    const std::lock_guard lock(mutex_);
    return use_;
  }
  /// Takes the Worker's own; null if that was done before.
  std::shared_ptr<const ProgramUse> remove() {
    const std::lock_guard lock(mutex_);
    return std::move(use_);
  }

 private:
  const ChipProgramInfo info_;
  mutable std::mutex mutex_;
  std::shared_ptr<const ProgramUse> use_;  ///< Guarded by mutex_.
};

class CallableRegistry {
 public:
  /// `unused` is told of each removed program that no task uses any more, from any thread, possibly
  /// from within remove(). It must neither throw nor wait for tasks.
  explicit CallableRegistry(std::function<void(CallableId)> unused);
  /// `unused` is called no more once this has begun.
  ~CallableRegistry();
  CallableRegistry(const CallableRegistry&) = delete;
  CallableRegistry& operator=(const CallableRegistry&) = delete;

  /// What `unused` was given for is gone: as in the destructor.
  void stop() { unused_->stop(); }

  struct Added {
    CallableId id;
    bool is_new = false;
  };
  /// Throws InvalidArgument for a callable that names nothing, and ChipError for a chip program
  /// that can't be used.
  Added add(const Callable& callable);
  /// Throws InvalidArgument for what is no chip program; a removed one stays removed.
  void remove(CallableId program);

  /// How many callables were given out, those that were removed included: ids go from 1 to this.
  /// Grows; relaxed, as whoever has an id got it from who added it. A batch has none beyond.
  [[nodiscard]] std::uint32_t count() const noexcept {
    return count_.load(std::memory_order_relaxed);
  }

  /// Null for what is no chip program. Removed ones are found.
  [[nodiscard]] const KnownProgram* program(CallableId id) const noexcept {
    const auto* const found = programs_.find(id.value);
    return found == nullptr ? nullptr : found->get();
  }
  /// "scale (in ./libmath.so)", for messages; of removed ones too.
  [[nodiscard]] std::string text_of(CallableId id) const;

  /// The entries of register messages for a process that was told of the first `known` callables,
  /// a bounded number of them; and how many it knows of then. Nothing to tell if that is `known`.
  struct Batch {
    nlohmann::json entries = nlohmann::json::array();
    std::size_t known = 0;
  };
  [[nodiscard]] Batch batch(std::size_t known) const;

 private:
  struct Entry {
    Callable callable;
    std::string key;
    std::string build_id = {};  ///< Of a chip program.
    bool forgotten = false;     ///< Removed, and told to be unused: no process need know it.
  };
  [[nodiscard]] std::shared_ptr<KnownProgram> look_at(const Callable& callable) const;

  const std::shared_ptr<UnusedPrograms> unused_;
  IdTable<const std::shared_ptr<KnownProgram>> programs_;  ///< add() under mutex_.
  std::atomic<std::uint32_t> count_{0};  ///< Size of entries_; written under mutex_.
  mutable std::mutex mutex_;
  // --- Guarded by mutex_ ---
  std::vector<Entry> entries_;                ///< By id - 1.
  std::map<std::string, std::uint32_t> ids_;  ///< By key; of those that were not removed.
};

}  // namespace strata::node
