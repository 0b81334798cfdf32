// Exact sums of scores on the CPU.
#include <cmath>

#include "common/arguments.h"

namespace subsets {

using common::data, common::ScalarType, common::Tensor;

// scores: (N,) float64  state: (5,) float64  ->  (5,): the sums of the parts of core/numbers/exact_sums.py, of finite scores,
// and the numbers of finite scores and of others, added to the state. Sums of parts are exact, whatever their order.
Tensor score_sums(Tensor scores, Tensor state) {
  common::check("score_sums", "scores: float64 N, state: float64 5", scores, state);
  constexpr double kShift = 1.5 * (int64_t{1} << 52);
  constexpr double kShifts[] = {kShift / (1 << 8), kShift / (int64_t{1} << 34), kShift / (int64_t{1} << 60)};
  const auto* score = data<const double>(scores);
  const int64_t count = scores.size(0);
  double sums[3] = {};
  int64_t finite = 0;
  for (int64_t k = 0; k < count; ++k) {
    const bool is_finite = std::isfinite(score[k]);
    double rest = is_finite ? score[k] : 0;
    finite += is_finite;
    for (int part = 0; part < 3; ++part) {
      const double value = (rest + kShifts[part]) - kShifts[part];
      sums[part] += value;
      rest -= value;
    }
  }
  Tensor result = torch::stable::new_empty(state, {5}, ScalarType::Double);
  const auto* before = data<const double>(state);
  auto* out = data<double>(result);
  for (int part = 0; part < 3; ++part) out[part] = before[part] + sums[part];
  out[3] = before[3] + finite;
  out[4] = before[4] + (count - finite);
  return result;
}

}  // namespace subsets

STABLE_TORCH_LIBRARY_IMPL(tensormetrics, CPU, m) { m.impl("score_sums", TORCH_BOX(&subsets::score_sums)); }
