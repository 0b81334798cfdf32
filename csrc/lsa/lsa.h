// Linear sum assignment for any group of lanes: column reduction, augmenting row reduction, shortest augmenting paths.
//
//   R. Jonker, A. Volgenant, "A shortest augmenting path algorithm for dense and sparse linear assignment problems",
//   Computing 38, 1987, doi:10.1007/BF02278710: the two reductions.
//   D. F. Crouse, "On implementing 2D rectangular assignment algorithms", IEEE TAES 52(4), 2016,
//   doi:10.1109/TAES.2016.140952: the paths, and rectangular problems.
//
// All devices share this algorithm. Its cost is dominated by row scans, which find the smallest and the second smallest
// value over all columns. A Group distributes the work over its lanes:
//   two_smallest(n, read, f)
//                         the TwoSmallest of f(j, read(j)) over j < n, equal for every lane and order of evaluation; f may
//                         also write data of column j
//   first(n, start, x, read, f)
//                         the first j, from `start` on, then from 0, with f(j, read(j)) == x, or -1
//   sweep(n, read, f)     f(j, read(j)) for every j < n; f accesses only data of column j
//   for_each(n, f)        f(j) for every j < n; f accesses only data that no other j accesses
//   once(f)               f() by one lane
//   kBounded              true if the group has `bounds` (lsa_bounds.h), which skip parts of a row
// for_each and once synchronize all lanes first; after them and after two_smallest all lanes see all writes. A column is
// always processed by the same lane. two_smallest, first and sweep may read some columns before f has written others, and
// may pass several neighboring columns at once: read and f access arrays only by load and store, and select by `?:`.
// A CPU group is one lane (lsa_simd.h), a CUDA group a warp or a block (lsa_lanes.h; emulated in lanes_emulated.h).
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>

#include "common/interrupt.h"

#ifdef __CUDACC__
#define LSA_ROLLED _Pragma("unroll 1")  // a loop that is rarely run
#define LSA_INLINE
#define LSA_FN __host__ __device__ inline
#else  // inlined into functions compiled for wide vectors; a separate function would be compiled for narrow ones
#define LSA_ROLLED
#define LSA_INLINE __attribute__((always_inline))
#define LSA_FN LSA_INLINE inline
#endif

namespace lsa {

enum Status : int8_t { kOptimal = 0, kInfeasible = 1, kInvalid = 2, kWorkLimit = 3 };

// Indices are at most 2^24, so a float represents them exactly: `parent` has type T, and the mask of a comparison of
// costs selects parents without a conversion.
constexpr int64_t kMaxSize = 1 << 24;

template <class T>
LSA_FN constexpr T infinity() {
  return std::numeric_limits<T>::infinity();
}

template <class T>
LSA_FN T load(const T* array, int32_t j) {
  return array[j];
}
template <class T>
LSA_FN void store(T* array, int32_t j, T value) {
  array[j] = value;
}

// The smallest value, the lowest column with that value, and the smallest of all other values.
template <class T>
struct TwoSmallest {
  T value = infinity<T>();
  T second = infinity<T>();
  int32_t column = std::numeric_limits<int32_t>::max();

  LSA_FN void add(const TwoSmallest& other) {
    const bool other_first = other.value < value || (other.value == value && other.column < column);
    const T later = other_first ? value : other.value;
    if (other_first) {
      value = other.value;
      column = other.column;
      second = other.second;
    }
    if (later < second) second = later;
  }
};

// One problem: strided costs, pointers to the results, and the memory of the search. Every row is matched, so the caller
// transposes a problem with too few columns. `Index` is the type of offsets within a matrix.
template <class T, class Index = int64_t>
struct Problem {
  const T* cost;
  Index row_stride, col_stride;
  const bool* mask;  // null: every pair is allowed
  Index mask_row_stride, mask_col_stride;
  T sign;  // -1 maximizes
  int32_t rows, cols;
  int32_t width;            // columns to scan: a group may add forbidden columns to scan full vectors
  const int64_t* supply;    // rows: number of columns that the row must get; null: 1
  const int64_t* capacity;  // cols: maximum number of rows of the column; null: 1. One of the two is null.
  T unmatched;              // cost of leaving a row unmatched; infinite: not allowed
  Index work_limit;         // row scans
  const int8_t* stop;       // null, or nonzero after an interrupt

