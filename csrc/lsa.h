// Linear sum assignment by shortest augmenting paths, for any group of lanes.
//
//   D. F. Crouse, "On implementing 2D rectangular assignment algorithms", IEEE TAES 52(4), 2016,
//   doi:10.1109/TAES.2016.140952
//
// The algorithm stands here once. A Group says how its lanes share the work on the columns:
//   for_each(n, f)   f(j) for every j < n, then all lanes see what was written
//   any(n, f)        whether f(j) holds for some j < n
//   least(n, f)      the least Candidate f(j), the same for every lane and every order of evaluation
//   once(f)          f() by one lane, then all lanes see what was written
// One lane is the CPU, 32 emulated lanes let the tests run the warp's algorithm on a CPU, a warp is CUDA.
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>

#ifdef __CUDACC__
#define LSA_FN __host__ __device__ inline
#else
#define LSA_FN inline
#endif

namespace lsa {

enum Status : int8_t { kOptimal = 0, kInfeasible = 1, kInvalid = 2 };

// A column that the next path step could take: nearest first, a free column before a matched one, then the lowest.
template <class T>
struct Candidate {
  T distance;
  int32_t matched;
  int32_t column;

  LSA_FN bool before(const Candidate& other) const {
    if (distance != other.distance) return distance < other.distance;
    if (matched != other.matched) return matched < other.matched;
    return column < other.column;
  }
};

template <class T>
LSA_FN Candidate<T> no_candidate() {
  return {std::numeric_limits<T>::infinity(), 2, std::numeric_limits<int32_t>::max()};
}

// One problem: its costs, read where they lie, and the memory of its results and of the search.
// The sides are "rows" and "columns" of the search: rows <= cols, the caller swaps the strides of a tall matrix.
template <class T>
struct Problem {
  const T* cost;
  int64_t row_stride, col_stride;
  T sign;  // -1 maximises
  int32_t rows, cols;
  int64_t *col_of_row, *row_of_col;  // results
  T *row_dual, *col_dual;
  T* distance;       // cols: length of the shortest path found to a column
  int32_t* parent;   // cols: the row before it on that path
  uint8_t* reached;  // cols: the path is known to be shortest

