// ChipTest: the fixture of tests with chips, and short ways to run the chip program `ways`.
//
// Thread safety: as GoogleTest's.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "programs/chip/ways/ways.hpp"
#include "strata/chip_program.hpp"
#include "strata/strata.hpp"
#include "support/node_test.hpp"

namespace strata::test {

constexpr ProgramSanitizer sanitizer_of_this_build() {
#if defined(__SANITIZE_ADDRESS__)
  return ProgramSanitizer::address;
#elif defined(__SANITIZE_THREAD__)
  return ProgramSanitizer::thread;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
  return ProgramSanitizer::address;
#elif __has_feature(thread_sanitizer)
  return ProgramSanitizer::thread;
#else
  return ProgramSanitizer::none;
#endif
#else
  return ProgramSanitizer::none;
#endif
}

/// The file of the chip program in tests/programs/chip/`name`, built with what this program was
/// built with, once: it stays in the build folder's cache.
inline std::string chip_program(const std::string& name) {
  const auto source =
      ChipProgramSource::load(std::string(STRATA_TEST_CHIP_PROGRAMS "/") + name + "/program.json");
  return build_chip_program(source, {.cache = STRATA_TEST_CHIP_CACHE,
                                     .compiler = STRATA_TEST_COMPILER,
                                     .sanitizer = sanitizer_of_this_build()})
      .string();
}

class ChipTest : public NodeTest {
 protected:
  void SetUp() override {
    ways_file();  // Not among what a test must leave no trace of.
    NodeTest::SetUp();
  }
  void TearDown() override {
    x_ = {};
    worker_.reset();
    NodeTest::TearDown();
  }

  static const std::string& ways_file() {
    static const std::string file = chip_program("ways");
    return file;
  }

  /// Starts a Worker with these chips.
  Worker& start(WorkerOptions options) {
    worker_ = std::make_unique<Worker>(std::move(options));
    x_ = worker_->create_buffer(16 * sizeof(std::int64_t));
    worker_->init();
    ways_ = worker_->add(Callable::chip_program(ways_file()));
    return *worker_;
  }
  Worker& start(const std::string& platform) {
    WorkerOptions options;
    options.chips = {{.platform = platform}};
    return start(std::move(options));
  }

  [[nodiscard]] Tensor x() const { return x_.tensor(DType::int64, {16}); }
  [[nodiscard]] std::int64_t at(std::size_t i) const {
    return std::atomic_ref(x_.as<std::int64_t>()[i]).load();
  }
  void set(std::size_t i, std::int64_t value) {
    std::atomic_ref(x_.as<std::int64_t>()[i]).store(value);
  }

  /// A run of one task; `call` is ways_ if it names none.
  Run submit(Way way, std::int64_t argument = 0, std::optional<Call> call = {}) {
    return submit(way, argument, call, on(worker_->chip(0)));
  }
  Run submit(Way way, std::int64_t argument, std::optional<Call> call, Target target) {
    return worker_->submit([this, way, argument, call, target](Orchestration& o) {
      o.submit(call.value_or(Call(ways_)), inout(x()), scalar(way), scalar(argument), target,
               named("the task"));
    });
  }
  /// The same, to its end. What its task failed with, if it did.
  std::optional<WorkerFault> run(Way way, std::int64_t argument = 0,
                                 std::optional<Call> call = {}) {
    const Run run = submit(way, argument, call);
    std::optional<WorkerFault> fault;
    text_ = with_failure_of(run, [&](const WorkerError& error) { fault = error.fault(); });
    if (!fault && !text_.empty()) ADD_FAILURE() << "the run failed otherwise: " << text_;
    return fault;
  }
  /// The chip runs programs: with memory of its own, since a failed task leaves x invalid.
  void expect_usable() {
    Buffer fresh = worker_->create_buffer(8);
    const Run run = worker_->submit([&](Orchestration& o) {
      o.submit(Call(ways_), inout(fresh.tensor(DType::int64, {1})), scalar(Way::increment),
               scalar(std::int64_t{0}), on(worker_->chip(0)), named("afterwards"));
    });
    EXPECT_NO_THROW(run.result());
    EXPECT_EQ(fresh.as<std::int64_t>()[0], 1);
  }
  /// The chip's process is the `incarnation`th, and ready.
  void expect_process(unsigned incarnation) {
    const auto is_ready = [&] {
      const ProcessStatus status = worker_->processes()[0];
      return status.incarnation == incarnation && status.state == "ready";
    };
    EXPECT_TRUE(within(bound(20s), is_ready)) << worker_->processes()[0].incarnation;
  }
  /// Has another process in the place of chip 0.
  void replace_chip() {
    const unsigned before = worker_->processes()[0].incarnation;
    worker_->replace(worker_->chip(0));
    expect_process(before + 1);
  }

  std::unique_ptr<Worker> worker_;
  Buffer x_;
  CallableId ways_;
  std::string text_;  ///< What the last run() threw.
};

/// What an orchestration that submits this one task is refused with.
template <class Thrown, class... Args>
std::optional<Thrown> refusal_of(Worker& worker, const Args&... args) {
  std::optional<Thrown> refused;
  worker.run([&](Orchestration& o) { refused = thrown_by<Thrown>([&] { o.submit(args...); }); });
  return refused;
}

}  // namespace strata::test
