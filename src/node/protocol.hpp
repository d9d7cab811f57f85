// What a Worker and its worker processes have agreed on: inherited descriptors, environment, and
// the messages of the control channel.
//
// Every message is a JSON object with a "type". Times are nanoseconds of CLOCK_MONOTONIC, which all
// processes of a machine share.
//
// parent -> worker
//   configure    path, role, log_level, deadline (of the start), setup (a callable or null),
//                chip workers: platform, run (options), cpus; next-level workers: options (of their
//                own Worker, whose name is the path), cpus, first_slab, slab_numbers
//                (node::Placement)
//   register     callables: [{id, source, library, symbol, orchestration}]; chip programs also: run
//                (options), build_id
//   forget_callable  id: no later frame calls this chip program
//   slab         slab, bytes; one descriptor: a memory that later frames may name
//   forget_slab  slab: no later frame names it
//
// worker -> parent
//   hello           pid, build_id (of the executable, hex), protocol
//   step            text: what it does now, during the start
//   ready           build_id
//   failed          fault: a WorkerFault; the worker ends itself afterwards
//   registered      ids
//   not_registered  id, fault
//   task_failed     dispatch, fault
//   task_value      dispatch, bytes; one descriptor: a sealed memory with the value
//
// The lifeline (ipc/lifeline.hpp) carries what must be answered whatever the worker does: query,
// stop, and by its end of file the death of the parent.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "strata/callable.hpp"
#include "strata/worker.hpp"
#include "strata/worker_error.hpp"

namespace strata::node {

inline constexpr int kProtocol = 2;

/// Descriptors that every worker process inherits. Nothing else is open in it at first; 0 is
/// /dev/null, 1 and 2 are the log pipe.
inline constexpr int kLifelineFd = 3;
inline constexpr int kControlFd = 4;
inline constexpr int kRecordFd = 5;      ///< trace::ProcessRecord.
inline constexpr int kMailboxFd = 6;     ///< ipc mailbox.
inline constexpr int kCompletionFd = 7;  ///< eventfd that wakes the parent.
inline constexpr int kTreeFd = 8;        ///< Page of the tree: ipc::SpinnerBudget.

/// In the environment of a worker process until its main has begun.
inline constexpr const char* kTokenVariable = "STRATA_WORKER_TOKEN";

/// A log line that begins with this byte has its prefix already: it comes from below.
inline constexpr char kPrefixed = '\x1e';

[[nodiscard]] nlohmann::json to_json(const Callable& callable);
[[nodiscard]] nlohmann::json to_json(const WorkerFault& fault);
[[nodiscard]] nlohmann::json to_json(const WorkerOptions& options);
/// These throw InvalidArgument for what is not of the form that to_json makes.
[[nodiscard]] Callable callable_from(const nlohmann::json& json);
[[nodiscard]] WorkerFault fault_from(const nlohmann::json& json);
[[nodiscard]] WorkerOptions options_from(const nlohmann::json& json);

[[nodiscard]] std::string_view name_of(LogLevel level) noexcept;

}  // namespace strata::node
