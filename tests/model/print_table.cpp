// Prints the supervisor's table (node/child_machine.hpp) in another language, so that nothing that
// is said about it elsewhere is written by hand:
//
//   print_table promela    for the formal model, tests/model/start_close.pml
//   print_table markdown   for docs/reference/worker-states.md

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "node/child_machine.hpp"

namespace {

using namespace strata::node;

constexpr auto kActions = static_cast<std::size_t>(ChildAction::abandon) + 1;

template <typename Enum>
std::string names(char prefix, std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    text += std::string("#define ") + prefix + "_" + std::string(name_of(static_cast<Enum>(i))) +
            " " + std::to_string(i) + "\n";
  }
  return text;
}

bool does_nothing(ChildState state, ChildTransition transition) {
  return transition.action == ChildAction::ignore && transition.next == state;
}

std::string promela() {
  std::string text = "/* Made by tests/model/print_table.cpp from src/node/child_machine.hpp. */\n";
  text += names<ChildState>('S', kChildStates) + names<ChildEvent>('E', kChildEvents) +
          names<ChildAction>('A', kActions);
  text += "inline transition(state_, event_, action_, next_) {\n  if\n";
  for (std::size_t s = 0; s < kChildStates; ++s) {
    for (std::size_t e = 0; e < kChildEvents; ++e) {
      const auto state = static_cast<ChildState>(s);
      const auto event = static_cast<ChildEvent>(e);
      const ChildTransition to = transition(state, event);
      if (does_nothing(state, to)) continue;
      text += "  :: state_ == S_" + std::string(name_of(state)) + " && event_ == E_" +
              std::string(name_of(event)) + " -> action_ = A_" + std::string(name_of(to.action)) +
              "; next_ = S_" + std::string(name_of(to.next)) + "\n";
    }
  }
  return text + "  :: else -> action_ = A_ignore; next_ = state_\n  fi\n}\n";
}

/// A line for each thing that is done in a state, with all events that lead to it.
std::string markdown() {
  struct Line {
    ChildTransition to;
    std::string events;
  };
  std::string text = "| in state | at | does | and then is |\n| --- | --- | --- | --- |\n";
  for (std::size_t s = 0; s < kChildStates; ++s) {
    const auto state = static_cast<ChildState>(s);
    std::vector<Line> lines;
    for (std::size_t e = 0; e < kChildEvents; ++e) {
      const auto event = static_cast<ChildEvent>(e);
      const ChildTransition to = transition(state, event);
      if (does_nothing(state, to)) continue;
      Line* line = nullptr;
      for (Line& each : lines) {
        if (each.to.action == to.action && each.to.next == to.next) line = &each;
      }
      if (line == nullptr) {
        lines.push_back({to, std::string(name_of(event))});
      } else {
        line->events += ", " + std::string(name_of(event));
      }
    }
    for (const Line& line : lines) {
      text += "| " + std::string(name_of(state)) + " | " + line.events + " | " +
              std::string(name_of(line.to.action)) + " | " + std::string(name_of(line.to.next)) +
              " |\n";
    }
  }
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view wanted = argc == 2 ? argv[1] : "";
  if (wanted != "promela" && wanted != "markdown") {
    std::fprintf(stderr, "usage: print_table promela|markdown\n");
    return 2;
  }
  std::fputs((wanted == "promela" ? promela() : markdown()).c_str(), stdout);
  return 0;
}
