// The search of lsa.h for capacity 1 and up to 1,024 columns, which stay in registers: W warps share a problem, and column
// k * 32 W + lane is the k-th of the K columns of a lane. The order of all operations, and so every bit of the results, is
// that of lsa.h. Only where that is not obvious:
//   - cost * sign - price is one fused operation, because the product by 1 or -1 is exact.
//   - A column on the tree has the distance NaN, which no comparison and no minimum selects; its price stays.
//   - The minimum of a scan is found without the second smallest value; whether an open column is among its ties is a vote.
//   - All lanes compute what lsa.h lets one lane compute; the lane that owns a column writes.
//   - A row is read as soon as it is known: in `bid` while the previous one is processed.
#pragma once
#include "lsa_lanes.h"

namespace lsa {

constexpr uint32_t kNoColumn = 0x7fffffff;

__device__ inline bool any_in_warp(bool x) { return __any_sync(lanes::kFullMask, x) != 0; }

// Results of the warps of a problem. Two are used alternately: a warp may be one exchange ahead of another.
template <class T, int W>
struct Exchange {
  KeyOf<T> value[2][W], second[2][W];
  uint32_t column[2][W];
  bool open[2][W];
};

template <class T, int W, int K>
class Search {
  static constexpr int kLanes = 32 * W, kSize = kLanes * K;  // of each side of a problem, at most
  static constexpr int kValues = 3, kIndices = 5;
  static constexpr int32_t kUnmatched = -1, kLeftOut = -2;  // of via_

 public:
  int32_t scans = 0;

  static constexpr int64_t kBytes = kSize * int64_t(kValues * sizeof(T) + kIndices * sizeof(int32_t));

  // memory: kBytes bytes; arrays at constant distances, whose addresses take no instructions
  __device__ Search(const Problem<T, int32_t>& problem, char* memory, Exchange<T, W>* exchange)
      : p_(problem),
        exchange_(exchange),
        prices_(reinterpret_cast<T*>(memory)),
        pair_cost_(prices_ + kSize),
        tree_distance_(pair_cost_ + kSize),
        pair_row_(reinterpret_cast<int32_t*>(tree_distance_ + kSize)),
        parent_(pair_row_ + kSize),
        tree_(parent_ + kSize),
        via_(tree_ + kSize),
        waiting_(via_ + kSize) {}

  __device__ static int lane() { return threadIdx.x % kLanes; }
  __device__ static void sync() {
    if constexpr (W == 1) __syncwarp();
    else __syncthreads();
  }
  __device__ Status solve() {
    start();
    if (p_.cols == 0) {  // no row is read
      scans = p_.rows < p_.work_limit ? p_.rows : p_.work_limit;
      if (scans < p_.rows) return kWorkLimit;
      finish();
      return kOptimal;
    }
    Status status = reduce_columns();
    if (status == kOptimal) status = bid();
    for (int32_t row = 0; row < p_.rows && status == kOptimal; ++row)
      if (via_[row] == kUnmatched) status = augment(row);
    if (status == kOptimal) finish();
    return status;
  }

  // The matched costs in the order of the rows of the batch, by one lane.
  __device__ double total() const {
    double sum = 0;
#pragma unroll 4
    for (int32_t k = 0; k < (p_.transposed ? p_.cols : p_.rows); ++k) {
      const int32_t column = !p_.transposed ? via_[k] : pair_row_[k] >= 0 ? k : -1;
      sum += column >= 0 ? p_.sign * pair_cost_[column] : T(0);
    }
    return sum;
  }

 private:
  struct Best {
    T value, second;
    int32_t column;
    bool open;       // an open column has this value
    uint32_t equal;  // this lane's columns that have it, a bit for each
  };

