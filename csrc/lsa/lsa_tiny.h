// Tiny problems, one in each lane of a vector: the algorithm of lsa.h step by step, so that pairs, duals and scans have
// its bits. Only what most problems need stands here: plain finite costs, without masks, capacities and prices of
// unmatched rows; `solve` hands all else to the caller. A lane that is done waits for the others.
#pragma once
#include <cstring>

#include "lsa_batch.h"
#include "lsa_simd.h"

namespace lsa {

constexpr int32_t kTinySide = 16;

template <class T>
bool serves_tiny(const Batch<T>& batch) {
  const bool plain = !batch.mask && !batch.col_capacity && !batch.unmatched_cost && batch.work_limit == INT64_MAX;
  const int64_t shorter = batch.rows < batch.cols ? batch.rows : batch.cols;
  return plain && shorter > 0 && batch.rows <= kTinySide && batch.cols <= kTinySide;
}

template <class T, int Bytes>
class Tiny {
 public:
  static constexpr int32_t kLanes = Bytes / sizeof(T), kSide = kTinySide;

  // Solves problems first, first + 1, ..., `count` <= kLanes of them, and other(b) those that are not plain.
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
      batch.describe(p_[l], b, r[l], c[l], memory);
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

  // In each lane, the entry that its index says.
  template <class X>
  LSA_INLINE X pick(const X* array, const I& index) const {
    X x = array[0];
    for (int32_t k = 1; k < n_; ++k) x = index == k ? array[k] : x;
    return x;
  }
  template <class X>
  LSA_INLINE void put(X* array, const I& index, const I& where, const X& x) const {
    for (int32_t k = 0; k < n_; ++k) array[k] = (where & (index == k)) != 0 ? x : array[k];
  }
  LSA_INLINE static V filled(T x) { return V{} + x; }
  LSA_INLINE static I filled(int32_t x) { return I{} + Int(x); }

  LSA_INLINE void read(int32_t count) {
    n_ = m_ = 0;
    bool equal = true;
    for (int32_t l = 0; l < count; ++l) {
      n_ = cols_[l] > n_ ? static_cast<int32_t>(cols_[l]) : n_;
      m_ = rows_[l] > m_ ? static_cast<int32_t>(rows_[l]) : m_;
      equal = equal && rows_[l] == rows_[0] && cols_[l] == cols_[0];
    }
    same_ = equal;
    if (!equal || count < kLanes)
      for (int32_t k = 0; k < m_ * n_; ++k) cost_[k] = filled(infinity<T>());
    for (int32_t l = 0; l < count; ++l) {
      const Problem<T>& p = p_[l];
      T* const to = reinterpret_cast<T*>(cost_) + l;
      for (int32_t i = 0; i < rows_[l]; ++i)
        for (int32_t j = 0; j < cols_[l]; ++j)
          to[(i * n_ + j) * kLanes] = p.sign * p.cost[i * p.row_stride + j * p.col_stride];
    }
    // Far from overflow no sum of costs is infinite.
    const V most = filled(std::numeric_limits<T>::max() * T(0x1p-30));
    I plain = filled(-1);
    for (int32_t i = 0; i < m_; ++i)
      for (int32_t j = 0; j < n_; ++j) {
        const V x = cost_[i * n_ + j];
        plain &= ((x <= most) & (x >= -most)) | (rows_ <= i) | (cols_ <= j);
      }
    rows_ &= plain;
    for (int32_t i = 0; i < m_; ++i) {
      column_[i] = filled(-1);
      ring_[i] = filled(i);
      const uint32_t hash = static_cast<uint32_t>(i) * 2654435769u;
      for (int32_t l = 0; l < count; ++l) start_[i][l] = static_cast<Int>(uint64_t(hash) * static_cast<uint32_t>(cols_[l]) >> 32);
    }
  }

  LSA_INLINE void reduce_columns() {
    reduced_ = rows_ == cols_;
    for (int32_t j = 0; j < n_; ++j) {
      V least = cost_[j];
      for (int32_t i = 1; i < m_; ++i) least = cost_[i * n_ + j] >= least ? least : cost_[i * n_ + j];
      price_[j] = cols_ <= j ? filled(-infinity<T>()) : reduced_ != 0 ? least : V{};
      owner_[j] = filled(-1);
    }
    scans_ = I{};
  }

