// What ranks of spread rows do with a block of another rank's: its rows rounded to bytes, the nearest of what products of
// bytes leave possible, and neighbours that were found elsewhere put among the own.
#include <torch/csrc/stable/library.h>

#include <cmath>
#include <tuple>

#include "canonical.h"
#include "tiles.h"

namespace nearest {

namespace {

// A neighbour is before another by (distance, index).
bool before(double delta, int64_t index, double other, int64_t of_other) {
  return delta < other || (delta == other && index < of_other);
}

// The k nearest of one row so far, in order; infinity where there are fewer.
struct Nearest {
  double* delta;
  int64_t* index;
  int64_t k;

  void add(double value, int64_t at) {
    if (!(value < std::numeric_limits<double>::infinity()) || !before(value, at, delta[k - 1], index[k - 1])) return;
    int64_t i = k - 1;
    for (; i > 0 && before(value, at, delta[i - 1], index[i - 1]); --i) {
      delta[i] = delta[i - 1];
      index[i] = index[i - 1];
    }
    delta[i] = value;
    index[i] = at;
  }
};

// About |x - y|^2, in any order: all terms are positive, so that it is off by (D + 4) units of rounding at most, and by
// D times the least number.
template <class T>
float squared(const float* x, const T* y, int64_t dim) {
  constexpr int kParts = 32;
  float sums[kParts] = {};
  int64_t d = 0;
  for (; d + kParts <= dim; d += kParts)
    for (int i = 0; i < kParts; ++i) {
      const float difference = x[d + i] - static_cast<float>(y[d + i]);
      sums[i] += difference * difference;
    }
  float sum = 0;
  for (int i = 0; i < kParts; ++i) sum += sums[i];
  for (; d < dim; ++d) {
    const float difference = x[d] - static_cast<float>(y[d]);
    sum += difference * difference;
  }
  return sum;
}

}  // namespace

// Rows (N, D), taken in `order` (M,), centred, scaled, times -factor rounded to float32, and rounded to bytes (M, D'), D'
// the next multiple of 4: row = unit * bytes, with what that leaves. Of a row that is not finite all is 0 but its norm.
// ->  bytes, 128 times their sums (M,) int32, unit (M,) float32, (4, M) float64: the norm before it is rounded and
// multiplied, and |row|, |unit * bytes|, |row - unit * bytes|
std::tuple<Tensor, Tensor, Tensor, Tensor> centred_bytes(Tensor rows, Tensor order, Tensor centre, double scale,
                                                         int64_t factor) {
  const int64_t count = order.size(0), dim = rows.size(1), padded = (dim + 3) / 4 * 4;
  Tensor bytes = torch::stable::new_empty(rows, {count, padded}, ScalarType::Char);
  Tensor excess = torch::stable::new_empty(rows, {count}, ScalarType::Int);
  Tensor unit = torch::stable::new_empty(rows, {count}, ScalarType::Float);
  Tensor sizes = torch::stable::new_empty(rows, {4, count}, ScalarType::Double);
  const stop::Flag stop;
  for_rows(rows, [&](auto zero) {
    const auto* const from = data<const decltype(zero)>(rows);
    const double* const middle = data<const double>(centre);
    common::in_parallel("centred_bytes", count, 256, [&](int64_t begin, int64_t end) {
      std::vector<float> ready(padded, 0.0f);
      common::vectorised([&](auto) {
        constexpr int kParts = 16;
        for (int64_t n = begin; n < end && !stop(); ++n) {
          const auto* const row = from + data<const int64_t>(order)[n] * dim;
          double sums[4][kParts] = {};
          float most[kParts] = {};
          const auto centred = [&](int64_t d, int part) {
            const double x = (static_cast<double>(row[d]) - middle[d]) * scale;
            sums[0][part] += x * x;
            ready[d] = static_cast<float>(x) * -static_cast<float>(factor);
            const float size = std::abs(ready[d]);
            most[part] = size > most[part] ? size : most[part];
          };
          int64_t d = 0;
          for (; d + kParts <= dim; d += kParts)
            for (int part = 0; part < kParts; ++part) centred(d + part, part);
          for (; d < dim; ++d) centred(d, 0);
          double norm = 0;
          float largest = 0;
          for (int part = 0; part < kParts; ++part) {
            norm += sums[0][part];
            largest = most[part] > largest ? most[part] : largest;
          }
          const bool finite = norm < std::numeric_limits<double>::infinity();
          const float step = finite ? largest / 127 : 0, inverse = finite && largest > 0x1p-100f ? 127 / largest : 0;
          int8_t* const to = data<int8_t>(bytes) + n * padded;
          int32_t total = 0;
          const auto rounded = [&](int64_t e, int part) {
            const float whole = finite ? std::nearbyint(ready[e] * inverse) : 0.0f;
            const float held = whole > 127 ? 127 : whole < -127 ? -127 : whole;
            const double x = finite ? ready[e] : 0, near = double(step) * held, left = x - near;
            to[e] = static_cast<int8_t>(held);
            total += static_cast<int32_t>(held);
            sums[1][part] += x * x;
            sums[2][part] += near * near;
            sums[3][part] += left * left;
          };
          for (d = 0; d + kParts <= dim; d += kParts)
            for (int part = 0; part < kParts; ++part) rounded(d + part, part);
          for (; d < dim; ++d) rounded(d, 0);
          for (; d < padded; ++d) to[d] = 0;
          data<int32_t>(excess)[n] = 128 * total;
          data<float>(unit)[n] = step;
          data<double>(sizes)[n] = std::sqrt(norm);
          for (int size = 1; size < 4; ++size) {
            double sum = 0;
            for (int part = 0; part < kParts; ++part) sum += sums[size][part];
            data<double>(sizes)[size * count + n] = std::sqrt(sum);
          }
        }
      });
    });
  });
  return {bytes, excess, unit, sizes};
}

// Puts among the nearest of queries, delta and index (Q, k), what keep_possible listed: list n is that of query
// row_of[n], column start + c is reference order[c], which has the index first + order[c]. What is further than `worst`
// (Q,) may be left out. factor and shift (n,) take distances to what the lists bound.
// ->  (n,) which lists were flooded, so that nothing is known
Tensor settle_possible(Tensor query, Tensor reference, Tensor row_of, Tensor order, Tensor lower, Tensor column,
                       Tensor number, Tensor limit, Tensor slack, Tensor shift, Tensor worst, double factor,
                       int64_t start, int64_t first, int64_t distance, Tensor delta, Tensor index) {
  const int64_t lists = row_of.size(0), dim = query.size(1), capacity = lower.size(1), k = delta.size(1);
  Tensor floods = torch::stable::new_empty(row_of, {lists}, ScalarType::Bool);
  const stop::Flag stop;
  const double less = 1 - (dim + 8) * 0x1p-24, least = dim * 0x1p-148;
  bool* const floods_of = data<bool>(floods);
  const auto* const rows_of = data<const int64_t>(row_of);
  const auto* const row_at = data<const int64_t>(order);
  const auto* const bounds = data<const float>(lower);
  const auto* const columns = data<const int32_t>(column);
  const auto* const numbers = data<const int32_t>(number);
  const auto* const limits = data<const float>(limit);
  const auto* const slacks = data<const float>(slack);
  const auto* const shifts = data<const double>(shift);
  const auto* const worsts = data<const double>(worst);
  double* const deltas = data<double>(delta);
  int64_t* const indices = data<int64_t>(index);
  for_rows(reference, [&](auto zero) {
    using T = decltype(zero);
    const T *const queries = data<const T>(query), *const references = data<const T>(reference);
    common::in_parallel("settle_possible", lists, 16, [&](int64_t begin, int64_t end) {
      Canonical<T> canonical(reference, distance);
      std::vector<std::pair<float, int64_t>> candidates;
      std::vector<double> exact(dim);
      std::vector<float> near(dim);
      common::vectorised([&](auto) {
        for (int64_t n = begin; n < end && !stop(); ++n) {
          const int64_t held = numbers[n], q = rows_of[n];
          floods_of[n] = held == capacity;
          candidates.clear();
          for (int64_t i = n * capacity; i < n * capacity + held % capacity; ++i)
            if (bounds[i] < limits[n])
              candidates.emplace_back(bounds[i], row_at[columns[i] - start]);
          if (candidates.empty()) continue;
          std::sort(candidates.begin(), candidates.end());
          const T* const x = queries + q * dim;
          for (int64_t d = 0; d < dim; ++d) near[d] = static_cast<float>(x[d]);
          for (int64_t d = 0; d < dim; ++d) exact[d] = static_cast<double>(x[d]);
          Nearest found{deltas + q * k, indices + q * k, k};
          for (size_t i = 0; i < candidates.size(); ++i) {
            const auto [bound, c] = candidates[i];
            const double furthest = std::min(worsts[q], found.delta[k - 1]);
            if (double(bound) - slacks[n] > factor * furthest + shifts[n]) break;
            if (i + 1 < candidates.size()) {  // they lie anywhere
              const T* const soon = references + candidates[i + 1].second * dim;
              for (int64_t d = 0; d < dim; d += 64 / int64_t(sizeof(T))) __builtin_prefetch(soon + d);
            }
            if constexpr (!std::is_same_v<T, double>) {
              const float about = squared(near.data(), references + c * dim, dim);
              const bool known = distance == kEuclidean && about <= std::numeric_limits<float>::max();
              if (known && about * less - least > furthest) continue;
            }
            found.add(canonical(exact.data(), c), first + c);
          }
        }
      });
    });
  });
  return floods;
}

// Puts neighbours (N, k), in order, among others, in their place; where there are fewer than k, distances are infinite.
void merge_nearest(Tensor other, Tensor of_other, int64_t first, Tensor delta, Tensor index) {
  const int64_t k = delta.size(1);
  const stop::Flag stop;
  common::in_parallel("merge_nearest", delta.size(0), 256, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end && !stop(); ++n) {
      Nearest found{data<double>(delta) + n * k, data<int64_t>(index) + n * k, k};
      for (int64_t i = n * k; i < (n + 1) * k; ++i)
        found.add(data<const double>(other)[i], first + data<const int32_t>(of_other)[i]);
    }
  });
}

}  // namespace nearest

STABLE_TORCH_LIBRARY_IMPL(tensormetrics, CPU, m) {
  m.impl("centred_bytes", TORCH_BOX(&nearest::centred_bytes));
  m.impl("settle_possible", TORCH_BOX(&nearest::settle_possible));
  m.impl("merge_nearest", TORCH_BOX(&nearest::merge_nearest));
}
