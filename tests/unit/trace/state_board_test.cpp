#include "trace/state_board.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "trace/state_request.hpp"

namespace strata::trace {
namespace {

StateBoard& board() {
  StateBoard::of_process().open();
  return StateBoard::of_process();
}

/// What this process answers itself.
nlohmann::json answer() {
  const auto request = StateRequest::ask(getpid());
  if (!request) return nullptr;
  EXPECT_FALSE(request->answer());
  board().answer();
  return nlohmann::json::parse(request->answer().value_or("null"));
}

TEST(StateBoard, WhoAsksGetsWhatThePartsSayOnceTheyHaveSaidIt) {
  int asked = 0;
  const auto first = board().add("engine", [&] { return nlohmann::json(++asked); });
  const auto second = board().add("engine", [] { return nlohmann::json("two"); });
  const auto other = board().add("chip", [] { return nlohmann::json{{"cores", 3}}; });
  const nlohmann::json state = answer();
  EXPECT_EQ(state.at("engine"), nlohmann::json({1, "two"}));
  EXPECT_EQ(state.at("chip").at(0).at("cores"), 3);
  board().answer();  // Nobody asks.
  EXPECT_EQ(asked, 1);
}

TEST(StateBoard, APartThatWasTakenOffIsNotAsked) {
  auto entry = board().add("engine", [] { return nlohmann::json(1); });
  entry.remove();
  EXPECT_FALSE(answer().contains("engine"));
}

TEST(StateBoard, APartThatThrowsIsAProblemOfItsOwn) {
  const auto bad =
      board().add("engine", []() -> nlohmann::json { throw std::runtime_error("no luck"); });
  const auto good = board().add("chip", [] { return nlohmann::json(7); });
  const nlohmann::json state = answer();
  EXPECT_EQ(state.at("engine").at(0).at("problem"), "no luck");
  EXPECT_EQ(state.at("chip").at(0), 7);
}

TEST(StateBoard, WhatIsTooLongIsSaidToBeSo) {
  const auto entry =
      board().add("engine", [] { return nlohmann::json(std::string(2 * kStateBytes, 'x')); });
  EXPECT_TRUE(answer().contains("problem"));
}

TEST(StateRequest, AForkThatInheritedTheBoardIsNotAsked) {
  (void)board();
  const pid_t child = fork();
  if (child == 0) {
    for (;;)
      pause();
  }
  EXPECT_FALSE(StateRequest::ask(child));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_FALSE(StateRequest::ask(child));  // Nor is one that is gone.
}

}  // namespace
}  // namespace strata::trace
