// Messages as JSON: a round trip keeps everything, and what is not of the form is refused by name.
#include "node/protocol.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "node/json_fields.hpp"
#include "strata/error.hpp"

namespace strata::node {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// As over the channel: through text.
json through_text(const json& value) { return json::parse(value.dump()); }

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "(accepted)";
}

WorkerFault whole_fault() {
  return {.path = "node/next[0]/sub[1]",
          .role = "sub worker",
          .pid = 4711,
          .state = "initialising",
          .step = "load library libx.so",
          .cause = std::string(10'000, 'x') + "\n\"quoted\" \\ \t",
          .type = "std::out_of_range",
          .code = "kernel_threw",
          .task = "task 17 'scale'",
          .callable = "scale",
          .note = "kernel 'add', block 3 of 7",
          .stack = {"#0 f", "#1 g"},
          .log = {"a line", ""}};
}

void expect_same(const WorkerFault& a, const WorkerFault& b) {
  EXPECT_EQ(a.path, b.path);
  EXPECT_EQ(a.role, b.role);
  EXPECT_EQ(a.pid, b.pid);
  EXPECT_EQ(a.state, b.state);
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.cause, b.cause);
  EXPECT_EQ(a.type, b.type);
  EXPECT_EQ(a.code, b.code);
  EXPECT_EQ(a.task, b.task);
  EXPECT_EQ(a.callable, b.callable);
  EXPECT_EQ(a.note, b.note);
  EXPECT_EQ(a.stack, b.stack);
  EXPECT_EQ(a.log, b.log);
}

TEST(ProtocolTest, AFaultArrivesWhole) {
  expect_same(fault_from(through_text(to_json(whole_fault()))), whole_fault());
}

TEST(ProtocolTest, TextsMayBeAnyBytes) {
  std::string all;
  for (int i = 0; i < 256; ++i)
    all += static_cast<char>(i);
  for (const std::string& text :
       {all, std::string("\xC0\x80"), std::string("\xED\xA0\x80"), std::string("\xF4\x90\x80\x80"),
        std::string("\xE2\x82"), std::string("\xE2\x82\xAC"), std::string("a\0b", 3),
        std::string("\xFF")}) {
    WorkerFault fault = whole_fault();
    fault.cause = text;
    fault.log = {text, "x"};
    expect_same(fault_from(through_text(to_json(fault))), fault);
  }
}

TEST(ProtocolTest, TextThatIsNoListOfBytesIsRefused) {
  for (const char* text : {R"({"bytes": "€"})", R"({"bytes": 1})", R"({"other": "a"})",
                           R"({"bytes": "a", "more": 1})", "1", "null", "[]"}) {
    json value = to_json(whole_fault());
    value["cause"] = json::parse(text);
    EXPECT_THAT(refusal([&] { (void)fault_from(value); }), HasSubstr("\"cause\" is not a text"));
  }
}

TEST(ProtocolTest, ACallableArrivesWhole) {
  for (const Callable& callable :
       {Callable::in_library("/tmp/libx.so", "scale"), Callable::in_program("here"),
        Callable::in_library("libx.so", "run").as_orchestration(),
        Callable::chip_program("/tmp/add.chip"),
        Callable::chip_program("/tmp/add.chip", {.mode = OrchestrationMode::device,
                                                .window = 1,
                                                .heap = SIZE_MAX,
                                                .threads = 7,
                                                .time_limit = std::chrono::nanoseconds(1),
                                                .check = true,
                                                .explore_seed = UINT64_MAX,
                                                .keep_graph = true,
                                                .keep_stats = true,
                                                .dump_to = "/tmp/dumped",
                                                .dump_all = true})}) {
    EXPECT_EQ(callable_from(through_text(to_json(callable))), callable);
  }
}

