#include "cli/process_tree.hpp"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

namespace strata::cli {
namespace {

/// Texts in order, with the numbers in them compared as numbers: "sub[9]" before "sub[10]".
bool comes_before(std::string_view a, std::string_view b) {
  const auto digits = [](std::string_view text) {
    std::size_t count = 0;
    while (count < text.size() && std::isdigit(static_cast<unsigned char>(text[count])) != 0) {
      ++count;
    }
    return count;
  };
  while (!a.empty() && !b.empty()) {
    const std::size_t in_a = digits(a);
    const std::size_t in_b = digits(b);
    if (in_a > 0 && in_b > 0) {
      if (in_a != in_b) return in_a < in_b;
      if (const int order = a.compare(0, in_a, b, 0, in_b)) return order < 0;
      a.remove_prefix(in_a);
      b.remove_prefix(in_b);
      continue;
    }
    if (a.front() != b.front()) return a.front() < b.front();
    a.remove_prefix(1);
    b.remove_prefix(1);
  }
  return a.size() < b.size();
}

/// Takes those with this parent out of `by_parent`, each with its own children.
std::vector<StrataProcess> children_of(pid_t parent,
                                       std::multimap<pid_t, StrataProcess>& by_parent) {
  std::vector<StrataProcess> children;
  const auto [first, last] = by_parent.equal_range(parent);
  for (auto it = first; it != last; ++it)
    children.push_back(std::move(it->second));
  by_parent.erase(first, last);
  for (StrataProcess& child : children)
    child.children = children_of(child.info.pid, by_parent);
  std::sort(children.begin(), children.end(), [](const StrataProcess& a, const StrataProcess& b) {
    if (a.card.path == b.card.path) return a.info.pid < b.info.pid;
    return comes_before(a.card.path, b.card.path);
  });
  return children;
}

}  // namespace

std::vector<StrataProcess> find_trees() {
  std::map<pid_t, os::ProcessInfo> all;
  for (os::ProcessInfo& info : os::all_processes()) {
    const pid_t pid = info.pid;
    all.emplace(pid, std::move(info));
  }
  std::map<pid_t, StrataProcess> found;
  for (const auto& [pid, info] : all) {
    const std::optional<trace::ProcessRecordReader> reader =
        trace::ProcessRecordReader::of_process(pid);
    if (!reader) continue;
    found.emplace(pid, StrataProcess{.info = info,
                                     .card = reader->card(),
                                     .command_line = os::command_line(pid),
                                     .children = {}});
  }

  constexpr pid_t kNone = 0;
  std::multimap<pid_t, StrataProcess> by_parent;
  for (auto& [pid, process] : found) {
    pid_t above = process.info.ppid;
    // Bounded: what was read at different moments need not be a tree.
    for (std::size_t steps = 0; steps < all.size() && !found.contains(above); ++steps) {
      const auto it = all.find(above);
      above = it == all.end() ? kNone : it->second.ppid;
    }
    by_parent.emplace(found.contains(above) ? above : kNone, std::move(process));
  }
  std::vector<StrataProcess> roots = children_of(kNone, by_parent);
  std::sort(roots.begin(), roots.end(),
            [](const StrataProcess& a, const StrataProcess& b) { return a.info.pid < b.info.pid; });
  return roots;
}

trace::ProcessState doing_of(const StrataProcess& process) {
  const bool at_work = process.card.task && process.card.state == trace::ProcessState::idle;
  return at_work ? trace::ProcessState::running : process.card.state;
}

std::chrono::nanoseconds since_of(const StrataProcess& process) {
  const bool at_work = process.card.task && process.card.state == trace::ProcessState::idle;
  return at_work ? process.card.task->since : process.card.state_since;
}

std::string state_of(const StrataProcess& process) {
  std::string state = trace::name_of(doing_of(process));
  if (process.info.state == 'T' || process.info.state == 't') state += ", stopped";
  if (process.info.state == 'D') state += ", in the kernel";
  return state;
}

std::chrono::nanoseconds cpu_time_of(const StrataProcess& process) {
  const long ticks_per_second = std::max(1L, ::sysconf(_SC_CLK_TCK));
  return std::chrono::nanoseconds(static_cast<std::int64_t>(
      static_cast<double>(process.info.cpu_ticks) * 1e9 / static_cast<double>(ticks_per_second)));
}

}  // namespace strata::cli
