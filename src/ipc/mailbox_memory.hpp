// What both ends of a mailbox do with its memory: check what it is, and copy out of it.
//
// Thread safety: free functions without state.
#pragma once

#include <cstddef>
#include <cstring>

#include "ipc/mailbox_layout.hpp"
#include "os/mapping.hpp"

namespace strata::ipc {

/// A mailbox that was mapped, with the facts of its header as they were when they were checked.
struct MappedMailbox {
  os::Mapping mapping;
  MailboxLayout layout;
  std::uint64_t first = 0;

  [[nodiscard]] MailboxHeader* header() const noexcept {
    return reinterpret_cast<MailboxHeader*>(mapping.data());
  }
  [[nodiscard]] CompletionSlot* completions() const noexcept {
    return reinterpret_cast<CompletionSlot*>(mapping.data() + layout.completions());
  }
  [[nodiscard]] SubmissionSlot* submissions() const noexcept {
    return reinterpret_cast<SubmissionSlot*>(mapping.data() + layout.submissions());
  }
  [[nodiscard]] std::byte* arena() const noexcept { return mapping.data() + layout.arena(); }
};

/// Maps `memfd`, all but the arena with its pages. Throws SystemError, or Error where it is not the
/// memory of a mailbox.
[[nodiscard]] MappedMailbox map_mailbox(int memfd);

/// Copies out of memory that the other side can write at any time. What is checked afterwards is
/// the copy: the barrier keeps the compiler from reading the original once more.
inline void copy_once(void* to, const void* from, std::size_t bytes) noexcept {
  std::memcpy(to, from, bytes);
  __asm__ volatile("" : : "r"(to) : "memory");
}

}  // namespace strata::ipc
