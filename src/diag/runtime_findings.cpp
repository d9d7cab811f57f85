#include "diag/runtime_findings.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "diag/runtime_state.hpp"
#include "diag/tree_report.hpp"

namespace strata::diag {
namespace {

/// What has not lasted as long is how things are while all goes well.
constexpr double kLongS = 0.08;
/// Holders of the heap, and cores that wait in one way, that a line names.
constexpr std::size_t kHolders = 3;
constexpr std::size_t kCores = 4;
/// Lines about one chip.
constexpr std::size_t kLines = 8;

const ThreadReport* thread_of(const ProcessReport& process, const CoreState& core) {
  const auto found = std::ranges::find(process.threads, core.thread, &ThreadReport::thread);
  return core.thread == 0 || found == process.threads.end() ? nullptr : &*found;
}

class ChipFindings {
 public:
  ChipFindings(const ChipState& chip, const ProcessReport& process, const std::string& name,
               const std::function<std::string(const ThreadReport&)>& doing)
      : chip_(chip), process_(process), name_(name), doing_(doing) {}

  std::vector<RuntimeFinding> all() {
    for (const CoreState& core : chip_.cores) {
      if (core.state == "running" && core.for_s >= kLongS) running(core);
    }
    waiting();
    if (findings_.size() > kLines) {
      const std::size_t more = findings_.size() - kLines;
      findings_.resize(kLines);
      findings_.push_back({fmt::format("and {} more cores of {}", more, name_), {}});
    }
    return std::move(findings_);
  }

 private:
  void running(const CoreState& core) {
    RuntimeFinding finding{fmt::format("{} of {} has been in {} for {}", core.where, name_,
                                       core.work(), seconds_text(core.for_s)),
                           {}};
    if (const ThreadReport* const thread = thread_of(process_, core)) {
      finding.line += ": it " + doing_(*thread);
      finding.threads.push_back(thread->thread);
    }
    findings_.push_back(std::move(finding));
  }

  /// Cores of one task that wait for one thing are told of in one line; the fewer they are, the
  /// nearer to the reason.
  void waiting() {
    std::map<std::pair<std::uint64_t, std::string>, std::vector<const CoreState*>> groups;
    std::vector<decltype(groups)::const_iterator> order;
    for (const CoreState& core : chip_.cores) {
      if (core.state != "waiting" || core.for_s < kLongS) continue;
      const auto [group, is_new] = groups.try_emplace({core.task, core.waits_for});
      if (is_new) order.push_back(group);
      group->second.push_back(&core);
    }
    std::ranges::stable_sort(order, {}, [](const auto& group) { return group->second.size(); });
    for (const auto& group : order)
      waiting(group->first.second, group->second);
  }

  void waiting(const std::string& what, const std::vector<const CoreState*>& cores) {
    std::vector<std::string> places;
    RuntimeFinding finding;
    double longest = 0;
    for (const CoreState* core : cores) {
      if (places.size() < kCores) places.push_back(core->where);
      longest = std::max(longest, core->for_s);
      if (const ThreadReport* const thread = thread_of(process_, *core))
        finding.threads.push_back(thread->thread);
    }
    if (cores.size() > kCores) places.push_back(fmt::format("{} more", cores.size() - kCores));
    const CoreState& first = *cores.front();
    finding.line = fmt::format("{} of {} {} for {} in {}, for {}{}", fmt::join(places, ", "), name_,
                               cores.size() == 1 ? "waits" : "wait", what, first.work(),
                               seconds_text(longest), hope_of(first));
    findings_.push_back(std::move(finding));
  }

  /// Whether some lane is left that could end the wait.
  [[nodiscard]] std::string hope_of(const CoreState& core) const {
    if (core.waits_for.starts_with("the signal")) return "";  // Anybody may set that.
    std::size_t others = 0;
    for (const CoreState& other : chip_.cores) {
      if (other.task == core.task && other.state != "waiting") ++others;
    }
    if (others == 0) return "; no lane of that task runs any more, so nothing will end this wait";
    return fmt::format("; {} of the lanes of that task {}", others, others == 1 ? "runs" : "run");
  }

  const ChipState& chip_;
  const ProcessReport& process_;
  const std::string& name_;
  const std::function<std::string(const ThreadReport&)>& doing_;
  std::vector<RuntimeFinding> findings_;
};

std::string holders_text(const EngineState& engine) {
  std::vector<std::string> holders;
  for (const HeapHolder& holder : engine.holders) {
    if (holders.size() < kHolders) holders.push_back(holder.to_string());
  }
  if (holders.empty()) return "nobody";
  std::string text = fmt::format("{}", fmt::join(holders, ", "));
  if (engine.holders.size() > kHolders) text += " and others";
  return text;
}

std::string blocked_text(const BlockedSubmit& blocked, const EngineState& engine,
                         const std::string& name) {
  const std::string who =
      fmt::format("the orchestration of {}, scope '{}', in {}", blocked.run, blocked.scope, name);
  if (blocked.needs == "heap") {
    return fmt::format("{} has waited for {} of the heap for {}: {} of {} are held, by {}", who,
                       bytes_text(blocked.asked), seconds_text(blocked.for_s),
                       bytes_text(engine.heap_used), bytes_text(engine.heap_capacity),
                       holders_text(engine));
  }
  if (blocked.needs == "window") {
    return fmt::format(
        "{} has waited for room in the window for {}: {} of {} tasks are in flight, {} at lanes, "
        "{} waiting for others",
        who, seconds_text(blocked.for_s), engine.window_used, engine.window_capacity,
        engine.at_lanes, engine.waiting);
  }
  return "";
}

}  // namespace

std::vector<RuntimeFinding> runtime_findings(
    const ProcessReport& process, const std::string& name,
    const std::function<std::string(const ThreadReport&)>& doing) {
  std::vector<RuntimeFinding> findings;
  if (!process.strata) return findings;
  const RuntimeState state = runtime_state(process.strata->state);
  for (const ChipState& chip : state.chips)
    std::ranges::move(ChipFindings(chip, process, name, doing).all(), std::back_inserter(findings));
  for (const std::string& wait : state.waits)
    findings.push_back({wait, {}});
  for (const EngineState& engine : state.engines) {
    for (const BlockedSubmit& blocked : engine.blocked) {
      if (blocked.for_s < kLongS) continue;
      std::string line = blocked_text(blocked, engine, name);
      if (!line.empty()) findings.push_back({std::move(line), {}});
    }
  }
  return findings;
}

}  // namespace strata::diag
