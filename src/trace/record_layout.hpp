// The process record as it lies in memory: one memfd per process, made by its parent, written by
// the process itself and read by whoever has the descriptor: the parent, or anybody who may open
// /proc/PID/fd/N. It is read while the writer runs, hangs, is stopped, or is dead, so nothing in it
// waits for the writer, and every reader takes what it finds as untrusted.
//
// Everything is fixed: offsets, sizes, the meaning of numbers. A change of any bumps
// kRecordVersion. Pages that were never written cost nothing.
//
// Thread safety: every word that changes after creation is an atomic. Who writes it, and with what
// order, stands beside it; readers are other processes always.
//
// Invariants
//   (1) A text or a task that a reader accepts is one that a writer wrote as a whole: `sequence` is
//       odd while it changes and different afterwards (a sequence lock; see Sequenced).
//   (2) The event with index i of a ring lies in slot i % kEventsPerRing, and is whole once
//       `position` > i and until the writer begins event i + kEventsPerRing.
//   (3) What a crash record's `stage` says is written before it says so.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace strata::trace {

inline constexpr std::uint64_t kRecordMagic = 0x4352505441525453;  // "STRATPRC"
inline constexpr std::uint32_t kRecordVersion = 3;
/// Name of the memfd, by which the record of a process is found among its descriptors.
inline constexpr char kRecordName[] = "strata-process";

inline constexpr std::size_t kRings = 16;
inline constexpr std::size_t kEventsPerRing = 1024;
inline constexpr std::size_t kMaxFrames = 256;
inline constexpr std::size_t kMaxModules = 512;
inline constexpr std::size_t kRegisters = 23;  ///< NGREG of <sys/ucontext.h>, x86-64.
inline constexpr std::size_t kCrashTextBytes = 16 * 1024;
inline constexpr std::size_t kCrashNoteBytes = 2048;
inline constexpr std::size_t kMapsBytes = 256 * 1024;

using Word = std::atomic<std::uint64_t>;
using HalfWord = std::atomic<std::uint32_t>;
static_assert(Word::is_always_lock_free && sizeof(Word) == 8);
static_assert(HalfWord::is_always_lock_free && sizeof(HalfWord) == 4);

/// Up to Size bytes of a text, in words so that it can be read while it is written.
template <std::size_t Size>
struct TextWords {
  static constexpr std::size_t kCapacity = Size;
  static_assert(Size % 8 == 0);
  Word bytes_in_all;  ///< Length of the whole text, which may be more than what is kept here.
  std::array<Word, Size / 8> words;
};

/// What the process is doing before and between tasks.
struct StepArea {
  HalfWord sequence;  ///< Odd while a thread writes; taken with a compare-exchange.
  HalfWord unused;
  Word since_ns;  ///< CLOCK_MONOTONIC.
  TextWords<512> text;
};

/// The task in hand. One thread of the process writes it, the one that runs tasks.
struct TaskArea {
  Word sequence;      ///< Odd while it changes.
  Word task;          ///< 0: none.
  Word since_cycles;  ///< os::cycle_count() of when it began.
  TextWords<120> name;
  TextWords<120> callable;
};

/// Who and in what state. Path, role, parent and start are written before the memfd is handed on.
struct CardArea {
  Word parent;
  Word pid;  ///< Written by the parent once it is known, and by the process itself.
  Word started_ns;
  TextWords<1024> path;
  TextWords<64> role;
  HalfWord state;  ///< ProcessState. Any thread of the process, release.
  HalfWord unused;
  Word state_since_ns;
  Word ended_ns;      ///< When the parent had waited for it; 0: it has not. The parent, release.
  HalfWord end_kind;  ///< os::ExitStatus::Kind, and with it ...
  HalfWord end_value;
  StepArea step;
  alignas(64) TaskArea task;
};

struct EventWords {
  Word cycles;
  Word kind_and_detail;  ///< Kind in the lower half.
  Word a;
  Word b;
};

/// One thread's events. Its thread is the only writer, but for `owner`.
struct alignas(64) RingArea {
  HalfWord owner;   ///< Id of the thread, or one of the two below. Taken with a compare-exchange.
  HalfWord unused;  //
  Word first;       ///< Index of the owner's first event; those before are another thread's.
  Word position;    ///< How many events were written, release after each.
  std::array<Word, 2> thread_name;
  alignas(64) std::array<EventWords, kEventsPerRing> events;
};
inline constexpr std::uint32_t kRingFree = 0;
inline constexpr std::uint32_t kRingLeft = 0xffffffff;  ///< Its thread has ended; can be taken.

/// How far the crash handler came.
enum class CrashStage : std::uint32_t {
  none = 0,
  begun,     ///< Somebody crashes; the record says nothing yet.
  partial,   ///< Signal, address, registers, thread are there.
  mapped,    ///< And the list of mappings.
  unwound,   ///< And the frames.
  complete,  ///< And the build ids: the handler is done.
};

struct ModuleWords {
  Word begin;  ///< Where the file's first page is mapped.
  HalfWord build_id_bytes;
  HalfWord unused;
  std::array<Word, 4> build_id;
};

/// Written by the one thread that crashes first, from a signal handler.
struct CrashArea {
  HalfWord stage;  ///< CrashStage, release.
  HalfWord thread;
  Word since_ns;  ///< CLOCK_MONOTONIC; 0 until a crash begins. Read by the control thread.
  HalfWord signal;
  HalfWord code;  ///< si_code, two's complement.
  Word sender;    ///< Pid of who sent the signal, where it was sent.
  Word address;   ///< Of the fault, for signals that have one.
  Word pc;
  std::array<Word, 2> thread_name;
  std::array<Word, kRegisters> registers;
  Word frames_in_all;  ///< May be more than what is kept.
  HalfWord frame_count;
  HalfWord module_count;
  std::array<Word, kMaxFrames> frames;  ///< The first is the pc; the others are return addresses.
  std::array<ModuleWords, kMaxModules> modules;
  TextWords<kCrashTextBytes> text;  ///< What an assertion or an uncaught exception said.
  TextWords<kCrashNoteBytes> note;  ///< What the process says of the thread: see set_crash_note().
  TextWords<kMapsBytes> maps;       ///< /proc/self/maps.
};

struct RecordLayout {
  Word magic;
  HalfWord version;
  HalfWord layout_bytes;
  /// The same instant on both clocks, when the record was made; see ProcessRecordReader.
  Word made_cycles;
  Word made_ns;
  alignas(64) CardArea card;
  Word events_dropped;  ///< Events of threads that found no free ring. Any thread, relaxed.
  alignas(64) CrashArea crash;
  alignas(4096) std::array<RingArea, kRings> rings;
};

}  // namespace strata::trace
