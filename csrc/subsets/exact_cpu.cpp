// Counts subset sums of integers that are as extreme as a bound by meeting in the middle: Horowitz & Sahni 1974,
// doi:10.1145/321812.321823. The sums of each half are ascending without sorting: a further value merges the sums without
// it and the sums with it.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "common/arguments.h"
#include "common/parallel.h"
#include "common/interrupt.h"

namespace subsets {

using common::data, common::ScalarType, common::Tensor;

constexpr int64_t kTableValues = 24;            // maximum values of a table; its sums take 128 MB
constexpr int64_t kMaxPositions = 62;           // numbers of subsets fit into 64 bits
constexpr int64_t kMaxUnit = int64_t{1} << 56;  // absolute value; no sum overflows
constexpr int64_t kSmallValues = 18;            // maximum values of the tables of a single thread

struct Sums {
  const int64_t* values;
  int64_t count;
};

// Merges x: (n,) and y + shift: (m,) into out: (n + m,), from the end. `out` may overlap x and y if it does not begin after
// either of them.
inline void merge(const int64_t* x, int64_t n, const int64_t* y, int64_t m, int64_t shift, int64_t* out) {
  while (n > 0 && m > 0) {
    const int64_t left = x[n - 1], right = y[m - 1] + shift, take = left > right;
    out[n + m - 1] = take ? left : right;
    n -= take;
    m -= 1 - take;
  }
  std::copy_backward(x, x + n, out + n);
  for (; m > 0; --m) out[m - 1] = y[m - 1] + shift;
}

// Ascending sums of all subsets of values: one class per number of values, or a single class.
class Table {
 public:
  explicit Table(int64_t values) : sums_(new int64_t[int64_t(1) << values]) {}

  // Classes of up to `max_size` values; -1: a single class.
  void build(const int64_t* values, int64_t count, int64_t max_size, const stop::Flag& stop) {
    sums_[0] = 0;
    begin_ = {0, 1};
    for (int64_t k = 0; k < count && !stop(); ++k) max_size < 0 ? add(values[k]) : add_to_classes(values[k], max_size);
  }

  int64_t classes() const { return static_cast<int64_t>(begin_.size()) - 1; }
  Sums operator[](int64_t k) const { return {sums_.get() + begin_[k], begin_[k + 1] - begin_[k]}; }

 private:
  void add(int64_t value) {
    merge(sums_.get(), begin_[1], sums_.get(), begin_[1], value, sums_.get());
    begin_[1] *= 2;
  }

  // Class k moves to begin_[k] + begin_[k - 1], after all data that later merges read; the last class moves first.
  void add_to_classes(int64_t value, int64_t max_size) {
    const int64_t old = classes(), count = std::min(old, max_size) + 1;
    std::vector<int64_t> begin(count + 1, 0);
    for (int64_t k = 0; k < count; ++k)
      begin[k + 1] = begin[k] + (k < old ? (*this)[k].count : 0) + (k ? (*this)[k - 1].count : 0);
    for (int64_t k = count - 1; k > 0; --k) {
      const Sums without = k < old ? (*this)[k] : Sums{nullptr, 0}, with = (*this)[k - 1];
      merge(without.values, without.count, with.values, with.count, value, sums_.get() + begin[k]);
    }
    begin_ = std::move(begin);
  }

  std::unique_ptr<int64_t[]> sums_;  // written before it is read, so not initialized
  std::vector<int64_t> begin_;
};

// Counts the pairs of x and y with a sum of at least `bound`.
inline int64_t count_pairs(Sums x, Sums y, int64_t bound) {
  int64_t i = 0, j = y.count, count = 0;
  while (i < x.count && j > 0) {
    const int64_t take = x.values[i] + y.values[j - 1] >= bound;
    count += take ? x.count - i : 0;
    j -= take;
    i += 1 - take;
  }
  return count;
}

// The subsets of one query: of n values, or, if n is -1, of any number.
struct Query {
  std::vector<int64_t> values;
  int64_t n;
  std::optional<int64_t> low, high;

  // The complements of subsets of n of N values have the same count, and smaller classes if n > N / 2.
  void shrink() {
    const int64_t count = static_cast<int64_t>(values.size());
    if (n < 0 || n > count || 2 * n <= count) return;
    int64_t total = 0;
    for (const int64_t value : values) total += value;
    n = count - n;
    std::swap(low, high);
    if (low) low = total - *low;
    if (high) high = total - *high;
  }

