// One strata-worker process, with a test as its parent.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <cstring>

#include "integration/worker/worker_parent.hpp"
#include "node/chip_options.hpp"
#include "os/mapping.hpp"
#include "os/procfs.hpp"

namespace strata::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;

using ::testing::HasSubstr;

constexpr os::ExitStatus kKilled{.kind = os::ExitStatus::Kind::signalled, .value = SIGKILL};
constexpr os::ExitStatus kClean{.kind = os::ExitStatus::Kind::exited, .value = 0};

std::uint64_t task_number(std::uint64_t number) { return number << 22U; }

/// A tensor over a whole range, row-major in one dimension.
struct OneDimension {
  OneDimension(const node::SlabStore::Range& range, DType dtype)
      : extents{static_cast<std::int64_t>(range.bytes / size_of(dtype))},
        frame{.slab = range.slab,
              .generation = range.generation,
              .offset = range.offset,
              .reach_begin = range.offset,
              .reach_end = range.offset + range.bytes,
              .dtype = dtype,
              .access = Access::inout,
              .extents = extents,
              .strides = strides} {}
  OneDimension(const OneDimension&) = delete;
  OneDimension& operator=(const OneDimension&) = delete;
  std::array<std::int64_t, 1> extents;
  std::array<std::int64_t, 1> strides{1};
  ipc::TensorFrame frame;
};

void send_slabs(WorkerParent& parent, const node::SlabStore& store) {
  for (const auto& slab : store.slabs()) {
    parent.send({{"type", "slab"}, {"slab", slab.slab}, {"bytes", slab.bytes}}, {slab.memory});
  }
}

TEST(WorkerProcessTest, StartsRunsATaskAndEndsWhenItIsAsked) {
  WorkerParent parent;
  const json hello = parent.expect("hello");
  EXPECT_EQ(hello["pid"], parent.process.pid());
  EXPECT_EQ(hello["protocol"], node::kProtocol);
  EXPECT_EQ(hello["build_id"].get<std::string>().size(), 40);
  parent.configure();
  EXPECT_EQ(parent.expect("ready")["build_id"], hello["build_id"]);
  parent.add(1, "scale");
  node::SlabStore store({});
  const auto range = store.create(1000 * sizeof(float));
  send_slabs(parent, store);
  auto* const data = reinterpret_cast<float*>(range.data);
  std::fill_n(data, 1000, 1.5F);
  const OneDimension tensor(range, DType::float32);
  std::uint64_t two = 0;
  const float factor = 2;
  std::memcpy(&two, &factor, sizeof factor);
  for (std::uint64_t i = 0; i < 3; ++i) {
    parent.push({.header = {.dispatch = 100 + i, .task = task_number(i + 1), .callable = 1},
                 .tensors = {&tensor.frame, 1},
                 .scalars = {&two, 1},
                 .name = "double it"});
  }
  for (std::uint64_t i = 0; i < 3; ++i) {
    const auto completion = parent.pop();
    EXPECT_EQ(completion.dispatch, 100 + i);
    EXPECT_EQ(completion.status, ipc::CompletionStatus::ok);
  }
  for (int i = 0; i < 1000; ++i)
    EXPECT_EQ(data[i], 12.0F);
  EXPECT_TRUE(ipc::send_stop(parent.lifeline.get(), ipc::StopKind::drain));
  EXPECT_EQ(parent.wait(), kClean);
  EXPECT_EQ(parent.read_log(), "");
}

TEST(WorkerProcessTest, NothingOfTheTokenOrTheDescriptorsReachesUserCode) {
  WorkerParent parent;
  parent.start();
  const std::string base = "/proc/" + std::to_string(parent.process.pid());
  for (int fd = node::kLifelineFd; fd <= node::kTreeFd; ++fd) {
    FILE* const file = fopen((base + "/fdinfo/" + std::to_string(fd)).c_str(), "r");
    if (file == nullptr) continue;  // Closed by now.
    std::array<char, 256> text{};
    const std::size_t length = fread(text.data(), 1, text.size() - 1, file);
    fclose(file);
    const std::string info(text.data(), length);
    unsigned flags = 0;
    const auto at = info.find("flags:");
    ASSERT_NE(at, std::string::npos);
    ASSERT_EQ(sscanf(info.c_str() + at, "flags:\t%o", &flags), 1);
    EXPECT_TRUE((flags & static_cast<unsigned>(O_CLOEXEC)) != 0) << "descriptor " << fd;
  }
}

