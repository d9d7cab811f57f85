#include <cstdlib>
#include <stdexcept>
#include <strata/chip.hpp>

#include "ways.hpp"

using namespace strata;
using test::Way;

namespace {

/// Decides by what a task computes.
void decides_by_a_value(ChipOrchestration& chip, const GraphArguments& arguments) {
  chip.submit(chip.aiv("add"), inout(arguments.tensor(0)), scalar(std::int64_t{1}));
  (void)chip.read<std::int64_t>(arguments.tensor(0), {0});
}

void submit_one(ChipOrchestration& chip, const char* kernel) {
  chip.submit(chip.aiv(kernel), inout(chip.tensor(0)), named(kernel));
}

}  // namespace

STRATA_CHIP_ORCHESTRATION(ways) {
  const Tensor& x = chip.tensor(0);
  const auto argument = chip.scalar<std::int64_t>(1);
  switch (chip.scalar<Way>(0)) {
    case Way::nothing:
      return;
    case Way::increment:
      chip.submit(chip.aiv("add"), inout(x), scalar(std::int64_t{1}), named("increment"));
      return;
    case Way::add:
      chip.submit(chip.aiv("add"), inout(x), scalar(argument), named("add"));
      return;
    case Way::throws:
      submit_one(chip, "throws");
      return;
    case Way::crash_segv:
      submit_one(chip, "crash_segv");
      return;
    case Way::crash_fpe:
      submit_one(chip, "crash_fpe");
      return;
    case Way::crash_bus:
      submit_one(chip, "crash_bus");
      return;
    case Way::crash_orchestration:
      *reinterpret_cast<volatile int*>(argument) = 1;
      return;
    case Way::wait_for_flag:
      chip.submit(chip.mixed(chip.kernel("wait_for_flag"), chip.kernel("until_cancelled")),
                  inout(x), named("waits"));
      return;
    case Way::spin:
      submit_one(chip, "spin");
      return;
    case Way::hold:
      submit_one(chip, "hold");
      return;
    case Way::fail:
      chip.fail(static_cast<std::int32_t>(argument), "no luck today");
    case Way::orchestration_throws:
      throw std::domain_error("the orchestration has had enough");
    case Way::misuse:
      submit_one(chip, "misuse");
      return;
    case Way::logs:
      chip.log("here is the orchestration");
      submit_one(chip, "logs");
      return;
    case Way::unknown_kernel:
      submit_one(chip, "no_such_kernel");
      return;
    case Way::wrong_core:
      chip.submit(chip.aic("add"), inout(x), scalar(argument));
      return;
    case Way::too_many_blocks:
      chip.submit(chip.aiv("nothing").blocks(chip.aivs() + 1).together(), inout(x));
      return;
    case Way::all_cores: {
      const KernelId aiv = chip.kernel("meet_aiv");
      chip.submit(chip.mixed(chip.kernel("meet_aic"), aiv, aiv).blocks(chip.clusters()).together(),
                  inout(x), named("meet"));
      return;
    }
    case Way::geometry:
      chip.write(x, {0}, static_cast<std::int64_t>(chip.clusters()));
      chip.write(x, {1}, static_cast<std::int64_t>(chip.aics()));
      chip.write(x, {2}, static_cast<std::int64_t>(chip.aivs()));
      return;
    case Way::cpus:
      chip.submit(chip.aiv("cpus").blocks(chip.aivs()), inout(x));
      return;
    case Way::allocate: {
      Tensor made(DType::uint8, {argument});
      chip.submit(chip.aiv("nothing"), out(made));
      return;
    }
    case Way::exit_in_kernel:
      chip.submit(chip.aiv("exits"), inout(x), scalar(argument), named("exits"));
      return;
    case Way::exit_in_orchestration:
      std::exit(static_cast<int>(argument));
    case Way::leave_in_kernel:
      submit_one(chip, "leaves");
      return;
    case Way::loop:
      // A loop that does nothing at all need not be there, says C++, and clang leaves it out.
      for (volatile bool on = true; on;) {
      }
      return;
    case Way::loop_for_a_while:
      while (!chip.cancelled()) {
      }
      return;
    case Way::not_recordable:
      chip.graph(decides_by_a_value, {x}, {});
      return;
  }
}
