// One step of the power iteration, from x (of length 1) and y = A x:
//   eigenvalue = x . y      residual = |y - eigenvalue x|      x = y / |y|
#include <cmath>
#include <strata/kernel.hpp>

STRATA_KERNEL(step) {
  const auto y = kernel.tensor(0);
  const auto x = kernel.tensor(1);
  const auto eigenvalue = kernel.tensor(2);
  const auto residual = kernel.tensor(3);
  double along = 0;
  double length = 0;
  for (std::int64_t i = 0; i < x.extent(0); ++i) {
    along += double{x.at<float>(i)} * double{y.at<float>(i)};
    length += double{y.at<float>(i)} * double{y.at<float>(i)};
  }
  length = std::sqrt(length);
  double rest = 0;
  for (std::int64_t i = 0; i < x.extent(0); ++i) {
    const double difference = double{y.at<float>(i)} - along * double{x.at<float>(i)};
    rest += difference * difference;
    x.at<float>(i) = static_cast<float>(double{y.at<float>(i)} / length);
  }
  eigenvalue.at<double>(0) = along;
  residual.at<double>(0) = std::sqrt(rest);
}
