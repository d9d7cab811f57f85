// The vectors that the ranks contribute, and what their combination has to be, computed here.
//
// Thread safety: functions of their arguments.
#pragma once

#include <span>
#include <vector>

#include "chip/host_arguments.hpp"
#include "options.hpp"

namespace allreduce {

/// One for each rank: read or generated; all of one type and shape. Throws strata::Error that
/// names the file at fault. What files say of type and count goes into `options`.
[[nodiscard]] std::vector<strata::chip::HostTensor> make_vectors(Options& options);

/// How far a result is from what it has to be.
struct Comparison {
  double max_error = 0;     ///< Absolute; infinity where a number is due and there is none.
  std::uint64_t wrong = 0;  ///< Elements that are farther off than rounding explains.
  std::uint64_t first_wrong = 0;
  [[nodiscard]] bool right() const noexcept { return wrong == 0; }
};

/// The combination of all vectors in float64 (integers: in themselves, where they wrap round), and
/// how far each element of a result may be off it.
class Reference {
 public:
  Reference(std::span<const strata::chip::HostTensor> vectors, strata::ReduceOp op);
  /// Expects something wrong from now on.
  void spoil();
  [[nodiscard]] Comparison compare(std::span<const std::byte> result) const;

 private:
  strata::DType dtype_;
  std::vector<double> expected_;
  std::vector<double> allowed_;
};

}  // namespace allreduce