  struct Best {
    V value, second;
    I column, free;
  };

  template <class F>
  LSA_INLINE Best least(F value_at) const {
    Best best{filled(infinity<T>()), filled(infinity<T>()), I{}, I{}};
    for (int32_t j = 0; j < n_; ++j) {
      const V x = value_at(j);
      const I less = x < best.value;
      const V later = less ? best.value : x;
      best.second = later < best.second ? later : best.second;
      best.value = less ? x : best.value;
      best.column = less ? filled(j) : best.column;
      best.free = less ? owner_[j] < 0 : best.free;
    }
    return best;
  }

  // The first free column from the row's start on whose value is the one wanted; -1: none.
  template <class F>
  LSA_INLINE I first_free(const I& row, const V& wanted, F value_at) const {
    const I start = pick_row(start_, row);
    I found = filled(-1), rank = filled(2 * kSide);
    for (int32_t j = 0; j < n_; ++j) {
      I here = filled(j) - start;
      here += here < 0 ? cols_ : I{};
      const I better = (value_at(j) == wanted) & (owner_[j] < 0) & (here < rank);
      rank = better ? here : rank;
      found = better ? filled(j) : found;
    }
    return found;
  }
  LSA_INLINE I pick_row(const I* array, const I& row) const {
    I x = array[0];
    for (int32_t i = 1; i < m_; ++i) x = row == i ? array[i] : x;
    return x;
  }

  template <class F>
  LSA_INLINE void prefer_free(Best& best, const I& where, const I& row, F value_at) const {
    const I open = where & (best.second <= best.value) & ~best.free;
    if (!any(open)) return;
    const I found = first_free(row, best.value, value_at);
    const I taken = open & (found >= 0);
    best.column = taken ? found : best.column;
    best.free |= taken;
  }

  // The costs of a row of its own in each lane.
  LSA_INLINE void fetch(const I& row) {
    for (int32_t j = 0; j < n_; ++j) fetched_[j] = cost_[j];
    for (int32_t i = 1; i < m_; ++i) {
      const I here = row == i;
      for (int32_t j = 0; j < n_; ++j) fetched_[j] = here ? cost_[i * n_ + j] : fetched_[j];
    }
  }

  LSA_INLINE void bid() {
    I head{}, waiting = rows_, tied{};
    for (int32_t k = 0; k < 2 * m_; ++k) {
      const I active = (waiting > 0) & (2 * rows_ > k);
      if (!any(active)) return;
      const bool in_step = same_ && k < m_;  // every lane begins with its rows in order
      const I row = in_step ? filled(k) : pick_row(ring_, head);
      if (!in_step) fetch(row);
      const V* const costs = in_step ? cost_ + k * n_ : fetched_;
      head += active & 1;
      head = head < rows_ ? head : I{};
      waiting -= active & 1;
      const auto value_at = [&](int32_t j) LSA_INLINE { return costs[j] - price_[j]; };
      I shortcut = filled(-1);
      const I looked = active & tied;
      if (any(looked)) shortcut = looked ? first_free(row, V{}, value_at) : shortcut;
      const I quick = shortcut >= 0;
      Best best = least(value_at);
      const I slow = active & ~quick;
      scans_ += slow & 1;
      tied = slow ? reduced_ & (best.second == best.value) : tied;
      prefer_free(best, slow & ~(looked & (best.value == 0)), row, value_at);
      best.value = quick ? V{} : best.value;
      best.second = quick ? V{} : best.second;
      best.column = quick ? shortcut : best.column;
      best.free |= quick;
      const V price = pick(price_, best.column), lower = price - (best.second - best.value);
      const I lowers = (lower < price) & (lower > -infinity<T>());
      const I takes = active & (best.free | lowers), displaces = takes & ~best.free;
      const I displaced = pick(owner_, best.column), end = head + waiting;
      for (int32_t i = 0; i < m_; ++i) {
        column_[i] = displaces & (displaced == i) ? filled(-1) : column_[i];
        column_[i] = takes & (row == i) ? best.column : column_[i];
        ring_[i] = displaces & ((end < rows_ ? end : end - rows_) == i) ? displaced : ring_[i];
      }
      waiting += displaces & 1;
      for (int32_t j = 0; j < n_; ++j) {
        const I here = takes & (best.column == j);
        owner_[j] = here ? row : owner_[j];
        price_[j] = here & lowers ? lower : price_[j];
      }
    }
  }

