// Plan: which job is next. Knows what each needs (slots, devices, locks, other jobs) and what is in
// use.
//
// Jobs are started by cost, the highest first, as far as what they need is there. One that waits
// for devices keeps those that are free from later ones, so that it gets its turn. Jobs that must
// be alone come when nothing else can be started.
//
// Thread safety: one thread.
//
// Invariants
//   (1) Every job is given out once by next(), or is in unreachable(), or is left at the end since
//       nobody asked any more.
//   (2) Between next() and ended() of a job, no other job has its devices or its locks, and the
//       slots of all jobs are within the limit (one job that wants more counts as all of it).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cli/jobs/device_pool.hpp"
#include "cli/jobs/job.hpp"
#include "cli/jobs/result.hpp"

namespace strata::cli::jobs {

class Plan {
 public:
  /// Refers to the jobs. Without a pool no job gets devices, and those that ask for some can't be
  /// started.
  Plan(const std::vector<Job>& jobs, unsigned slots, std::optional<DevicePool> devices);

  struct Start {
    std::size_t job = 0;
    std::vector<int> devices;
  };
  /// What can be started now, and counts as started then; nothing if that is none.
  [[nodiscard]] std::optional<Start> next();

  enum class Devices : std::uint8_t { free, lost };
  /// What was started has ended: what it had is there for others, but for devices that are lost.
  void ended(const Start& start, Devices devices);
  /// It is to be started once more.
  void again(std::size_t job);
  /// It is done, and what needs it can be started if `outcome` is good.
  void finished(std::size_t job, Outcome outcome);

  struct Unreachable {
    std::size_t job = 0;
    std::string why;
  };
  /// A waiting job that can never be started, since what it needs has failed or is not there; it
  /// waits no longer then. To be asked until there is none, before next().
  [[nodiscard]] std::optional<Unreachable> unreachable();

  [[nodiscard]] std::size_t waiting() const noexcept { return waiting_.size(); }

 private:
  struct Entry {
    std::size_t devices = 0;
    unsigned slots = 1;
    std::vector<std::size_t> after;  ///< Must be done.
    std::vector<std::size_t> needs;  ///< Must be done and good.
    bool done = false;
    bool good = false;
  };
  void link();
  [[nodiscard]] bool is_ready(std::size_t job) const;
  [[nodiscard]] bool has_room_for(std::size_t job) const;
  Start start(std::size_t job);
  [[nodiscard]] std::string why_never(std::size_t job) const;

  const std::vector<Job>& jobs_;
  const unsigned slots_;
  std::optional<DevicePool> pool_;
  std::vector<Entry> entries_;        ///< One for each job.
  std::vector<std::size_t> waiting_;  ///< In the order in which they are to be started.
  std::set<std::string> locks_;       ///< In use.
  unsigned slots_used_ = 0;
  std::size_t running_ = 0;
  bool alone_ = false;  ///< The one that runs is to be alone.
};

}  // namespace strata::cli::jobs
