// Of what products of words leave possible, the nearest by canonical distances; and of rows that ranks pass round, what is
// found at one rank put among what is known at another.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include <cmath>
#include <tuple>
#include <vector>

#include "common/parallel.h"
#include "common/stop.h"
#include "possible.h"

namespace nearest {

namespace {

constexpr int64_t kSoon = 4;  // candidates that are fetched ahead

// Distances and indices in order, by counting how many come before each, which needs no branch; equal distances by sorting.
class Ordered {
 public:
  void clear() { delta_.clear(), index_.clear(); }
  void add(double delta, int64_t index) { delta_.push_back(delta), index_.push_back(index); }
  // What is below the limit of a list: column c is reference row_of[c], which has the index first + row_of[c].
  template <class T>
  void add(const Possible& possible, int64_t list, const double* x, Canonical<T>& canonical, const int64_t* row_of,
           int64_t first) {
    const int64_t count = possible.keep_below_limit(list);
    const int32_t* const columns = possible.column + list * possible.capacity;
    for (int64_t i = 0; i < count; ++i) {
      if (i + kSoon < count) canonical.prefetch(row_of[columns[i + kSoon]]);  // they lie anywhere
      add(canonical(x, row_of[columns[i]]), first + row_of[columns[i]]);
    }
  }
  void write(int64_t k, double* delta, int64_t* index) {
    const int64_t count = delta_.size(), size = std::min(k, count);
    if (count > kMost || !by_counting(k, delta, index)) {
      pairs_.clear();
      for (int64_t i = 0; i < count; ++i) pairs_.emplace_back(delta_[i], index_[i]);
      std::nth_element(pairs_.begin(), pairs_.begin() + size, pairs_.end());
      std::sort(pairs_.begin(), pairs_.begin() + size);
      for (int64_t i = 0; i < size; ++i) std::tie(delta[i], index[i]) = pairs_[i];
    }
    std::fill(delta + size, delta + k, std::numeric_limits<double>::infinity());
    std::fill(index + size, index + k, -1);
  }

 private:
  static constexpr int64_t kMost = 256;

  bool by_counting(int64_t k, double* delta, int64_t* index) const {
    const int64_t count = delta_.size();
    for (int64_t i = 0; i < count; ++i) {
      const double here = delta_[i];
      int64_t before = 0, same = 0;
      for (int64_t j = 0; j < count; ++j) {
        before += delta_[j] < here;
        same += delta_[j] == here;
      }
      if (same != 1) return false;
      if (before < k) delta[before] = here, index[before] = index_[i];
    }
    return true;
  }

  std::vector<double> delta_;
  std::vector<int64_t> index_;
  std::vector<std::pair<double, int64_t>> pairs_;
};

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

}  // namespace

// The k nearest (Q, k) int64 of what is possible, by (canonical distance, index), -1 where there are fewer, their distances
// (Q, k) float64, and for which queries something is known. query: (Q, D) float64; place: (Q,), which of the lists is
// theirs; order: (R',), which reference each of the columns is.
std::tuple<Tensor, Tensor, Tensor> nearest_of_possible(Tensor query, Tensor reference, Tensor place, Tensor order,
                                                       Tensor slack, Tensor bounds, Tensor column, Tensor number,
                                                       Tensor limit, int64_t k, int64_t distance) {
  const int64_t queries = query.size(0), dim = query.size(1), capacity = bounds.size(2);
  const auto *const row_of = data<const int64_t>(order), *const lists = data<const int64_t>(place);
  const auto* const x = data<const double>(query);
  Tensor index = torch::stable::new_empty(order, {queries, k});
  Tensor delta = torch::stable::new_empty(query, {queries, k});
  Tensor known = torch::stable::new_empty(order, {queries}, ScalarType::Bool);
  int64_t* const indices = data<int64_t>(index);
  double* const deltas = data<double>(delta);
  bool* const is_known = data<bool>(known);
  const stop::Flag stop;
  for_rows(reference, [&](auto zero) {
    common::in_parallel("nearest_of_possible", queries, 16, [&](int64_t begin, int64_t end) {
      const Possible possible(slack, bounds, column, number, limit, k);
      Canonical<decltype(zero)> canonical(reference, distance);
      Ordered found;
      common::vectorised([&](auto) {
        for (int64_t q = begin; q < end && !stop(); ++q) {
          const int64_t list = lists[q];
          is_known[q] = possible.number[list] < capacity;
          found.clear();
          if (is_known[q]) {
            possible.lower_limit(list, possible.upper(list), possible.number[list]);
            found.add(possible, list, x + q * dim, canonical, row_of, 0);
          }
          found.write(k, deltas + q * k, indices + q * k);
        }
      });
    });
  });
  return {index, delta, known};
}

// Puts among the nearest of queries, delta and index (Q, k), in order, what is possible: list n is that of query row_of[n],
// column c is reference order[c], which has the index first + order[c]. factor and shift (n,) take canonical distances to
// the places of references.  ->  (n,) bool: whether something is known
Tensor settle_possible(Tensor query, Tensor reference, Tensor row_of, Tensor order, Tensor slack, Tensor bounds,
                       Tensor column, Tensor number, Tensor limit, Tensor shift, double factor, int64_t first,
                       int64_t distance, Tensor delta, Tensor index) {
  const int64_t lists = row_of.size(0), dim = query.size(1), capacity = bounds.size(2), k = delta.size(1);
  Tensor known = torch::stable::new_empty(row_of, {lists}, ScalarType::Bool);
  const int64_t stride = query.stride(0), step = query.stride(1);
  bool* const is_known = data<bool>(known);
  const auto *const rows = data<const int64_t>(row_of), *const columns = data<const int64_t>(order);
  const auto* const shifts = data<const double>(shift);
  double* const all_deltas = data<double>(delta);
  int64_t* const all_indices = data<int64_t>(index);
  const stop::Flag stop;
  for_rows(reference, [&](auto zero) {
    using T = decltype(zero);
    const T* const queries = data<const T>(query);
    common::in_parallel("settle_possible", lists, 16, [&](int64_t begin, int64_t end) {
      const Possible possible(slack, bounds, column, number, limit, k);
      Canonical<T> canonical(reference, distance);
      Ordered found;
      std::vector<double> x(dim);
      std::vector<float> upper(capacity + k);
      common::vectorised([&](auto) {
        for (int64_t n = begin; n < end && !stop(); ++n) {
          const int64_t listed = possible.number[n], q = rows[n];
          is_known[n] = listed < capacity;
          if (!listed || listed == capacity) continue;
          double* const deltas = all_deltas + q * k;
          int64_t* const indices = all_indices + q * k;
          found.clear();
          std::copy(possible.upper(n), possible.upper(n) + listed, upper.data());
          int64_t size = listed;
          for (int64_t i = 0; i < k && indices[i] >= 0; ++i) {
            found.add(deltas[i], indices[i]);
            const auto place = static_cast<float>(factor * deltas[i] + shifts[n]);
            upper[size++] = place + std::abs(place) * 0x1p-23f;
          }
          possible.lower_limit(n, upper.data(), size);
          const T* const row = queries + q * stride;
          for (int64_t d = 0; d < dim; ++d) x[d] = static_cast<double>(row[d * step]);
          found.add(possible, n, x.data(), canonical, columns, first);
          found.write(k, deltas, indices);
        }
      });
    });
  });
  return known;
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
  m.impl("nearest_of_possible", TORCH_BOX(&nearest::nearest_of_possible));
  m.impl("settle_possible", TORCH_BOX(&nearest::settle_possible));
  m.impl("merge_nearest", TORCH_BOX(&nearest::merge_nearest));
}