  int64_t *col_of_row, *row_of_col;  // results
  T *row_dual, *col_dual;
  bool transposed;  // the rows of the batch are the columns

  T* price;          // cols: dual variable; -inf while the column is on the tree, and if its capacity is 0
  T* remaining;      // cols: remaining capacity; a column is open while it is positive
  T* distance;       // cols: length of the shortest known path to the column, inf if it is on the tree; in the end the
                     // cost of the matched pair of each row of the batch
  T* parent;         // cols: the previous row on that path
  T* tree_distance;  // path length of the k-th column on the tree
  T* tree_price;     // price of the k-th column before it joined the tree
  int32_t* tree;     // the k-th column on the tree
  int32_t* first;    // cols: first matched row of the column, -1: none
  int32_t* next;     // rows: next row matched to the same column, -1: none
  int32_t* via;      // rows: matched column; of several, the column by which the row joined the tree
  int32_t* missing;  // rows: number of columns that the row still needs
  int32_t* seen;     // rows: last tree that contained the row
  int32_t* waiting;  // rows: ring buffer of rows that may bid

  template <class Columns>
  LSA_FN auto cost_at(int32_t i, Columns j) const {  // several neighboring columns, without a mask
    return sign * load(cost + i * row_stride, j);
  }
  LSA_FN T cost_at(int32_t i, int32_t j) const {
    if (mask && !mask[i * mask_row_stride + j * mask_col_stride]) return infinity<T>();
    return sign * cost[i * row_stride + j * col_stride];
  }

  LSA_FN void assign(int32_t column, int32_t row) const {
    next[row] = first[column];
    first[column] = row;
    via[row] = column;
  }
  LSA_FN void unassign(int32_t column, int32_t row) const {
    int32_t* link = &first[column];
    while (*link != row) link = &next[*link];
    *link = next[row];
  }
};

template <class Group, class T>
struct Solver {
  Group& group;
  const Problem<T>& p;
  int64_t scans = 0;
  bool reduced = false;  // no reduced cost is negative

  // Matches every row. Afterwards sign * (cost - row_dual - col_dual) is >= 0, and 0 for matched pairs; sign * col_dual
  // is <= 0 unless all columns are full, and 0 for open columns.
  LSA_FN Status solve() {
    start();
    Status status = reduce_columns();
    if (status == kOptimal) status = bid();
    int32_t tree = 0;
    for (int32_t row = 0; row < p.rows && status == kOptimal; ++row)
      while (status == kOptimal && p.missing[row] > 0) status = augment(row, ++tree);
    if (status == kOptimal) finish();
    return status;
  }

  // The matched costs in the order of the rows of the batch.
  LSA_FN double total() const {
    double sum = 0;
    for (int32_t i = 0; i < (p.transposed ? p.cols : p.rows); ++i) sum += p.distance[i];
    return sum;
  }

  LSA_FN void start() {
    group.for_each(p.width, [&](int32_t j) LSA_INLINE {
      const int64_t remaining = j >= p.cols ? 0 : p.capacity ? p.capacity[j] : 1;
      p.remaining[j] = static_cast<T>(remaining < p.rows ? remaining : p.rows);
      p.price[j] = remaining > 0 ? T(0) : -infinity<T>();
      p.first[j] = -1;
    });
    group.for_each(p.rows, [&](int32_t i) LSA_INLINE {
      const int64_t missing = p.supply ? p.supply[i] : 1;
      p.missing[i] = static_cast<int32_t>(missing < p.cols ? missing : p.cols);
      p.waiting[i] = i;
      p.via[i] = -1;
      p.seen[i] = 0;
    });
  }

