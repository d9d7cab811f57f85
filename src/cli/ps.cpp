// `strata ps`: the trees of Strata processes, as a table or as JSON, once or again and again.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "cli/commands.hpp"
#include "cli/process_tree.hpp"
#include "os/deadline.hpp"

namespace strata::cli {
namespace {

using std::chrono::nanoseconds;

double seconds(nanoseconds time) { return std::chrono::duration<double>(time).count(); }

/// Since then, as "350 ms", "12.3 s", "3 min 20 s", "5 h 12 min", "3 d 4 h".
std::string text_of(nanoseconds time) {
  const double s = std::max(0.0, seconds(time));
  if (s < 1) return fmt::format("{:.0f} ms", s * 1e3);
  if (s < 60) return fmt::format("{:.1f} s", s);
  const auto whole = static_cast<long>(s);
  if (s < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  if (s < 86400) return fmt::format("{} h {} min", whole / 3600, whole / 60 % 60);
  return fmt::format("{} d {} h", whole / 86400, whole / 3600 % 24);
}

nanoseconds since(nanoseconds then) { return nanoseconds(os::monotonic_now_ns()) - then; }

/// What a terminal would take as a command is shown as '?'.
std::string printable(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return text;
}

std::string doing(const StrataProcess& process) {
  const trace::Card& card = process.card;
  if (card.task) {
    std::string text = card.task->name;
    if (card.task->callable != card.task->name && !card.task->callable.empty()) {
      text += fmt::format(" ({})", card.task->callable);
    }
    return printable(
        fmt::format("task {} {}, for {}", card.task->task, text, text_of(since(card.task->since))));
  }
  if (card.step.empty()) return "";
  return printable(fmt::format("{}, for {}", card.step, text_of(since(card.step_since))));
}

// ---- The table
// -----------------------------------------------------------------------------------

struct Column {
  const char* heading;
  bool number;  ///< Stands at the right of its column.
};
constexpr Column kColumns[] = {{"PID", true},    {"PROCESS", false}, {"ROLE", false},
                               {"STATE", false}, {"SINCE", true},    {"CPU", true},
                               {"DOING", false}};
using Row = std::array<std::string, std::size(kColumns)>;

/// CPU time of a process when it was looked at last.
struct LastLook {
  std::map<pid_t, nanoseconds> cpu;
  nanoseconds at{0};
};

std::string cpu_text(const StrataProcess& process, const LastLook& last) {
  const nanoseconds cpu = cpu_time_of(process);
  const auto before = last.cpu.find(process.info.pid);
  if (before == last.cpu.end()) return text_of(cpu);
  const double share = seconds(cpu - before->second) / std::max(1e-3, seconds(since(last.at)));
  return fmt::format("{} {:.0f} %", text_of(cpu), 100 * share);
}

void add_rows(const StrataProcess& process, int depth, const LastLook& last,
              std::vector<Row>& rows) {
  rows.push_back(
      {std::to_string(process.info.pid),
       std::string(static_cast<std::size_t>(depth) * 2, ' ') + printable(process.card.path),
       printable(process.card.role), state_of(process), text_of(since(since_of(process))),
       cpu_text(process, last), doing(process)});
  for (const StrataProcess& child : process.children)
    add_rows(child, depth + 1, last, rows);
}

std::string table(const std::vector<StrataProcess>& trees, const LastLook& last) {
  if (trees.empty()) return "No Strata processes are running, or none that you may look at.\n";
  std::vector<Row> rows(1);
  for (std::size_t c = 0; c < std::size(kColumns); ++c)
    rows[0][c] = kColumns[c].heading;
  for (const StrataProcess& root : trees)
    add_rows(root, 0, last, rows);

  std::array<std::size_t, std::size(kColumns)> widths{};
  for (const Row& row : rows) {
    for (std::size_t c = 0; c < row.size(); ++c)
      widths[c] = std::max(widths[c], row[c].size());
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) {
      if (c > 0) line += "  ";
      line += kColumns[c].number ? fmt::format("{:>{}}", row[c], widths[c])
                                 : fmt::format("{:<{}}", row[c], widths[c]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

void note(const StrataProcess& process, LastLook& look) {
  look.cpu[process.info.pid] = cpu_time_of(process);
  for (const StrataProcess& child : process.children)
    note(child, look);
}

// ---- JSON
// ----------------------------------------------------------------------------------------

nlohmann::json json_of(const StrataProcess& process) {
  const trace::Card& card = process.card;
  nlohmann::json json = {
      {"pid", process.info.pid},
      {"parent", process.info.ppid},
      {"path", card.path},
      {"role", card.role},
      {"state", trace::name_of(doing_of(process))},
      {"state_for_s", seconds(since(since_of(process)))},
      {"running_for_s", seconds(since(card.started))},
      {"kernel_state", std::string(1, process.info.state)},
      {"stopped", process.info.state == 'T' || process.info.state == 't'},
      {"cpu_s", seconds(cpu_time_of(process))},
      {"threads", process.info.threads},
      {"command_line", process.command_line},
      {"step", card.step},
      {"step_for_s", seconds(since(card.step_since))},
      {"task", nullptr},
      {"children", nlohmann::json::array()},
  };
  if (card.task) {
    json["task"] = {{"id", card.task->task},
                    {"name", card.task->name},
                    {"callable", card.task->callable},
                    {"for_s", seconds(since(card.task->since))}};
  }
  for (const StrataProcess& child : process.children)
    json["children"].push_back(json_of(child));
  return json;
}

std::string json_text(const std::vector<StrataProcess>& trees, int indent) {
  nlohmann::json json = {{"trees", nlohmann::json::array()}};
  for (const StrataProcess& root : trees)
    json["trees"].push_back(json_of(root));
  // Names may be any bytes; JSON is text.
  return json.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

/// False if nobody reads it any more.
bool print(const std::string& text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
         std::fflush(stdout) == 0;
}

}  // namespace

int ps(const PsOptions& options) {
  if (!options.watch) {
    const std::vector<StrataProcess> trees = find_trees();
    return print(options.json ? json_text(trees, 2) : table(trees, {})) ? 0 : 1;
  }
  const bool terminal = ::isatty(STDOUT_FILENO) == 1;
  LastLook last;
  for (;;) {
    const std::vector<StrataProcess> trees = find_trees();
    // One object a line, or a table that takes the place of the one before.
    std::string text = options.json ? json_text(trees, -1) : table(trees, last);
    if (!options.json) text = terminal ? "\x1b[H\x1b[J" + text : text + "\n";
    if (!print(text)) return 1;
    last = {.cpu = {}, .at = nanoseconds(os::monotonic_now_ns())};
    for (const StrataProcess& root : trees)
      note(root, last);
    std::this_thread::sleep_for(std::chrono::duration<double>(*options.watch));
  }
}

}  // namespace strata::cli
