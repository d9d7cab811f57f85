// Programs as text: what a failure prints.
#include <sstream>

#include "program.hpp"

namespace strata::property {
namespace {

template <class Numbers>
std::string list(const Numbers& numbers) {
  std::ostringstream out;
  out << "[";
  for (std::size_t i = 0; i < numbers.size(); ++i)
    out << (i == 0 ? "" : ",") << numbers[i];
  out << "]";
  return out.str();
}

std::string storage_name(int storage) {
  if (storage >= kFirstLocal) return "local" + std::to_string(storage - kFirstLocal);
  if (storage >= kFirstParameter) return "param" + std::to_string(storage - kFirstParameter);
  if (storage >= kFirstAllocated) return "heap" + std::to_string(storage - kFirstAllocated);
  return "buf" + std::to_string(storage);
}

const char* name(Access access) {
  switch (access) {
    case Access::in:
      return "in";
    case Access::out:
      return "out";
    case Access::inout:
      return "inout";
  }
  return "?";
}

const char* name(Tracking tracking) {
  switch (tracking) {
    case Tracking::full:
      return "full";
    case Tracking::creator_only:
      return "creator_only";
    case Tracking::no_dep:
      return "no_dep";
  }
  return "?";
}

std::string text(const Arg& arg) {
  std::string out = std::string(name(arg.access)) + "(" + print(arg.view) + ")";
  if (arg.allocates) out += arg.filled ? " new,filled" : " new";
  if (arg.tracking != Tracking::full) out += std::string(" ") + name(arg.tracking);
  if (arg.tensor_tracking != Tracking::full) {
    out += std::string(" tensor:") + name(arg.tensor_tracking);
  }
  return out;
}

std::string text(const Work& work) {
  std::string out;
  for (const Arg& arg : work.args)
    out += (out.empty() ? "" : ", ") + text(arg);
  if (!work.has_body) out += " [no body]";
  if (work.fault == Fault::before_writing) out += " [throws before writing]";
  if (work.fault == Fault::after_writing) out += " [throws after writing]";
  if (work.delay > 0) out += " [delay " + std::to_string(work.delay) + "]";
  return out;
}

std::string after_text(const Step& step) {
  return step.after.empty() ? "" : " after" + list(step.after);
}

std::string text(const Program& program, const Step& step) {
  std::ostringstream out;
  switch (step.op) {
    case Op::task:
      out << "task: " << text(step.works.at(0)) << after_text(step);
      if (step.exact) out << " on lane " << step.target << (step.unordered ? " unordered" : "");
      if (!step.exact && program.kinds.size() > 1) out << " on kind " << step.target;
      if (step.priority != 0) out << " priority " << step.priority;
      break;
    case Op::group:
      out << "group:" << after_text(step);
      for (const Work& member : step.works) {
        out << "\n        lane " << member.lane << ": " << text(member);
      }
      break;
    case Op::open_scope:
      out << (step.manual ? "open manual scope" : "open scope");
      break;
    case Op::close_scope:
      out << "close scope";
      break;
    case Op::allocate:
      out << "allocate " << print(step.view);
      break;
    case Op::keep:
      out << "keep " << storage_name(step.view.storage);
      break;
    case Op::wait_tensor:
      out << "wait for " << print(step.view);
      break;
    case Op::wait_task:
      out << "wait for task " << step.other;
      break;
    case Op::read:
      out << "host reads " << print(step.view);
      break;
    case Op::write:
      out << "host writes " << print(step.view);
      break;
    case Op::overwrite:
      out << "host overwrites " << print(step.view);
      break;
    case Op::replay: {
      out << "replay recording " << step.other << " with";
      for (const View& view : step.bindings)
        out << " " << print(view);
      break;
    }
    case Op::cancel:
      out << "cancel run " << step.other;
      break;
    case Op::misuse:
      out << "misuse " << step.other;
      break;
  }
  if (step.pause > 0) out << " [pause " << step.pause << " before]";
  return out.str();
}

}  // namespace

std::string print(const View& view) {
  std::ostringstream out;
  out << storage_name(view.storage) << "+" << view.offset << " " << size_of(view.dtype) << "B"
      << list(view.shape) << "*" << list(view.strides);
  return out.str();
}

std::string print(const Program& program) {
  std::ostringstream out;
  out << "program of seed " << program.seed << "\n";
  out << "  buffers of bytes " << list(program.buffers) << ", window " << program.window;
  if (program.tight_heap) out << ", tight heap";
  if (program.held) out << ", lanes held until all is submitted";
  if (program.sequential) out << ", runs one by one";
  if (program.direct) out << ", run on the calling thread";
  if (program.keep_graph) out << ", graph kept";
  if (program.meet_a >= 0) {
    out << "\n  the bodies of steps " << program.meet_a << " and " << program.meet_b
        << " wait for each other";
  }
  for (std::size_t k = 0; k < program.kinds.size(); ++k) {
    const KindPlan& kind = program.kinds[k];
    out << "\n  kind " << k << ": ";
    if (kind.external > 0) {
      out << kind.external << " external lanes, depth " << kind.depth
          << (kind.completes_inline ? ", complete inline" : "");
    } else {
      out << kind.threads << " threads, " << kind.callers << " callers";
    }
  }
  for (std::size_t r = 0; r < program.runs.size(); ++r) {
    if (program.runs[r].raw_only) out << "\n  run " << r << ": read-after-write only";
  }
  for (std::size_t r = 0; r < program.recordings.size(); ++r) {
    const RecordingPlan& recording = program.recordings[r];
    out << "\n  recording " << r << " of parameters";
    for (const View& view : recording.parameters)
      out << " " << print(view);
    for (const Step& step : recording.steps) {
      out << "\n    " << step.id << " " << text(program, step);
    }
  }
  for (const Step& step : program.steps) {
    out << "\n  " << step.id << " ";
    if (program.runs.size() > 1) out << "run " << step.run << " ";
    out << text(program, step);
  }
  out << "\n";
  return out.str();
}

}  // namespace strata::property
