// Ranks candidates by canonical distances, and merges neighbors that other ranks ordered.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include <cmath>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "common/arguments.h"
#include "common/parallel.h"
#include "common/interrupt.h"
#include "candidates.h"

namespace nearest {

namespace {

// Maps listed columns to references.
class Rows {
 public:
  Rows(const Tensor& order, const Tensor& reference)
      : order_(data<const int64_t>(order)), columns_(order.size(0)), rows_(reference.size(0)) {}
  int64_t operator()(int64_t column) const {
    const int64_t row = column >= 0 && column < columns_ ? order_[column] : -1;
    if (row < 0 || row >= rows_) fail();
    return row;
  }

 private:
  [[noreturn]] COMMON_NOINLINE static void fail() { throw std::out_of_range("a listed column is no reference"); }

  const int64_t* order_;
  int64_t columns_, rows_;
};

// Sorts distances and indices by counting the smaller ones, without branches; equal distances by sorting.
class Ordered {
 public:
  void clear() { count_ = 0; }
  void add(double delta, int64_t index) {
    reserve(count_ + 1);
    delta_[count_] = delta;
    index_[count_++] = index;
  }
  // Adds the candidates of a list below its limit; references have the indices first + row.
  void add(const Candidates& candidates, int64_t list, const double* x, Canonical& canonical, const Rows& rows, int64_t first) {
    const int64_t count = candidates.keep_below_limit(list);
    const int32_t* const columns = candidates.column + list * candidates.capacity;
    reserve(count_ + count);
    int64_t* const index = index_.data() + count_;
    for (int64_t i = 0; i < count; ++i) index[i] = rows(columns[i]);
    canonical.to_list(x, index, count, delta_.data() + count_);
    if (first) for (int64_t i = 0; i < count; ++i) index[i] += first;
    count_ += count;
  }
  void write(int64_t k, double* delta, int64_t* index) {
    const int64_t size = std::min(k, count_);
    if (count_ > kMaxCounted || !by_counting(k, delta, index)) by_sorting(size, delta, index);
    std::fill(delta + size, delta + k, std::numeric_limits<double>::infinity());
    std::fill(index + size, index + k, -1);
  }

 private:
  static constexpr int64_t kMaxCounted = 256;

  void reserve(int64_t count) {
    if (count <= int64_t(delta_.size())) return;
    delta_.resize(2 * count);
    index_.resize(2 * count);
  }

  void by_sorting(int64_t size, double* delta, int64_t* index) {
    pairs_.clear();
    for (int64_t i = 0; i < count_; ++i) pairs_.emplace_back(delta_[i], index_[i]);
    std::nth_element(pairs_.begin(), pairs_.begin() + size, pairs_.end());
    std::sort(pairs_.begin(), pairs_.begin() + size);
    for (int64_t i = 0; i < size; ++i) std::tie(delta[i], index[i]) = pairs_[i];
  }

  // Returns false if some distances are equal.
  bool by_counting(int64_t k, double* delta, int64_t* index) const {
    bool differ = true;
    common::vectorized([=, all = delta_.data(), indices = index_.data(), count = count_, &differ](auto) COMMON_INLINE {
      for (int64_t i = 0; i < count; ++i) {
        const double value = all[i];
        int64_t before = 0, same = 0;
        for (int64_t j = 0; j < count; ++j) {
          before += all[j] < value;
          same += all[j] == value;
        }
        if (same != 1) {
          differ = false;
          return;
        }
        if (before < k) delta[before] = value, index[before] = indices[i];
      }
    });
    return differ;
  }

  int64_t count_ = 0;  // of the entries; vectors may be longer
  std::vector<double> delta_;
  std::vector<int64_t> index_;
  std::vector<std::pair<double, int64_t>> pairs_;
};

// Whether a neighbor precedes another by (distance, index).
bool before(double delta, int64_t index, double other, int64_t other_index) {
  return delta < other || (delta == other && index < other_index);
}

// The k nearest neighbors of one row so far, in order, padded by infinity.
struct Nearest {
  double* delta;
  int64_t* index;
  int64_t k;

