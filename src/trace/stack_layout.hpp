// The memory into which a process copies, on request, the registers and the stack of each of its
// threads; request_door.hpp says how it is found and asked. Whoever asks unwinds the copies.
//
// Pages that were never written cost nothing: what a process pays is what it has copied.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "trace/request_door.hpp"

namespace strata::trace {

inline constexpr std::size_t kStackSlots = 512;  ///< Threads; of more the rest is only counted.
inline constexpr std::size_t kStackArenaBytes = std::size_t{32} << 20;
/// Of one stack. The rest can be read from outside.
inline constexpr std::uint64_t kMostStackBytes = std::uint64_t{256} << 10;

/// What became of one thread's stack.
enum class StackStage : std::uint32_t {
  free = 0,
  asked,    ///< The signal is on its way. On to `writing` or `late`, whichever is first.
  writing,  ///< The thread is in the handler.
  whole,    ///< All below is there. Release.
  late,     ///< It had not begun when the time was over, and no longer may.
  blocked,  ///< Not asked: it blocks the signal.
  in_call,  ///< Not asked: it is in a call that a handler would end.
  gone,     ///< It has ended.
  unseen,   ///< Not asked: /proc does not tell whether a signal would disturb it.
  no_room,  ///< It has answered, but its stack did not fit into the arena, or can't be read.
};

struct StackSlot {
  /// StackStage in the lower 8 bits, the round in the others: a handler that comes in a later round
  /// than it was asked in finds no slot of its own.
  HalfWord stage;
  HalfWord thread;
  Word call;   ///< Number of the system call, for in_call.
  Word pc;     ///< Of the instruction that was interrupted.
  Word begin;  ///< Address of the first byte that was copied.
  Word bytes;  ///< How many were copied, and ...
  Word at;     ///< ... where they are in the arena.
  Word thread_pointer;
  std::array<Word, 16> general;  ///< By the numbers that DWARF gives them.
};

struct StackLayout {
  DoorWords door;
  HalfWord signal;      ///< That the threads are interrupted by; 0: it is the program's own.
  HalfWord slots_used;  ///< Of this answer.
  HalfWord threads;     ///< That there were, with those for which there was no slot.
  HalfWord round;       ///< Of this answer: slots of another are not part of it.
  Word took_ns;         ///< From the first look to the last copy.
  std::array<StackSlot, kStackSlots> slots;
  alignas(4096) std::array<Word, kStackArenaBytes / 8> arena;
};

inline constexpr DoorKind kStackDoor{.name = "strata-stacks",
                                     .magic = 0x534b4341545353,  // "SSTACKS"
                                     .version = 1,
                                     .layout_bytes = sizeof(StackLayout)};

}  // namespace strata::trace