  int64_t first() const { return std::min(static_cast<int64_t>(values.size() + 1) / 2, kTableValues); }
  int64_t second() const { return std::min(static_cast<int64_t>(values.size()) - first(), kTableValues); }
  int64_t rest() const { return static_cast<int64_t>(values.size()) - first() - second(); }

  // Counts the sums of class k of one table plus those of the other table that complete n values, given the subset `rest` of
  // values in neither table.
  int64_t count(const Table& lower, const Table& upper, int64_t rest, int64_t k) const {
    int64_t sum = 0, size = 0;
    for (int64_t i = 0; rest >> i; ++i)
      if (rest >> i & 1) {
        sum += values[first() + second() + i];
        ++size;
      }
    const int64_t other = n < 0 ? 0 : n - size - k;
    if (other < 0 || other >= upper.classes()) return 0;
    const Sums x = lower[k], y = upper[other];
    int64_t count = 0;
    if (low) count += count_pairs(x, y, *low - sum);
    if (high) count += x.count * y.count - count_pairs(x, y, *high - sum + 1);
    return count;
  }
};

// Counts a query by this number of threads.
inline int64_t count_subsets(const char* name, const Query& query, int64_t threads, const stop::Flag& stop) {
  Table tables[2] = {Table(query.first()), Table(query.second())};
  const auto run = [&](int64_t n, const auto& body) { threads > 1 ? common::in_parallel(name, n, 1, body) : body(0, n); };
  run(2, [&](int64_t begin, int64_t end) {
    for (int64_t half = begin; half < end; ++half)
      tables[half].build(query.values.data() + half * query.first(), half ? query.second() : query.first(), query.n, stop);
  });
  const int64_t classes = tables[0].classes();
  std::atomic<int64_t> next{0}, count{0};
  run(threads, [&](int64_t, int64_t) {
    for (int64_t task; (task = next++) < classes << query.rest() && !stop();)
      count += query.count(tables[0], tables[1], task / classes, task % classes);
  });
  return count;
}

// units: (B, N) int64  present: (B, N) bool  n, low, high: (B,) int64  ->  (B,) int64
// Counts the subsets of n present values, or without n of all subsets, with a sum >= low, plus those with a sum <= high.
Tensor extreme_subsets(Tensor units, Tensor present, std::optional<Tensor> n, std::optional<Tensor> low,
                       std::optional<Tensor> high) {
  const char* const name = "extreme_subsets";
  common::check(name, "units: int64 B N, present: bool B N, n: int64 B, low: int64 B, high: int64 B", units, present, n, low,
                high);
  const int64_t batch = units.size(0), positions = units.size(1);
  STD_TORCH_CHECK(positions <= kMaxPositions, name, ": got ", positions, " places, wanted at most ", kMaxPositions);
  if (n) common::check_range<int64_t>(name, "n", *n, kMaxPositions + 1);
  common::check_range<int64_t>(name, "units", units, kMaxUnit + 1, -kMaxUnit);
  Tensor counts = torch::stable::new_empty(units, {batch}, ScalarType::Long);
  const auto value_at = [](const std::optional<Tensor>& tensor, int64_t b) {
    return tensor ? std::optional<int64_t>(data<const int64_t>(*tensor)[b]) : std::nullopt;
  };
  const auto query = [&](int64_t b) {
    Query result{{}, value_at(n, b).value_or(-1), value_at(low, b), value_at(high, b)};
    const int64_t* row = data<const int64_t>(units) + b * positions;
    const bool* valid = data<const bool>(present) + b * positions;
    for (int64_t i = 0; i < positions; ++i)
      if (valid[i] || !n) result.values.push_back(row[i]);
    result.shrink();
    return result;
  };
  int64_t* out = data<int64_t>(counts);
  const stop::Flag stop;
  const bool is_large = positions > 2 * kSmallValues;
  const int64_t threads = is_large ? torch::stable::get_num_threads() : 1;
  const auto count = [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end && !stop(); ++b) out[b] = count_subsets(name, query(b), threads, stop);
  };
  if (is_large) count(0, batch);
  else common::in_parallel(name, batch, 1 + (int64_t(1) << 15 >> positions / 2), count);
  return counts;
}

}  // namespace subsets

STABLE_TORCH_LIBRARY_IMPL(tensormetrics, CPU, m) { m.impl("extreme_subsets", TORCH_BOX(&subsets::extreme_subsets)); }
