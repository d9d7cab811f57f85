#include "trace/process_record_reader.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "os/child_process.hpp"
#include "os/memfd.hpp"
#include "os/procfs.hpp"
#include "os/unique_fd.hpp"
#include "strata/error.hpp"
#include "trace/clocks.hpp"
#include "trace/maps_parser.hpp"
#include "trace/record_check.hpp"
#include "trace/text_words.hpp"

namespace strata::trace {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

std::chrono::nanoseconds as_ns(std::uint64_t value) {
  return std::chrono::nanoseconds(static_cast<std::int64_t>(value));
}

Instant made(const RecordLayout& layout) {
  return {layout.made_cycles.load(kRelaxed), layout.made_ns.load(kRelaxed)};
}

/// A thread's name as the kernel gives it: 16 bytes, with a zero at the end.
std::string thread_name(const std::array<Word, 2>& words) {
  std::array<char, 16> bytes{};
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::uint64_t word = words[i].load(kRelaxed);
    std::memcpy(bytes.data() + i * 8, &word, 8);
  }
  return {bytes.data(), strnlen(bytes.data(), bytes.size())};
}

/// A file's path as /proc/PID/maps spells it, where a line feed is "\012".
std::string unescaped(std::string_view path) {
  std::string plain;
  for (std::size_t i = 0; i < path.size(); ++i) {
    if (path.substr(i, 4) == "\\012") {
      plain += '\n';
      i += 3;
    } else {
      plain += path[i];
    }
  }
  return plain;
}

}  // namespace

std::vector<MappedRange> ranges_of(std::string_view text) {
  constexpr std::string_view kDeleted = " (deleted)";
  std::vector<MappedRange> ranges;
  MapsParser lines(text);
  while (const auto line = lines.next()) {
    std::string_view path = line->path;
    const bool deleted = path.ends_with(kDeleted);
    if (deleted) path.remove_suffix(kDeleted.size());
    ranges.push_back({.begin = line->begin,
                      .end = line->end,
                      .file_offset = line->file_offset,
                      .inode = line->inode,
                      .readable = line->readable,
                      .executable = line->executable,
                      .deleted = deleted,
                      .path = unescaped(path)});
  }
  return ranges;
}

namespace {

std::string build_id_of(const ModuleWords& module) {
  const std::size_t bytes =
      std::min<std::size_t>(module.build_id_bytes.load(kRelaxed), sizeof(module.build_id));
  std::string hex;
  for (std::size_t i = 0; i < bytes; ++i) {
    const std::uint64_t word = module.build_id[i / 8].load(kRelaxed);
    hex += fmt::format("{:02x}", word >> (i % 8 * 8) & 0xff);
  }
  return hex;
}

std::vector<LoadedModule> modules_of(const CrashArea& crash, const std::vector<MappedRange>& maps) {
  std::vector<LoadedModule> modules;
  const std::size_t count =
      std::min<std::size_t>(crash.module_count.load(std::memory_order_acquire), kMaxModules);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t begin = crash.modules[i].begin.load(kRelaxed);
    for (const MappedRange& range : maps) {
      if (range.begin != begin) continue;
      modules.push_back({begin, range.path, build_id_of(crash.modules[i])});
      break;
    }
  }
  return modules;
}

