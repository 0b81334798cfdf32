// A batch of assignment problems: strided costs with any leading dimensions; contiguous lengths, capacities and results.
// All devices share the code that solves one of its problems.
#pragma once
#include "lsa.h"

namespace lsa {

constexpr int kMaxLeading = 8;
template <class Index>
constexpr bool kHasCapacity = sizeof(Index) == 8;  // the searches with smaller offsets are for capacity 1

// Search memory of one worker: 6 values and 7 indices for each index of the longer side.
template <class T>
struct Memory {
  T* values;
  int32_t* indices;

  static constexpr int64_t kBytes = 6 * sizeof(T) + 7 * sizeof(int32_t);
  LSA_FN Memory(void* start, int64_t size)
      : values(static_cast<T*>(start)), indices(reinterpret_cast<int32_t*>(values + 6 * size)) {}
};

template <class T>
struct Batch {
  const T* cost;
  const bool* mask;  // null: every pair is allowed
  int64_t leading[kMaxLeading], cost_leading[kMaxLeading], mask_leading[kMaxLeading];  // sizes, strides, strides
  int32_t leading_dims;
  int64_t problems, rows, cols, row_stride, col_stride, mask_row_stride, mask_col_stride;
  T sign;
  const int64_t *row_lengths, *col_lengths;  // null: all rows, all columns
  const int64_t* col_capacity;               // null: 1
  const T* unmatched_cost;                   // null: every row must be matched while there are columns
  int64_t work_limit;
  const int8_t* stop;
  int64_t *col_of_row, *row_of_col;
  T *row_dual, *col_dual;
  double* total;
  int8_t* status;
  int64_t* scans;

  // Length of the longer side, padded for the columns that a group may add: up to a vector of 16, also if it is empty.
  LSA_FN int64_t padded_size() const { return (rows > cols ? rows : cols) / 16 * 16 + 16; }
  LSA_FN int64_t search_bytes() const { return padded_size() * Memory<T>::kBytes; }  // of a worker that uses memory

  // Whether all offsets within a matrix fit into int32, those of costs in units of which an entry has several.
  bool fits_int32(int64_t units) const {
    const int64_t last_row = rows > 0 ? rows - 1 : 0, last_col = cols > 0 ? cols - 1 : 0;
    return units * (last_row * row_stride + last_col * col_stride) <= INT32_MAX &&
           last_row * mask_row_stride + last_col * mask_col_stride <= INT32_MAX;
  }

  // Solves problem b by the search that make(problem) returns. The results of padding and of a failed problem are reset.
  template <class Index, class Make>
  LSA_FN void solve_one(int64_t b, const Memory<T>& memory, int32_t lane, int32_t lanes, Make make) const {
    int64_t r = row_lengths ? row_lengths[b] : rows, c = col_lengths ? col_lengths[b] : cols, work = 0;
    double sum = 0;
    Status result = kInvalid;
    Problem<T, Index> p{};
    if (r >= 0 && r <= rows && c >= 0 && c <= cols && load_problem(p, b, r, c, memory)) {
      auto search = make(p);
      result = search.solve();
      work = search.scans;
      if (result == kOptimal && lane == 0) sum = search.total();
    }
    if (result != kOptimal) r = c = 0;
    LSA_ROLLED for (int64_t k = (r < c ? r : c) + lane; k < rows || k < cols; k += lanes) reset(b, k, r, c);
    if (lane == 0) report(b, result, sum, work);
  }

  // Resets the k-th row and column of problem b, unless they are among its first r rows and c columns.
  LSA_FN void reset(int64_t b, int64_t k, int64_t r, int64_t c) const {
    if (k >= r && k < rows) {
      col_of_row[b * rows + k] = -1;
      row_dual[b * rows + k] = 0;
    }
    if (k >= c && k < cols) {
      row_of_col[b * cols + k] = -1;
      col_dual[b * cols + k] = 0;
    }
  }
  LSA_FN void report(int64_t b, Status result, double sum, int64_t work) const {
    total[b] = result == kOptimal ? sum : std::numeric_limits<double>::quiet_NaN();
    status[b] = result;
    scans[b] = work;
  }

  // Fills in problem b with r rows and c columns, transposed if it has too few columns. Returns false if it is invalid.
  template <class Index>
  LSA_FN bool load_problem(Problem<T, Index>& p, int64_t b, int64_t r, int64_t c, const Memory<T>& memory) const {
    p.cost = cost;
    p.mask = mask;
    LSA_ROLLED for (int64_t rest = b, d = leading_dims - 1; d >= 0; rest /= leading[d], --d) {
      p.cost += rest % leading[d] * cost_leading[d];
      if (mask) p.mask += rest % leading[d] * mask_leading[d];
    }
    p.sign = sign;
    p.unmatched = unmatched_cost ? sign * unmatched_cost[b] : infinity<T>();
    if (!(p.unmatched > -infinity<T>())) return false;
    const int64_t* capacity = kHasCapacity<Index> && col_capacity ? col_capacity + b * cols : nullptr;
    int64_t total = capacity ? 0 : c;
    for (int64_t j = 0; capacity && j < c; ++j) {
      if (capacity[j] < 0) return false;
      total += capacity[j] < r ? capacity[j] : r;
    }
    const bool transposed = r > total && !(p.unmatched < infinity<T>());
    p.rows = static_cast<int32_t>(transposed ? c : r);
    p.cols = p.width = static_cast<int32_t>(transposed ? r : c);
    p.row_stride = static_cast<Index>(transposed ? col_stride : row_stride);
    p.col_stride = static_cast<Index>(transposed ? row_stride : col_stride);
    p.mask_row_stride = static_cast<Index>(transposed ? mask_col_stride : mask_row_stride);
    p.mask_col_stride = static_cast<Index>(transposed ? mask_row_stride : mask_col_stride);
    p.supply = transposed ? capacity : nullptr;
    p.capacity = transposed ? nullptr : capacity;
    p.transposed = transposed;
    constexpr int64_t kMost = std::numeric_limits<Index>::max();
    p.work_limit = static_cast<Index>(work_limit < kMost ? work_limit : kMost);
    p.stop = stop;
    p.col_of_row = transposed ? row_of_col + b * cols : col_of_row + b * rows;
    p.row_of_col = transposed ? col_of_row + b * rows : row_of_col + b * cols;
    p.row_dual = transposed ? col_dual + b * cols : row_dual + b * rows;
    p.col_dual = transposed ? row_dual + b * rows : col_dual + b * cols;

    T** const values[] = {&p.price, &p.remaining, &p.distance, &p.parent, &p.tree_distance, &p.tree_price};
    for (int k = 0; k < 6; ++k) *values[k] = memory.values + k * padded_size();
    int32_t** const indices[] = {&p.tree, &p.first, &p.next, &p.via, &p.missing, &p.seen, &p.waiting};
    for (int k = 0; k < 7; ++k) *indices[k] = memory.indices + k * padded_size();
    return true;
  }
};

}  // namespace lsa