  template <class F>
  __device__ static void each(F f) {
#pragma unroll
    for (int k = 0; k < K; ++k) f(k);
  }
  __device__ static int32_t column_of(int k) { return k * kLanes + lane(); }
  // Which of this lane's columns a column is, or -1.
  __device__ static int slot_of(uint32_t column) { return column % kLanes == threadIdx.x % kLanes ? column / kLanes : -1; }
  __device__ bool is_column(int k) const { return columns_ >> k & 1; }
  __device__ bool should_stop() const { return scans >= p_.work_limit; }
  __device__ static T nan() { return std::numeric_limits<T>::quiet_NaN(); }

  // Costs of a row. A lane without a k-th column repeats the last column: reads without a condition are started together.
  __device__ void read(T (&cost)[K], int32_t row) const {
    const auto* const from = reinterpret_cast<const char*>(p_.cost + row * p_.row_stride);
    each([&](int k) { cost[k] = *reinterpret_cast<const T*>(from + offset_[k]); });
    if (!p_.mask) return;
    const bool* const allowed = p_.mask + row * p_.mask_row_stride;
    each([&](int k) {
      const int32_t j = column_of(k) < p_.cols ? column_of(k) : p_.cols - 1;
      const T forbidden = p_.sign * infinity<T>(), given = cost[k];
      cost[k] = allowed[j * p_.mask_col_stride] ? given : forbidden;
    });
  }

  __device__ void start() {
    const int32_t last = p_.cols > 0 ? p_.cols - 1 : 0;
    sync();  // the first lane has added the costs of the last problem
    each([&](int k) {
      const int32_t j = column_of(k);
      offset_[k] = uint32_t(sizeof(T)) * static_cast<uint32_t>((j < last ? j : last) * p_.col_stride);
      price_[k] = j < p_.cols ? T(0) : -infinity<T>();
      if (j >= p_.cols) return;
      columns_ |= 1u << k;
      pair_row_[j] = -1;
      prices_[j] = 0;
    });
    open_ = columns_;
#pragma unroll 1
    for (int32_t i = lane(); i < p_.rows; i += kLanes) {
      waiting_[i] = i;
      via_[i] = p_.cols > 0 ? kUnmatched : kLeftOut;
    }
    sync();
  }

  __device__ Status reduce_columns() {
    if (p_.rows != p_.cols || p_.unmatched < infinity<T>()) return kOptimal;
    reduced_ = true;
    T next[K], cost[K];
    read(next, 0);
#pragma unroll 1
    for (int32_t i = 0; i < p_.rows; ++i) {
      each([&](int k) { cost[k] = p_.sign * next[k]; });
      if (i + 1 < p_.rows) read(next, i + 1);
      each([&](int k) {
        const T minimum = i == 0 ? cost[k] : price_[k], lower = cost[k] >= minimum ? minimum : cost[k];
        price_[k] = lower == lower ? lower : -infinity<T>();
      });
    }
    if (best_of<false>(price_).value == -infinity<T>()) return kInvalid;
    each([&](int k) {
      if (price_[k] == infinity<T>()) price_[k] = 0;
      if (is_column(k)) prices_[column_of(k)] = price_[k];
      else price_[k] = -infinity<T>();
    });
    sync();
    return kOptimal;
  }

