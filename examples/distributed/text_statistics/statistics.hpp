// What the program, its kernels and its tasks agree on: what is counted, and how counts lie in a
// tensor of int64.
//
// A word is what GNU `wc -w` counts with LC_ALL=C: bytes without white space among them (space, \t,
// \n, \v, \f, \r), at least one of which is a printable ASCII character. A line is a \n. A pair is
// two bytes one behind the other, anywhere in the text.
//
// A piece of a text may begin and end within a word. So of each piece it is kept whether there is
// something printable in front of its first white space (the head) and behind its last (the tail):
// pieces are merged with that, in their order, and no word is counted twice or forgotten.
//
// Thread safety: plain values and pure functions.
#pragma once

#include <cstdint>

namespace statistics {

// Places in the tensor.
inline constexpr std::int64_t kBytes = 0;
inline constexpr std::int64_t kLines = 1;
inline constexpr std::int64_t kWords = 2;  ///< With white space on both sides within the piece.
inline constexpr std::int64_t kHead = 3;  ///< 1: the part before the first white space is a word's.
inline constexpr std::int64_t kTail = 4;  ///< The same behind the last; 0 where there is none.
inline constexpr std::int64_t kSpaces = 5;  ///< 1: there is white space.
inline constexpr std::int64_t kPairs = 8;   ///< Of bytes a, b at kPairs + 256 * a + b.
inline constexpr std::int64_t kPairKinds = 256 * 256;
inline constexpr std::int64_t kCounts = kPairs + kPairKinds;

// What a chip gives to the others: the same, but head, tail and spaces lie in a place of each
// rank's own, with zeros in the places of the others, so that the sum over all ranks has them all.
inline constexpr std::int64_t kMostRanks = 64;
inline constexpr std::int64_t kEdges = kCounts;
inline constexpr std::int64_t kEdgesPerRank = 3;
inline constexpr std::int64_t kShared = kEdges + kMostRanks * kEdgesPerRank;

/// How words end at the borders of a text or of a piece of one.
struct Words {
  std::int64_t inside = 0;
  bool head = false;
  bool tail = false;
  bool spaces = false;

  /// Of this piece and the one behind it.
  [[nodiscard]] constexpr Words followed_by(const Words& next) const noexcept {
    if (!spaces && !next.spaces) return {.head = head || next.head};
    if (!spaces) {
      return {.inside = next.inside, .head = head || next.head, .tail = next.tail, .spaces = true};
    }
    if (!next.spaces)
      return {.inside = inside, .head = head, .tail = tail || next.head, .spaces = true};
    const bool between = tail || next.head;
    return {.inside = inside + next.inside + (between ? 1 : 0),
            .head = head,
            .tail = next.tail,
            .spaces = true};
  }
  /// If there is nothing around it.
  [[nodiscard]] constexpr std::int64_t all() const noexcept {
    return inside + (head ? 1 : 0) + (tail ? 1 : 0);
  }
};

constexpr bool is_space(unsigned char c) noexcept { return c == ' ' || (c >= '\t' && c <= '\r'); }
constexpr bool is_printable(unsigned char c) noexcept { return c > ' ' && c < 0x7f; }

[[nodiscard]] inline Words words_of(const std::int64_t* counts) noexcept {
  return {.inside = counts[kWords],
          .head = counts[kHead] != 0,
          .tail = counts[kTail] != 0,
          .spaces = counts[kSpaces] != 0};
}
inline void set_words(std::int64_t* counts, const Words& words) noexcept {
  counts[kWords] = words.inside;
  counts[kHead] = words.head ? 1 : 0;
  counts[kTail] = words.tail ? 1 : 0;
  counts[kSpaces] = words.spaces ? 1 : 0;
}

/// The words of the whole text, from what the ranks have shared. All of `inside` is in one sum; the
/// words across the borders are added here.
[[nodiscard]] inline std::int64_t words_of_all(const std::int64_t* shared) noexcept {
  Words all;
  for (std::int64_t rank = 0; rank < kMostRanks; ++rank) {
    const std::int64_t* const edges = shared + kEdges + rank * kEdgesPerRank;
    all = all.followed_by({.head = edges[0] != 0, .tail = edges[1] != 0, .spaces = edges[2] != 0});
  }
  return shared[kWords] + all.all();
}

/// Counts a text, or a piece of one, into `counts`. If `has_previous`, the first byte is the last
/// one of the piece before and only there for its pair.
inline void count(const unsigned char* text, std::int64_t bytes, bool has_previous,
                  std::int64_t* counts) noexcept {
  for (std::int64_t i = 0; i < kCounts; ++i)
    counts[i] = 0;
  const std::int64_t begin = has_previous ? 1 : 0;
  std::int64_t* const pairs = counts + kPairs;
  Words words;
  bool printable = false;  // Since the last white space.
  for (std::int64_t i = begin; i < bytes; ++i) {
    const unsigned char c = text[i];
    if (i > 0) ++pairs[256 * text[i - 1] + c];
    if (c == '\n') ++counts[kLines];
    if (!is_space(c)) {
      printable = printable || is_printable(c);
      continue;
    }
    if (!words.spaces) words.head = printable;
    if (words.spaces && printable) ++words.inside;
    words.spaces = true;
    printable = false;
  }
  (words.spaces ? words.tail : words.head) = printable;
  counts[kBytes] = bytes - begin;
  set_words(counts, words);
}

}  // namespace statistics
