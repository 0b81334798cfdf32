// Lower bounds by which a path search skips most of a row. Prices only fall, so a computed reduced cost stays a lower
// bound. The minimum of each block of a row's columns is stored. The costs of a block are not read
//   - if row distance + bound > limit, the length of a known path to an open column or to a row that is better left
//     unmatched: no column of the block can be the next on the tree;
//   - if row distance + bound >= the longest distance of the block's columns: none gets a shorter path.
// Rounding is monotone, so all results equal those of full scans bit by bit. Of 2,000 random columns a row reads 3.
#pragma once
#include <algorithm>
#include <memory>
#include <vector>

#include "lsa_simd.h"

namespace lsa {

template <class T, int Bytes>
class Bounds {
 public:
  // Called before the first path of a problem.
  LSA_INLINE void reset(const Problem<T>& p) {
    width_ = p.width;
    blocks_ = (width_ + kBlock - 1) / kBlock;
    stride_ = (blocks_ + kStep - 1) / kStep * kStep;
    if (p.rows * stride_ > size_) bound_.reset(new T[size_ = p.rows * stride_]);
    has_bounds_.assign(p.rows, 0);
    pair_costs_.assign(p.rows, {-1, T(0)});
    old_prices_.assign(p.price, p.price + width_);
    block_min_.resize(stride_);
    block_max_.resize(stride_);
    rows_relaxed_ = blocks_read_ = 0;
  }

  // Called before each path. Bounds are not used if rows need many of their blocks: full scans are faster.
  LSA_INLINE void start() {
    std::fill(block_min_.begin(), block_min_.end(), infinity<T>());
    std::fill(block_max_.begin(), block_max_.end(), infinity<T>());
    open_distance_ = infinity<T>();
    in_use_ = width_ >= kBlock && kSmallFraction * blocks_read_ <= rows_relaxed_ * blocks_;
  }
  LSA_INLINE bool in_use() const { return in_use_; }
  // Whether no column at this distance, the smallest, is open.
  LSA_INLINE bool all_full(T nearest) const { return in_use_ && nearest < open_distance_; }

  // Relaxes the edges of a row on the tree to all blocks that can matter, and finds the nearest column.
  LSA_INLINE TwoSmallest<T> relax(const OneLane<T, Bytes>& lane, const Problem<T>& p, int32_t row, T base, T exit) {
    if (has_bounds_[row]) relax_needed_blocks(p, row, base, exit);
    else relax_all_blocks(p, row, base);
    const auto block_min = [&](auto b) LSA_INLINE { return load(block_min_.data(), b); };
    TwoSmallest<T> best = lane.two_smallest(static_cast<int32_t>(stride_), block_min,
                                            [](auto, auto x) LSA_INLINE { return x; });
    if (!(best.value < infinity<T>())) return best;
    const int32_t begin = best.column * kBlock, end = std::min(begin + kBlock, width_);
    best.column = -1;
    for (int32_t j = begin; j < end; ++j) {
      const T length = p.distance[j];
      if (length == best.value && best.column < 0) best.column = j;
      else best.second = length < best.second ? length : best.second;
    }
    return best;
  }

  // The cost of a row's matched column, cached because the access to the matrix is random.
  LSA_INLINE T pair_cost(const Problem<T>& p, int32_t row, int32_t column) {
    auto& [of, cost] = pair_costs_[row];
    if (of != column) {
      of = column;
      cost = p.cost_at(row, column);
    }
    return cost;
  }

  // Called after the distance of a column has become infinite.
  LSA_INLINE void close(const Problem<T>& p, int32_t column) {
    const int32_t block = column / kBlock, end = std::min((block + 1) * kBlock, width_);
    block_min_[block] = *std::min_element(p.distance + block * kBlock, p.distance + end);
  }

  // Called after the price of a column on the tree has changed. Rounding may raise it, slightly and rarely.
  LSA_INLINE void price_changed(const Problem<T>& p, int32_t column) {
    if (p.price[column] > old_prices_[column])
      for (int32_t i = 0; i < p.rows; ++i) bound_[i * stride_ + column / kBlock] = -infinity<T>();
    old_prices_[column] = p.price[column];
  }

 private:
  using V = Vector<T, Bytes>;
  using Lane = OneLane<T, Bytes>;
  static constexpr int32_t kWidth = Bytes / sizeof(T), kBlock = 64 / sizeof(T);  // columns of a vector, of a cache line
  static constexpr int32_t kStep = 4 * kWidth;                                   // bounds that are tested together
  static constexpr int64_t kSmallFraction = 8;  // bounds are faster up to an eighth of the blocks

  // Minima over the columns of a block: each entry is the minimum over a part of them.
  struct BlockMinima {
    V distance = V{} + infinity<T>(), reduced = distance, neg_distance = distance;
  };