  __device__ Status bid() {
    const int32_t bids = 2 * p_.rows;
    int32_t head = 0, waiting = p_.rows, next_row = 0;
    bool infeasible = false, tied = false;
    T next[K], cost[K], x[K];
    if (waiting > 0) read(next, 0);
    for (int32_t n = 0; n < bids && waiting > 0; ++n) {
      if (should_stop()) return kWorkLimit;
      const int32_t row = next_row;
      each([&](int k) { cost[k] = next[k]; });
      head = head + 1 < p_.rows ? head + 1 : 0;
      if (--waiting > 0) {
        next_row = waiting_[head];
        read(next, next_row);
      }
      each([&](int k) {
        const T difference = std::fma(cost[k], p_.sign, -price_[k]);
        x[k] = difference == difference ? difference : -infinity<T>();
      });
      const bool tried_zero = tied;
      Best best{0, 0, -1, true, 0};
      if (tied) best.column = first_open(row, equal_to(x, T(0)));
      if (best.column < 0) {
        ++scans;
        best = best_of<true>(x);
        if (best.value == -infinity<T>()) return kInvalid;
        if (p_.unmatched < best.value) {
          if (lane() == 0) via_[row] = kLeftOut;
          continue;
        }
        if (best.value == infinity<T>()) {
          infeasible = true;
          continue;
        }
        tied = reduced_ && best.second == best.value;
        if (!(tried_zero && best.value == T(0))) best.column = prefer_open(best, row);
      }
      const T second = best.second < p_.unmatched ? best.second : p_.unmatched;
      const T price = prices_[best.column], lower = price - (second - best.value);
      const int32_t displaced = pair_row_[best.column];
      const bool free = displaced < 0, lowers = lower < price && lower > -infinity<T>();
      if (!free && !lowers) continue;
      const int32_t tail = head + waiting < p_.rows ? head + waiting : head + waiting - p_.rows;
      if (!free && ++waiting == 1) {
        next_row = displaced;
        read(next, next_row);
      }
      sync();  // all lanes have read what the owner of the column writes
      const int mine = slot_of(best.column);
      T paid = 0;
      each([&](int k) {  // copies, because an index that is not a constant would move the arrays to memory
        const T this_cost = p_.sign * cost[k], this_price = price_[k];
        if (k == mine) paid = this_cost;
        price_[k] = k == mine && lowers ? lower : this_price;
      });
      if (mine >= 0) {
        open_ &= ~(1u << mine);
        pair_row_[best.column] = row;
        pair_cost_[best.column] = paid;
        if (lowers) prices_[best.column] = lower;
        via_[row] = best.column;
        if (!free) {
          via_[displaced] = kUnmatched;
          waiting_[tail] = displaced;
        }
      }
      sync();
    }
    sync();
    return infeasible ? kInfeasible : kOptimal;
  }

  __device__ Status augment(int32_t root) {
    if (should_stop()) return kWorkLimit;
    each([&](int k) { distance_[k] = is_column(k) ? infinity<T>() : nan(); });
    T base = 0, exit_length = p_.unmatched, cost[K];
    int32_t size = 0, row = root, exit_row = root;
    read(cost, row);
    while (true) {
      ++scans;
      each([&](int k) {
        const T through = base + std::fma(cost[k], p_.sign, -price_[k]), current = distance_[k];
        const bool shorter = through < current;
        distance_[k] = shorter ? through : current;
        if (shorter) parent_[column_of(k)] = row;
      });
      const Best best = best_of<false>(distance_);
      if (!(best.value <= exit_length && best.value < infinity<T>())) break;
      const int32_t column = prefer_open(best, root), matched = pair_row_[column];
      if (matched < 0) {
        update_prices(size, best.value);
        move(root, parent_[column], column);
        return kOptimal;
      }
      row = matched;
      read(cost, row);
      if (lane() == 0) {
        tree_[size] = column;
        tree_distance_[size] = best.value;
      }
      const int mine = slot_of(column);
      each([&](int k) {
        const T current = distance_[k];
        distance_[k] = k == mine ? nan() : current;
      });
      ++size;
      if (should_stop()) return kWorkLimit;
      base = best.value - (pair_cost_[column] - prices_[column]);
      if (base + p_.unmatched < exit_length) {
        exit_length = base + p_.unmatched;
        exit_row = row;
      }
    }
    if (!(exit_length < infinity<T>())) return kInfeasible;
    update_prices(size, exit_length);
    move(root, exit_row, -1);
    return kOptimal;
  }

  __device__ void update_prices(int32_t size, T length) {
    sync();
#pragma unroll 1
    for (int32_t k = lane(); k < size; k += kLanes) prices_[tree_[k]] = prices_[tree_[k]] - (length - tree_distance_[k]);
    sync();
    each([&](int k) {
      if (is_column(k)) price_[k] = prices_[column_of(k)];
    });
  }

