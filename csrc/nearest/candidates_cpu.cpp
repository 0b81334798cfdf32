// Ranks candidates by canonical distances.
#include <cmath>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "common/parallel.h"
#include "common/interrupt.h"
#include "candidates.h"

namespace nearest {

namespace {

// Sorts distances and indices by counting the smaller ones, without branches; equal distances by sorting.
class Ordered {
 public:
  void clear() { count_ = 0; }
  // Adds the candidates of a list below its limit; row_of(column) is the reference of a listed column.
  template <class RowOf>
  void add(const Candidates& candidates, int64_t list, const double* x, Canonical& canonical, RowOf row_of) {
    const int64_t count = candidates.keep_below_limit(list);
    const int32_t* const columns = candidates.column + list * candidates.capacity;
    reserve(count_ + count);
    int64_t* const index = index_.data() + count_;
    for (int64_t i = 0; i < count; ++i) index[i] = row_of(columns[i]);
    canonical.to_list(x, index, count, delta_.data() + count_);
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
  const auto row_of = [&, orders = data<const int64_t>(order), columns = order.size(0)](int64_t n) {
    const int64_t row = n >= 0 && n < columns ? orders[n] : -1;
    if (row < 0 || row >= reference.size(0)) throw std::out_of_range("a listed column is no reference");
    return row;
  };
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
        ordered.add(candidates, list, x + q * dim, canonical, row_of);
      }
      ordered.write(k, deltas + q * k, indices + q * k);
    }
  });
  return {index, delta, is_complete};
}

}  // namespace nearest

STABLE_TORCH_LIBRARY_IMPL(tensormetrics, CPU, m) {
  m.impl("rerank_candidates", TORCH_BOX(&nearest::rerank_candidates));
}