  // Column reduction, only if every column will be full: an open column must keep the price 0. It halves the number of
  // scans of a random square problem. The first reduction detects NaN and -inf: NaN counts as -inf.
  LSA_FN Status reduce_columns() {
    if (p.rows != p.cols || p.supply || p.capacity || p.unmatched < infinity<T>()) return kOptimal;
    reduced = true;
    for (int32_t i = 0; i < p.rows; ++i) {
      group.sweep(p.width, costs(i), [&](auto j, auto cost) LSA_INLINE {
        const auto minimum = i == 0 ? cost : load(p.price, j);
        const auto lower = cost >= minimum ? minimum : cost;  // NaN passes
        store(p.price, j, lower == lower ? lower : -infinity<T>());
      });
    }
    const auto price = [&](auto j) LSA_INLINE { return load(p.price, j); };
    if (p.rows > 0 && group.two_smallest(p.width, price, identity()).value == -infinity<T>()) return kInvalid;
    group.for_each(p.width, [&](int32_t j) LSA_INLINE {  // a column without an allowed pair, which may be padding
      if (p.price[j] == infinity<T>()) p.price[j] = 0;
    });
    return kOptimal;
  }

  // Augmenting row reduction: an unmatched row bids for its best column. It takes the column and lowers its price until
  // the second best is equally good; the displaced row bids again. Ties go to open columns: with costs of 0 and 1 nearly
  // every row is matched here. A bid that would not change the price is left to the path search (rounding could repeat
  // it forever), and so is every row after two bids per row: for random, tied and geometric costs, more bids cost more
  // scans than they save. The ring buffer is a queue: a stack costs up to 40 % more.
  LSA_FN Status bid() {
    const bool priced = !p.supply && !p.capacity;  // several rows of a column share its price and cannot bid it down
    const int64_t bids = priced ? 2 * int64_t(p.rows) : p.rows;
    int32_t head = 0, waiting = p.rows;
    bool infeasible = false, tied = false;
    for (int64_t k = 0; k < bids && waiting > 0; ++k) {
      if (should_stop()) return kWorkLimit;
      const int32_t row = p.waiting[head];
      head = head + 1 < p.rows ? head + 1 : 0;
      --waiting;
      const auto reduced_cost = [&](auto j, auto cost) LSA_INLINE {
        const auto x = cost - load(p.price, j);
        return x == x ? x : -infinity<T>();
      };
      // After a row with ties, search for an open column with reduced cost 0 first: it is optimal if no reduced cost is
      // negative, and needs no full scan.
      const bool tried_zero = tied;
      TwoSmallest<T> best{T(0), T(0), tied ? first_open(row, T(0), costs(row), reduced_cost) : -1};
      if (best.column < 0) {
        ++scans;
        best = group.two_smallest(p.width, costs(row), reduced_cost);
        if (best.value == -infinity<T>()) return kInvalid;
        if (p.missing[row] == 0) continue;
        if (p.unmatched < best.value) {
          group.once([&]() LSA_INLINE {
            p.missing[row] = 0;
            p.via[row] = -1;
          });
          continue;
        }
        if (best.value == infinity<T>()) {  // infeasible, unless a later row is invalid
          infeasible = true;
          continue;
        }
        tied = reduced && best.second == best.value;
        if (!(tried_zero && best.value == T(0))) best.column = prefer_open(best, row, costs(row), reduced_cost);
      }
      const T second = best.second < p.unmatched ? best.second : p.unmatched;
      const T price = p.price[best.column], lower = price - (second - best.value);
      const bool free = p.remaining[best.column] > 0, lowers = priced && lower < price && lower > -infinity<T>();
      if (!free && !lowers) continue;
      const int32_t tail = head + waiting < p.rows ? head + waiting : head + waiting - p.rows;
      if (!free) ++waiting;
      group.once([&]() LSA_INLINE {
        if (free) {
          p.remaining[best.column] -= 1;
        } else {
          const int32_t displaced = p.first[best.column];
          p.unassign(best.column, displaced);
          p.missing[displaced] = 1;
          p.waiting[tail] = displaced;
        }
        p.assign(best.column, row);
        p.missing[row] -= 1;
        if (lowers) p.price[best.column] = lower;
      });
    }
    return infeasible ? kInfeasible : kOptimal;
  }