  // Moves the rows on the path, and reads the costs of all pairs anew: at once, not one after the other.
  __device__ void move(int32_t root, int32_t row, int32_t column) {
    const int mine = column >= 0 ? slot_of(column) : -1;
    if (mine >= 0) open_ &= ~(1u << mine);
#pragma unroll 1
    for (int32_t to = column; lane() == 0;) {
      const int32_t from = via_[row];
      via_[row] = to >= 0 ? to : kLeftOut;
      if (to >= 0) pair_row_[to] = row;
      if (row == root) break;
      to = from;
      row = parent_[to];
    }
    sync();
    each([&](int k) {
      const int32_t j = column_of(k), matched = is_column(k) ? pair_row_[j] : -1;
      if (matched >= 0) pair_cost_[j] = p_.cost_at(matched, j);
    });
    sync();
  }

  __device__ void finish() {
    sync();
#pragma unroll 1
    for (int32_t i = lane(); i < p_.rows; i += kLanes) {
      const int32_t j = via_[i];
      p_.col_of_row[i] = j < 0 ? -1 : j;
      p_.row_dual[i] = p_.sign * (j >= 0 ? pair_cost_[j] - prices_[j] : p_.unmatched < infinity<T>() ? p_.unmatched : T(0));
    }
#pragma unroll 1
    for (int32_t j = lane(); j < p_.cols; j += kLanes) {
      p_.row_of_col[j] = pair_row_[j];
      p_.col_dual[j] = prices_[j] > -infinity<T>() ? p_.sign * prices_[j] : T(0);
    }
  }

  __device__ static uint32_t equal_to(const T (&x)[K], T value) {
    uint32_t equal = 0;
    each([&](int k) { equal |= x[k] == value ? 1u << k : 0u; });
    return equal;
  }

  // The minimum of all columns' x and the lowest column that has it; with kSecond also the smallest of all others.
  template <bool kSecond>
  __device__ Best best_of(const T (&x)[K]) {
    T value = infinity<T>(), second = value;
    each([&](int k) {
      if (kSecond) second = std::fmin(second, std::fmax(value, x[k]));
      value = std::fmin(value, x[k]);
    });
    const KeyOf<T> key = key_of(value);
    KeyOf<T> minimum = min_in_warp(key), second_key = 0;
    uint32_t equal = equal_to(x, value_of<T>(minimum));
    const uint32_t mine = equal ? column_of(__ffs(equal) - 1) : kNoColumn;
    uint32_t column = min_in_warp(mine);
    bool open = any_in_warp((equal & open_) != 0);
    if (kSecond) second_key = min_in_warp(mine == column ? key_of(second) : key);
    if constexpr (W > 1) {
      const int warp = threadIdx.x / 32, other = threadIdx.x % W;
      if (threadIdx.x % 32 == 0) {
        exchange_->value[turn_][warp] = minimum;
        exchange_->column[turn_][warp] = column;
        exchange_->open[turn_][warp] = open;
        if (kSecond) exchange_->second[turn_][warp] = second_key;
      }
      __syncthreads();
      const KeyOf<T> of_other = exchange_->value[turn_][other];
      const uint32_t column_of_other = exchange_->column[turn_][other];
      minimum = min_in_warp(of_other);
      column = min_in_warp(of_other == minimum ? column_of_other : kNoColumn);
      open = any_in_warp(of_other == minimum && exchange_->open[turn_][other]);
      if (kSecond)
        second_key = min_in_warp(of_other == minimum && column_of_other == column ? exchange_->second[turn_][other] : of_other);
      if (key != minimum) equal = 0;
      turn_ ^= 1;
    }
    return {value_of<T>(minimum), value_of<T>(second_key), static_cast<int32_t>(column), open, equal};
  }

  // The best column, or an open one that is as good, as `prefer_open` of lsa.h.
  __device__ int32_t prefer_open(const Best& best, int32_t row) {
    if (!best.open || pair_row_[best.column] < 0) return best.column;
    return first_open(row, best.equal);
  }