TEST(WorkerProcessTest, AnErrorArrivesWholeBeforeItsCompletionCounts) {
  WorkerParent parent;
  parent.start();
  parent.add(1, "fail");
  parent.add(2, "fail_with_type");
  const std::uint64_t bytes = 200'000;  // Above what fits a packet.
  parent.push({.header = {.dispatch = 5, .task = task_number(17), .callable = 1},
               .scalars = {&bytes, 1},
               .name = "a bad one"});
  auto completion = parent.pop();
  EXPECT_EQ(completion.status, ipc::CompletionStatus::failed);
  EXPECT_EQ(completion.story_follows, 1);
  json story = parent.expect("task_failed");
  EXPECT_EQ(story["dispatch"], 5);
  WorkerFault fault = node::fault_from(story["fault"]);
  EXPECT_EQ(fault.type, "std::runtime_error");
  EXPECT_EQ(fault.cause.size(), bytes);
  EXPECT_EQ(fault.path, "node/sub[0]");
  EXPECT_EQ(fault.task, "task 17 'a bad one'");
  EXPECT_EQ(fault.callable, "fail");
  parent.push({.header = {.dispatch = 6, .task = task_number(18), .callable = 2}});
  EXPECT_EQ(parent.pop().status, ipc::CompletionStatus::failed);
  fault = node::fault_from(parent.expect("task_failed")["fault"]);
  EXPECT_EQ(fault.type, "strata_test::OutOfPaper");
  EXPECT_EQ(fault.cause, "tray 2 is empty");
}

TEST(WorkerProcessTest, AnErrorThatNoDescriptorIsLeftForIsToldInShort) {
#if defined(__has_feature)
#if __has_feature(undefined_behavior_sanitizer)
  GTEST_SKIP() << "the sanitizer looks at objects through a pipe, for which no descriptor is left";
#endif
#endif
  WorkerParent parent;
  parent.start();
  parent.add(1, "fail_without_descriptors");
  parent.add(2, "return_bytes");
  const std::uint64_t bytes = 200'000;  // Above what fits a packet.
  parent.push({.header = {.dispatch = 5, .task = task_number(17), .callable = 1},
               .scalars = {&bytes, 1},
               .name = "a bad one"});
  EXPECT_EQ(parent.pop().status, ipc::CompletionStatus::failed);
  const WorkerFault fault = node::fault_from(parent.expect("task_failed")["fault"]);
  EXPECT_THAT(fault.cause, AllOf(HasSubstr("200000 bytes"), HasSubstr("descriptor")));
  EXPECT_EQ(fault.type, "std::runtime_error");
  EXPECT_EQ(fault.task, "task 17 'a bad one'");
  EXPECT_EQ(fault.path, "node/sub[0]");
  // What needs no descriptor goes on, and what needs one fails.
  const std::uint64_t few = 8;
  parent.push({.header = {.dispatch = 6, .callable = 2}, .scalars = {&few, 1}});
  EXPECT_EQ(parent.pop().status, ipc::CompletionStatus::ok);
  parent.push({.header = {.dispatch = 7, .callable = 2}, .scalars = {&bytes, 1}});
  EXPECT_EQ(parent.pop().status, ipc::CompletionStatus::failed);
  EXPECT_EQ(parent.expect("task_failed")["dispatch"], 7);
  EXPECT_TRUE(ipc::send_stop(parent.lifeline.get(), ipc::StopKind::drain));
  EXPECT_EQ(parent.wait(), kClean);
}

