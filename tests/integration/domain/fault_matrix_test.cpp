// Every rank misbehaves in every call of a vendor's communication library in every way: the caller
// hears of the right rank and step, nothing is left, and the next bring-up works.
//
// Each case has a Worker of its own, with real worker processes and tests/programs/
// vendor_comm_library.cpp.

#include <dlfcn.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <string>

#include "comm/vendor_interface.h"
#include "os/procfs.hpp"
#include "support/domain_test.hpp"
#include "support/temp_dir.hpp"

namespace strata::test {
namespace {

using testing::AllOf;

struct Fault {
  std::uint32_t ranks;
  const char* call;
  std::uint32_t rank;
  const char* action;
};
void PrintTo(const Fault& fault, std::ostream* stream) {
  *stream << "rank " << fault.rank << " of " << fault.ranks << ", " << fault.action << " in "
          << fault.call;
}

std::string name_of_case(const testing::TestParamInfo<Fault>& info) {
  return "Rank" + std::to_string(info.param.rank) + "Of" + std::to_string(info.param.ranks) + "_" +
         info.param.action + "_in_" + info.param.call;
}

std::vector<Fault> all_faults() {
  std::vector<Fault> all;
  for (const std::uint32_t ranks : {2U, 4U}) {
    for (const char* const action : {"crash", "abort", "hang", "fail", "slow"}) {
      all.push_back({ranks, "root_info", 0, action});
      for (const char* const call : {"init", "barrier", "destroy"}) {
        for (std::uint32_t rank = 0; rank < ranks; ++rank)
          all.push_back({ranks, call, rank, action});
      }
    }
  }
  return all;
}

class BringUpFaults : public DomainTest, public testing::WithParamInterface<Fault> {
 protected:
  void SetUp() override {
    DomainTest::SetUp();
    ::setenv("STRATA_FAKE_VENDOR", file().c_str(), 1);
  }
  void TearDown() override {
    DomainTest::TearDown();
    ::unsetenv("STRATA_FAKE_VENDOR");
    std::error_code ignored;
    std::filesystem::remove(file(), ignored);
    std::filesystem::remove(file() + ".done", ignored);
  }
  static std::string file() {
    static const TempDir folder;
    return (folder.path() / "fault").string();
  }
  static void plant(const Fault& fault, const char* times = "once") {
    const std::string written = file() + ".new";
    std::ofstream(written) << fault.call << ' ' << fault.rank << ' ' << fault.action << ' ' << times
                           << '\n';
    std::filesystem::rename(written, file());
  }
  void start_vendor_ranks(std::uint32_t ranks) {
    WorkerOptions options = chips(ranks);
    options.communication = "vendor:" + test_library("strata_test_vendor_comm");
    // Nobody waits for either of these.
    options.cancel_grace = 60s;
    options.close_time_limit = 10s;
    start_ranks(std::move(options));
  }
  static bool hangs(const Fault& fault) { return fault.action == std::string("hang"); }
  /// What its rank says, or what is said of it.
  static std::string said_of(const Fault& fault) {
    const std::string action = fault.action;
    if (action == "crash") return "killed by signal 11";
    if (action == "abort") return "killed by signal 6";
    if (action == "fail") return "told to fail";
    return "did not come through within";
  }
  /// Whether this kernel says where in it a process waits.
  [[nodiscard]] bool places_are_told() const {
    return !os::wait_channel(worker_->processes()[0].pid).empty();
  }
  /// The rank is named, and where it was.
  static std::string place_of(const Fault& fault) {
    return "rank " + std::to_string(fault.rank) + " (node/chip[" + std::to_string(fault.rank) +
           "]) in " + fault.call;
  }

