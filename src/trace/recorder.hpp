// record(): one event of the calling thread, into the record of this process, for about 10 ns.
//
// Always on where the process has a record; where it has none, a load and a branch. Each thread
// writes to a ring of its own, which it takes at its first event and leaves when it ends. A thread
// that finds all rings taken only counts its events.
//
// Thread safety: any thread, at any time, also with locks held. Not from signal handlers: the event
// that the handler interrupted may be lost.
#pragma once

#include <atomic>
#include <cstdint>

#include "os/cpu.hpp"
#include "trace/event.hpp"
#include "trace/record_layout.hpp"

namespace strata::trace {

class ProcessRecord;

/// From now on events of this process go to the record. It must live until no thread records any
/// more: keep it for ever. Called again with another record, threads change over at their next
/// event.
void record_into(ProcessRecord& record) noexcept;
/// No events are recorded any more; for tests. Requires that no thread is inside record().
void stop_recording() noexcept;

namespace detail {

/// The ring of a thread, and of which record it is.
struct ThreadRing {
  std::uint64_t generation = 0;
  RingArea* ring = nullptr;  ///< Null: all rings were taken.
};
/// Counts the calls of record_into(); 0 while there is no record. Written with release after what a
/// thread needs to take a ring; read with acquire where it does, relaxed on the way of each event.
inline std::atomic<std::uint64_t> recording_generation{0};
inline thread_local constinit ThreadRing thread_ring;

/// Takes a ring for the calling thread.
void take_ring() noexcept;
/// Counts an event that finds no ring.
void drop_event() noexcept;

inline void write_event(RingArea& ring, std::uint64_t cycles, std::uint64_t kind_and_detail,
                        std::uint64_t a, std::uint64_t b) noexcept {
  // Relaxed: this thread is the only writer.
  const std::uint64_t index = ring.position.load(std::memory_order_relaxed);
  EventWords& event = ring.events[index % kEventsPerRing];
  // A reader that sees a word of this event sees, after an acquire fence, the position that was
  // stored before it, and so knows that the older event in this slot is no longer whole.
  std::atomic_thread_fence(std::memory_order_release);
  event.cycles.store(cycles, std::memory_order_relaxed);
  event.kind_and_detail.store(kind_and_detail, std::memory_order_relaxed);
  event.a.store(a, std::memory_order_relaxed);
  event.b.store(b, std::memory_order_relaxed);
  // Release: whoever sees the position sees the event.
  ring.position.store(index + 1, std::memory_order_release);
}

}  // namespace detail

/// Records an event with the time that the caller has read.
inline void record_at(std::uint64_t cycles, EventKind kind, std::uint64_t a = 0,
                      std::uint64_t b = 0, std::uint32_t detail = 0) noexcept {
  const auto generation = detail::recording_generation.load(std::memory_order_relaxed);
  if (generation == 0) return;
  if (detail::thread_ring.generation != generation) [[unlikely]]
    detail::take_ring();
  RingArea* const ring = detail::thread_ring.ring;
  if (ring == nullptr) [[unlikely]]
    return detail::drop_event();
  detail::write_event(*ring, cycles,
                      static_cast<std::uint64_t>(kind) | static_cast<std::uint64_t>(detail) << 32,
                      a, b);
}

/// Records an event now.
inline void record(EventKind kind, std::uint64_t a = 0, std::uint64_t b = 0,
                   std::uint32_t detail = 0) noexcept {
  if (detail::recording_generation.load(std::memory_order_relaxed) == 0) return;
  record_at(os::cycle_count(), kind, a, b, detail);
}

}  // namespace strata::trace
