// Heaviest chains of pairs of items of two sequences on the CPU, one document per vector lane.
#include <algorithm>
#include <limits>
#include <type_traits>
#include <vector>

#include "common/arguments.h"
#include "common/parallel.h"
#include "common/interrupt.h"

namespace sequence {

using common::data, common::ScalarType, common::Tensor;

constexpr int64_t kLanes = 16;       // documents solved together
constexpr int64_t kGrain = 1 << 17;  // minimum number of cells per thread
constexpr double kInfinity = std::numeric_limits<double>::infinity();

COMMON_INLINE inline double larger(double a, double b) { return a > b ? a : b; }

template <class T>
struct Batch {
  const T* similarity;  // (documents, rows, columns)
  double* value;        // (documents,)
  int64_t documents, rows, columns;
  stop::Flag stop{};

  // Gains of the pairs of row i, (columns, kLanes), at least 0; NaN becomes infinity, which propagates.
  COMMON_INLINE void read(int64_t first, int64_t i, double* gain) const {
    for (int64_t k = 0; k < std::min(kLanes, documents - first); ++k) {
      const T* row = similarity + ((first + k) * rows + i) * columns;
      for (int64_t j = 0; j < columns; ++j) {
        const double x = row[j];
        gain[j * kLanes + k] = x < kInfinity ? larger(x, 0) : kInfinity;
      }
    }
  }

  // A pair advances its chain by a row, by a column, by both or by neither.
  template <class ByRow, class ByColumn>
  COMMON_INLINE void solve(int64_t first, double* gain, double* best, ByRow by_row, ByColumn by_column) const {
    for (int64_t n = 0; n < columns * kLanes; ++n) best[n] = 0;  // chains within the rows so far and the first j + 1 columns
    for (int64_t i = 0; i < rows && !stop(); ++i) {
      read(first, i, gain);
      double left[kLanes] = {}, corner[kLanes] = {};
      for (int64_t j = 0; j < columns; ++j)
        for (int64_t k = 0; k < kLanes; ++k) {
          const double up = best[j * kLanes + k], longest = larger(up, left[k]);
          const double before = by_row ? (by_column ? corner[k] : up) : by_column ? left[k] : longest;
          best[j * kLanes + k] = left[k] = larger(longest, before + gain[j * kLanes + k]);
          corner[k] = up;
        }
    }
    for (int64_t k = 0; k < std::min(kLanes, documents - first); ++k) {
      const double total = best[(columns - 1) * kLanes + k];
      value[first + k] = total < kInfinity ? total : std::numeric_limits<double>::quiet_NaN();
    }
  }
};

template <class T>
void solve_all(const Batch<T>& batch, bool by_row, bool by_column) {
  const int64_t grain = 1 + kGrain / (batch.rows * batch.columns * kLanes);
  const auto run = [&](auto row, auto column) {
    common::in_parallel("heaviest_chain", (batch.documents + kLanes - 1) / kLanes, grain, [&](int64_t begin, int64_t end) {
      std::vector<double> gains(batch.columns * kLanes), bests(batch.columns * kLanes);
      common::vectorized([=, gain = gains.data(), best = bests.data()](auto) COMMON_INLINE {
        for (int64_t n = begin; n < end && !batch.stop(); ++n) batch.solve(n * kLanes, gain, best, row, column);
      });
    });
  };
  if (by_row) by_column ? run(std::true_type(), std::true_type()) : run(std::true_type(), std::false_type());
  else by_column ? run(std::false_type(), std::true_type()) : run(std::false_type(), std::false_type());
}

// (B, N, M), N, M > 0  ->  (B,) float64
Tensor heaviest_chain(Tensor similarity, bool by_row, bool by_column) {
  common::check("heaviest_chain", "similarity: real B N M", similarity);
  const int64_t documents = similarity.size(0), rows = similarity.size(1), columns = similarity.size(2);
  STD_TORCH_CHECK(rows > 0 && columns > 0, "heaviest_chain: got ", rows, " x ", columns, " similarities, wanted some");
  Tensor value = torch::stable::new_empty(similarity, {documents}, ScalarType::Double);
  if (!documents) return value;
  common::for_real(similarity, [&](auto zero) {
    using T = decltype(zero);
    solve_all(Batch<T>{data<const T>(similarity), data<double>(value), documents, rows, columns}, by_row, by_column);
  });
  return value;
}

}  // namespace sequence

STABLE_TORCH_LIBRARY_IMPL(tensormetrics, CPU, m) { m.impl("heaviest_chain", TORCH_BOX(&sequence::heaviest_chain)); }