TEST(WorkerProcessTest, ValuesOfAnyLengthArrive) {
  WorkerParent parent;
  parent.start();
  parent.add(1, "return_bytes");
  parent.add(2, "return_nul");
  parent.add(3, "nothing");
  parent.push({.header = {.dispatch = 1, .callable = 2}});
  EXPECT_EQ(parent.pop().inline_value(), std::string_view("a\0b", 3));
  parent.push({.header = {.dispatch = 2, .callable = 3}});
  EXPECT_EQ(parent.pop().has_value, 0);
  const std::uint64_t bytes = 300'000;
  parent.push({.header = {.dispatch = 3, .callable = 1}, .scalars = {&bytes, 1}});
  const auto completion = parent.pop();
  EXPECT_EQ(completion.status, ipc::CompletionStatus::ok);
  EXPECT_EQ(completion.has_value, 1);
  EXPECT_EQ(completion.story_follows, 1);
  const json story = parent.expect("task_value");
  EXPECT_EQ(story["dispatch"], 3);
  EXPECT_EQ(story["bytes"], bytes);
  ASSERT_EQ(parent.descriptors.size(), 1);
  const auto value = os::Mapping::shared_read_only(parent.descriptors[0].get(), bytes);
  EXPECT_EQ(std::memcmp(value.data() + bytes - 6, " <end>", 6), 0);
}

TEST(WorkerProcessTest, ACallableThatIsNotThereIsNotRegisteredAndOthersAre) {
  WorkerParent parent;
  parent.start();
  json callables = json::array();
  for (const auto& [id, name] : {std::pair{1, "nothing"}, {2, "no_such_thing"}, {3, "scale"}}) {
    callables.push_back(node::to_json(WorkerParent::node_tasks(name)));
    callables.back()["id"] = id;
  }
  parent.send({{"type", "register"}, {"callables", callables}});
  const json refused = parent.expect("not_registered");
  EXPECT_EQ(refused["id"], 2);
  EXPECT_THAT(node::fault_from(refused["fault"]).cause, HasSubstr("no function 'no_such_thing'"));
  EXPECT_EQ(parent.expect("registered")["ids"], json({1, 3}));
  // A frame that names it all the same is refused.
  parent.push({.header = {.dispatch = 1, .callable = 2}});
  EXPECT_EQ(parent.pop().status, ipc::CompletionStatus::refused);
  parent.expect("task_failed");
}

TEST(WorkerProcessTest, CallablesAreRegisteredWhileATaskRuns) {
  WorkerParent parent;
  parent.start();
  parent.add(1, "until_cancelled");
  const auto pushed =
      parent.mailbox->push({.header = {.dispatch = 1, .task = task_number(1), .callable = 1}});
  parent.wait_for_task();
  for (std::uint32_t id = 2; id < 50; ++id)
    parent.add(id, "nothing");
  parent.mailbox->cancel(pushed.ticket);
  EXPECT_EQ(parent.pop().status, ipc::CompletionStatus::cancelled);
}

TEST(WorkerProcessTest, AStaleBufferIsRefusedWithoutRunningTheTask) {
  WorkerParent parent;
  parent.start();
  parent.add(1, "increment");
  node::SlabStore store({});
  const auto old = store.create(64);
  send_slabs(parent, store);
  store.release(old);
  const auto range = store.create(64);
  ASSERT_EQ(range.offset, old.offset);
  const OneDimension stale(old, DType::int64);
  parent.push({.header = {.dispatch = 1, .callable = 1}, .tensors = {&stale.frame, 1}});
  EXPECT_EQ(parent.pop().status, ipc::CompletionStatus::stale_buffer);
  EXPECT_EQ(*reinterpret_cast<std::int64_t*>(range.data), 0);
}

