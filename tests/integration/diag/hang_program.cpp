// A program whose hang is the fault of one core, worker, lock or scope, chosen by a seed. It says
// on its stdout what a report of it must name, as "expect: WORDS | WORDS", all in one line of the
// verdict, and then "ready".
//
//   hang_program loop|signal|notify|absent|stopped|lock|heap SEED [FILE]
//   hang_program late SEED FILE
//   hang_program cancel SEED FILE
//
// With a FILE it has a watchdog that reports to it. `late` is `lock` in a run with a deadline;
// `cancel` is `signal` with a watchdog that cancels the run, which ends the program, with 0 if the
// run was cancelled and the Worker is good for another one.
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "programs/chip/hangs/hangs.hpp"
#include "programs/chip/ranks/ranks.hpp"
#include "strata/chip_program.hpp"
#include "strata/strata.hpp"

namespace {

using namespace std::chrono_literals;
using strata::test::Hang;
using strata::test::RankWay;

constexpr unsigned kWorkers = 4;
constexpr unsigned kClusters = 4;
constexpr unsigned kChips = 2;

strata::WatchdogOptions watchdog;

/// Says that all is set up, and waits for ever.
[[noreturn]] void hang() {
  std::puts("ready");
  std::fflush(stdout);
  for (;;)
    ::pause();
}

void wait_for(const std::int64_t& word, std::int64_t value) {
  while (std::atomic_ref(const_cast<std::int64_t&>(word)).load() != value)
    std::this_thread::sleep_for(1ms);
}

/// Ends the program if the run ends, which it should not.
void wait_until_there(const std::int64_t& word, std::int64_t value, const strata::Run& run) {
  while (std::atomic_ref(const_cast<std::int64_t&>(word)).load() != value) {
    if (!run.wait_for(1ms)) continue;
    run.result();
    std::fputs("the run has ended\n", stderr);
    std::exit(3);
  }
}

strata::CallableId add_program(strata::Worker& worker, const std::string& name) {
  const auto source =
      strata::ChipProgramSource::load(STRATA_TEST_CHIP_PROGRAMS "/" + name + "/program.json");
  return worker.add(strata::Callable::chip_program(
      strata::build_chip_program(
          source, {.cache = STRATA_TEST_CHIP_CACHE, .compiler = STRATA_TEST_COMPILER})
          .string()));
}

/// Waits for the run that the watchdog is to cancel, and ends the program.
[[noreturn]] void be_cancelled(strata::Worker& worker, const strata::Run& run) {
  std::puts("ready");
  std::fflush(stdout);
  try {
    run.result();
    std::fputs("the run has ended well\n", stderr);
  } catch (const strata::Cancelled&) {
    worker.run([](strata::Orchestration&) {});
    worker.close();
    std::exit(0);
  }
  std::exit(3);
}

/// A chip, and in it a lane that is not there for the others.
[[noreturn]] void hang_in_chip(Hang how, unsigned seed) {
  const unsigned chip = seed % kChips;
  const unsigned block = seed / kChips % kClusters;
  const unsigned lane = seed / (kChips * kClusters) % 3;
  const std::string platform = "a2a3sim:clusters=" + std::to_string(kClusters);
  strata::WorkerOptions options;
  options.name = "hangs";
  options.watchdog = watchdog;
  options.chips = {{.platform = platform}, {.platform = platform}};
  strata::Worker worker(options);
  const auto program = add_program(worker, "hangs");
  strata::Buffer x = worker.create_buffer(2 * sizeof(std::int64_t));
  worker.init();
  const strata::Run run = worker.submit([&](strata::Orchestration& o) {
    o.submit(strata::Call(program), inout(x.tensor(strata::DType::int64, {2})), strata::scalar(how),
             strata::scalar(std::int64_t{block}), strata::scalar(std::int64_t{lane}),
             on(worker.chip(chip)));
  });
  wait_until_there(x.as<std::int64_t>()[0], 3 * kClusters, run);
  constexpr const char* kLanes[] = {"AIC)", "AIV 0)", "AIV 1)"};
  const std::string where = ", block " + std::to_string(block) + " of 4";
  const std::string process = "hangs/chip[" + std::to_string(chip) + "]";
  switch (how) {
    case Hang::loop:
      std::printf("expect: %s | %s | %s | never_ends(\n", kLanes[lane], process.c_str(),
                  where.c_str());
      break;
    case Hang::signal:
      std::printf("expect: %s | %s | %s | waits for the signal at\n", kLanes[lane], process.c_str(),
                  where.c_str());
      break;
  }
  if (watchdog.then == strata::WatchdogOptions::Then::cancel_runs) be_cancelled(worker, run);
  hang();
}

/// Ranks of a domain, one of which does not do what the others wait for.
[[noreturn]] void hang_in_domain(RankWay how, unsigned seed) {
  constexpr unsigned kRanks = 4;
  const unsigned chosen = seed % kRanks;
  strata::WorkerOptions options{.name = "hangs", .watchdog = watchdog};
  options.chips.assign(kRanks, {.platform = "a2a3sim:clusters=1"});
  strata::Worker worker(options);
  const auto program = add_program(worker, "ranks");
  std::vector<strata::Buffer> outs;
  for (unsigned i = 0; i < kRanks; ++i)
    outs.push_back(worker.create_buffer(sizeof(std::int64_t)));
  worker.init();
  // Which chip is which rank is drawn, too.
  strata::DomainOptions over{
      .name = "tp",
      .slices = {{"numbers", strata::DType::int64, 64}, {"flags", strata::DType::uint8, 64}}};
  const auto chip_of = [&](unsigned rank) { return (rank + seed / kRanks) % kRanks; };
  for (unsigned rank = 0; rank < kRanks; ++rank)
    over.chips.push_back(worker.chip(chip_of(rank)));
  const strata::Domain domain = worker.create_domain(over);
  const strata::Run run = worker.submit([&](strata::Orchestration& o) {
    for (unsigned rank = 0; rank < kRanks; ++rank) {
      o.submit(strata::Call(program), in(domain.context(rank)),
               inout(outs[rank].tensor(strata::DType::int64, {1})), strata::scalar(how),
               strata::scalar(std::int64_t{chosen}), on(domain.chip(rank)));
    }
  });
  for (const strata::Buffer& out : outs)
    wait_until_there(out.as<std::int64_t>()[0], 1, run);
  // All that wait, and whose notification is missing; or all but one.
  while (domain.waits().size() != (how == RankWay::tell_next ? kRanks + 1 : kRanks - 1))
    std::this_thread::sleep_for(1ms);
  const unsigned next = (chosen + 1) % kRanks;
  const std::string chip = "hangs/chip[" + std::to_string(chip_of(chosen)) + "]";
  if (how == RankWay::tell_next) {
    std::printf(
        "expect: rank %u of domain 'tp' waits for the signal at byte 16 of slice 'flags' | "
        "%u hangs/chip[%u]\n",
        next, next, chip_of(next));
    std::printf(
        "expect: rank %u of domain 'tp' has sent 0 notifications, and each other rank 1 | "
        "%u %s\n",
        chosen, chosen, chip.c_str());
  } else {
    for (unsigned rank = 0; rank < kRanks; ++rank) {
      if (rank == chosen) continue;
      std::printf(
          "expect: rank %u of domain 'tp' waits in all_reduce #2 on channel 0 for rank %u "
          "(its last call there is #1) (ranks: | %u %s\n",
          rank, chosen, chosen, chip.c_str());
    }
    std::printf("expect: of %s | has been in kernel 'stay_away' | is_elsewhere(\n", chip.c_str());
  }
  hang();
}

strata::SubWorkerOptions of_this_program() {
  return {.count = kWorkers, .program = strata::WorkerProgram::this_program};
}

/// Says that it has begun, and ends when it is told to.
const strata::WorkerFunction wait_for_word("wait_for_word", [](strata::WorkerTask& task) {
  auto* const x = task.data<std::int64_t>(0);
  std::atomic_ref(x[0]).store(1);
  wait_for(x[1], 1);
});

[[noreturn]] void hang_for_a_stopped_worker(unsigned seed) {
  const unsigned chosen = seed % kWorkers;
  strata::Worker worker({.name = "hangs", .subs = {of_this_program()}});
  const auto callable = worker.add(strata::Callable::in_program("wait_for_word"));
  std::vector<strata::Buffer> words;
  for (unsigned i = 0; i < kWorkers; ++i)
    words.push_back(worker.create_buffer(2 * sizeof(std::int64_t)));
  worker.init();
  const strata::Run run = worker.submit([&](strata::Orchestration& o) {
    for (unsigned i = 0; i < kWorkers; ++i)
      o.submit(strata::Call(callable), inout(words[i].tensor(strata::DType::int64, {2})),
               on(worker.sub(i)), strata::named("stopped"));
  });
  for (const auto& word : words)
    wait_for(word.as<std::int64_t>()[0], 1);
  ::kill(worker.processes()[chosen].pid, SIGSTOP);
  for (const auto& word : words)
    std::atomic_ref(word.as<std::int64_t>()[1]).store(1);
  std::printf("expect: hangs/sub[%u] | is stopped by a signal\n", chosen);
  std::printf("expect: hangs/sub[%u] | 'stopped' in hand\n", chosen);
  hang();
}

/// One thread keeps a lock for ever, and the task wants it.
const strata::WorkerFunction wants_a_lock("wants_a_lock", [](strata::WorkerTask& task) {
  static std::mutex locks[kWorkers];
  auto* const x = task.data<std::int64_t>(0);
  const auto which = static_cast<unsigned>(task.scalar<std::int64_t>(0));
  for (unsigned i = 0; i < kWorkers; ++i) {
    std::thread([i, x] {
      pthread_setname_np(pthread_self(), ("holder-" + std::to_string(i)).c_str());
      locks[i].lock();
      std::atomic_ref(x[0]).fetch_add(1);
      for (;;)
        ::pause();
    }).detach();
  }
  wait_for(x[0], kWorkers);
  std::atomic_ref(x[1]).store(1);
  locks[which].lock();
});

[[noreturn]] void hang_for_a_lock(unsigned seed, strata::RunOptions run_options = {}) {
  const unsigned chosen = seed % kWorkers;
  const unsigned lock = seed / kWorkers % kWorkers;
  strata::Worker worker({.name = "hangs", .subs = {of_this_program()}, .watchdog = watchdog});
  const auto callable = worker.add(strata::Callable::in_program("wants_a_lock"));
  strata::Buffer x = worker.create_buffer(2 * sizeof(std::int64_t));
  worker.init();
  const strata::Run run = worker.submit(
      [&](strata::Orchestration& o) {
        o.submit(strata::Call(callable), inout(x.tensor(strata::DType::int64, {2})),
                 strata::scalar(std::int64_t{lock}), on(worker.sub(chosen)),
                 strata::named("locks"));
      },
      std::move(run_options));
  wait_for(x.as<std::int64_t>()[1], 1);
  std::printf("expect: hangs/sub[%u] | 'locks' in hand | 'holder-%u' holds\n", chosen, lock);
  hang();
}

/// Some orchestrations keep memory in scopes that they do not close, one of them most of it.
[[noreturn]] void hang_for_heap(unsigned seed) {
  constexpr std::int64_t kHeap = 1 << 20;
  const unsigned chosen = seed % kWorkers;
  strata::Worker worker({.name = "hangs", .subs = {of_this_program()}, .heap = kHeap});
  worker.init();
  std::atomic<unsigned> holding{0};
  std::vector<strata::Run> runs;
  for (unsigned i = 0; i < kWorkers; ++i) {
    runs.push_back(worker.submit(
        [&, i](strata::Orchestration& o) {
          const strata::Scope scope = o.scope({.name = "hoard-" + std::to_string(i)});
          (void)o.allocate(strata::DType::uint8, {i == chosen ? kHeap / 2 : kHeap / 32});
          ++holding;
          for (;;)
            ::pause();
        },
        {.name = "hoarder " + std::to_string(i)}));
  }
  while (holding != kWorkers)
    std::this_thread::sleep_for(1ms);
  runs.push_back(worker.submit(
      [&](strata::Orchestration& o) { (void)o.allocate(strata::DType::uint8, {kHeap / 2}); },
      {.name = "starving"}));
  while (worker.stats().blocked_submits == 0)
    std::this_thread::sleep_for(1ms);
  std::printf(
      "expect: starving | waited for 512 KiB | by allocate() of hoarder %u (512 KiB, kept "
      "by scope 'root/hoard-%u')\n",
      chosen, chosen);
  hang();
}

}  // namespace

