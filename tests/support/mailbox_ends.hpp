// What the tests of the mailbox share: its memory, its two ends, frames that carry a number.
//
// Thread safety: as the ends themselves.
#pragma once

#include <cstdint>

#include "ipc/mailbox.hpp"
#include "os/event_fd.hpp"

namespace strata::test {

/// A mailbox and what wakes its parent.
struct Memory {
  explicit Memory(const ipc::MailboxOptions& options = {})
      : memfd(ipc::make_mailbox(options)), event(os::EventFd::make()) {}
  os::UniqueFd memfd;
  os::EventFd event;
};

/// Both ends in this process.
struct Ends : Memory {
  explicit Ends(const ipc::MailboxOptions& options = {})
      : Memory(options), parent(memfd.get()), worker(memfd.get(), event.fd(), nullptr) {}
  ipc::MailboxParent parent;
  ipc::MailboxWorker worker;
};

inline ipc::Submission numbered(std::uint64_t dispatch) {
  return {.header = {.dispatch = dispatch, .task = dispatch << 22U}};
}

inline ipc::CompletionFrame done(std::uint64_t dispatch) {
  ipc::CompletionFrame frame;
  frame.dispatch = dispatch;
  return frame;
}

}  // namespace strata::test
