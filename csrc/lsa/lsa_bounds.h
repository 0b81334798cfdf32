// What lets a path search leave out most of a row. Prices fall, so a reduced cost, once seen, is from then on a lower
// bound. Kept is the least one of each block of a row's columns. The costs of a block are not read
//   - where row distance + bound > limit, the length of a path that is known already, to a column with room or to a row
//     that had better go unmatched: no column of the block can be the next on the tree;
//   - where row distance + bound >= the longest distance of the block's columns: none gets a shorter path.
// Rounding is monotone, so all results have the bits of whole scans. Of 2,000 random columns, 3 matter to a row.
#pragma once
#include <algorithm>
#include <memory>
#include <vector>

#include "lsa_simd.h"

namespace lsa {

template <class T, int Bytes>
class Bounds {
 public:
  // Before the first path of a problem.
  template <class Index>
  LSA_INLINE void begin(const Problem<T, Index>& p) {
    width_ = p.width;
    blocks_ = (width_ + kBlock - 1) / kBlock;
    stride_ = (blocks_ + kStep - 1) / kStep * kStep;
    if (p.rows * stride_ > size_) bound_.reset(new T[size_ = p.rows * stride_]);
    known_.assign(p.rows, 0);
    paid_.assign(p.rows, {-1, T(0)});
    held_.assign(p.price, p.price + width_);
    near_.resize(stride_);
    far_.resize(stride_);
    relaxed_ = looked_ = 0;
  }

  // Before each path. Where rows need many of their blocks, whole scans are faster: not in use.
  LSA_INLINE void start() {
    std::fill(near_.begin(), near_.end(), infinity<T>());
    std::fill(far_.begin(), far_.end(), infinity<T>());
    open_ = infinity<T>();
    in_use_ = width_ >= kBlock && kFewOf * looked_ <= relaxed_ * blocks_;
  }
  LSA_INLINE bool in_use() const { return in_use_; }
  // Is there no column with room at this distance, the nearest one?
  LSA_INLINE bool all_full(T nearest) const { return in_use_ && nearest < open_; }