/// Copies what is whole of a ring; see record_layout.hpp, invariant (2).
std::vector<Event> events_of(const RingArea& ring, std::uint64_t position, Instant from,
                             Instant to) {
  const std::uint64_t first = ring.first.load(kRelaxed);
  if (first > position) return {};  // Scribbled over.
  const std::uint64_t kept = std::min<std::uint64_t>(position - first, kEventsPerRing);
  std::vector<Event> events;
  events.reserve(static_cast<std::size_t>(kept));
  for (std::uint64_t i = position - kept; i < position; ++i) {
    const EventWords& words = ring.events[i % kEventsPerRing];
    const std::uint64_t kind_and_detail = words.kind_and_detail.load(kRelaxed);
    Event event;
    event.cycles = words.cycles.load(kRelaxed);
    event.kind = static_cast<EventKind>(static_cast<std::uint32_t>(kind_and_detail));
    event.detail = static_cast<std::uint32_t>(kind_and_detail >> 32);
    event.a = words.a.load(kRelaxed);
    event.b = words.b.load(kRelaxed);
    event.at = as_ns(ns_between(from, to, event.cycles));
    events.push_back(event);
  }
  // The writer has gone on meanwhile: it may have begun event `now`, in the slot of the event
  // kEventsPerRing before it. Acquire: pairs with the fence in write_event().
  std::atomic_thread_fence(std::memory_order_acquire);
  const std::uint64_t now = ring.position.load(kRelaxed);
  if (now < position) return {};  // Scribbled over.
  const std::uint64_t oldest = position - kept;
  const std::uint64_t whole_from = now >= kEventsPerRing ? now - kEventsPerRing + 1 : 0;
  if (whole_from > oldest) {
    const auto torn = std::min<std::uint64_t>(whole_from - oldest, kept);
    events.erase(events.begin(), events.begin() + static_cast<std::ptrdiff_t>(torn));
  }
  return events;
}

}  // namespace

void require_record_size(int fd) { (void)os::require_sealed(fd, sizeof(RecordLayout)); }

void require_record(const RecordLayout& layout) {
  if (layout.magic.load(std::memory_order_acquire) != kRecordMagic) {
    throw Error("this memory is not a process record: it does not begin like one");
  }
  const auto version = layout.version.load(kRelaxed);
  const auto bytes = layout.layout_bytes.load(kRelaxed);
  if (version != kRecordVersion || bytes != sizeof(RecordLayout)) {
    throw Error(fmt::format(
        "this process record has version {} and {} bytes, where this build of Strata reads version "
        "{} with {} bytes; use the `strata` of the same build as the program",
        version, bytes, kRecordVersion, sizeof(RecordLayout)));
  }
}

ProcessRecordReader::ProcessRecordReader(int fd)
    : mapping_((require_record_size(fd), os::Mapping::shared_read_only(fd, sizeof(RecordLayout)))),
      layout_(std::launder(reinterpret_cast<const RecordLayout*>(mapping_.data()))) {
  require_record(*layout_);
}

std::vector<ProcessRecordReader> ProcessRecordReader::held_by(pid_t pid) {
  std::vector<ProcessRecordReader> held;
  const std::string target_begin = std::string("/memfd:") + kRecordName + " ";
  for (const os::OpenDescriptor& each : os::open_descriptors(pid)) {
    if (!each.target.starts_with(target_begin)) continue;
    const std::string path = fmt::format("/proc/{}/fd/{}", pid, each.fd);
    const os::UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd) continue;
    try {
      held.emplace_back(fd.get());
    } catch (const Error&) {
      // Somebody else's memory, or of another version.
    }
  }
  return held;
}

std::optional<ProcessRecordReader> ProcessRecordReader::of_process(pid_t pid) {
  for (ProcessRecordReader& reader : held_by(pid)) {
    // A Worker holds its children's records too.
    const Card card = reader.card();
    if (card.pid == pid && !card.end) return std::move(reader);
  }
  return std::nullopt;
}

Card ProcessRecordReader::card() const {
  const CardArea& area = layout_->card;
  Card card;
  card.pid = static_cast<pid_t>(area.pid.load(kRelaxed));
  card.parent = static_cast<pid_t>(area.parent.load(kRelaxed));
  card.started = as_ns(area.started_ns.load(kRelaxed));
  card.path = describe_text(area.path);
  card.role = describe_text(area.role);
  // Acquire: what the process wrote before it said so.
  card.state = static_cast<ProcessState>(area.state.load(std::memory_order_acquire));
  card.state_since = as_ns(area.state_since_ns.load(kRelaxed));
  if (!read_version(area.step.sequence, [&] {
        card.step = describe_text(area.step.text);
        card.step_since = as_ns(area.step.since_ns.load(kRelaxed));
      })) {
    card.step = "(it was being written)";
  }
  TaskInHand task;
  std::uint64_t since_cycles = 0;
  const bool whole = read_version(area.task.sequence, [&] {
    task.task = area.task.task.load(kRelaxed);
    since_cycles = area.task.since_cycles.load(kRelaxed);
    task.name = describe_text(area.task.name);
    task.callable = describe_text(area.task.callable);
  });
  if (whole && task.task != 0) {
    task.since = to_monotonic(since_cycles);
    card.task = std::move(task);
  }
  // Acquire: with it comes how.
  card.ended = as_ns(area.ended_ns.load(std::memory_order_acquire));
  if (card.ended.count() != 0) {
    card.end = os::ExitStatus{
        .kind = static_cast<os::ExitStatus::Kind>(std::min(area.end_kind.load(kRelaxed), 2U)),
        .value = static_cast<int>(area.end_value.load(kRelaxed))};
  }
  return card;
}

