// Tiny problems, one in each lane of a vector, by the same steps as in lsa.h, so that pairs, duals and scans equal its
// results bit by bit. Only finite costs without masks, capacities and costs of unmatched rows are supported; `solve`
// passes all other problems to the caller. A finished lane waits for the others.
#pragma once
#include <cstring>

#include "lsa_batch.h"
#include "lsa_simd.h"

namespace lsa {

constexpr int32_t kTinySize = 16;

template <class T>
bool supports_tiny(const Batch<T>& batch) {
  const bool is_supported =
      !batch.mask && !batch.col_capacity && !batch.unmatched_cost && batch.work_limit == INT64_MAX;
  const int64_t shorter = batch.rows < batch.cols ? batch.rows : batch.cols;
  return is_supported && shorter > 0 && batch.rows <= kTinySize && batch.cols <= kTinySize;
}

template <class T, int Bytes>
class Tiny {
 public:
  static constexpr int32_t kLanes = Bytes / sizeof(T), kSize = kTinySize;

  // Solves `count` <= kLanes problems from `first` on, and calls other(b) for problems that it does not support.
  template <class Other>
  LSA_INLINE void solve(const Batch<T>& batch, int64_t first, int32_t count, const Memory<T>& memory, const Other& other) {
    int64_t r[kLanes], c[kLanes];
    rows_ = cols_ = I{};
    for (int32_t l = 0; l < count; ++l) {
      const int64_t b = first + l;
      r[l] = batch.row_lengths ? batch.row_lengths[b] : batch.rows;
      c[l] = batch.col_lengths ? batch.col_lengths[b] : batch.cols;
      if (r[l] <= 0 || r[l] > batch.rows || c[l] <= 0 || c[l] > batch.cols) continue;
      p_[l] = {};
      batch.load_problem(p_[l], b, r[l], c[l], memory);
      rows_[l] = p_[l].rows;
      cols_[l] = p_[l].cols;
    }
    read(count);
    reduce_columns();
    bid();
    while (any(augment())) {
    }
    for (int32_t l = 0; l < count; ++l) {
      if (rows_[l] == 0) other(first + l);
      else write(batch, first + l, l, r[l], c[l]);
    }
  }

 private:
  using V = Vector<T, Bytes>;
  using I = decltype(V{} < V{});
  using Int = std::remove_reference_t<decltype(I{}[0])>;

  // Gathers the entry of each lane's index, by column or by row.
  template <class X>
  LSA_INLINE X gather(const X* array, const I& index) const { return gather(array, index, n_); }
  LSA_INLINE I gather_row(const I* array, const I& row) const { return gather(array, row, m_); }
  template <class X>
  LSA_INLINE static X gather(const X* array, const I& index, int32_t size) {
    X x = array[0];
    for (int32_t k = 1; k < size; ++k) x = index == k ? array[k] : x;
    return x;
  }
  LSA_INLINE static V broadcast(T x) { return V{} + x; }
  LSA_INLINE static I broadcast(int32_t x) { return I{} + Int(x); }

  LSA_INLINE void read(int32_t count) {
    n_ = m_ = 0;
    bool equal = true;
    for (int32_t l = 0; l < count; ++l) {
      n_ = cols_[l] > n_ ? static_cast<int32_t>(cols_[l]) : n_;
      m_ = rows_[l] > m_ ? static_cast<int32_t>(rows_[l]) : m_;
      equal = equal && rows_[l] == rows_[0] && cols_[l] == cols_[0];
    }
    same_sizes_ = equal;
    if (!equal || count < kLanes)
      for (int32_t k = 0; k < m_ * n_; ++k) cost_[k] = broadcast(infinity<T>());
    for (int32_t l = 0; l < count; ++l) {
      const Problem<T>& p = p_[l];
      T* const to = reinterpret_cast<T*>(cost_) + l;
      for (int32_t i = 0; i < rows_[l]; ++i)
        for (int32_t j = 0; j < cols_[l]; ++j)
          to[(i * n_ + j) * kLanes] = p.sign * p.cost[i * p.row_stride + j * p.col_stride];
    }
    // Costs below this limit have finite sums.
    const V limit = broadcast(std::numeric_limits<T>::max() * T(0x1p-30));
    I finite = broadcast(-1);
    for (int32_t i = 0; i < m_; ++i)
      for (int32_t j = 0; j < n_; ++j) {
        const V x = cost_[i * n_ + j];
        finite &= ((x <= limit) & (x >= -limit)) | (rows_ <= i) | (cols_ <= j);
      }
    rows_ &= finite;
    for (int32_t i = 0; i < m_; ++i) {
      column_[i] = broadcast(-1);
      ring_[i] = broadcast(i);
      const uint32_t hash = static_cast<uint32_t>(i) * 2654435769u;
      for (int32_t l = 0; l < count; ++l)
        start_[i][l] = static_cast<Int>(uint64_t(hash) * static_cast<uint32_t>(cols_[l]) >> 32);
    }
  }

