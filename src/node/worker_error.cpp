#include "strata/worker_error.hpp"

namespace strata {
namespace {

/// "node/sub[1] (sub worker, pid 123): killed by signal 11 (segmentation fault)"
std::string first_line(const WorkerFault& fault) {
  std::string text = fault.path.empty() ? "a worker process" : fault.path;
  std::string who = fault.role;
  if (fault.pid != 0) who += (who.empty() ? "pid " : ", pid ") + std::to_string(fault.pid);
  if (!who.empty()) text += " (" + who + ")";
  text += ": ";
  if (!fault.type.empty()) text += fault.type + ": ";
  text += fault.cause.empty() ? "the cause is not known" : fault.cause;
  return text;
}

void add_list(std::string& text, const char* title, const std::vector<std::string>& lines) {
  if (lines.empty()) return;
  text += "\n  ";
  text += title;
  for (const auto& line : lines)
    text += "\n    " + line;
}

}  // namespace

std::string WorkerFault::to_string() const {
  std::string text = first_line(*this);
  if (!task.empty()) {
    text += "\n  task: " + task;
    if (!callable.empty()) text += ", which called " + callable;
  } else if (!callable.empty()) {
    text += "\n  callable: " + callable;
  }
  if (!note.empty()) text += "\n  at that time: " + note;
  if (!state.empty()) text += "\n  state: " + state;
  if (!step.empty()) text += "\n  last step: " + step;
  add_list(text, "stack of the thread that crashed:", stack);
  add_list(text, "its last events:", events);
  add_list(text, "last lines of its log:", log);
  return text;
}

}  // namespace strata
