// How often does each word come in a text? Counted by a node of four processes: pieces of the text
// on two chips, their tables merged pairwise by two subs, and the result compared with a plain loop
// in this process.
//
//   text     ------piece-----|------piece-----|------piece-----|------piece-----
//   chips      count_words      count_words      count_words      count_words
//   subs              merge_tables                      merge_tables
//                                      merge_tables
//
// Text and tables lie in memory that all processes share; nothing is copied or sent.

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <strata/strata.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "words.hpp"

namespace {

using word_count::Row;

struct Words {
  std::string name;     ///< Of the file.
  std::string content;  ///< In lower case.
};

Words read(const std::string& name) {
  std::ifstream file(name, std::ios::binary);
  if (!file.is_open() || std::filesystem::is_directory(name)) {
    throw std::runtime_error("can't read '" + name + "'");
  }
  Words words{.name = name, .content = {std::istreambuf_iterator<char>(file), {}}};
  std::transform(words.content.begin(), words.content.end(), words.content.begin(),
                 word_count::lower);
  return words;
}

/// Where the pieces begin, and the end of the text: no word is in two pieces.
std::vector<std::size_t> cut(std::string_view text) {
  const std::size_t pieces = std::max<std::size_t>(8, text.size() >> 20U);
  std::vector<std::size_t> cuts{0};
  for (std::size_t i = 1; i < pieces; ++i) {
    std::size_t at = std::max(cuts.back(), text.size() / pieces * i);
    while (at > 0 && at < text.size() && word_count::is_letter(text[at - 1]))
      ++at;
    if (at > cuts.back() && at < text.size()) cuts.push_back(at);
  }
  cuts.push_back(text.size());
  return cuts;
}

/// What ran where, and the table of the whole text.
struct Result {
  std::map<std::string, std::vector<std::string>> ran;  ///< By worker: tasks.
  std::map<std::string, std::int64_t, std::less<>> counts;
};

Result count_on_a_node(const std::string& content) {
  const std::string library =
      std::filesystem::read_symlink("/proc/self/exe").replace_filename("libword_count_tasks.so");
  strata::Worker worker({.chips = {{}, {}}, .subs = {{.count = 2}}});
  const auto count = worker.add(strata::Callable::in_library(library, "count_words"));
  const auto merge = worker.add(strata::Callable::in_library(library, "merge_tables"));
  const auto bytes = static_cast<std::int64_t>(content.size());
  strata::Buffer memory = worker.create_buffer(content.size());
  std::memcpy(memory.data(), content.data(), content.size());
  const strata::Tensor text = memory.tensor(strata::DType::uint8, {bytes});
  worker.init();

  struct Part {
    strata::Tensor table;
    std::int64_t bytes;
  };
  const auto table_for = [](std::int64_t length) {
    return strata::Tensor(strata::DType::int64, {word_count::rows_for(length), 3});
  };
  std::vector<std::pair<strata::TaskId, std::string>> tasks;
  strata::TensorHandle whole;
  const strata::Run run = worker.run([&](strata::Orchestration& graph) {
    std::vector<Part> parts;
    const std::vector<std::size_t> cuts = cut(content);
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      const auto begin = static_cast<std::int64_t>(cuts[i]);
      const auto end = static_cast<std::int64_t>(cuts[i + 1]);
      Part part{table_for(end - begin), end - begin};
      const strata::TaskId task =
          graph.submit(strata::Call(count), in(text.slice(0, begin, end)), out(part.table),
                       strata::scalar(begin), on(worker.chip(i % 2)), strata::named("count_words"));
      tasks.emplace_back(task, "count " + std::to_string(i));
      parts.push_back(part);
    }
    while (parts.size() > 1) {
      std::vector<Part> merged;
      for (std::size_t i = 0; i + 1 < parts.size(); i += 2) {
        Part both{table_for(parts[i].bytes + parts[i + 1].bytes),
                  parts[i].bytes + parts[i + 1].bytes};
        const strata::TaskId task =
            graph.submit(strata::Call(merge), in(text), in(parts[i].table), in(parts[i + 1].table),
                         out(both.table), on(worker.any_sub()), strata::named("merge_tables"));
        tasks.emplace_back(task, "merge of " + std::to_string(both.bytes) + " bytes");
        merged.push_back(both);
      }
      if (parts.size() % 2 != 0) merged.push_back(parts.back());
      parts = merged;
    }
    whole = graph.keep(parts[0].table);
  });

  Result result;
  for (const auto& [task, name] : tasks)
    result.ran[run.value(task).value_or("?")].push_back(name);
  const auto* const rows = reinterpret_cast<const Row*>(whole.data());
  for (const Row* row = rows + 1; row != rows + 1 + rows[0].at; ++row)
    result.counts.emplace(row->word(content), row->count);
  whole = {};
  worker.close();
  return result;
}

void print(const Words& words, const Result& result) {
  std::printf("Words of %s (%zu bytes), counted by a node of 2 chips and 2 subs\n",
              words.name.c_str(), words.content.size());
  for (const auto& [worker, tasks] : result.ran) {
    std::printf("  %-12s ran %zu tasks:", worker.c_str(), tasks.size());
    for (std::size_t i = 0; i < tasks.size() && i < 6; ++i)
      std::printf("%s %s", i == 0 ? "" : ",", tasks[i].c_str());
    std::printf("%s\n", tasks.size() > 6 ? ", ..." : "");
  }
  std::vector<std::pair<std::int64_t, std::string>> top;
  std::int64_t all = 0;
  for (const auto& [word, count] : result.counts) {
    top.emplace_back(count, word);
    all += count;
  }
  std::stable_sort(top.begin(), top.end(), [](auto& a, auto& b) { return a.first > b.first; });
  top.resize(std::min<std::size_t>(top.size(), 10));
  std::printf("  %lld words, %zu different; the most frequent:\n", static_cast<long long>(all),
              result.counts.size());
  for (const auto& [count, word] : top)
    std::printf("  %7lld  %s\n", static_cast<long long>(count), word.c_str());
}

int count_words_of(const std::string& file) {
  const Words words = read(file);
  if (words.content.empty()) {
    std::printf("%s is empty\n", file.c_str());
    return 0;
  }
  const Result result = count_on_a_node(words.content);
  print(words, result);
  std::map<std::string, std::int64_t, std::less<>> expected;
  word_count::for_each_word(words.content,
                            [&](std::string_view word) { ++expected[std::string(word)]; });
  const bool right = result.counts == expected;
  std::printf("%s\n", right ? "right" : "WRONG: a plain loop counts otherwise");
  return right ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view first = argc > 1 ? argv[1] : "";
  if (argc > 2 || first.starts_with("-")) {
    const bool help = argc == 2 && (first == "--help" || first == "-h");
    std::fputs(
        "word_count [FILE]: counts the words of a text on a node of 2 chips and 2 subs, prints\n"
        "what ran where and the most frequent words, and checks the result.\n"
        "Exit code: 0 if it is right, 1 if it is not or there is none, 2 for wrong arguments.\n",
        help ? stdout : stderr);
    return help ? 0 : 2;
  }
  try {
    return count_words_of(argc > 1 ? argv[1] : WORD_COUNT_TEXT);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "word_count: %s\n", error.what());
    return 1;
  }
}