  // Tries the ways on from a row of the tree, those to blocks that matter, and finds the nearest column of all.
  template <class Index>
  LSA_INLINE Least<T> relax(const OneLane<T, Bytes>& lane, const Problem<T, Index>& p, int32_t row, T base, T exit) {
    if (known_[row]) some_blocks(p, row, base, exit);
    else all_blocks(p, row, base);
    const auto near = [&](auto b) LSA_INLINE { return load(near_.data(), b); };
    Least<T> best = lane.least(static_cast<int32_t>(stride_), near, [](auto, auto x) LSA_INLINE { return x; });
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

  // The cost of a row's own column: read once, for it lies anywhere in memory.
  template <class Index>
  LSA_INLINE T paid(const Problem<T, Index>& p, int32_t row, int32_t column) {
    auto& [of, cost] = paid_[row];
    if (of != column) {
      of = column;
      cost = p.at(row, column);
    }
    return cost;
  }

  // The distance of a column has become infinite.
  template <class Index>
  LSA_INLINE void close(const Problem<T, Index>& p, int32_t column) {
    const int32_t block = column / kBlock, end = std::min((block + 1) * kBlock, width_);
    near_[block] = *std::min_element(p.distance + block * kBlock, p.distance + end);
  }

  // The price of a column of the tree has changed. Rounding may let it rise, by little and rarely.
  template <class Index>
  LSA_INLINE void settled(const Problem<T, Index>& p, int32_t column) {
    if (p.price[column] > held_[column])
      for (int32_t i = 0; i < p.rows; ++i) bound_[i * stride_ + column / kBlock] = -infinity<T>();
    held_[column] = p.price[column];
  }

 private:
  using V = Vector<T, Bytes>;
  using Lane = OneLane<T, Bytes>;
  static constexpr int32_t kWidth = Bytes / sizeof(T), kBlock = 64 / sizeof(T);  // columns of a vector, of a cache line
  static constexpr int32_t kStep = 4 * kWidth;                                   // bounds that are looked at together
  static constexpr int64_t kFewOf = 8;  // more than an eighth of the blocks: many

  // Of the columns of a block: in each entry the least of some of them.
  struct Block {
    V distance = V{} + infinity<T>(), reduced = distance, away = distance;  // away: -distance
  };

  template <class Index>
  LSA_INLINE void some_blocks(const Problem<T, Index>& p, int32_t row, T base, T exit) {
    T* const bound = bound_.get() + row * stride_;
    T limit = exit < open_ ? exit : open_;
    ++relaxed_;
    for (int32_t first = 0; first < blocks_; first += kStep) {
      decltype(V{} < V{}) some{};
      for (int32_t b = first; b < first + kStep; b += kWidth) {
        const V least = base + load(bound, Columns<Bytes>{b});
        some |= (least <= limit) & (least < load(far_.data(), Columns<Bytes>{b}));
      }
      if (!any(some)) continue;
      for (int32_t b = first; b < std::min(first + kStep, blocks_); ++b) {
        const T least = base + bound[b];
        if (least > limit || least >= far_[b]) continue;
        V open = V{} + open_;
        const Block found = look(p, row, base, b, open);
        near_[b] = Lane::spread(found.distance)[0];
        far_[b] = -Lane::spread(found.away)[0];
        bound[b] = Lane::spread(found.reduced)[0];
        open_ = Lane::spread(open)[0];
        limit = open_ < limit ? open_ : limit;
        ++looked_;
      }
    }
  }

  template <class Index>
  LSA_INLINE void all_blocks(const Problem<T, Index>& p, int32_t row, T base) {
    T* const bound = bound_.get() + row * stride_;
    V open = V{} + open_;
    for (int32_t first = 0; first < stride_; first += kWidth) {
      Block found[kWidth];
      V distance[kWidth], reduced[kWidth], away[kWidth];
      for (int32_t k = 0; k < kWidth; ++k) {
        if (first + k < blocks_) found[k] = look(p, row, base, first + k, open);
        distance[k] = found[k].distance;
        reduced[k] = found[k].reduced;
        away[k] = found[k].away;
      }
      store(near_.data(), Columns<Bytes>{first}, least_of_each(distance));
      store(far_.data(), Columns<Bytes>{first}, -least_of_each(away));
      store(bound, Columns<Bytes>{first}, least_of_each(reduced));
    }
    open_ = Lane::spread(open)[0];
    known_[row] = 1;
  }

  // In entry k the least one of the k-th vector.
  LSA_INLINE static V least_of_each(V (&x)[kWidth]) {
    for (int32_t n = kWidth; n > 1; n /= 2)
      for (int32_t k = 0; k < n / 2; ++k) x[k] = least_of_pairs(x[2 * k], x[2 * k + 1]);
    return x[0];
  }

  // The last block is read from further left, where it is not whole: what lies before its begin belongs to another.
  template <class Index>
  LSA_INLINE Block look(const Problem<T, Index>& p, int32_t row, T base, int32_t block, V& open) const {
    const int32_t begin = block * kBlock, from = std::min(begin, width_ - kBlock);
    const V none = V{} + infinity<T>();
    Block found;
    for (int32_t j = from; j < from + kBlock; j += kWidth) {
      const Columns<Bytes> here{j};
      const V cost = p.at(row, here), known = load(p.distance, here), price = load(p.price, here);
      const auto outside = Lane::columns_from(j) < static_cast<T>(begin);
      const V through = outside ? none : base + (cost - price);
      const auto shorter = through < known;
      const V length = shorter ? through : known, own = outside ? none : length;
      store(p.distance, here, length);
      store(p.parent, here, shorter ? V{} + static_cast<T>(row) : load(p.parent, here));
      const V with_room = load(p.room, here) > T(0) ? length : none;
      const V away = price > -infinity<T>() ? -length : none;  // a column on the tree is never nearer
      const V reduced = cost - load(held_.data(), here);
      open = with_room < open ? with_room : open;
      found.distance = own < found.distance ? own : found.distance;
      found.away = away < found.away ? away : found.away;
      found.reduced = reduced < found.reduced ? reduced : found.reduced;
    }
    return found;
  }

  int32_t width_ = 0, blocks_ = 0;
  int64_t stride_ = 0, size_ = 0, relaxed_ = 0, looked_ = 0;
  bool in_use_ = false;
  T open_ = infinity<T>();                    // the least distance of a column with room
  std::unique_ptr<T[]> bound_;               // rows x blocks
  std::vector<char> known_;                  // rows: are there bounds of it?
  std::vector<std::pair<int32_t, T>> paid_;  // rows: a column, and its cost
  std::vector<T> held_;                      // cols: the price, of a column on the tree the one before
  std::vector<T> near_, far_;                // blocks: the least distance, the longest
};

// One lane that reads of a row on the tree no more than it must; for rows of many columns.
template <class T, int Bytes>
struct BoundedLane : OneLane<T, Bytes> {
  static constexpr bool kBounded = true;
  Bounds<T, Bytes> bounds;
};

}  // namespace lsa