  LSA_FN bool should_stop() const {
#ifndef __CUDA_ARCH__
    if (stop::is_requested(p.stop)) return true;
#endif
    return scans >= p.work_limit;
  }

  LSA_FN auto costs(int32_t row) const {
    return [this, row](auto j) LSA_INLINE { return p.cost_at(row, j); };
  }
  LSA_FN static auto identity() {
    return [](auto, auto x) LSA_INLINE { return x; };
  }

  // Returns an open column with the best value, or else the best column. The search starts at a hashed column: from a
  // fixed column it would pass more and more full columns.
  template <class Read, class F>
  LSA_FN int32_t prefer_open(const TwoSmallest<T>& best, int32_t row, Read read, F f) {
    if (best.second > best.value || p.remaining[best.column] > 0) return best.column;
    const int32_t column = first_open(row, best.value, read, f);
    return column >= 0 ? column : best.column;
  }

  template <class Read, class F>
  LSA_FN int32_t first_open(int32_t row, T target, Read read, F f) {
    const uint32_t hash = static_cast<uint32_t>(row) * 2654435769u;
    const int32_t start = static_cast<int32_t>(uint64_t(hash) * static_cast<uint32_t>(p.cols) >> 32);
    return group.first(p.width, start, target, read, [&](auto j, auto value) LSA_INLINE {
      const auto x = f(j, value);
      return load(p.remaining, j) > T(0) ? x : infinity<T>();
    });
  }

  // Grows a tree of shortest alternating paths from `root` to an open column, or to a row whose cheapest choice is to be
  // unmatched, and shifts every row on that path by one column. Row duals are not stored: a row on the tree has reduced
  // cost 0 with its column. (The dual of the root would only shift all lengths and counts as 0.)
  LSA_FN Status augment(int32_t root, int32_t tree) {
    if (should_stop()) return kWorkLimit;
    const auto distance = [&](auto j) LSA_INLINE { return load(p.distance, j); };
    const auto nothing = [](auto) LSA_INLINE { return T(0); };
    group.sweep(p.width, nothing, [&](auto j, T) LSA_INLINE { store(p.distance, j, infinity<T>()); });
    group.once([&]() LSA_INLINE { p.seen[root] = tree; });
    Exit exit{p.unmatched, root};
    if constexpr (Group::kBounded) {
      if (tree == 1) group.bounds.reset(p);
      group.bounds.start();
    }
    TwoSmallest<T> best = relax(root, T(0), exit.length);
    int32_t size = 0;
    while (best.value <= exit.length && best.value < infinity<T>()) {
      bool full = false;
      if constexpr (Group::kBounded) full = group.bounds.all_full(best.value);
      const int32_t column = full ? best.column : prefer_open(best, root, distance, identity());
      if (p.remaining[column] > 0) {
        update_prices(size, best.value);
        move(root, static_cast<int32_t>(p.parent[column]), column);
        return kOptimal;
      }
      const T tree_distance = best.value, price = p.price[column];
      group.once([&]() LSA_INLINE {
        p.tree[size] = column;
        p.tree_distance[size] = tree_distance;
        p.tree_price[size] = price;
        p.price[column] = -infinity<T>();  // makes every further path to the column infinitely long
        p.distance[column] = infinity<T>();
      });
      if constexpr (Group::kBounded) group.bounds.close(p, column);
      ++size;
      for (int32_t row = p.first[column]; row >= 0; row = p.next[row]) {
        if (should_stop()) return kWorkLimit;
        group.once([&]() LSA_INLINE {
          if (p.seen[row] == tree) return;
          p.seen[row] = tree;
          p.via[row] = column;
        });
        const T base = tree_distance - (pair_cost(row, column) - price);
        if (base + p.unmatched < exit.length) exit = {base + p.unmatched, row};
        best = relax(row, base, exit.length);
      }
    }
    if (!(exit.length < infinity<T>())) return kInfeasible;
    update_prices(size, exit.length);
    move(root, exit.row, -1);
    return kOptimal;
  }