  void fails_in_bring_up(const Fault& fault, const DomainOptions& options) {
    plant(fault);
    const Stopwatch watch;
    const auto error = thrown_by<BringUpFailed>([&] { (void)worker_->create_domain(options); });
    ASSERT_TRUE(error);
    // The others have 100 ms from when the failure is known, whatever the library does.
    if (!hangs(fault)) {
      EXPECT_LT(watch.elapsed(), bound(500ms));
    }
    EXPECT_EQ(name_of(error->step()), fault.call);
    EXPECT_THAT(error->what(), AllOf(HasSubstr(said_of(fault)), HasSubstr(place_of(fault))));
    // Of two that are in the same call it can't be told which one hangs. Of four, three wait.
    if (!hangs(fault) || (fault.ranks > 2 && places_are_told())) {
      EXPECT_EQ(error->rank(), fault.rank) << error->what();
    }
  }
  void fails_in_close(const Fault& fault) {
    plant(fault);
    const auto error = thrown_by<CloseFailed>([&] { worker_->close(); });
    ASSERT_TRUE(error);
    EXPECT_THAT(error->what(), AllOf(HasSubstr(said_of(fault)), HasSubstr(place_of(fault)),
                                     HasSubstr("step 'destroy'")));
    ASSERT_EQ(error->faults().size(), 1U);
    EXPECT_EQ(error->faults()[0].path, "node/chip[" + std::to_string(fault.rank) + "]");
    worker_->init();
  }
};

TEST_P(BringUpFaults, AreToldRightAndTheNextBringUpWorks) {
  const Fault fault = GetParam();
  start_vendor_ranks(fault.ranks);
  DomainOptions options = over_first(fault.ranks);
  options.time_limit = hangs(fault) ? bound(100ms) : 120s;
  const bool slow = fault.action == std::string("slow");
  if (fault.call == std::string("destroy")) {
    const Domain domain = worker_->create_domain(options);
    expect_works(domain);
    if (slow) {
      plant(fault);
      EXPECT_NO_THROW(worker_->close());
      worker_->init();
    } else {
      fails_in_close(fault);
    }
  } else if (slow) {
    plant(fault);
    expect_works(worker_->create_domain(options));
    EXPECT_TRUE(std::filesystem::exists(file() + ".done")) << "it was never called";
  } else {
    fails_in_bring_up(fault, options);
  }
  options.time_limit = 120s;
  expect_works(worker_->create_domain(options));
  EXPECT_NO_THROW(worker_->close());
}

INSTANTIATE_TEST_SUITE_P(, BringUpFaults, testing::ValuesIn(all_faults()), name_of_case);

class VendorRanks : public BringUpFaults {};

TEST_F(VendorRanks, FailAgainAndAgainAsLongAsTheFaultIsThere) {
  start_vendor_ranks(3);
  plant({3, "barrier", 1, "fail"}, "");
  for (int i = 0; i < 20; ++i) {
    const auto error =
        thrown_by<BringUpFailed>([&] { (void)worker_->create_domain(over_first(3)); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->rank(), 1U);
    EXPECT_EQ(error->step(), BringUpFailed::Step::barrier);
  }
  std::filesystem::remove(file());
  expect_works(worker_->create_domain(over_first(3)));
}

TEST_F(VendorRanks, ChipsThatAreNotInTheBringUpDoNotNotice) {
  start_vendor_ranks(4);
  const Domain others = worker_->create_domain(over({2, 3}));
  plant({2, "init", 0, "crash"});
  EXPECT_THROW((void)worker_->create_domain(over({0, 1})), BringUpFailed);
  expect_works(others);
  const std::vector<ProcessStatus> processes = worker_->processes();
  EXPECT_EQ(processes[2].incarnation, 1U);
  EXPECT_EQ(processes[3].incarnation, 1U);
}

TEST_F(VendorRanks, ALibraryThatIsNoneIsSaidToBeNone) {
  WorkerOptions options = chips(2);
  options.communication = "vendor:" + test_library("strata_test_many");
  start_ranks(std::move(options));
  const auto error = thrown_by<BringUpFailed>([&] { (void)worker_->create_domain(over({0, 1})); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->step(), BringUpFailed::Step::load_library);
  EXPECT_THAT(error->what(), HasSubstr("strata_vendor_version"));
}

TEST_F(VendorRanks, OptionsThatNameNoLibraryAreRefused) {
  for (const char* const wrong : {"", "shm2", "vendor", "vendor:", "vendor:/no/such/library.so"}) {
    WorkerOptions options = chips(1);
    options.communication = wrong;
    const auto error = thrown_by<InvalidArgument>([&] { const Worker worker(options); });
    EXPECT_THAT(error->what(), HasSubstr("communication")) << wrong;
  }
}

TEST_F(VendorRanks, ACopyOfAProcessIsRefusedByTheLibrary) {
  // That is what every rank above would meet were worker processes forks.
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGABRT, SIG_DFL);
    ::close(2);
    void* const library =
        ::dlopen(test_library("strata_test_vendor_comm").c_str(), RTLD_NOW | RTLD_LOCAL);
    strata_vendor_root root = {};
    const auto root_info = reinterpret_cast<decltype(&strata_vendor_root_info)>(
        ::dlsym(library, "strata_vendor_root_info"));
    ::_exit(root_info(&root));
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGABRT);
}

}  // namespace
}  // namespace strata::test
