// The tasks of word_count; becomes libword_count_tasks.so.
#include <map>
#include <strata/worker_task.hpp>

#include "words.hpp"

using word_count::Row;
using word_count::TableWriter;

namespace {

std::string_view text_of(const strata::WorkerTask& task, std::size_t argument) {
  return {task.data<const char>(argument),
          static_cast<std::size_t>(task.tensor(argument).extent(0))};
}

/// The rows of a table, without the first.
std::pair<const Row*, const Row*> rows_of(const strata::WorkerTask& task, std::size_t argument) {
  const auto* const rows = task.data<const Row>(argument);
  return {rows + 1, rows + 1 + rows[0].at};
}

}  // namespace

// in piece of the text, out table, scalar: where in the text the piece begins.
STRATA_WORKER_FUNCTION(count_words) {
  const std::string_view piece = text_of(task, 0);
  std::map<std::string_view, Row> found;
  word_count::for_each_word(piece, [&](std::string_view word) {
    Row& row = found[word];
    row.at = task.scalar<std::int64_t>(0) + (word.data() - piece.data());
    row.length = static_cast<std::int64_t>(word.size());
    ++row.count;
  });
  TableWriter table(task.data<Row>(1), task.tensor(1).extent(0));
  for (const auto& [word, row] : found)
    table.add(row);
  task.set_value(std::string(task.worker()));
}

// in text, in table, in table, out table of both.
STRATA_WORKER_FUNCTION(merge_tables) {
  const std::string_view text = text_of(task, 0);
  auto [a, a_end] = rows_of(task, 1);
  auto [b, b_end] = rows_of(task, 2);
  TableWriter table(task.data<Row>(3), task.tensor(3).extent(0));
  while (a != a_end || b != b_end) {
    const int order = a == a_end ? 1 : b == b_end ? -1 : a->word(text).compare(b->word(text));
    Row row = order <= 0 ? *a : *b;
    if (order == 0) row.count += b->count;
    table.add(row);
    if (order <= 0) ++a;
    if (order >= 0) ++b;
  }
  task.set_value(std::string(task.worker()));
}