  LSA_INLINE void reduce_columns() {
    reduced_ = rows_ == cols_;
    for (int32_t j = 0; j < n_; ++j) {
      V minimum = cost_[j];
      for (int32_t i = 1; i < m_; ++i) minimum = cost_[i * n_ + j] >= minimum ? minimum : cost_[i * n_ + j];
      price_[j] = cols_ <= j ? broadcast(-infinity<T>()) : reduced_ != 0 ? minimum : V{};
      owner_[j] = broadcast(-1);
    }
    scans_ = I{};
  }

  struct Best {
    V value, second;
    I column, free;
  };

  template <class F>
  LSA_INLINE Best two_smallest(F value_at) const {
    Best best{broadcast(infinity<T>()), broadcast(infinity<T>()), I{}, I{}};
    for (int32_t j = 0; j < n_; ++j) {
      const V x = value_at(j);
      const I less = x < best.value;
      const V later = less ? best.value : x;
      best.second = later < best.second ? later : best.second;
      best.value = less ? x : best.value;
      best.column = less ? broadcast(j) : best.column;
      best.free = less ? owner_[j] < 0 : best.free;
    }
    return best;
  }

  // The first free column from the row's start on with the target value, or -1.
  template <class F>
  LSA_INLINE I first_free(const I& row, const V& target, F value_at) const {
    const I start = gather_row(start_, row);
    I column = broadcast(-1), rank = broadcast(2 * kSize);
    for (int32_t j = 0; j < n_; ++j) {
      I offset = broadcast(j) - start;
      offset += offset < 0 ? cols_ : I{};
      const I better = (value_at(j) == target) & (owner_[j] < 0) & (offset < rank);
      rank = better ? offset : rank;
      column = better ? broadcast(j) : column;
    }
    return column;
  }

  template <class F>
  LSA_INLINE void prefer_free(Best& best, const I& where, const I& row, F value_at) const {
    const I open = where & (best.second <= best.value) & ~best.free;
    if (!any(open)) return;
    const I column = first_free(row, best.value, value_at);
    const I switched = open & (column >= 0);
    best.column = switched ? column : best.column;
    best.free |= switched;
  }

  // Gathers the costs of a different row in each lane.
  LSA_INLINE void fetch(const I& row) {
    for (int32_t j = 0; j < n_; ++j) fetched_[j] = cost_[j];
    for (int32_t i = 1; i < m_; ++i) {
      const I selected = row == i;
      for (int32_t j = 0; j < n_; ++j) fetched_[j] = selected ? cost_[i * n_ + j] : fetched_[j];
    }
  }

  LSA_INLINE void bid() {
    I head{}, waiting = rows_, tied{};
    for (int32_t k = 0; k < 2 * m_; ++k) {
      const I active = (waiting > 0) & (2 * rows_ > k);
      if (!any(active)) return;
      const bool in_step = same_sizes_ && k < m_;  // every lane first processes its rows in order
      const I row = in_step ? broadcast(k) : gather_row(ring_, head);
      if (!in_step) fetch(row);
      const V* const costs = in_step ? cost_ + k * n_ : fetched_;
      head += active & 1;
      head = head < rows_ ? head : I{};
      waiting -= active & 1;
      const auto value_at = [&](int32_t j) LSA_INLINE { return costs[j] - price_[j]; };
      I shortcut = broadcast(-1);
      const I tried_zero = active & tied;
      if (any(tried_zero)) shortcut = tried_zero ? first_free(row, V{}, value_at) : shortcut;
      const I quick = shortcut >= 0;
      Best best = two_smallest(value_at);
      const I slow = active & ~quick;
      scans_ += slow & 1;
      tied = slow ? reduced_ & (best.second == best.value) : tied;
      prefer_free(best, slow & ~(tried_zero & (best.value == 0)), row, value_at);
      best.value = quick ? V{} : best.value;
      best.second = quick ? V{} : best.second;
      best.column = quick ? shortcut : best.column;
      best.free |= quick;
      const V price = gather(price_, best.column), lower = price - (best.second - best.value);
      const I lowers = (lower < price) & (lower > -infinity<T>());
      const I takes = active & (best.free | lowers), displaces = takes & ~best.free;
      const I displaced = gather(owner_, best.column), end = head + waiting;
      for (int32_t i = 0; i < m_; ++i) {
        column_[i] = displaces & (displaced == i) ? broadcast(-1) : column_[i];
        column_[i] = takes & (row == i) ? best.column : column_[i];
        ring_[i] = displaces & ((end < rows_ ? end : end - rows_) == i) ? displaced : ring_[i];
      }
      waiting += displaces & 1;
      for (int32_t j = 0; j < n_; ++j) {
        const I selected = takes & (best.column == j);
        owner_[j] = selected ? row : owner_[j];
        price_[j] = selected & lowers ? lower : price_[j];
      }
    }
  }

