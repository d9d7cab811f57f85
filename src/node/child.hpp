// Child: one place for a worker process, and what there is of the process that fills it now.
//
// Thread safety: the supervisor's thread only.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "ipc/control_channel.hpp"
#include "ipc/mailbox.hpp"
#include "node/log_collector.hpp"
#include "node/supervisor.hpp"
#include "os/cgroup.hpp"
#include "os/child_process.hpp"
#include "trace/process_record.hpp"

namespace strata::node {

/// What an epoll event is about.
enum class Source : std::uint8_t { wake, completions, report, process, control, log };

/// What a process has and leaves behind; made anew for each.
struct ChildResources {
  os::ChildProcess process;
  std::unique_ptr<ipc::ControlChannel> control;
  os::UniqueFd lifeline;
  std::unique_ptr<LogCollector> log;
  std::optional<trace::ProcessRecord> record;
  std::shared_ptr<ipc::MailboxParent> mailbox;
  std::optional<os::Cgroup> group;
};

struct Child {
  Child(std::size_t its_index, const ChildSpec& its_spec) : index(its_index), spec(its_spec) {}

  /// For the epoll set: the source, the child and the low bits of the incarnation, so that an event
  /// of an earlier process is known as such.
  [[nodiscard]] std::uint64_t tag(Source source) const noexcept {
    return static_cast<std::uint64_t>(source) | (static_cast<std::uint64_t>(index) << 8U) |
           (static_cast<std::uint64_t>(incarnation & 0xffffffU) << 40U);
  }

  [[nodiscard]] bool is_chip() const noexcept { return spec.kind == "chip"; }

  const std::size_t index;
  const ChildSpec& spec;
  ChildState state = ChildState::absent;
  unsigned incarnation = 0;  ///< Counts the processes.
  ChildResources of_process;

  os::Deadline start_deadline;
  os::Deadline timer;       ///< Of the state.
  os::Deadline hung_up;     ///< Its channel is closed: until then its end may follow.
  os::Deadline wait_again;  ///< The process has ended, but could not be waited for yet.
  std::string step;         ///< The last that it told of.
  bool told_of_up = false;  ///< The client had child_up.
  bool control_open = false;
  std::size_t registered = 0;  ///< Callables that it was sent.

  /// Why it is being ended, from the first reason on.
  std::optional<WorkerFault> own_words;  ///< As it told itself.
  std::string reason;                    ///< As the supervisor sees it ...
  std::string code;                      ///< ... and the name_of() its ErrorCode, if it has one.
  std::optional<ChildState> failed_in;   ///< The state in which that was.
  std::string task_when_ended;           ///< What it ran when it was asked to stop, or killed.
  bool replace = false;                  ///< A new process is wanted when this one is gone.
  unsigned failed_starts = 0;            ///< In a row.
  unsigned quick_deaths = 0;             ///< In a row: soon after it was ready.
  std::int64_t ready_since_ns = 0;
};

}  // namespace strata::node
