#include "ipc/mailbox_memory.hpp"

#include <unistd.h>

#include <bit>
#include <cerrno>
#include <utility>

#include "ipc/mailbox.hpp"
#include "os/memfd.hpp"
#include "os/populate.hpp"
#include "os/system_error.hpp"
#include "strata/error.hpp"

namespace strata::ipc {
namespace {

constexpr std::size_t kMaxArenaBytes = std::size_t{1} << 31U;  // Offsets in it are 32 bits.

}  // namespace

os::UniqueFd make_mailbox(const MailboxOptions& options) {
  if (options.slots == 0 || options.slots > kMaxSlots) {
    throw InvalidArgument("a mailbox has 1 to " + std::to_string(kMaxSlots) + " slots, not " +
                          std::to_string(options.slots));
  }
  if (options.arena_bytes > kMaxArenaBytes) {
    throw InvalidArgument("the arena of a mailbox has at most 2 GiB, not " +
                          std::to_string(options.arena_bytes) + " bytes");
  }
  if (options.first > std::numeric_limits<std::uint64_t>::max() - 2 * kMaxSlots) {
    // A slot's word of 0 must not be mistaken for a number in the first lap.
    throw InvalidArgument("the first frame's number is too close to 2^64");
  }
  MailboxHeader header{};
  header.magic = kMailboxMagic;
  header.version = kMailboxVersion;
  header.slots = std::bit_ceil(options.slots);
  header.arena_bytes = std::bit_ceil(std::max<std::size_t>(options.arena_bytes, 4096));
  header.first = options.first;
  header.taken.store(options.first, std::memory_order_relaxed);
  const MailboxLayout layout{header.slots, header.arena_bytes};
  os::UniqueFd memfd = os::make_memfd("strata-mailbox", layout.bytes());
  if (pwrite(memfd.get(), &header, sizeof header, 0) != static_cast<ssize_t>(sizeof header)) {
    os::throw_errno("can't write the header of a mailbox");
  }
  return memfd;
}

MappedMailbox map_mailbox(int memfd) {
  const std::size_t size = os::require_sealed(memfd, kMailboxHeaderBytes);
  MappedMailbox mailbox;
  mailbox.mapping = os::Mapping::shared(memfd, size);
  const MailboxHeader& header = *mailbox.header();
  struct {
    std::uint64_t magic;
    std::uint32_t version, slots;
    std::uint64_t arena_bytes, first;
  } facts;
  static_assert(sizeof facts == offsetof(MailboxHeader, first) + sizeof header.first);
  copy_once(&facts, &header, sizeof facts);
  if (facts.magic != kMailboxMagic || facts.version != kMailboxVersion) {
    throw Error("the memory given as a mailbox is none of this version");
  }
  if (facts.slots > kMaxSlots || !std::has_single_bit(facts.slots) ||
      facts.arena_bytes > kMaxArenaBytes || facts.arena_bytes < 4096 ||
      !std::has_single_bit(facts.arena_bytes) ||
      MailboxLayout{facts.slots, facts.arena_bytes}.bytes() != size) {
    throw Error("the memory given as a mailbox has sizes that do not fit each other");
  }
  mailbox.layout = {facts.slots, facts.arena_bytes};
  mailbox.first = facts.first;
  // The rings are used all over within moments, and a page fault costs more than a frame. A kernel
  // that can't do this (before 5.14) has the faults.
  const int saved = errno;
  (void)os::populate(mailbox.mapping.data(), mailbox.layout.arena());
  errno = saved;
  return mailbox;
}

}  // namespace strata::ipc
