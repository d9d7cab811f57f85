// all_gather, broadcast and all_to_all. Who wants data fetches it: from the windows, or from
// staging memory, where pieces are put in turns into two places.
#include <cstring>

#include "comm/algorithms.hpp"

namespace strata::comm {
namespace {

/// Half of the staging memory, and how many elements fit into it `parts` times.
struct Staged {
  Staged(const Call& call, std::uint32_t parts) noexcept
      : half(call.domain().staging_bytes / 2 / 64 * 64),
        room(half / parts / 64 * 64),
        element(size_of(call.what().dtype)),
        each(room / element) {}
  [[nodiscard]] std::byte* at(const Call& call, std::uint32_t rank, std::uint64_t k,
                              std::uint32_t index = 0) const noexcept {
    return call.staging(rank) + (k & 1U) * half + index * room;
  }
  std::uint64_t half;
  std::uint64_t room;  ///< Bytes for each part.
  std::size_t element;
  std::uint64_t each;  ///< Elements of a piece of a part.
};

}  // namespace

void all_gather(Call& call) {
  const std::uint64_t count = call.what().count;
  const std::uint64_t bytes = count * size_of(call.what().dtype);
  const std::uint32_t me = call.rank();
  std::byte* const out = own_output(call);
  copy(out + me * bytes, own_input(call), bytes);
  if (all_inputs_in_windows(call)) {
    for (std::uint32_t i = 1; i < call.size(); ++i) {
      const std::uint32_t r = (me + i) % call.size();
      std::memcpy(out + r * bytes, input_of(call, r), bytes);
    }
    return call.meet_at_step();
  }
  const Staged staged(call, 1);
  for (std::uint64_t k = 0; k * staged.each < count; ++k) {
    const Part now = piece(count, staged.each, k);
    const std::uint64_t begin = now.begin * staged.element;
    std::memcpy(staged.at(call, me, k), own_input(call) + begin, now.count * staged.element);
    call.meet_at_step();
    for (std::uint32_t i = 1; i < call.size(); ++i) {
      const std::uint32_t r = (me + i) % call.size();
      std::memcpy(out + r * bytes + begin, staged.at(call, r, k), now.count * staged.element);
    }
  }
}

void broadcast(Call& call) {
  const std::uint64_t count = call.what().count;
  const std::uint32_t root = call.what().root;
  const bool is_root = call.rank() == root;
  if (call.record(root).in != kPrivate) {
    if (!is_root)
      std::memcpy(own_output(call), input_of(call, root), count * size_of(call.what().dtype));
    return call.meet_at_step();
  }
  const Staged staged(call, 1);
  for (std::uint64_t k = 0; k * staged.each < count; ++k) {
    const Part now = piece(count, staged.each, k);
    const std::uint64_t begin = now.begin * staged.element;
    if (is_root)
      std::memcpy(staged.at(call, root, k), own_input(call) + begin, now.count * staged.element);
    call.meet_at_step();
    if (!is_root)
      std::memcpy(own_output(call) + begin, staged.at(call, root, k), now.count * staged.element);
  }
}

void all_to_all(Call& call) {
  const std::uint64_t count = call.what().count;
  const std::uint64_t bytes = count * size_of(call.what().dtype);
  const std::uint32_t me = call.rank();
  std::byte* const out = own_output(call);
  copy(out + me * bytes, own_input(call) + me * bytes, bytes);
  if (all_inputs_in_windows(call) && !any_in_place(call)) {
    for (std::uint32_t i = 1; i < call.size(); ++i) {
      const std::uint32_t r = (me + i) % call.size();
      std::memcpy(out + r * bytes, input_of(call, r) + me * bytes, bytes);
    }
    return call.meet_at_step();
  }
  // A piece of every part at once: in place, what is overwritten has just been copied.
  const Staged staged(call, call.size());
  for (std::uint64_t k = 0; k * staged.each < count; ++k) {
    const Part now = piece(count, staged.each, k);
    const std::uint64_t begin = now.begin * staged.element;
    for (std::uint32_t r = 0; r < call.size(); ++r) {
      if (r == me) continue;
      std::memcpy(staged.at(call, me, k, r), own_input(call) + r * bytes + begin,
                  now.count * staged.element);
    }
    call.meet_at_step();
    for (std::uint32_t i = 1; i < call.size(); ++i) {
      const std::uint32_t r = (me + i) % call.size();
      std::memcpy(out + r * bytes + begin, staged.at(call, r, k, me), now.count * staged.element);
    }
  }
}

}  // namespace strata::comm