std::vector<ThreadEvents> ProcessRecordReader::events() const {
  std::vector<ThreadEvents> threads;
  const Instant from = made(*layout_);
  for (const RingArea& ring : layout_->rings) {
    ThreadEvents thread;
    // A ring changes hands when its thread has ended; then what was read belongs to nobody.
    for (int tries = 0; tries < 3; ++tries) {
      thread.thread = ring.owner.load(std::memory_order_acquire);
      if (thread.thread == kRingFree) break;
      // Acquire: pairs with the release in write_event().
      const std::uint64_t position = ring.position.load(std::memory_order_acquire);
      const std::uint64_t first = ring.first.load(kRelaxed);
      thread.recorded = position >= first ? position - first : 0;
      thread.name = thread_name(ring.thread_name);
      thread.events = events_of(ring, position, from, now_on_both_clocks());
      if (ring.owner.load(kRelaxed) == thread.thread && ring.first.load(kRelaxed) == first) break;
    }
    if (thread.thread != kRingFree) threads.push_back(std::move(thread));
  }
  return threads;
}

std::uint64_t ProcessRecordReader::events_dropped() const noexcept {
  return layout_->events_dropped.load(kRelaxed);
}

std::chrono::nanoseconds ProcessRecordReader::to_monotonic(std::uint64_t cycles) const noexcept {
  return as_ns(ns_between(made(*layout_), now_on_both_clocks(), cycles));
}

std::optional<CrashReport> ProcessRecordReader::crash() const {
  const CrashArea& area = layout_->crash;
  // Acquire: pairs with the release of each stage.
  const auto stage = static_cast<CrashStage>(area.stage.load(std::memory_order_acquire));
  if (stage == CrashStage::none) return std::nullopt;
  CrashReport report;
  report.stage = stage;
  report.at = as_ns(area.since_ns.load(kRelaxed));
  report.text = describe_text(area.text);
  if (stage < CrashStage::partial) return report;
  report.signal = static_cast<int>(area.signal.load(kRelaxed));
  report.code = static_cast<int>(area.code.load(kRelaxed));
  report.sender = static_cast<pid_t>(area.sender.load(kRelaxed));
  report.address = area.address.load(kRelaxed);
  report.pc = area.pc.load(kRelaxed);
  report.thread = area.thread.load(kRelaxed);
  report.thread_name = thread_name(area.thread_name);
  for (std::size_t i = 0; i < kRegisters; ++i)
    report.registers[i] = area.registers[i].load(kRelaxed);
  report.note = describe_text(area.note);
  if (stage >= CrashStage::mapped) report.maps = ranges_of(load_text(area.maps));
  // Also those of an unwinder that did not come to its end: each is counted once it is there.
  const std::size_t frames =
      std::min<std::size_t>(area.frame_count.load(std::memory_order_acquire), kMaxFrames);
  for (std::size_t i = 0; i < frames; ++i)
    report.frames.push_back(area.frames[i].load(kRelaxed));
  if (report.frames.empty()) report.frames.push_back(report.pc);
  report.frames_in_all =
      std::max<std::uint64_t>(area.frames_in_all.load(kRelaxed), report.frames.size());
  report.modules = modules_of(area, report.maps);
  return report;
}

}  // namespace strata::trace