  struct Exit {
    T length;
    int32_t row;
  };

  // Relaxes all edges of a row on the tree and finds the nearest column in the same pass.
  LSA_FN TwoSmallest<T> relax(int32_t row, T base, T exit) {
    ++scans;
    if constexpr (Group::kBounded) {
      if (group.bounds.in_use()) return group.bounds.relax(group, p, row, base, exit);
    }
    return group.two_smallest(p.width, costs(row), [&](auto j, auto cost) LSA_INLINE {
      const auto through = base + (cost - load(p.price, j)), current = load(p.distance, j);
      const auto shorter = through < current;
      const auto length = shorter ? through : current;
      store(p.distance, j, length);
      store(p.parent, j, shorter ? static_cast<T>(row) : load(p.parent, j));
      return length;
    });
  }

  LSA_FN T pair_cost(int32_t row, int32_t column) {
    if constexpr (Group::kBounded) return group.bounds.pair_cost(p, row, column);
    else return p.cost_at(row, column);
  }

  // Keeps reduced costs >= 0 and those on the tree's edges at 0.
  LSA_FN void update_prices(int32_t size, T length) {
    group.for_each(size, [&](int32_t k) LSA_INLINE {
      p.price[p.tree[k]] = p.tree_price[k] - (length - p.tree_distance[k]);
      if constexpr (Group::kBounded) group.bounds.price_changed(p, p.tree[k]);
    });
  }

  // From the end of the path back to the root, each row passes its column to the previous row. The last row gets
  // `column`, or stays unmatched (-1).
  LSA_FN void move(int32_t root, int32_t row, int32_t column) {
    group.once([&]() LSA_INLINE {
      if (column >= 0) p.remaining[column] -= 1;
      for (int32_t to = column;;) {
        const int32_t from = p.via[row];
        if (row != root) p.unassign(from, row);
        if (to >= 0) p.assign(to, row);
        else p.via[row] = -1;
        if (row == root) break;
        to = from;
        row = static_cast<int32_t>(p.parent[to]);
      }
      p.missing[root] -= 1;
    });
  }

  LSA_FN void finish() {
    group.for_each(p.rows, [&](int32_t i) LSA_INLINE {
      const int32_t j = p.via[i];
      const T cost = j >= 0 ? p.cost_at(i, j) : p.unmatched < infinity<T>() ? p.unmatched : T(0);
      p.col_of_row[i] = j;
      p.row_dual[i] = p.sign * (j >= 0 ? cost - p.price[j] : cost);
      if (!p.transposed) p.distance[i] = j >= 0 ? p.sign * cost : T(0);
    });
    group.for_each(p.cols, [&](int32_t j) LSA_INLINE {
      int32_t lowest = p.first[j];
      for (int32_t i = lowest; i >= 0; i = p.next[i]) lowest = i < lowest ? i : lowest;
      p.row_of_col[j] = lowest;
      p.col_dual[j] = p.price[j] > -infinity<T>() ? p.sign * p.price[j] : T(0);
      if (p.transposed) p.distance[j] = lowest >= 0 ? p.sign * p.cost_at(lowest, j) : T(0);
    });
    if (!p.supply) return;
    group.once([&]() LSA_INLINE {  // a row with several columns reports the lowest
      for (int32_t j = p.cols - 1; j >= 0; --j)
        if (p.first[j] >= 0) p.col_of_row[p.first[j]] = j;
    });
  }
};

}  // namespace lsa
