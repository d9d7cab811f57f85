#include "recorded_tasks.hpp"

#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>

#include <strata/error.hpp>

#include "trace/process_record_reader.hpp"

namespace distributed {
namespace {

using strata::trace::Event;
using strata::trace::EventKind;

/// Tasks of one thread: it runs one at a time, so a start belongs to the next end.
void add_tasks(std::vector<RecordedTask>& tasks, const strata::ProcessStatus& process,
               const std::vector<Event>& events) {
  const Event* begun = nullptr;
  for (const Event& event : events) {
    if (event.kind == EventKind::task_start) begun = &event;
    if (event.kind != EventKind::task_end || begun == nullptr || begun->a != event.a) continue;
    tasks.push_back({.process = process.path,
                     .pid = process.pid,
                     .task = {event.a},
                     .begin = begun->at,
                     .end = event.at});
    begun = nullptr;
  }
}

double microseconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

}  // namespace

std::vector<RecordedTask> recorded_tasks(const strata::Worker& worker) {
  std::vector<RecordedTask> tasks;
  for (const strata::ProcessStatus& process : worker.processes()) {
    if (process.pid == 0) continue;
    const auto record = strata::trace::ProcessRecordReader::of_process(process.pid);
    if (!record) continue;
    for (const strata::trace::ThreadEvents& thread : record->events())
      add_tasks(tasks, process, thread.events);
  }
  return tasks;
}

void write_timeline(const std::filesystem::path& file, const std::vector<RecordedTask>& tasks,
                    const TaskNames& names) {
  nlohmann::json events = nlohmann::json::array();
  std::set<int> named;
  for (const RecordedTask& task : tasks) {
    if (named.insert(task.pid).second) {
      events.push_back({{"ph", "M"},
                        {"name", "process_name"},
                        {"pid", task.pid},
                        {"tid", task.pid},
                        {"args", {{"name", task.process}}}});
    }
    const auto found = names.find(task.task);
    const std::string number = std::to_string(task.task.number());
    events.push_back({{"ph", "X"},
                      {"cat", "task"},
                      {"name", found != names.end() ? found->second : "task " + number},
                      {"pid", task.pid},
                      {"tid", task.pid},
                      {"ts", microseconds(task.begin)},
                      {"dur", microseconds(task.time())},
                      {"args", {{"task", task.task.number()}}}});
  }
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  out << nlohmann::json({{"traceEvents", std::move(events)}, {"displayTimeUnit", "ns"}}).dump()
      << '\n';
  out.close();
  if (!out) {
    throw strata::Error("can't write the timeline '" + file.string() +
                        "': " + std::generic_category().message(errno));
  }
}

}  // namespace distributed
