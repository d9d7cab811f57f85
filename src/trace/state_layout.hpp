// The memory in which a process says, on request, what its runtime is at: a memfd that it keeps
// open, beside a pipe at which it takes the requests. Both are found among its descriptors by
// whoever may look at those.
//
// No signal is involved: who asks opens the pipe by /proc/PID/fd/N and writes a byte. That the pipe
// is the one which this very process reads is seen by its inode, which no other pipe has, so
// nothing can reach a process that took over the number of another.
//
// Everything is fixed, as in record_layout.hpp, and as there every reader takes what it finds as
// untrusted.
//
// Invariants
//   (1) The text that a reader accepts is one that was written as a whole: `sequence` is odd while
//       it changes and different afterwards.
#pragma once

#include <cstddef>
#include <cstdint>

#include "trace/record_layout.hpp"

namespace strata::trace {

inline constexpr std::uint64_t kStateMagic = 0x4554415453525453;  // "STRSTATE"
inline constexpr std::uint32_t kStateVersion = 1;
/// Name of the memfd.
inline constexpr char kStateName[] = "strata-state";
inline constexpr std::size_t kStateBytes = std::size_t{1} << 20;

struct StateLayout {
  Word magic;
  HalfWord version;
  HalfWord layout_bytes;
  Word pid;          ///< Of the process, as it numbers itself. A fork has another.
  Word pipe_inode;   ///< Of the pipe for requests ...
  HalfWord pipe_fd;  ///< ... and its descriptor in the process.
  HalfWord sequence;
  Word answers;  ///< How many there were; written with the text.
  TextWords<kStateBytes> text;
};

}  // namespace strata::trace
