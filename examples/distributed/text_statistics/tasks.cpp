// The task of the sub worker; becomes libtext_statistics_tasks.so.
#include <algorithm>
#include <cstdio>
#include <numeric>
#include <strata/worker_task.hpp>
#include <string>
#include <vector>

#include "statistics.hpp"

using namespace statistics;

namespace {

std::string text_of(unsigned char c) {
  if (c == '\n') return "\\n";
  if (c == '\t') return "\\t";
  if (c == '\r') return "\\r";
  if (c == '"' || c == '\\') return std::string("\\") + static_cast<char>(c);
  if (c >= ' ' && c < 0x7f) return std::string(1, static_cast<char>(c));
  char escaped[5];
  std::snprintf(escaped, sizeof escaped, "\\x%02x", c);
  return escaped;
}

void add_row(std::string& table, std::int64_t number, const std::string& what) {
  char row[64];
  std::snprintf(row, sizeof row, "  %12lld  ", static_cast<long long>(number));
  table += row + what + "\n";
}

}  // namespace

// in what all ranks have shared, scalar: how many pairs are printed. Returns the table.
STRATA_WORKER_FUNCTION(make_table) {
  const auto* const shared = task.data<const std::int64_t>(0);
  const std::int64_t* const pairs = shared + kPairs;
  std::vector<std::int64_t> order(kPairKinds);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int64_t a, std::int64_t b) { return pairs[a] > pairs[b]; });
  std::string table;
  add_row(table, shared[kBytes], "bytes");
  add_row(table, shared[kLines], "lines");
  add_row(table, words_of_all(shared), "words");
  for (std::int64_t i = 0; i < std::min(task.scalar<std::int64_t>(0), kPairKinds); ++i) {
    const std::int64_t pair = order[static_cast<std::size_t>(i)];
    if (pairs[pair] == 0) break;
    add_row(table, pairs[pair],
            "pairs \"" + text_of(static_cast<unsigned char>(pair / 256)) +
                text_of(static_cast<unsigned char>(pair % 256)) + "\"");
  }
  task.set_value(std::move(table));
}