  // A path for the first row without a column, in each lane that has such a row: these lanes.
  LSA_INLINE I augment() {
    I root = filled(kSide);
    for (int32_t i = m_ - 1; i >= 0; --i) root = (column_[i] < 0) & (rows_ > i) ? filled(i) : root;
    const I active = root < kSide;
    if (!any(active)) return active;
    for (int32_t j = 0; j < n_; ++j) {
      distance_[j] = filled(infinity<T>());
      on_tree_[j] = parent_[j] = I{};
    }
    I row = root, go = active, last{}, sink{};
    V base{}, length{};
    for (bool first = true; any(go); first = false) {
      fetch(row);
      if (!first) base = length - (pick(fetched_, last) - pick(kept_, last));
      scans_ += go & 1;
      Best best = least([&](int32_t j) LSA_INLINE {
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
        const I here = go & (last == j);
        on_tree_[j] |= here;
        level_[j] = here ? length : level_[j];
        kept_[j] = here ? price_[j] : kept_[j];
        price_[j] = here ? filled(-infinity<T>()) : price_[j];
        distance_[j] = here ? filled(infinity<T>()) : distance_[j];
      }
      row = pick(owner_, last);
    }
    for (int32_t j = 0; j < n_; ++j) price_[j] = on_tree_[j] ? kept_[j] - (length - level_[j]) : price_[j];
    move(active, root, sink);
    return active;
  }

  LSA_INLINE void move(I on, const I& root, I to) {
    while (any(on)) {
      const I row = pick(parent_, to), from = pick_row(column_, row);
      for (int32_t j = 0; j < n_; ++j) owner_[j] = on & (to == j) ? row : owner_[j];
      for (int32_t i = 0; i < m_; ++i) column_[i] = on & (row == i) ? to : column_[i];
      on &= row != root;
      to = on ? from : to;
    }
  }

  LSA_INLINE void write(const Batch<T>& batch, int64_t b, int32_t l, int64_t r, int64_t c) const {
    const Problem<T>& p = p_[l];
    const auto of = [l](const auto* array, int64_t k) LSA_INLINE { return array[k][l]; };
    for (int32_t i = 0; i < p.rows; ++i) {
      const auto j = static_cast<int32_t>(of(column_, i));
      const T cost = of(cost_, i * n_ + j);
      p.col_of_row[i] = j;
      p.row_dual[i] = p.sign * (cost - of(price_, j));
      if (p.row_cost) p.row_cost[i] = p.sign * cost;
    }
    for (int32_t j = 0; j < p.cols; ++j) {
      const auto i = static_cast<int32_t>(of(owner_, j));
      p.row_of_col[j] = i;
      p.col_dual[j] = p.sign * of(price_, j);
      if (p.col_cost) p.col_cost[j] = i >= 0 ? p.sign * of(cost_, i * n_ + j) : T(0);
    }
    for (int64_t i = r; i < batch.rows; ++i) {
      batch.col_of_row[b * batch.rows + i] = -1;
      batch.row_dual[b * batch.rows + i] = batch.chosen[b * batch.rows + i] = 0;
    }
    for (int64_t j = c; j < batch.cols; ++j) {
      batch.row_of_col[b * batch.cols + j] = -1;
      batch.col_dual[b * batch.cols + j] = 0;
    }
    batch.status[b] = kOptimal;
    batch.scans[b] = scans_[l];
  }

  int32_t n_ = 0, m_ = 0;  // the most columns and rows of a lane
  bool same_ = true;       // all lanes have as many
  Problem<T> p_[kLanes];
  I rows_, cols_, reduced_, scans_;
  V cost_[kSide * kSide], fetched_[kSide], price_[kSide], distance_[kSide], level_[kSide], kept_[kSide];
  I owner_[kSide], parent_[kSide], on_tree_[kSide];   // of columns
  I column_[kSide], ring_[kSide], start_[kSide];      // of rows
};

}  // namespace lsa