TEST(ProtocolTest, OptionsArriveWholeAtAnyDepth) {
  WorkerOptions inner;
  inner.name = "node/next[0]";
  inner.subs = {{.count = 2, .program = WorkerProgram::this_program, .setup = {}}};
  inner.program = WorkerProgram::this_program;
  WorkerOptions options;
  options.chips.resize(2);
  options.chips[0].platform = "a2a3sim:clusters=4";
  options.chips[0].run = {.mode = OrchestrationMode::host_graph, .window = 3, .dump_to = "/tmp"};
  options.chips[0].setup = Callable::in_program("set_up");
  options.next_level = {inner, inner};
  options.next_level[1].next_level = {inner};
  options.setup = Callable::in_library("libx.so", "f");
  options.start_time_limit = std::chrono::milliseconds(-1);
  options.close_time_limit = std::chrono::milliseconds::max();
  options.replace_dead_workers = false;
  options.heap = SIZE_MAX;
  options.log_level = LogLevel::error;
  options.worker_program = "/bin/\xFF";
  const json sent = to_json(options);
  EXPECT_EQ(to_json(options_from(through_text(sent))), sent);
}

TEST(ProtocolTest, EveryMissingFieldIsNamed) {
  const json whole = to_json(WorkerOptions{.chips = {{}}, .subs = {{}}});
  for (const auto& [name, value] : whole.items()) {
    json without = whole;
    without.erase(name);
    EXPECT_THAT(refusal([&] { (void)options_from(without); }),
                AllOf(HasSubstr("options of a Worker"), HasSubstr("\"" + name + "\" is missing")));
    json wrong = whole;
    wrong[name] = json::array({json::object()});
    EXPECT_NE(refusal([&] { (void)options_from(wrong); }), "(accepted)") << name;
  }
}

TEST(ProtocolTest, NumbersOutOfRangeAreRefused) {
  json options = to_json(WorkerOptions{});
  options["depth"] = std::int64_t{1} << 32;
  EXPECT_THAT(refusal([&] { (void)options_from(options); }), HasSubstr("\"depth\""));
  options["depth"] = -1;
  EXPECT_THAT(refusal([&] { (void)options_from(options); }), HasSubstr("\"depth\""));
  options["depth"] = 1.5;
  EXPECT_THAT(refusal([&] { (void)options_from(options); }), HasSubstr("\"depth\""));
  json fault = to_json(whole_fault());
  fault["pid"] = std::int64_t{1} << 40;
  EXPECT_THAT(refusal([&] { (void)fault_from(fault); }), HasSubstr("\"pid\""));
}

TEST(ProtocolTest, UnknownNamesAreRefusedWithTheKnownOnes) {
  json callable = to_json(Callable::in_program("f"));
  callable["source"] = "thin air";
  EXPECT_THAT(refusal([&] { (void)callable_from(callable); }), HasSubstr("library, program"));
  json options = to_json(WorkerOptions{});
  options["log_level"] = "loud";
  EXPECT_THAT(refusal([&] { (void)options_from(options); }), HasSubstr("debug, info, warning"));
}

TEST(ProtocolTest, OptionsThatNestWithoutEndAreRefused) {
  json options = to_json(WorkerOptions{});
  for (int i = 0; i < 70; ++i) {
    json outer = to_json(WorkerOptions{});
    outer["next_level"].push_back(std::move(options));
    options = std::move(outer);
  }
  EXPECT_THAT(refusal([&] { (void)options_from(options); }), HasSubstr("levels"));
}

TEST(ProtocolTest, NoObjectIsRefused) {
  for (const char* text : {"null", "1", "[]", "\"x\""}) {
    EXPECT_THAT(refusal([&] { (void)callable_from(json::parse(text)); }), HasSubstr("callable is"));
  }
}

TEST(WorkerFaultTest, TextTellsAllThatIsKnown) {
  const std::string text = whole_fault().to_string();
  for (const char* part :
       {"node/next[0]/sub[1] (sub worker, pid 4711): std::out_of_range: xxx", "task 17 'scale'",
        "called scale", "initialising", "load library libx.so", "#1 g", "a line"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_THAT(WorkerFault{}.to_string(), HasSubstr("the cause is not known"));
}

}  // namespace
}  // namespace strata::node