TEST(WorkerProcessTest, ATaskWaitsForASlabThatComesLater) {
  WorkerParent parent;
  parent.start();
  parent.add(1, "increment");
  node::SlabStore store({});
  const auto range = store.create(64);
  const OneDimension tensor(range, DType::int64);
  parent.push({.header = {.dispatch = 1, .task = task_number(1), .callable = 1},
               .tensors = {&tensor.frame, 1}});
  parent.wait_for_task();
  send_slabs(parent, store);
  EXPECT_EQ(parent.pop().status, ipc::CompletionStatus::ok);
  EXPECT_EQ(*reinterpret_cast<std::int64_t*>(range.data), 1);
}

/// A chip worker's part of its configuration.
json chip_on(const char* platform) {
  return {{"role", "chip worker"},
          {"platform", platform},
          {"run", node::to_json(ChipRunOptions{})},
          {"cpus", json::array()}};
}

TEST(WorkerProcessTest, AChipCallsAFunctionOnce) {
  WorkerParent parent;
  parent.start(chip_on("cpu"));
  parent.add(1, "mark_member");
  node::SlabStore store({});
  const auto range = store.create(4 * sizeof(std::int64_t));
  send_slabs(parent, store);
  const OneDimension tensor(range, DType::int64);
  parent.push({.header = {.dispatch = 1, .callable = 1}, .tensors = {&tensor.frame, 1}});
  EXPECT_EQ(parent.pop().status, ipc::CompletionStatus::ok);
  EXPECT_EQ(reinterpret_cast<std::int64_t*>(range.data)[0], 1);
  EXPECT_EQ(reinterpret_cast<std::int64_t*>(range.data)[1], 0);
}

// ---- Starts that fail ---------------------------------------------------------------------------

TEST(WorkerProcessTest, APlatformThatIsNotKnownFailsTheStart) {
  WorkerParent parent;
  parent.expect("hello");
  parent.configure(chip_on("abacus"));
  const WorkerFault fault = node::fault_from(parent.expect("failed")["fault"]);
  EXPECT_THAT(fault.cause, AllOf(HasSubstr("unknown_platform"), HasSubstr("abacus")));
  EXPECT_EQ(fault.step, "load platform abacus");
  EXPECT_EQ(parent.wait()->value, 1);
}

TEST(WorkerProcessTest, ASetupThatThrowsFailsTheStartWithItsWholeText) {
  WorkerParent parent;
  parent.expect("hello");
  // Called without arguments, `fail_with_type` throws.
  parent.configure({{"setup", node::to_json(WorkerParent::node_tasks("fail_with_type"))}});
  const WorkerFault fault = node::fault_from(parent.expect("failed")["fault"]);
  EXPECT_EQ(fault.type, "strata_test::OutOfPaper");
  EXPECT_EQ(fault.cause, "tray 2 is empty");
  EXPECT_THAT(fault.step, HasSubstr("setup fail_with_type"));
  EXPECT_EQ(fault.state, "initialising");
  EXPECT_EQ(parent.wait()->value, 1);
}

TEST(WorkerProcessTest, GarbageOnTheControlChannelEndsTheWorkerWithAClearLine) {
  for (const char* garbage : {"garbage", ""}) {
    WorkerParent parent;
    parent.expect("hello");
    EXPECT_EQ(::send(parent.control->fd(), garbage, strlen(garbage) + 1, MSG_NOSIGNAL),
              static_cast<ssize_t>(strlen(garbage) + 1));
    EXPECT_EQ(parent.wait()->value, 1);
    EXPECT_THAT(parent.read_log(), HasSubstr("can't make sense of what its parent sent"));
    EXPECT_THAT(parent.expect("failed").dump(), HasSubstr("can't make sense"));
  }
}

TEST(WorkerProcessTest, AMessageThatMakesNoSenseEndsTheWorkerWithAClearLine) {
  for (const json& message :
       {json{{"type", "nonsense"}}, json{{"type", 5}}, json::object(), json{{"type", "configure"}},
        json{{"type", "slab"}, {"slab", 1}, {"bytes", 4096}}}) {
    WorkerParent parent;
    parent.start();
    parent.send(message);
    EXPECT_EQ(parent.wait()->value, 1) << message.dump();
    EXPECT_THAT(parent.read_log(), HasSubstr("node/sub[0]")) << message.dump();
  }
}

