// What the program and its tasks agree on: what a word is, and how a table of words lies in a
// tensor.
//
// A table is an int64 tensor of rows of three. The first row has the number of words; each other
// row has where a word is in the text, its length, and how often it comes. Rows are sorted by word.
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace word_count {

/// Letters, and everything beyond ASCII. The text is in lower case already.
inline bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c & 0x80) != 0; }
inline char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

template <class F>
void for_each_word(std::string_view text, F&& use) {
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && is_letter(text[i])) continue;
    if (i > begin) use(text.substr(begin, i - begin));
    begin = i + 1;
  }
}

struct Row {
  std::int64_t at = 0;
  std::int64_t length = 0;
  std::int64_t count = 0;
  [[nodiscard]] std::string_view word(std::string_view text) const {
    return text.substr(static_cast<std::size_t>(at), static_cast<std::size_t>(length));
  }
};
static_assert(sizeof(Row) == 3 * sizeof(std::int64_t));

inline constexpr std::int64_t kMostWords = 1 << 18;
/// Rows of a table for any text of that many bytes; two bytes are a word at most.
inline std::int64_t rows_for(std::int64_t bytes) {
  return 1 + std::min((bytes + 1) / 2, kMostWords);
}

/// Fills a table.
class TableWriter {
 public:
  TableWriter(Row* rows, std::int64_t capacity) : rows_(rows), capacity_(capacity) {}
  ~TableWriter() { rows_[0] = {.at = next_ - 1}; }
  TableWriter(const TableWriter&) = delete;
  TableWriter& operator=(const TableWriter&) = delete;
  void add(const Row& row) {
    if (next_ == capacity_) {
      throw std::length_error("the text has more than " + std::to_string(capacity_ - 1) +
                              " different words, which is all that there is room for");
    }
    rows_[next_++] = row;
  }

 private:
  Row* rows_;
  std::int64_t capacity_;
  std::int64_t next_ = 1;
};

}  // namespace word_count
