// Linear sum assignment for any group of lanes: column reduction, augmenting row reduction, shortest augmenting paths.
//
//   R. Jonker, A. Volgenant, "A shortest augmenting path algorithm for dense and sparse linear assignment problems",
//   Computing 38, 1987, doi:10.1007/BF02278710: the two reductions.
//   D. F. Crouse, "On implementing 2D rectangular assignment algorithms", IEEE TAES 52(4), 2016,
//   doi:10.1109/TAES.2016.140952: the paths, and rectangular problems.
//
// The algorithm stands here once. What it spends its time on is the scan of a row: over all columns, the least value and
// the second least. A Group says how its lanes share that and the rest:
//   least(n, read, f)     the Least of f(j, read(j)) over j < n, the same for every lane and every order of evaluation; f
//                         may also write what belongs to column j
//   first(n, start, x, read, f)
//                         the first j from `start` on, then from 0, whose f(j, read(j)) is x; -1: none
//   sweep(n, read, f)     f(j, read(j)) for every j < n, where f touches nothing but what belongs to column j
//   for_each(n, f)        f(j) for every j < n, where f may touch anything that no other j touches
//   once(f)               f() by one lane
//   stage(problem)        may put the costs where the group reads them faster; comes after a once, before a for_each
//   kBounded              has it `bounds` (lsa_bounds.h), by which it reads less of a row?
// for_each and once first let all lanes arrive, and they and least let them all see what was written. A column always
// belongs to the same lane. least, first and sweep may read some columns before f has written others, and may hand read
// and f several neighbouring columns at once: these reach arrays through load and store only, and choose by `?:`.
// One lane is the CPU (lsa_simd.h), a warp or a block CUDA (lsa_lanes.h), which the tests emulate (lanes_emulated.h).
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>

#include "common/interrupt.h"

#ifdef __CUDACC__
#define LSA_INLINE
#define LSA_FN __host__ __device__ inline
#else  // whoever searches has the search compiled for its vectors: a function of its own would know narrow ones alone
#define LSA_INLINE __attribute__((always_inline))
#define LSA_FN LSA_INLINE inline
#endif

namespace lsa {

enum Status : int8_t { kOptimal = 0, kInfeasible = 1, kInvalid = 2, kWorkLimit = 3 };

// An index counts to 2^24 at most, so that a float holds it: `parent` is of type T, and a lane's comparison of costs
// then chooses among parents too, without a conversion of masks.
constexpr int64_t kMaxSide = 1 << 24;

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

// The least of some values, the lowest column that has it, and the least of all the others.
template <class T>
struct Least {
  T value = infinity<T>();
  T second = infinity<T>();
  int32_t column = std::numeric_limits<int32_t>::max();