  // The first open column among those of `equal` from the row's hashed column on, or -1.
  __device__ int32_t first_open(int32_t row, uint32_t equal) {
    const uint32_t hash = static_cast<uint32_t>(row) * 2654435769u;
    const int32_t start = static_cast<int32_t>(uint64_t(hash) * static_cast<uint32_t>(p_.cols) >> 32);
    uint32_t distance = kNoColumn;
#pragma unroll 1
    for (uint32_t rest = equal & open_; rest; rest &= rest - 1) {
      const int32_t j = column_of(__ffs(rest) - 1);
      const uint32_t from_start = j >= start ? j - start : j - start + p_.cols;
      distance = from_start < distance ? from_start : distance;
    }
    __syncwarp();
    distance = min_in_warp(distance);
    if constexpr (W > 1) {
      if (threadIdx.x % 32 == 0) exchange_->column[turn_][threadIdx.x / 32] = distance;
      __syncthreads();
      distance = min_in_warp(exchange_->column[turn_][threadIdx.x % W]);
      turn_ ^= 1;
    }
    if (distance == kNoColumn) return -1;
    const int32_t column = start + static_cast<int32_t>(distance);
    return column < p_.cols ? column : column - p_.cols;
  }

  const Problem<T, int32_t>& p_;
  Exchange<T, W>* exchange_;
  T *prices_, *pair_cost_;       // cols; while a column is on the tree, its price before; signed cost of its pair
  T* tree_distance_;             // path length of the k-th column on the tree
  int32_t *pair_row_, *parent_;  // cols: matched row, -1: open; the previous row on the shortest known path
  int32_t *tree_, *via_, *waiting_;  // the k-th column on the tree; rows: matched column; ring buffer, as in lsa.h
  T price_[K], distance_[K];     // of this lane's columns, as is the following
  uint32_t offset_[K];           // within a row of costs, in bytes
  uint32_t columns_ = 0, open_ = 0;  // a bit for each that exists, that is not matched
  int turn_ = 0;
  bool reduced_ = false;
};

template <int n>
using Number = std::integral_constant<int, n>;

// Calls run(Number<W>(), Number<K>()) with the layout for the problems of a batch. Returns false if there is none. A
// float64 takes two registers, so a lane has at most 4 of them.
template <class T, class Run>
bool with_layout(const Batch<T>& batch, Run run) {
  const int64_t columns = batch.rows > batch.cols ? batch.rows : batch.cols;  // a problem may be transposed
  if (batch.col_capacity || !batch.fits_int32(sizeof(T) / 2)) return false;
  const auto use = [&](auto W, auto K) {
    if (columns <= 32 * W * K) run(W, K);
    return columns <= 32 * W * K;
  };
  const auto use_widest = [&] {
    if constexpr (sizeof(T) == 4) return use(Number<1>(), Number<10>());
    else return false;
  };
  return use(Number<1>(), Number<1>()) || use(Number<1>(), Number<4>()) || use_widest() || use(Number<8>(), Number<4>());
}

// Solves the problems of one block; several of them at once if a problem is one warp. `memory` holds their searches.
template <int W, int K, class T>
__device__ void solve_in_registers(const Batch<T>& batch, int32_t teams, int64_t workers, char* memory) {
  using Here = Search<T, W, K>;
  [[maybe_unused]] __shared__ __align__(16) unsigned char exchange[W > 1 ? sizeof(Exchange<T, W>) : 16];
  const int32_t team = W == 1 ? threadIdx.x / 32 : 0;
  for (int64_t b = int64_t(blockIdx.x) * teams + team; b < batch.problems; b += workers)
    batch.template solve_one<int32_t>(b, Memory<T>(nullptr, 0), Here::lane(), 32 * W, [&](const auto& p) {
      return Here(p, memory + team * Here::kBytes, reinterpret_cast<Exchange<T, W>*>(exchange));
    });
}

}  // namespace lsa
