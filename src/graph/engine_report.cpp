// What an engine says of itself in reports (trace/state_board.hpp): asked for by a thread that is
// not the engine's, while the program runs or hangs.
//
// Locks are taken one after the other, each for as long as it takes to copy what is there, in the
// order that engine_state.hpp gives them. A lock that is not to be had means that the thread which
// holds it hangs inside the engine: the report says that, and is not held up by it.

#include <algorithm>
#include <chrono>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>
#include <unordered_map>

#include "graph/engine_state.hpp"

namespace strata::graph {

namespace {

using nlohmann::json;

/// Of tasks, lanes and blocks so many are listed, the oldest or largest; of the rest the number.
constexpr std::size_t kTasks = 40;
constexpr std::size_t kLanes = 64;
constexpr std::size_t kHolders = 8;
constexpr std::size_t kPredecessors = 4;

/// The lock, if it can be had within some milliseconds.
template <class Mutex>
std::unique_lock<Mutex> lock_soon(Mutex& mutex) {
  constexpr int kTries = 50;
  std::unique_lock<Mutex> lock(mutex, std::try_to_lock);
  for (int i = 0; i < kTries && !lock.owns_lock(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    (void)lock.try_lock();
  }
  return lock;
}

double seconds_since(std::uint64_t cycles) {
  const std::uint64_t now = os::cycle_count();
  return now > cycles ? static_cast<double>(now - cycles) / os::cycles_per_ns() / 1e9 : 0.0;
}

const char* name_of(RoomRequest::Need need) {
  switch (need) {
    case RoomRequest::Need::slots:
      return "window";
    case RoomRequest::Need::bytes:
      return "heap";
    case RoomRequest::Need::run_end:
      return "run";
    case RoomRequest::Need::users:
      return "users";
  }
  return "?";
}

/// Of an engine whose lock somebody does not give back.
json locked(const char* which) {
  return {{"problem", std::string("its ") + which + " lock is held and not given back"}};
}

}  // namespace

/// Those that have not ended.
std::vector<std::shared_ptr<RunState>> EngineState::open_runs() {
  std::vector<std::shared_ptr<RunState>> open;
  const auto lock = lock_soon(runs_mutex);
  if (!lock.owns_lock()) return open;
  for (const auto& weak : runs_) {
    std::shared_ptr<RunState> run = weak.lock();
    if (run != nullptr && !run->done()) open.push_back(std::move(run));
  }
  return open;
}

/// Orchestrations that wait for room, or for the end of something.
json EngineState::describe_blocked() {
  json list = json::array();
  const auto lock = lock_soon(blocked_mutex);
  if (!lock.owns_lock()) return list;
  for (const RoomRequest* request : blocked) {
    list.push_back({{"run", request->who->run->name},
                    {"scope", request->who->scope().path},
                    {"needs", name_of(request->need)},
                    {"asked", request->asked},
                    {"for_s", seconds_since(request->since)}});
  }
  return list;
}

/// Who holds most of the heap. Graph lock held: it keeps the records from being used again.
json EngineState::describe_holders() {
  struct Held {
    std::int64_t bytes;
    json text;
  };
  std::vector<Held> all;
  storage.for_each_block([&](const BufferRecord& record) {
    json kept_by;
    if (record.handles.load(std::memory_order_relaxed) != 0) {
      kept_by = "a TensorHandle";
    } else if (record.scope != nullptr) {
      kept_by = "scope '" + record.scope->path + "'";
    } else {
      kept_by = "tasks in flight";
    }
    all.push_back(
        {record.bytes,
         {{"bytes", record.bytes},
          {"run", record.account != nullptr ? record.account->name : std::string()},
          {"task", record.allocated_by == 0 ? json() : json(TaskId{record.allocated_by}.number())},
          {"kept_by", std::move(kept_by)}}});
  });
  std::ranges::stable_sort(all, std::greater<>(), &Held::bytes);
  json list = json::array();
  for (std::size_t i = 0; i < std::min(all.size(), kHolders); ++i)
    list.push_back(std::move(all[i].text));
  return list;
}

/// Tasks in flight by state, and the lanes. Graph lock held.
void EngineState::describe_tasks(json& report, const std::vector<std::shared_ptr<RunState>>& runs) {
  std::unordered_map<const TaskNode*, std::string> lane_of;
  json lanes = json::array();
  const auto text_of = [](const Lane& lane) {
    const auto& all = lane.kind->lanes;
    return lane.kind->name + "[" + std::to_string(std::ranges::find(all, &lane) - all.begin()) +
           "]";
  };
  scheduler.look_at_lanes(
      [&](const Lane& lane) {
        const bool idle = lane.in_flight == 0 && lane.order.empty() && lane.loose.empty();
        if ((idle && !lane.suspended) || lanes.size() >= kLanes) return;
        lanes.push_back({{"lane", text_of(lane)},
                         {"at_it", lane.in_flight},
                         {"behind", lane.order.size() + lane.loose.size()},
                         {"suspended", lane.suspended},
                         {"reserved", lane.reserved}});
      },
      [&](const Lane& lane, const Placed& part) { lane_of[part.task] = text_of(lane); });
  report["lanes"] = std::move(lanes);

  std::vector<TaskNode*> in_flight;
  window.for_each_slot([&](TaskNode& node) {
    if (node.id != 0 && !node.finished()) in_flight.push_back(&node);
  });
  std::ranges::sort(in_flight, {}, &TaskNode::id);
  std::size_t counts[3] = {};
  json tasks = json::array();
  for (TaskNode* const node : in_flight) {
    const auto lane = lane_of.find(node);
    const bool waits = node->pending.load(std::memory_order_relaxed) > 0;
    const std::size_t state = lane != lane_of.end() ? 2 : waits ? 0 : 1;
    ++counts[state];
    if (tasks.size() >= kTasks) continue;
    json task = {{"number", TaskId{node->id}.number()},
                 {"state", state == 0   ? "waiting"
                           : state == 1 ? "ready"
                                        : "at a lane"}};
    // A run that is not among these is ending: what it says need not be there any more.
    const auto run = std::ranges::find(runs, node->run, &std::shared_ptr<RunState>::get);
    if (run != runs.end()) {
      task["name"] = std::string(node->name);
      task["run"] = (*run)->name;
    }
    if (node->type == NodeType::host) task["host_access"] = true;
    if (lane != lane_of.end()) task["lane"] = lane->second;
    json after = json::array();
    for (std::uint32_t i = 0; waits && i < node->edge_count && after.size() < kPredecessors; ++i) {
      const std::uint64_t from = node->edge(i).from;
      TaskNode* const before = is_join(from) ? nullptr : window.at(TaskId{from});
      if (before != nullptr && before->id == from && !before->finished()) {
        after.push_back(TaskId{from}.number());
      }
    }
    if (!after.empty()) task["after"] = std::move(after);
    tasks.push_back(std::move(task));
  }
  report["counts"] = {{"waiting", counts[0]}, {"ready", counts[1]}, {"at_lanes", counts[2]}};
  report["more_tasks"] = in_flight.size() - tasks.size();
  report["tasks"] = std::move(tasks);
}

json EngineState::describe() {
  const std::vector<std::shared_ptr<RunState>> runs = open_runs();
  json report = {{"window_setting", options.window_setting},
                 {"heap_setting", options.heap_setting},
                 {"blocked", describe_blocked()}};
  json list = json::array();
  for (const auto& run : runs) {
    list.push_back({{"name", run->name},
                    {"for_s", seconds_since(run->opened_cycles)},
                    {"tasks", run->tasks.load(std::memory_order_relaxed)},
                    {"heap_bytes", run->heap_bytes.load(std::memory_order_relaxed)},
                    {"cancelled", run->cancelled()},
                    {"orchestration_returned",
                     run->target.load(std::memory_order_relaxed) != ~std::uint64_t{0}}});
  }
  report["runs"] = std::move(list);
  const auto lock = lock_soon(graph_mutex);
  if (!lock.owns_lock()) {
    report.update(locked("graph"));
    return report;
  }
  report["submitted"] = tasks_submitted;
  report["window"] = {{"used", window.in_flight()}, {"capacity", window.capacity()}};
  report["heap"] = {
      {"used", storage.used()}, {"capacity", storage.capacity()}, {"peak", storage.peak()}};
  report["holders"] = describe_holders();
  describe_tasks(report, runs);
  return report;
}

}  // namespace strata::graph
