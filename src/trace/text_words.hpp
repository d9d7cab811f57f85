// Texts and sequence locks in the process record, as its writers and readers use them.
//
// A sequence lock: the writer makes `sequence` odd, changes the words, makes it even; a reader that
// finds the same even number before and after has seen one version. Nobody ever waits for a reader,
// and a reader that meets a writer which stopped in the middle gives up.
//
// Thread safety: free functions; what they work on says who may write.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "trace/record_layout.hpp"

namespace strata::trace {

/// Stores the length, and as much of the text as there is room for. Relaxed: the caller publishes.
template <std::size_t Size>
void store_text(TextWords<Size>& to, std::string_view text) noexcept {
  const std::size_t bytes = std::min(text.size(), Size);
  to.bytes_in_all.store(text.size(), std::memory_order_relaxed);
  std::size_t word = 0;
  for (; word < bytes / 8; ++word) {
    std::uint64_t value;
    std::memcpy(&value, text.data() + word * 8, 8);
    to.words[word].store(value, std::memory_order_relaxed);
  }
  if (const std::size_t rest = bytes % 8; rest != 0) {
    std::uint64_t value = 0;
    if (bytes >= 8) {
      // The last eight bytes, of which some are stored already: one load instead of a call for a
      // length that the compiler does not know.
      std::memcpy(&value, text.data() + bytes - 8, 8);
      value >>= (8 - rest) * 8;
    } else {
      for (std::size_t i = rest; i-- > 0;)
        value = value << 8 | static_cast<unsigned char>(text[i]);
    }
    to.words[word].store(value, std::memory_order_relaxed);
  }
}

/// What is kept of the text; whole if as long as `bytes_in_all` says.
template <std::size_t Size>
std::string load_text(const TextWords<Size>& from) {
  const auto in_all = from.bytes_in_all.load(std::memory_order_relaxed);
  std::string text(static_cast<std::size_t>(std::min<std::uint64_t>(in_all, Size)), '\0');
  for (std::size_t at = 0; at < text.size(); at += 8) {
    const std::uint64_t value = from.words[at / 8].load(std::memory_order_relaxed);
    std::memcpy(text.data() + at, &value, std::min<std::size_t>(8, text.size() - at));
  }
  return text;
}

/// The same for people: what is not kept is named by its size.
template <std::size_t Size>
std::string describe_text(const TextWords<Size>& from) {
  const auto in_all = from.bytes_in_all.load(std::memory_order_relaxed);
  std::string text = load_text(from);
  if (in_all > text.size()) text += " ... (" + std::to_string(in_all) + " bytes in all)";
  return text;
}

/// Begins a change by the only writer there is; returns what end_change() takes.
template <class Sequence>
auto begin_change(Sequence& sequence) noexcept {
  const auto before = sequence.load(std::memory_order_relaxed);
  // `| 1`: also where a process that died in the middle left it odd.
  const auto odd = before | 1U;
  sequence.store(odd, std::memory_order_relaxed);
  // A reader that sees one of the words that change now sees, after an acquire fence, the odd
  // number too.
  std::atomic_thread_fence(std::memory_order_release);
  return odd;
}

/// Release: a reader that sees the even number sees the words.
template <class Sequence, class Value>
void end_change(Sequence& sequence, Value odd) noexcept {
  sequence.store(odd + 1, std::memory_order_release);
}

/// Calls copy() until it has copied one version; false if there was none for a long time: the
/// writer is dead, stopped or mad.
template <class Sequence, class Copy>
bool read_version(const Sequence& sequence, Copy copy) {
  constexpr int kTries = 10'000;
  for (int i = 0; i < kTries; ++i) {
    const auto before = sequence.load(std::memory_order_acquire);
    if (before % 2 != 0) continue;
    copy();
    std::atomic_thread_fence(std::memory_order_acquire);
    if (sequence.load(std::memory_order_relaxed) == before) return true;
  }
  return false;
}

}  // namespace strata::trace