TEST(WorkerProcessTest, AMalformedFrameEndsTheWorkerWithAFault) {
  WorkerParent parent;
  parent.start();
  const std::array<std::int64_t, 1> extents{100};
  const std::array<std::int64_t, 1> strides{1};
  const ipc::TensorFrame outside{.slab = 1, .extents = extents, .strides = strides};
  parent.push({.header = {.dispatch = 1, .callable = 1}, .tensors = {&outside, 1}});
  EXPECT_THAT(node::fault_from(parent.expect("failed")["fault"]).cause, HasSubstr("mailbox"));
  EXPECT_EQ(parent.wait()->value, 1);
}

// ---- Stopping -----------------------------------------------------------------------------------

TEST(WorkerProcessTest, StopsAtAnyMoment) {
  {
    WorkerParent parent;  // Before it has begun, perhaps.
    EXPECT_TRUE(ipc::send_stop(parent.lifeline.get(), ipc::StopKind::now));
    EXPECT_EQ(parent.wait(), kClean);
  }
  {
    WorkerParent parent;
    parent.expect("hello");
    EXPECT_TRUE(ipc::send_stop(parent.lifeline.get(), ipc::StopKind::drain));
    EXPECT_EQ(parent.wait(), kClean);
  }
}

TEST(WorkerProcessTest, AStopAtAnyMomentOfItsStartReachesTheWorkersBelow) {
  WorkerOptions options;
  options.name = "node/next[0]";
  options.subs = {{.count = 1, .setup = WorkerParent::node_tasks("sleep_for_ever")}};
  options.start_time_limit = 10 * kGuard;  // What a stop that is overlooked would wait for.
  for (int i = 0; i < 12; ++i) {
    WorkerParent parent;
    parent.expect("hello");
    parent.configure({{"path", options.name},
                      {"role", "next-level worker"},
                      {"options", node::to_json(options)},
                      {"cpus", json::array()},
                      {"first_slab", 100},
                      {"slab_numbers", 1000},
                      {"deadline", os::Deadline::after(10 * kGuard).monotonic_ns()}});
    std::this_thread::sleep_for(std::chrono::microseconds(i * 500));
    EXPECT_TRUE(ipc::send_stop(parent.lifeline.get(), ipc::StopKind::drain));
    ASSERT_EQ(parent.wait(), kClean) << i;
  }
}

// The thread sanitizer runs no signal handler in a thread that sleeps in a futex of its own.
#ifndef __SANITIZE_THREAD__
TEST(WorkerProcessTest, SigtermStopsAnIdleWorker) {
  WorkerParent parent;
  parent.start();
  EXPECT_TRUE(parent.process.send(SIGTERM));
  EXPECT_EQ(parent.wait(), kClean);
}
#endif

TEST(WorkerProcessTest, StopNowTellsTheTaskInHand) {
  WorkerParent parent;
  parent.start();
  parent.add(1, "until_cancelled");
  parent.push({.header = {.dispatch = 1, .task = task_number(1), .callable = 1}});
  parent.push({.header = {.dispatch = 2, .task = task_number(2), .callable = 1}});
  parent.wait_for_task();
  EXPECT_TRUE(ipc::send_stop(parent.lifeline.get(), ipc::StopKind::now));
  EXPECT_EQ(parent.pop().status, ipc::CompletionStatus::cancelled);
  EXPECT_EQ(parent.wait(), kClean);
  EXPECT_EQ(parent.mailbox->pop().result, ipc::MailboxParent::PopResult::nothing)
      << "what had not begun is not completed";
}

TEST(WorkerProcessTest, InterruptAndHangUpAreForTheParentToDecide) {
  WorkerParent parent;
  parent.start();
  parent.add(1, "nothing");
  EXPECT_TRUE(parent.process.send(SIGINT));
  EXPECT_TRUE(parent.process.send(SIGHUP));
  parent.push({.header = {.dispatch = 1, .callable = 1}});
  EXPECT_EQ(parent.pop().status, ipc::CompletionStatus::ok);
}