  LSA_INLINE void relax_needed_blocks(const Problem<T>& p, int32_t row, T base, T exit) {
    T* const bound = bound_.get() + row * stride_;
    T limit = exit < open_distance_ ? exit : open_distance_;
    ++rows_relaxed_;
    for (int32_t first = 0; first < blocks_; first += kStep) {
      decltype(V{} < V{}) needed{};
      for (int32_t b = first; b < first + kStep; b += kWidth) {
        const V lower_bound = base + load(bound, Columns<Bytes>{b});
        needed |= (lower_bound <= limit) & (lower_bound < load(block_max_.data(), Columns<Bytes>{b}));
      }
      if (!any(needed)) continue;
      for (int32_t b = first; b < std::min(first + kStep, blocks_); ++b) {
        const T lower_bound = base + bound[b];
        if (lower_bound > limit || lower_bound >= block_max_[b]) continue;
        V open = V{} + open_distance_;
        const BlockMinima minima = relax_block(p, row, base, b, open);
        block_min_[b] = Lane::broadcast_min(minima.distance)[0];
        block_max_[b] = -Lane::broadcast_min(minima.neg_distance)[0];
        bound[b] = Lane::broadcast_min(minima.reduced)[0];
        open_distance_ = Lane::broadcast_min(open)[0];
        limit = open_distance_ < limit ? open_distance_ : limit;
        ++blocks_read_;
      }
    }
  }

  LSA_INLINE void relax_all_blocks(const Problem<T>& p, int32_t row, T base) {
    T* const bound = bound_.get() + row * stride_;
    V open = V{} + open_distance_;
    for (int32_t first = 0; first < stride_; first += kWidth) {
      BlockMinima minima[kWidth];
      V distance[kWidth], reduced[kWidth], neg_distance[kWidth];
      for (int32_t k = 0; k < kWidth; ++k) {
        if (first + k < blocks_) minima[k] = relax_block(p, row, base, first + k, open);
        distance[k] = minima[k].distance;
        reduced[k] = minima[k].reduced;
        neg_distance[k] = minima[k].neg_distance;
      }
      store(block_min_.data(), Columns<Bytes>{first}, min_of_each(distance));
      store(block_max_.data(), Columns<Bytes>{first}, -min_of_each(neg_distance));
      store(bound, Columns<Bytes>{first}, min_of_each(reduced));
    }
    open_distance_ = Lane::broadcast_min(open)[0];
    has_bounds_[row] = 1;
  }

  // Returns a vector with entry k the minimum of the k-th vector.
  LSA_INLINE static V min_of_each(V (&x)[kWidth]) {
    for (int32_t n = kWidth; n > 1; n /= 2)
      for (int32_t k = 0; k < n / 2; ++k) x[k] = min_of_pairs(x[2 * k], x[2 * k + 1]);
    return x[0];
  }

  // An incomplete last block is read from further left: columns before its begin belong to the previous block.
  LSA_INLINE BlockMinima relax_block(const Problem<T>& p, int32_t row, T base, int32_t block, V& open) const {
    const int32_t begin = block * kBlock, from = std::min(begin, width_ - kBlock);
    const V none = V{} + infinity<T>();
    BlockMinima minima;
    for (int32_t j = from; j < from + kBlock; j += kWidth) {
      const Columns<Bytes> columns{j};
      const V cost = p.cost_at(row, columns), current = load(p.distance, columns), price = load(p.price, columns);
      const auto before_block = Lane::columns_from(j) < static_cast<T>(begin);
      const V through = before_block ? none : base + (cost - price);
      const auto shorter = through < current;
      const V length = shorter ? through : current, block_length = before_block ? none : length;
      store(p.distance, columns, length);
      store(p.parent, columns, shorter ? V{} + static_cast<T>(row) : load(p.parent, columns));
      const V open_length = load(p.remaining, columns) > T(0) ? length : none;
      const V neg_distance = price > -infinity<T>() ? -length : none;  // a column on the tree never gets nearer
      const V reduced = cost - load(old_prices_.data(), columns);
      open = open_length < open ? open_length : open;
      minima.distance = block_length < minima.distance ? block_length : minima.distance;
      minima.neg_distance = neg_distance < minima.neg_distance ? neg_distance : minima.neg_distance;
      minima.reduced = reduced < minima.reduced ? reduced : minima.reduced;
    }
    return minima;
  }

  int32_t width_ = 0, blocks_ = 0;
  int64_t stride_ = 0, size_ = 0, rows_relaxed_ = 0, blocks_read_ = 0;
  bool in_use_ = false;
  T open_distance_ = infinity<T>();                // smallest distance of an open column
  std::unique_ptr<T[]> bound_;                     // rows x blocks
  std::vector<char> has_bounds_;                   // rows: whether its bounds are set
  std::vector<std::pair<int32_t, T>> pair_costs_;  // rows: a column and its cost
  std::vector<T> old_prices_;                      // cols: the price, for columns on the tree the previous price
  std::vector<T> block_min_, block_max_;           // blocks: smallest and largest distance
};

// One lane that skips blocks of rows on the tree by bounds; for rows of many columns.
template <class T, int Bytes>
struct BoundedLane : OneLane<T, Bytes> {
  static constexpr bool kBounded = true;
  Bounds<T, Bytes> bounds;
};

}  // namespace lsa
