// NothingLeft: fails the running test if, at its end, there is more of anything than at its start:
// processes that carry the mark, children and descriptors of this process, files of Strata's in
// the shared-memory and temporary file systems.
//
// Thread safety: belongs to one thread.
#pragma once

#include <chrono>
#include <set>
#include <string>

#include "support/process.hpp"

namespace strata::test {

/// Names in /dev/shm, and those in /tmp that have to do with Strata (others use that folder too).
[[nodiscard]] std::set<std::string> shared_names();

class NothingLeft {
 public:
  /// Processes that carry this mark must be gone; an empty mark means those of mark_children().
  explicit NothingLeft(std::string mark = {},
                       std::chrono::milliseconds promised = std::chrono::seconds(1));
  ~NothingLeft() { check(); }
  NothingLeft(const NothingLeft&) = delete;
  NothingLeft& operator=(const NothingLeft&) = delete;

  /// The same now.
  void check() const;

 private:
  [[nodiscard]] std::string too_much() const;
  std::string mark_;
  std::chrono::milliseconds promised_;
  Holdings before_;
  std::set<std::string> descriptors_;
  std::set<std::string> names_;
};

}  // namespace strata::test
