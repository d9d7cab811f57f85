// Platform: a sort of chip, as data. One runtime drives them all.
//
//   Platform::parse("a2a3sim")                 24 clusters of 1 AIC + 2 AIV, simulated
//   Platform::parse("a5sim:clusters=4")        the same shape with other numbers
//   Platform::parse("cpu")                     as many single-core clusters as CPUs
//   Platform::parse("a2a3sim:clusters=2,staging=1,memory=64M")
//
// Thread safety: plain values and pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace strata {

struct Platform {
  std::string name = {};  ///< "a2a3sim".
  unsigned clusters = 0;
  unsigned aics_per_cluster = 1;
  unsigned aivs_per_cluster = 2;
  /// The lanes of a cluster are one core: it runs one task at a time, and the lanes of a mixed task
  /// take turns.
  bool single_core_clusters = false;
  std::size_t memory = 0;     ///< Bytes that a user may allocate on the chip.
  std::size_t window = 4096;  ///< Defaults of ChipRunOptions.
  std::size_t heap = std::size_t{64} << 20;
  /// Host memory is the chip's memory: host buffers are used in place. Otherwise what a task reads
  /// is copied to the chip before it runs and what it writes is copied back.
  bool shares_host_memory = true;
  bool simulated = true;  ///< Its cores are host threads.

  [[nodiscard]] unsigned aics() const noexcept { return clusters * aics_per_cluster; }
  [[nodiscard]] unsigned aivs() const noexcept {
    return single_core_clusters ? clusters : clusters * aivs_per_cluster;
  }
  /// Cores in all.
  [[nodiscard]] unsigned cores() const noexcept {
    return single_core_clusters ? clusters : clusters * (aics_per_cluster + aivs_per_cluster);
  }
  /// What to_string() gives can be parsed again.
  [[nodiscard]] std::string to_string() const;

  /// Reads a name with settings. Throws ChipError (unknown_platform, platform_missing) that names
  /// what there is. `cpus`: how many CPUs a chip of platform cpu has; 0: those the process may use.
  [[nodiscard]] static Platform parse(std::string_view text, unsigned cpus = 0);
};

}  // namespace strata