int main(int argc, char** argv) {
  const strata::ProcessScope scope(argc, argv);
  if (argc != 3 && argc != 4) return 2;
  const std::string kind = argv[1];
  const auto seed = static_cast<unsigned>(std::strtoul(argv[2], nullptr, 10));
  ::setenv("STRATA_CACHE", STRATA_TEST_CHIP_CACHE, 1);
  const bool late = kind == "late";
  if (argc == 4) {
    watchdog = {.missed_deadlines = late, .sigquit = true, .file = argv[3]};
    if (!late) watchdog.no_progress = 500ms;
  }
  if (kind == "cancel") watchdog.then = strata::WatchdogOptions::Then::cancel_runs;
  if (late) hang_for_a_lock(seed, {.deadline = std::chrono::steady_clock::now() + 1s});
  if (kind == "loop") hang_in_chip(Hang::loop, seed);
  if (kind == "signal" || kind == "cancel") hang_in_chip(Hang::signal, seed);
  if (kind == "notify") hang_in_domain(RankWay::tell_next, seed);
  if (kind == "absent") hang_in_domain(RankWay::stay_away, seed);
  if (kind == "stopped") hang_for_a_stopped_worker(seed);
  if (kind == "lock") hang_for_a_lock(seed);
  if (kind == "heap") hang_for_heap(seed);
  return 2;
}