  LSA_FN void add(const Least& other) {
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

// One problem: its costs, read where they lie, where the results go, and the memory of the search. "Rows" and "columns"
// are the search's: every row is to be matched, so the caller turns a problem that has too few columns for that. `Index`
// counts the entries from the first one of a matrix.
template <class T, class Index = int64_t>
struct Problem {
  const T* cost;
  Index row_stride, col_stride;
  const bool* mask;  // null: every pair is allowed
  Index mask_row_stride, mask_col_stride;
  T sign;  // -1 maximises
  int32_t rows, cols;
  int32_t width;            // columns to scan: a group may add forbidden ones, so as to scan whole vectors
  const int64_t* supply;    // rows: how many columns the row must get; null: 1
  const int64_t* capacity;  // cols: how many rows the column may get; null: 1. One of the two is null.
  T unmatched;              // leaving a row unmatched costs this much; infinite: not allowed
  int64_t work_limit;       // row scans
  const int8_t* stop;       // null, or not 0 once the caller does not wait any more

  int64_t *col_of_row, *row_of_col;  // results
  T *row_dual, *col_dual;
  T *row_cost, *col_cost;  // the cost of the chosen pair; the caller wants one of the two, the other is null

  T* price;          // cols: the column's dual; -inf while it is on the tree, and where it may serve no row at all
  T* room;           // cols: how many more rows it may get
  T* distance;       // cols: length of the shortest path found to it, inf once it is on the tree
  T* parent;         // cols: the row before it on that path
  T* level;          // of the k-th column on the tree, the length of its path
  T* kept;           // of the k-th column on the tree, the price
  int32_t* tree;     // the k-th column on the tree
  int32_t* first;    // cols: the first row that the column has, -1: none
  int32_t* next;     // rows: the next row that the same column has, -1: none
  int32_t* via;      // rows: the column that the row has; of several, the one by which it came onto the tree
  int32_t* missing;  // rows: how many columns it still must get
  int32_t* seen;     // rows: the last tree that it was on
  int32_t* waiting;  // rows: a ring of rows that may bid

  template <class Columns>
  LSA_FN auto at(int32_t i, Columns j) const {  // several columns at once: where they are neighbours, without a mask
    return sign * load(cost + i * row_stride, j);
  }
  LSA_FN T at(int32_t i, int32_t j) const {
    if (mask && !mask[i * mask_row_stride + j * mask_col_stride]) return infinity<T>();
    return sign * cost[i * row_stride + j * col_stride];
  }

  LSA_FN void give(int32_t column, int32_t row) const {
    next[row] = first[column];
    first[column] = row;
    via[row] = column;
  }
  LSA_FN void take(int32_t column, int32_t row) const {
    int32_t* link = &first[column];
    while (*link != row) link = &next[*link];
    *link = next[row];
  }
};

template <class Group, class T, class Index>
struct Solver {
  Group& group;
  const Problem<T, Index>& p;
  int64_t scans = 0;
  bool reduced = false;  // no reduced cost is negative

  // Matches every row. On return sign * (cost - row_dual - col_dual) is >= 0, and 0 on matched pairs; sign * col_dual
  // is <= 0 unless all columns are full, and 0 on columns with room left.
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

  LSA_FN void start() {
    group.for_each(p.width, [&](int32_t j) LSA_INLINE {
      const int64_t room = j >= p.cols ? 0 : p.capacity ? p.capacity[j] : 1;
      p.room[j] = static_cast<T>(room < p.rows ? room : p.rows);
      p.price[j] = room > 0 ? T(0) : -infinity<T>();
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

  // Column reduction, only where every column will be full: a column with room left must keep the price 0. It halves
  // the scans of a random square problem. Whichever reduction is first finds NaN and -inf: NaN counts as -inf.
  LSA_FN Status reduce_columns() {
    if (p.rows != p.cols || p.supply || p.capacity || p.unmatched < infinity<T>()) return kOptimal;
    reduced = true;
    for (int32_t i = 0; i < p.rows; ++i) {
      group.sweep(p.width, costs(i), [&](auto j, auto cost) LSA_INLINE {
        const auto least = i == 0 ? cost : load(p.price, j);
        const auto lower = cost >= least ? least : cost;  // NaN passes
        store(p.price, j, lower == lower ? lower : -infinity<T>());
      });
    }
    const auto price = [&](auto j) LSA_INLINE { return load(p.price, j); };
    if (p.rows > 0 && group.least(p.width, price, itself()).value == -infinity<T>()) return kInvalid;
    group.for_each(p.width, [&](int32_t j) LSA_INLINE {  // a column without an allowed pair, which may be padding
      if (p.price[j] == infinity<T>()) p.price[j] = 0;
    });
    return kOptimal;
  }

  // Augmenting row reduction: a row without a column bids for its best one. It takes it and lowers the price until the
  // second best is as good; the row that had the column bids again. Among equally good columns one with room wins: on
  // overlaps of 0 and 1 nearly every row is matched here. A bid that would not change the price is left to the paths
  // (rounding could repeat it for ever), and so is every row after two bids per row: counted over random, tied and
  // geometric costs, more bids cost more scans than they save. The ring is a queue: a stack costs up to 40 % more.
  LSA_FN Status bid() {
    const bool priced = !p.supply && !p.capacity;  // several rows of a column share its price and cannot bid it down
    const int64_t bids = priced ? 2 * int64_t(p.rows) : p.rows;
    int32_t head = 0, waiting = p.rows;
    bool infeasible = false, tied = false;
    for (int64_t k = 0; k < bids && waiting > 0; ++k) {
      if (spent()) return kWorkLimit;
      const int32_t row = p.waiting[head];
      head = head + 1 < p.rows ? head + 1 : 0;
      --waiting;
      const auto reduced_cost = [&](auto j, auto cost) LSA_INLINE {
        const auto x = cost - load(p.price, j);
        return x == x ? x : -infinity<T>();
      };
      // After a row with ties, try for a column with room at 0 first: where no reduced cost is negative it is a best
      // one, found without a whole scan.
      const bool looked = tied;
      Least<T> best{T(0), T(0), tied ? first_with_room(row, T(0), costs(row), reduced_cost) : -1};
      if (best.column < 0) {
        ++scans;
        best = group.least(p.width, costs(row), reduced_cost);
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
        if (!(looked && best.value == T(0))) best.column = with_room(best, row, costs(row), reduced_cost);
      }
      const T second = best.second < p.unmatched ? best.second : p.unmatched;
      const T price = p.price[best.column], lower = price - (second - best.value);
      const bool free = p.room[best.column] > 0, lowers = priced && lower < price && lower > -infinity<T>();
      if (!free && !lowers) continue;
      const int32_t tail = head + waiting < p.rows ? head + waiting : head + waiting - p.rows;
      if (!free) ++waiting;
      group.once([&]() LSA_INLINE {
        if (free) {
          p.room[best.column] -= 1;
        } else {
          const int32_t displaced = p.first[best.column];
          p.take(best.column, displaced);
          p.missing[displaced] = 1;
          p.waiting[tail] = displaced;
        }
        p.give(best.column, row);
        p.missing[row] -= 1;
        if (lowers) p.price[best.column] = lower;
      });
    }
    return infeasible ? kInfeasible : kOptimal;
  }

  LSA_FN bool spent() const {
#ifndef __CUDA_ARCH__
    if (stop::asked(p.stop)) return true;
#endif
    return scans >= p.work_limit;
  }

  LSA_FN auto costs(int32_t row) const {
    return [this, row](auto j) LSA_INLINE { return p.at(row, j); };
  }
  LSA_FN static auto itself() {
    return [](auto, auto x) LSA_INLINE { return x; };
  }

  // A column with room among those as good as the best, or else the best. The search starts anywhere: from a fixed
  // column it would pass more and more full ones.
  template <class Read, class F>
  LSA_FN int32_t with_room(const Least<T>& best, int32_t row, Read read, F f) {
    if (best.second > best.value || p.room[best.column] > 0) return best.column;
    const int32_t column = first_with_room(row, best.value, read, f);
    return column >= 0 ? column : best.column;
  }

  template <class Read, class F>
  LSA_FN int32_t first_with_room(int32_t row, T wanted, Read read, F f) {
    const uint32_t hash = static_cast<uint32_t>(row) * 2654435769u;
    const int32_t start = static_cast<int32_t>(uint64_t(hash) * static_cast<uint32_t>(p.cols) >> 32);
    return group.first(p.width, start, wanted, read, [&](auto j, auto found) LSA_INLINE {
      const auto x = f(j, found);
      return load(p.room, j) > T(0) ? x : infinity<T>();
    });
  }

  // Grows a tree of shortest alternating paths from `root` until it reaches a column with room, or a row that had better
  // go unmatched, and moves every row on the path there by one. Row duals are never stored: a row on the tree has a
  // column, and their reduced cost is 0. (Of the root, the dual would only shift all lengths: it counts as 0.)
  LSA_FN Status augment(int32_t root, int32_t tree) {
    if (spent()) return kWorkLimit;
    const auto distance = [&](auto j) LSA_INLINE { return load(p.distance, j); };
    const auto nothing = [](auto) LSA_INLINE { return T(0); };
    group.sweep(p.width, nothing, [&](auto j, T) LSA_INLINE { store(p.distance, j, infinity<T>()); });
    group.once([&]() LSA_INLINE { p.seen[root] = tree; });
    Exit exit{p.unmatched, root};
    if constexpr (Group::kBounded) {
      if (tree == 1) group.bounds.begin(p);
      group.bounds.start();
    }
    Least<T> best = relax(root, T(0), exit.length);
    int32_t size = 0;
    while (best.value <= exit.length && best.value < infinity<T>()) {
      bool full = false;
      if constexpr (Group::kBounded) full = group.bounds.all_full(best.value);
      const int32_t column = full ? best.column : with_room(best, root, distance, itself());
      if (p.room[column] > 0) {
        settle(size, best.value);
        move(root, static_cast<int32_t>(p.parent[column]), column);
        return kOptimal;
      }
      const T level = best.value, price = p.price[column];
      group.once([&]() LSA_INLINE {
        p.tree[size] = column;
        p.level[size] = level;
        p.kept[size] = price;
        p.price[column] = -infinity<T>();  // from here on every path to it is infinitely long
        p.distance[column] = infinity<T>();
      });
      if constexpr (Group::kBounded) group.bounds.close(p, column);
      ++size;
      for (int32_t row = p.first[column]; row >= 0; row = p.next[row]) {
        if (spent()) return kWorkLimit;
        group.once([&]() LSA_INLINE {
          if (p.seen[row] == tree) return;
          p.seen[row] = tree;
          p.via[row] = column;
        });
        const T base = level - (paid(row, column) - price);
        if (base + p.unmatched < exit.length) exit = {base + p.unmatched, row};
        best = relax(row, base, exit.length);
      }
    }
    if (!(exit.length < infinity<T>())) return kInfeasible;
    settle(size, exit.length);
    move(root, exit.row, -1);
    return kOptimal;
  }

  struct Exit {
    T length;
    int32_t row;
  };

  // Tries the ways on from a row of the tree, and finds the nearest column in the same pass.
  LSA_FN Least<T> relax(int32_t row, T base, T exit) {
    ++scans;
    if constexpr (Group::kBounded) {
      if (group.bounds.in_use()) return group.bounds.relax(group, p, row, base, exit);
    }
    return group.least(p.width, costs(row), [&](auto j, auto cost) LSA_INLINE {
      const auto through = base + (cost - load(p.price, j)), known = load(p.distance, j);
      const auto shorter = through < known;
      const auto length = shorter ? through : known;
      store(p.distance, j, length);
      store(p.parent, j, shorter ? static_cast<T>(row) : load(p.parent, j));
      return length;
    });
  }

  LSA_FN T paid(int32_t row, int32_t column) {
    if constexpr (Group::kBounded) return group.bounds.paid(p, row, column);
    else return p.at(row, column);
  }

  // Keeps reduced costs >= 0 and those on the tree's edges at 0.
  LSA_FN void settle(int32_t size, T length) {
    group.for_each(size, [&](int32_t k) LSA_INLINE {
      p.price[p.tree[k]] = p.kept[k] - (length - p.level[k]);
      if constexpr (Group::kBounded) group.bounds.settled(p, p.tree[k]);
    });
  }

  // From the end of the path back to the root, each row leaves its column to the row before it. The last row goes to
  // `column`, or is left unmatched (-1).
  LSA_FN void move(int32_t root, int32_t row, int32_t column) {
    group.once([&]() LSA_INLINE {
      if (column >= 0) p.room[column] -= 1;
      for (int32_t to = column;;) {
        const int32_t from = p.via[row];
        if (row != root) p.take(from, row);
        if (to >= 0) p.give(to, row);
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
      const T cost = j >= 0 ? p.at(i, j) : p.unmatched < infinity<T>() ? p.unmatched : T(0);
      p.col_of_row[i] = j;
      p.row_dual[i] = p.sign * (j >= 0 ? cost - p.price[j] : cost);
      if (p.row_cost) p.row_cost[i] = j >= 0 ? p.sign * cost : T(0);
    });
    group.for_each(p.cols, [&](int32_t j) LSA_INLINE {
      int32_t lowest = p.first[j];
      for (int32_t i = lowest; i >= 0; i = p.next[i]) lowest = i < lowest ? i : lowest;
      p.row_of_col[j] = lowest;
      p.col_dual[j] = p.price[j] > -infinity<T>() ? p.sign * p.price[j] : T(0);
      if (p.col_cost) p.col_cost[j] = lowest >= 0 ? p.sign * p.at(lowest, j) : T(0);
    });
    if (!p.supply) return;
    group.once([&]() LSA_INLINE {  // of several columns a row shows the lowest
      for (int32_t j = p.cols - 1; j >= 0; --j)
        if (p.first[j] >= 0) p.col_of_row[p.first[j]] = j;
    });
  }
};

}  // namespace lsa
