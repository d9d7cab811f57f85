#include "node/own_record.hpp"

#include <unistd.h>

#include <mutex>

#include "node/worker_process.hpp"
#include "trace/process_record.hpp"
#include "trace/recorder.hpp"
#include "trace/state_board.hpp"

namespace strata::node {

void make_own_record(const std::string& path) {
  if (is_worker_process()) return;
  static std::once_flag once;
  std::call_once(once, [&] {
    // Never destroyed: threads may record until the process ends.
    static auto* const record =
        new trace::ProcessRecord(trace::ProcessRecord::create({.path = path, .role = "node"}));
    record->set_pid(::getpid());
    record->set_state(trace::ProcessState::idle);
    trace::record_into(*record);
    trace::StateBoard::of_process().open();
  });
}

}  // namespace strata::node