  // Augments from the first unmatched row of each lane; returns the lanes with such a row.
  LSA_INLINE I augment() {
    I root = broadcast(kSize);
    for (int32_t i = m_ - 1; i >= 0; --i) root = (column_[i] < 0) & (rows_ > i) ? broadcast(i) : root;
    const I active = root < kSize;
    if (!any(active)) return active;
    for (int32_t j = 0; j < n_; ++j) {
      distance_[j] = broadcast(infinity<T>());
      on_tree_[j] = parent_[j] = I{};
    }
    I row = root, go = active, last{}, sink{};
    V base{}, length{};
    for (bool first = true; any(go); first = false) {
      fetch(row);
      if (!first) base = length - (gather(fetched_, last) - gather(tree_price_, last));
      scans_ += go & 1;
      Best best = two_smallest([&](int32_t j) LSA_INLINE {
        const V through = base + (fetched_[j] - price_[j]);
        const I shorter = go & (through < distance_[j]);
        distance_[j] = shorter ? through : distance_[j];
        parent_[j] = shorter ? row : parent_[j];
        return distance_[j];
      });
      prefer_free(best, go, root, [&](int32_t j) LSA_INLINE { return distance_[j]; });
      length = go ? best.value : length;
      sink = go & best.free ? best.column : sink;
      last = best.column;
      go &= ~best.free;
      for (int32_t j = 0; j < n_; ++j) {
        const I selected = go & (last == j);
        on_tree_[j] |= selected;
        tree_distance_[j] = selected ? length : tree_distance_[j];
        tree_price_[j] = selected ? price_[j] : tree_price_[j];
        price_[j] = selected ? broadcast(-infinity<T>()) : price_[j];
        distance_[j] = selected ? broadcast(infinity<T>()) : distance_[j];
      }
      row = gather(owner_, last);
    }
    for (int32_t j = 0; j < n_; ++j) price_[j] = on_tree_[j] ? tree_price_[j] - (length - tree_distance_[j]) : price_[j];
    move(active, root, sink);
    return active;
  }

  LSA_INLINE void move(I on, const I& root, I to) {
    while (any(on)) {
      const I row = gather(parent_, to), from = gather_row(column_, row);
      for (int32_t j = 0; j < n_; ++j) owner_[j] = on & (to == j) ? row : owner_[j];
      for (int32_t i = 0; i < m_; ++i) column_[i] = on & (row == i) ? to : column_[i];
      on &= row != root;
      to = on ? from : to;
    }
  }

  LSA_INLINE void write(const Batch<T>& batch, int64_t b, int32_t l, int64_t r, int64_t c) const {
    const Problem<T>& p = p_[l];
    const auto entry = [l](const auto* array, int64_t k) LSA_INLINE { return array[k][l]; };
    double total = 0;
    for (int32_t i = 0; i < p.rows; ++i) {
      const auto j = static_cast<int32_t>(entry(column_, i));
      const T cost = entry(cost_, i * n_ + j);
      p.col_of_row[i] = j;
      p.row_dual[i] = p.sign * (cost - entry(price_, j));
      if (!p.transposed) total += p.sign * cost;
    }
    for (int32_t j = 0; j < p.cols; ++j) {
      const auto i = static_cast<int32_t>(entry(owner_, j));
      p.row_of_col[j] = i;
      p.col_dual[j] = p.sign * entry(price_, j);
      if (p.transposed) total += i >= 0 ? p.sign * entry(cost_, i * n_ + j) : T(0);
    }
    for (int64_t k = r < c ? r : c; k < batch.rows || k < batch.cols; ++k) batch.reset(b, k, r, c);
    batch.report(b, kOptimal, total, scans_[l]);
  }

  int32_t n_ = 0, m_ = 0;  // maximum number of columns and rows over the lanes
  bool same_sizes_ = true;  // whether they are equal in all lanes
  Problem<T> p_[kLanes];
  I rows_, cols_, reduced_, scans_;
  V cost_[kSize * kSize], fetched_[kSize], price_[kSize], distance_[kSize], tree_distance_[kSize], tree_price_[kSize];
  I owner_[kSize], parent_[kSize], on_tree_[kSize];  // by column
  I column_[kSize], ring_[kSize], start_[kSize];     // by row
};

}  // namespace lsa