TEST(WorkerProcessTest, ASetupThatSleepsForEverEndsSoonAfterAStop) {
  WorkerParent parent;
  parent.expect("hello");
  parent.configure({{"setup", node::to_json(WorkerParent::node_tasks("sleep_for_ever"))}});
  while (trace::ProcessRecordReader(parent.record).card().step.find("setup") == std::string::npos) {
    std::this_thread::yield();
  }
  EXPECT_TRUE(ipc::send_stop(parent.lifeline.get(), ipc::StopKind::now));
  EXPECT_EQ(parent.wait(), kKilled);
}

// ---- Whatever a task does -----------------------------------------------------------------------

class StuckWorkerTest : public ::testing::TestWithParam<const char*> {};

TEST_P(StuckWorkerTest, AnswersAndDiesWithItsParent) {
  WorkerParent parent;
  parent.start();
  parent.add(1, GetParam());
  node::SlabStore store({});
  const auto range = store.create(sizeof(std::int32_t));
  send_slabs(parent, store);
  const OneDimension flag(range, DType::int32);
  parent.push({.header = {.dispatch = 1, .task = task_number(3), .callable = 1},
               .tensors = {&flag.frame, 1},
               .name = "stuck for ever"});
  const std::atomic_ref<std::int32_t> begun(*reinterpret_cast<std::int32_t*>(range.data));
  const os::Deadline deadline = os::Deadline::after(kGuard);
  while (begun.load(std::memory_order_acquire) == 0 && !deadline.passed()) {
    if (parent.mailbox->can_pop()) {
      parent.pop();
      GTEST_SKIP() << GetParam() << " can't be done here: "
                   << node::fault_from(parent.expect("task_failed")["fault"]).cause;
    }
    std::this_thread::yield();
  }
  const ipc::LifelineMessage answer = parent.ask();
  EXPECT_EQ(answer.kind, ipc::LifelineKind::answer);
  EXPECT_EQ(answer.id, 7);
  EXPECT_EQ(answer.answer.task, task_number(3));
  EXPECT_EQ(answer.answer.state, static_cast<std::uint64_t>(trace::ProcessState::running));
  EXPECT_EQ(answer.answer.name_here(), "stuck for ever");
  EXPECT_NE(answer.answer.since_ns, 0);
  EXPECT_LE(answer.answer.since_ns, static_cast<std::uint64_t>(os::monotonic_now_ns()));
  parent.lifeline.reset();
  EXPECT_EQ(parent.wait(), kKilled);
}

INSTANTIATE_TEST_SUITE_P(Tasks, StuckWorkerTest,
                         ::testing::Values("sleep_for_ever", "spin", "spin_everywhere",
                                           "ignore_everything", "hold_malloc", "hold_loader",
                                           "hold_stdio"),
                         [](const auto& each) { return std::string(each.param); });

TEST(WorkerProcessTest, ACrashInATaskLeavesItsStack) {
  WorkerParent parent;
  parent.start();
  parent.add(1, "null_write");
  parent.push({.header = {.dispatch = 1, .task = task_number(9), .callable = 1}});
  EXPECT_EQ(parent.wait()->value, SIGSEGV);
  const trace::ProcessRecordReader reader(parent.record);
  ASSERT_TRUE(reader.crash());
  ASSERT_TRUE(reader.card().task);
  EXPECT_EQ(reader.card().task->task, task_number(9));
}

TEST(WorkerProcessTest, AnIdleWorkerUsesNextToNoCpu) {
  WorkerParent parent;
  parent.start();
  const auto ticks = [&] { return os::read_process(parent.process.pid())->cpu_ticks; };
  const auto before = ticks();
  std::this_thread::sleep_for(std::chrono::seconds(2));
  EXPECT_LE(ticks() - before, 2);  // Of 200.
}

}  // namespace
}  // namespace strata::test
