// A library that keeps state of its process and refuses to work in a copy of one, as vendors'
// libraries do, works in every worker, also where this process has loaded it too.

#include <dlfcn.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>

#include "support/node_test.hpp"

namespace strata::test {
namespace {

const WorkerFunction g_vendor("vendor in this program", [](WorkerTask& task) {
  void* library = ::dlopen(test_library("strata_test_vendor").c_str(), RTLD_NOW);
  const auto work = reinterpret_cast<int (*)()>(::dlsym(library, "vendor_work"));
  task.set_value(std::to_string(work()));
});

class NodeVendor : public NodeTest {
 protected:
  NodeVendor() {
    void* library = ::dlopen(test_library("strata_test_vendor").c_str(), RTLD_NOW);
    if (library == nullptr) throw std::runtime_error(::dlerror());
    work_ = reinterpret_cast<int (*)()>(::dlsym(library, "vendor_work"));
  }
  static Callable vendor(std::string symbol) {
    return Callable::in_library(test_library("strata_test_vendor"), std::move(symbol));
  }
  int (*work_)() = nullptr;
};

// "A vendor-like library that refuses to work in a forked child works in every worker; the same
// library in a plain fork crashes (the test shows both)."
TEST_F(NodeVendor, CrashesInAPlainFork) {
  EXPECT_EQ(work_(), ::getpid());
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGABRT, SIG_DFL);
    ::close(2);
    work_();
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGABRT);
}

TEST_F(NodeVendor, WorksInEveryWorker) {
  EXPECT_EQ(work_(), ::getpid());
  WorkerOptions below;
  below.subs = {{.count = 2, .setup = vendor("vendor_setup")}};
  below.setup = vendor("vendor_setup");
  WorkerOptions options;
  options.chips.resize(2);
  options.chips[0].setup = vendor("vendor_setup");
  options.subs = {{.count = 2, .setup = vendor("vendor_setup")},
                  {.count = 1, .program = WorkerProgram::this_program}};
  options.next_level = {below};
  Worker worker(options);
  worker.init();
  const CallableId task = worker.add(vendor("vendor_task"));
  const CallableId own = worker.add(Callable::in_program("vendor in this program"));
  std::vector<TaskId> tasks;
  const Run run = worker.run([&](Orchestration& o) {
    for (const LaneId lane : {worker.chip(0), worker.chip(1), worker.sub(0), worker.sub(1)})
      tasks.push_back(o.submit(Call(task), on(lane)));
    tasks.push_back(o.submit(Call(own), on(worker.sub(2))));
  });
  std::set<std::string> pids;
  for (const TaskId id : tasks)
    pids.insert(run.value(id).value_or(""));
  EXPECT_EQ(pids.size(), tasks.size());
}

}  // namespace
}  // namespace strata::test