  void add(double value, int64_t candidate) {
    if (!(value < std::numeric_limits<double>::infinity()) || !before(value, candidate, delta[k - 1], index[k - 1])) return;
    int64_t i = k - 1;
    for (; i > 0 && before(value, candidate, delta[i - 1], index[i - 1]); --i) {
      delta[i] = delta[i - 1];
      index[i] = index[i - 1];
    }
    delta[i] = value;
    index[i] = candidate;
  }
};

}  // namespace

// Returns the k nearest candidates (Q, k) int64 by (canonical distance, index), padded by -1, their distances (Q, k) float64,
// and (Q,) bool: whether the list of the query was complete. query: (Q, D) float64; list_index: (Q,), index of the query's list;
// order: (R',), reference of each column.
std::tuple<Tensor, Tensor, Tensor> rerank_candidates(Tensor query, Tensor reference, Tensor list_index, Tensor order,
                                                     Tensor rounding_error, Tensor bounds, Tensor column,
                                                     Tensor list_size, Tensor limit, int64_t k, int64_t distance) {
  common::check("rerank_candidates",
                "query: float64 Q D, reference: strided rows R D, list_index: int64 Q, order: int64 O, "
                "rounding_error: float32 N, bounds: float32 N 2 C, column: int32 N C, list_size: int32 N, limit: float32 N",
                query, reference, list_index, order, rounding_error, bounds, column, list_size, limit);
  const int64_t queries = query.size(0), dim = query.size(1), capacity = bounds.size(2);
  common::check_integer("rerank_candidates", "k", k, 1, std::numeric_limits<int32_t>::max());
  common::check_integer("rerank_candidates", "distance", distance, 0, kDistances - 1);
  common::check_range<int64_t>("rerank_candidates", "list_index", list_index, list_size.size(0));
  common::check_range<int32_t>("rerank_candidates", "list_size", list_size, capacity + 1);
  const Rows rows(order, reference);
  const auto* const lists = data<const int64_t>(list_index);
  const auto* const x = data<const double>(query);
  Tensor index = torch::stable::new_empty(order, {queries, k});
  Tensor delta = torch::stable::new_empty(query, {queries, k});
  Tensor is_complete = torch::stable::new_empty(order, {queries}, ScalarType::Bool);
  int64_t* const indices = data<int64_t>(index);
  double* const deltas = data<double>(delta);
  bool* const complete = data<bool>(is_complete);
  const stop::Flag stop;
  common::in_parallel("rerank_candidates", queries, 16, [&](int64_t begin, int64_t end) {
    const Candidates candidates(rounding_error, bounds, column, list_size, limit, k);
    Canonical canonical(reference, distance);
    Ordered ordered;
    for (int64_t q = begin; q < end && !stop(); ++q) {
      const int64_t list = lists[q];
      complete[q] = candidates.count[list] < capacity;
      ordered.clear();
      if (complete[q]) {
        candidates.lower_limit(list, candidates.upper(list), candidates.count[list]);
        ordered.add(candidates, list, x + q * dim, canonical, rows, 0);
      }
      ordered.write(k, deltas + q * k, indices + q * k);
    }
  });
  return {index, delta, is_complete};
}

// Merges candidates into the ordered neighbors delta and index (Q, k) of queries: list n belongs to query row_of[n], column c
// is reference order[c] with index first + order[c]. factor and shift (n,) map canonical distances to filter values.
//   ->  (n,) bool: whether the list was complete
Tensor merge_candidates(Tensor query, Tensor reference, Tensor row_of, Tensor order, Tensor rounding_error, Tensor bounds,
                        Tensor column, Tensor list_size, Tensor limit, Tensor shift, double factor, int64_t first,
                        int64_t distance, Tensor delta, Tensor index) {
  common::check("merge_candidates",
                "query: strided rows Q D, reference: strided rows R D, row_of: int64 N, order: int64 O, "
                "rounding_error: float32 N, bounds: float32 N 2 C, column: int32 N C, list_size: int32 N, limit: float32 N, shift: float64 N, "
                "delta: float64 Q K, index: int64 Q K",
                query, reference, row_of, order, rounding_error, bounds, column, list_size, limit, shift, delta, index);
  STD_TORCH_CHECK(query.scalar_type() == reference.scalar_type(), "merge_candidates: query and reference have two dtypes");
  const int64_t lists = row_of.size(0), dim = query.size(1), capacity = bounds.size(2), k = delta.size(1);
  common::check_integer("merge_candidates", "first", first, 0, common::kMaxCount);
  common::check_integer("merge_candidates", "distance", distance, 0, kDistances - 1);
  STD_TORCH_CHECK(k > 0, "merge_candidates: got no neighbours, wanted at least 1 of each query");
  common::check_range<int64_t>("merge_candidates", "row_of", row_of, query.size(0), -1);
  common::check_range<int32_t>("merge_candidates", "list_size", list_size, capacity + 1);
  const Rows columns(order, reference);
  Tensor is_complete = torch::stable::new_empty(row_of, {lists}, ScalarType::Bool);
  const int64_t stride = query.stride(0), step = query.stride(1);
  bool* const complete = data<bool>(is_complete);
  const auto* const rows = data<const int64_t>(row_of);
  const auto* const shifts = data<const double>(shift);
  double* const all_deltas = data<double>(delta);
  int64_t* const all_indices = data<int64_t>(index);
  const stop::Flag stop;
  for_rows(reference, [&](auto zero) {
    using T = decltype(zero);
    const T* const queries = data<const T>(query);
    common::in_parallel("merge_candidates", lists, 16, [&](int64_t begin, int64_t end) {
      const Candidates candidates(rounding_error, bounds, column, list_size, limit, k);
      Canonical canonical(reference, distance);
      Ordered ordered;
      std::vector<double> x(dim);
      std::vector<float> upper(capacity + k);
      for (int64_t n = begin; n < end && !stop(); ++n) {
        const int64_t num_candidates = candidates.count[n], q = rows[n];
        complete[n] = num_candidates < capacity;
        if (!num_candidates || num_candidates == capacity) continue;
        if (q < 0) throw std::out_of_range("a list with references has no query");
        double* const deltas = all_deltas + q * k;
        int64_t* const indices = all_indices + q * k;
        ordered.clear();
        std::copy(candidates.upper(n), candidates.upper(n) + num_candidates, upper.data());
        int64_t size = num_candidates;
        for (int64_t i = 0; i < k && indices[i] >= 0; ++i) {
          ordered.add(deltas[i], indices[i]);
          const auto bound = static_cast<float>(factor * deltas[i] + shifts[n]);
          upper[size++] = bound + std::abs(bound) * 0x1p-23f;
        }
        candidates.lower_limit(n, upper.data(), size);
        const T* const row = queries + q * stride;
        for (int64_t d = 0; d < dim; ++d) x[d] = static_cast<double>(row[d * step]);
        ordered.add(candidates, n, x.data(), canonical, columns, first);
        ordered.write(k, deltas, indices);
      }
    });
  });
  return is_complete;
}

// Merges ordered neighbors (N, k) into others in list_index; missing neighbors have infinite distances.
void merge_nearest(Tensor other, Tensor of_other, int64_t first, Tensor delta, Tensor index) {
  common::check("merge_nearest", "other: float64 N K, of_other: int32 N K, delta: float64 N K, index: int64 N K", other,
                of_other, delta, index);
  common::check_integer("merge_nearest", "first", first, 0, common::kMaxCount);
  const int64_t k = delta.size(1);
  const stop::Flag stop;
  common::in_parallel("merge_nearest", delta.size(0), 256, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end && !stop(); ++n) {
      Nearest nearest{data<double>(delta) + n * k, data<int64_t>(index) + n * k, k};
      for (int64_t i = n * k; i < (n + 1) * k; ++i)
        nearest.add(data<const double>(other)[i], first + data<const int32_t>(of_other)[i]);
    }
  });
}

}  // namespace nearest

STABLE_TORCH_LIBRARY_IMPL(tensormetrics, CPU, m) {
  m.impl("rerank_candidates", TORCH_BOX(&nearest::rerank_candidates));
  m.impl("merge_candidates", TORCH_BOX(&nearest::merge_candidates));
  m.impl("merge_nearest", TORCH_BOX(&nearest::merge_nearest));
}
