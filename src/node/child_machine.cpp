#include "node/child_machine.hpp"

namespace strata::node {

std::string_view name_of(ChildState state) noexcept {
  constexpr std::array<std::string_view, kChildStates> kNames{
      "absent", "spawned",     "connected", "initialising", "ready",
      "asked",  "terminating", "killing",   "abandoned"};
  return kNames[static_cast<std::size_t>(state)];
}

std::string_view name_of(ChildEvent event) noexcept {
  constexpr std::array<std::string_view, kChildEvents> kNames{
      "start",  "spawn_failed", "hello",  "step", "ready", "failed",
      "broken", "disconnected", "exited", "stop", "end",   "timeout"};
  return kNames[static_cast<std::size_t>(event)];
}

std::string_view name_of(ChildAction action) noexcept {
  constexpr std::array<std::string_view, 11> kNames{"ignore",     "spawn", "note",   "announce",
                                                    "fail_spawn", "blame", "ask",    "insist",
                                                    "kill",       "bury",  "abandon"};
  return kNames[static_cast<std::size_t>(action)];
}

}  // namespace strata::node
