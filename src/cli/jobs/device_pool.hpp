// DevicePool: which devices are free.
//
// Thread safety: one thread.
//
// Invariants
//   (1) An id that take() gave is given to nobody else until give_back(); one that was retired,
//       never.
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace strata::cli::jobs {

class DevicePool {
 public:
  DevicePool() = default;
  /// From "0-7", "0,2,5-6". Throws InvalidArgument.
  explicit DevicePool(const std::string& list);

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t available() const noexcept { return free_.size(); }
  /// The lowest free ones; nothing if there are not so many.
  [[nodiscard]] std::optional<std::vector<int>> take(std::size_t count);
  void give_back(const std::vector<int>& ids);
  /// Takes what take() gave out of the pool: who knows what still uses them.
  void retire(const std::vector<int>& ids) noexcept { size_ -= ids.size(); }

 private:
  std::set<int> free_;
  std::size_t size_ = 0;
};

/// "0,3"
[[nodiscard]] std::string ids_text(const std::vector<int>& ids);

}  // namespace strata::cli::jobs