  LSA_FN T at(int64_t i, int64_t j) const { return sign * cost[i * row_stride + j * col_stride]; }
};

// Grows a tree of shortest alternating paths from the free row `root` until it reaches a free column; returns that
// column and sets `length`, or returns -1 when every way is forbidden.
template <class Group, class T>
LSA_FN int32_t shortest_path(const Group& group, const Problem<T>& p, int32_t root, T& length) {
  group.for_each(p.cols, [&](int32_t j) {
    p.distance[j] = std::numeric_limits<T>::infinity();
    p.reached[j] = 0;
  });
  int32_t row = root;
  length = 0;
  while (true) {
    const T base = length - p.row_dual[row];
    const auto next = group.least(p.cols, [&](int32_t j) {
      if (p.reached[j]) return no_candidate<T>();
      const T through = base + (p.at(row, j) - p.col_dual[j]);
      if (through < p.distance[j]) {
        p.distance[j] = through;
        p.parent[j] = row;
      }
      return Candidate<T>{p.distance[j], p.row_of_col[j] >= 0, j};
    });
    if (!(next.distance < std::numeric_limits<T>::infinity())) return -1;
    length = next.distance;
    if (!next.matched) return next.column;
    group.once([&] { p.reached[next.column] = 1; });
    row = static_cast<int32_t>(p.row_of_col[next.column]);
  }
}

// Matches every row. On return cost - row_dual - col_dual >= 0 (times sign), 0 on matched pairs.
template <class Group, class T>
LSA_FN Status solve(const Group& group, const Problem<T>& p) {
  group.for_each(p.rows, [&](int32_t i) {
    p.col_of_row[i] = -1;
    p.row_dual[i] = 0;
  });
  group.for_each(p.cols, [&](int32_t j) {
    p.row_of_col[j] = -1;
    p.col_dual[j] = 0;
  });
  for (int32_t i = 0; i < p.rows; ++i) {
    if (group.any(p.cols, [&](int32_t j) { return !(p.at(i, j) > -std::numeric_limits<T>::infinity()); }))
      return kInvalid;
  }
  Status status = kOptimal;
  for (int32_t root = 0; root < p.rows && status == kOptimal; ++root) {
    T length;
    const int32_t sink = shortest_path(group, p, root, length);
    if (sink < 0) {
      status = kInfeasible;
      break;
    }
    group.for_each(p.cols, [&](int32_t j) {  // keeps reduced costs >= 0 and the tree's edges at 0
      if (!p.reached[j]) return;
      const T slack = length - p.distance[j];
      p.row_dual[p.row_of_col[j]] += slack;
      p.col_dual[j] -= slack;
    });
    group.once([&] {
      p.row_dual[root] += length;
      for (int32_t j = sink, row = -1; row != root;) {  // flips the path from the sink back to the root
        row = p.parent[j];
        p.row_of_col[j] = row;
        const int32_t previous = static_cast<int32_t>(p.col_of_row[row]);
        p.col_of_row[row] = j;
        j = previous;
      }
    });
  }
  if (p.sign < 0) {
    group.for_each(p.rows, [&](int32_t i) { p.row_dual[i] = -p.row_dual[i]; });
    group.for_each(p.cols, [&](int32_t j) { p.col_dual[j] = -p.col_dual[j]; });
  }
  return status;
}

// A batch as it arrives: strided costs with any leading dimensions, lengths and results contiguous.
constexpr int kMaxLeading = 8;

template <class T>
struct Batch {
  const T* cost;
  int64_t leading[kMaxLeading], leading_stride[kMaxLeading];
  int32_t leading_dims;
  int64_t problems, rows, cols, row_stride, col_stride;
  T sign;
  const int64_t *row_lengths, *col_lengths;  // null: all rows, all columns
  int64_t *col_of_row, *row_of_col;
  T *row_dual, *col_dual;
  int8_t* status;
  T* distance;  // scratch: `wide()` entries for each worker
  int32_t* parent;
  uint8_t* reached;

  LSA_FN int64_t wide() const { return rows > cols ? rows : cols; }

  // Solves problem b with the scratch of `worker`.
  template <class Group>
  LSA_FN void solve_one(const Group& group, int64_t b, int64_t worker) const {
    Problem<T> p{cost, row_stride, col_stride, sign, 0, 0, col_of_row + b * rows, row_of_col + b * cols,
                 row_dual + b * rows, col_dual + b * cols,
                 distance + worker * wide(), parent + worker * wide(), reached + worker * wide()};
    for (int64_t rest = b, d = leading_dims - 1; d >= 0; rest /= leading[d], --d)
      p.cost += rest % leading[d] * leading_stride[d];
    const int64_t r = row_lengths ? row_lengths[b] : rows;
    const int64_t c = col_lengths ? col_lengths[b] : cols;
    Status result = r >= 0 && r <= rows && c >= 0 && c <= cols ? kOptimal : kInvalid;
    if (result == kOptimal) {
      p.rows = static_cast<int32_t>(r);
      p.cols = static_cast<int32_t>(c);
      result = r <= c ? solve(group, p) : solve(group, transposed(p));
    }
    const bool solved = result == kOptimal;  // of a failed problem and of padding nothing is left behind
    group.for_each(static_cast<int32_t>(rows), [&](int32_t i) {
      if (solved && i < r) return;
      p.col_of_row[i] = -1;
      p.row_dual[i] = 0;
    });
    group.for_each(static_cast<int32_t>(cols), [&](int32_t j) {
      if (solved && j < c) return;
      p.row_of_col[j] = -1;
      p.col_dual[j] = 0;
    });
    group.once([&] { status[b] = result; });
  }

  LSA_FN static Problem<T> transposed(const Problem<T>& p) {
    return {p.cost, p.col_stride, p.row_stride, p.sign, p.cols, p.rows, p.row_of_col, p.col_of_row,
            p.col_dual, p.row_dual, p.distance, p.parent, p.reached};
  }
};

}  // namespace lsa
