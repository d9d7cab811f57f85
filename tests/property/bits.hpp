// Bits: a set of small numbers, here of nodes of a program.
//
// Thread safety: a plain value.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace strata::property {

class Bits {
 public:
  Bits() = default;
  explicit Bits(std::size_t size) : words_((size + 63) / 64) {}

  void set(int i) { words_[at(i)] |= bit(i); }
  void clear(int i) { words_[at(i)] &= ~bit(i); }
  void clear() { words_.assign(words_.size(), 0); }
  [[nodiscard]] bool has(int i) const { return (words_[at(i)] & bit(i)) != 0; }
  [[nodiscard]] bool empty() const {
    for (const std::uint64_t word : words_) {
      if (word != 0) return false;
    }
    return true;
  }
  Bits& operator|=(const Bits& other) {
    for (std::size_t i = 0; i < words_.size(); ++i)
      words_[i] |= other.words_[i];
    return *this;
  }
  Bits& operator&=(const Bits& other) {
    for (std::size_t i = 0; i < words_.size(); ++i)
      words_[i] &= other.words_[i];
    return *this;
  }
  [[nodiscard]] bool meets(const Bits& other) const {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      if ((words_[i] & other.words_[i]) != 0) return true;
    }
    return false;
  }
  [[nodiscard]] bool within(const Bits& other) const {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      if ((words_[i] & ~other.words_[i]) != 0) return false;
    }
    return true;
  }
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (std::size_t w = 0; w < words_.size(); ++w) {
      for (std::uint64_t rest = words_[w]; rest != 0; rest &= rest - 1) {
        visit(static_cast<int>(w * 64) + std::countr_zero(rest));
      }
    }
  }

 private:
  static std::size_t at(int i) { return static_cast<std::size_t>(i) / 64; }
  static std::uint64_t bit(int i) { return std::uint64_t{1} << (static_cast<unsigned>(i) % 64); }
  std::vector<std::uint64_t> words_;
};

}  // namespace strata::property
