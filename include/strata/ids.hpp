// Strong identifier types. Every one is a small value that may be copied freely between threads.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace strata {

/// Names one range of memory that the engine tracks. Never reused within one engine.
struct BufferId {
  std::uint64_t value = 0;  ///< 0 names no buffer.
  friend constexpr auto operator<=>(BufferId, BufferId) = default;
  constexpr explicit operator bool() const { return value != 0; }
};

/// Names one submitted task of one engine. Ids grow in submission order and are never reused.
struct TaskId {
  std::uint64_t value = 0;  ///< 0 names no task.
  /// Position in the order of submission over all runs of the engine, from 1; what messages say.
  [[nodiscard]] constexpr std::uint64_t number() const { return value >> 22; }
  friend constexpr auto operator<=>(TaskId, TaskId) = default;
  constexpr explicit operator bool() const { return value != 0; }
};

/// Names a kind of lane ("shape" of place a task can run on), by its index in EngineOptions::kinds.
struct KindId {
  std::uint32_t value = 0;
  friend constexpr auto operator<=>(KindId, KindId) = default;
};

/// Names one lane of an engine: a place that runs one task at a time.
struct LaneId {
  std::uint32_t value = 0;
  friend constexpr auto operator<=>(LaneId, LaneId) = default;
};

}  // namespace strata

template <>
struct std::hash<strata::TaskId> {
  std::size_t operator()(strata::TaskId id) const noexcept {
    return std::hash<std::uint64_t>{}(id.value);
  }
};

template <>
struct std::hash<strata::BufferId> {
  std::size_t operator()(strata::BufferId id) const noexcept {
    return std::hash<std::uint64_t>{}(id.value);
  }
};
