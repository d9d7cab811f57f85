#include "trace/process_record.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <memory>
#include <new>
#include <utility>

#include "os/memfd.hpp"
#include "os/system_error.hpp"
#include "trace/clocks.hpp"
#include "trace/record_check.hpp"
#include "trace/recorder.hpp"
#include "trace/text_words.hpp"

namespace strata::trace {

std::string name_of(ProcessState state) {
  switch (state) {
    case ProcessState::starting:
      return "starting";
    case ProcessState::initialising:
      return "initialising";
    case ProcessState::idle:
      return "idle";
    case ProcessState::running:
      return "running";
    case ProcessState::stopping:
      return "stopping";
    case ProcessState::crashed:
      return "crashed";
  }
  return "state " + std::to_string(static_cast<std::uint32_t>(state));
}

std::string name_of(EventKind kind) {
  switch (kind) {
    case EventKind::none:
      return "none";
    case EventKind::task_start:
      return "task_start";
    case EventKind::task_end:
      return "task_end";
    case EventKind::dispatch:
      return "dispatch";
    case EventKind::completion:
      return "completion";
    case EventKind::state_transition:
      return "state_transition";
    case EventKind::spawn:
      return "spawn";
    case EventKind::death:
      return "death";
    case EventKind::message:
      return "message";
    case EventKind::run_open:
      return "run_open";
    case EventKind::run_end:
      return "run_end";
    case EventKind::cancel:
      return "cancel";
    case EventKind::step:
      return "step";
  }
  return "event " + std::to_string(static_cast<std::uint32_t>(kind));
}

ProcessRecord::ProcessRecord(os::UniqueFd fd, os::Mapping mapping) noexcept
    : fd_(std::move(fd)),
      mapping_(std::move(mapping)),
      // The file is all zeros at first, which is what every word begins with.
      layout_(std::launder(reinterpret_cast<RecordLayout*>(mapping_.data()))) {}

ProcessRecord ProcessRecord::create(const Identity& identity) {
  os::UniqueFd fd = os::make_memfd(kRecordName, sizeof(RecordLayout));
  os::Mapping mapping = os::Mapping::shared(fd.get(), sizeof(RecordLayout));
  ProcessRecord record(std::move(fd), std::move(mapping));
  // Relaxed throughout: nobody else has the descriptor yet.
  constexpr auto kRelaxed = std::memory_order_relaxed;
  RecordLayout& layout = record.layout();
  const Instant now = now_on_both_clocks();
  layout.made_cycles.store(now.cycles, kRelaxed);
  layout.made_ns.store(now.ns, kRelaxed);
  CardArea& card = layout.card;
  const pid_t parent = identity.parent != 0 ? identity.parent : getpid();
  card.parent.store(static_cast<std::uint64_t>(parent), kRelaxed);
  card.started_ns.store(now.ns, kRelaxed);
  card.state_since_ns.store(now.ns, kRelaxed);
  store_text(card.path, identity.path);
  store_text(card.role, identity.role);
  layout.layout_bytes.store(sizeof(RecordLayout), kRelaxed);
  layout.version.store(kRecordVersion, kRelaxed);
  layout.magic.store(kRecordMagic, std::memory_order_release);
  return record;
}

ProcessRecord ProcessRecord::attach(os::UniqueFd fd) {
  require_record_size(fd.get());
  os::Mapping mapping = os::Mapping::shared(fd.get(), sizeof(RecordLayout));
  ProcessRecord record(std::move(fd), std::move(mapping));
  require_record(record.layout());
  if (fcntl(record.fd(), F_SETFD, FD_CLOEXEC) != 0) {
    os::throw_errno("can't keep the process record from other programs");
  }
  record.set_pid(getpid());
  return record;
}

void ProcessRecord::set_pid(pid_t pid) noexcept {
  layout_->card.pid.store(static_cast<std::uint64_t>(pid), std::memory_order_relaxed);
}

void ProcessRecord::set_end(const os::ExitStatus& status) noexcept {
  CardArea& card = layout_->card;
  card.end_kind.store(static_cast<std::uint32_t>(status.kind), std::memory_order_relaxed);
  card.end_value.store(static_cast<std::uint32_t>(status.value), std::memory_order_relaxed);
  card.ended_ns.store(monotonic_ns(), std::memory_order_release);
}

void ProcessRecord::set_state(ProcessState state) noexcept {
  CardArea& card = layout_->card;
  card.state_since_ns.store(monotonic_ns(), std::memory_order_relaxed);
  const std::uint32_t before =
      card.state.exchange(static_cast<std::uint32_t>(state), std::memory_order_release);
  record(EventKind::state_transition, before, static_cast<std::uint64_t>(state));
}

void ProcessRecord::set_step(std::string_view text) noexcept {
  StepArea& step = layout_->card.step;
  // Several threads may write, so the odd number is taken like a lock; a thread that stopped with
  // it in hand costs the others their texts, not their time.
  constexpr int kTries = 1 << 16;
  for (int i = 0; i < kTries; ++i) {
    std::uint32_t even = step.sequence.load(std::memory_order_relaxed) & ~1U;
    if (!step.sequence.compare_exchange_weak(even, even + 1, std::memory_order_acquire,
                                             std::memory_order_relaxed)) {
      os::cpu_relax();
      continue;
    }
    std::atomic_thread_fence(std::memory_order_release);  // As in begin_change().
    step.since_ns.store(monotonic_ns(), std::memory_order_relaxed);
    store_text(step.text, text);
    end_change(step.sequence, even + 1);
    break;
  }
  record(EventKind::step, text.size());
}

void ProcessRecord::begin_task(std::uint64_t task, std::string_view name,
                               std::string_view callable) noexcept {
  const std::uint64_t cycles = os::cycle_count();
  TaskArea& area = layout_->card.task;
  const std::uint64_t odd = begin_change(area.sequence);
  area.task.store(task, std::memory_order_relaxed);
  area.since_cycles.store(cycles, std::memory_order_relaxed);
  store_text(area.name, name);
  store_text(area.callable, callable);
  end_change(area.sequence, odd);
  record_at(cycles, EventKind::task_start, task);
}

void ProcessRecord::end_task(std::uint64_t status) noexcept {
  TaskArea& area = layout_->card.task;
  const std::uint64_t task = area.task.load(std::memory_order_relaxed);
  // One word changes, so a reader sees the task or none without any sequence.
  area.task.store(0, std::memory_order_relaxed);
  record(EventKind::task_end, task, status);
}

}  // namespace strata::trace
