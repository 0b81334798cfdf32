// Rows with a group of cells (dirichlet_stick_breaking.h), for the samples of one tile.
#pragma once
#include <algorithm>

#include "dirichlet_rows.h"
#include "dirichlet_tensors.h"

namespace dirichlet {

// A sum of numbers >= 0 in double-double precision: subtracting some of its terms leaves an accurate sum of the others.
struct Sum {
  double sum = 0, rest = 0;

  COMMON_INLINE void add(double x) {
    const double next = sum + x, added = next - sum;
    rest += (sum - (next - added)) + (x - added);
    sum = next;
  }
  COMMON_INLINE void add(const Sum& other) {
    add(other.sum);
    add(other.rest);
  }
  COMMON_INLINE void subtract(const Sum& other) { add({-other.sum, -other.rest}); }
  COMMON_INLINE double without(const Sum& other) const {
    Sum left = *this;
    left.subtract(other);
    const double difference = left.sum + left.rest;
    return difference > 0x1p-80 * sum ? difference : 0;  // smaller values are rounding errors: 2^-106 for each term
  }
};

// Raises `largest` of each sample to the maximum of n logarithms.
template <class T>
COMMON_INLINE inline void raise_to_largest(const T* __restrict logs, int32_t n, T* __restrict largest) {
  for (int32_t j = 0; j < n; ++j)
    for (int s = 0; s < kTile; ++s) largest[s] = largest[s] < logs[j * kTile + s] ? logs[j * kTile + s] : largest[s];
}

template <class T>
COMMON_INLINE inline void divide_by(const T* __restrict largest, T* __restrict logs, int32_t n) {
  for (int32_t j = 0; j < n; ++j)
    for (int s = 0; s < kTile; ++s) logs[j * kTile + s] = exp_of(logs[j * kTile + s] - largest[s]);
}

template <class T>
class StickSampler {
 public:
  // Draws the wrong answers in class i, up to a common factor for each sample.
  COMMON_INLINE void draw(const Problem<T>& p, int32_t e, int32_t i, Sampler<T>& sampler) {
    prepare(p, e, i);
    const int32_t r = 1 + p.classes + i, n = static_cast<int32_t>(columns_.size());
    const bool linear = p.mode(e, r) == kLinear;
    Row<T> row = p.row(e, r);
    const uint32_t first = 2 * row.first_pair;
    row.cells = cells_.data();
    row.pairs = static_cast<int32_t>(pairs_.size());
    row.pair_indices = pairs_.data();
    sampler.draw(row, gammas_.data());
    const Samples& samples = sampler.samples();
    for (int32_t k = 0; k < n; ++k) {
      propose(k, n, first, row.key, samples);
      const T mean = T(1 / ((n - k) * shape_));
      if (k == 0) begin(linear, mean);
      else for (int s = 0; s < kTile; ++s) heights_[s] -= step_[s] * mean;
      if (!draw_kth(k)) break;
    }
  }

  COMMON_INLINE double total(int s) const { return total_[s]; }

  // Sets the depth of each sample's first unreached cell (unreached_depth); infinite if all are reached.
  COMMON_INLINE void unreached(const double* __restrict factor, double* __restrict depth) const {
    const auto n = static_cast<int32_t>(columns_.size());
    const double mean = mean_;
    for (int s = 0; s < kTile; ++s) {
      const double from = unreached_depth(factor[s], total_[s], mean, -double(last_[s]));
      depth[s] = count_[s] < n ? from : std::numeric_limits<double>::infinity();
    }
  }

  // Calls visitor(column, variate) for all cells of a sample that may have a mass.
  template <class Visitor>
  COMMON_INLINE void visit(int s, const Visitor& visitor) {
    for (size_t k = 0; k < outside_columns_.size(); ++k)
      visitor(outside_columns_[k], gammas_[outside_positions_[k] * kTile + s]);
    const int32_t n = count_[s];
    for (int32_t k = 0; k < n; ++k) {
      const uint32_t position = uint32_t(k) + positions_[size_t(k) * kTile + s];
      const int32_t column = order_[position];
      order_[position] = order_[k];
      visitor(column, masses_[size_t(k) * kTile + s]);
    }
    for (int32_t k = 0; k < n; ++k) {
      const uint32_t position = uint32_t(k) + positions_[size_t(k) * kTile + s];
      order_[position] = columns_[position];
    }
  }

 private:
  // Lists the columns of the group, and the pairs with at least one drawn cell outside of the group.
  COMMON_NOINLINE void prepare(const Problem<T>& p, int32_t e, int32_t i) {
    const Row<T> row = p.row(e, 1 + p.classes + i);
    const Group group = p.group(e, i);
    const double* const alphas = p.alphas + (int64_t(e) * p.classes + i) * p.classes;
    shape_ = group.shape;
    mean_ = 1 + group.cells * group.shape;
    columns_.clear();
    for (int32_t j = 0; j < p.classes; ++j)
      if (alphas[j] == group.shape && j != i) columns_.push_back(j);
    order_ = columns_;
    cells_.clear();
    pairs_.clear();
    outside_columns_.clear();
    outside_positions_.clear();
    for (int32_t q = 0; q < row.pairs; ++q) {
      if (row.cells[2 * q].d == 0 && row.cells[2 * q + 1].d == 0) continue;
      for (int32_t k = 0; k < 2; ++k) {
        cells_.push_back(row.cells[2 * q + k]);
        if (cells_.back().d == 0) continue;
        outside_columns_.push_back(2 * q + k);
        outside_positions_.push_back(static_cast<int32_t>(cells_.size()) - 1);
      }
      pairs_.push_back(static_cast<uint32_t>(q));
    }
    gammas_.resize(cells_.size() * kTile);
    positions_.resize(columns_.size() * kTile);
    masses_.resize(columns_.size() * kTile);
  }

  COMMON_INLINE void propose(int32_t k, int32_t n, uint32_t first, const Key key, const Samples& samples) {
    const T shape = T(shape_);
    T* __restrict const masses = &masses_[size_t(k) * kTile];
    uint32_t* __restrict const positions = &positions_[size_t(k) * kTile];
    alignas(64) uint32_t is_accepted[kTile];
    uint32_t all_accepted = 1;
    bits_.draw(samples, first + uint32_t(k), kStick, key);
    for (int s = 0; s < kTile; ++s) {
      const Stick<T> stick = stick_of(bits_[s], shape, n - k);
      masses[s] = stick.mass;
      step_[s] = stick.step;
      positions[s] = stick.position;
      is_accepted[s] = stick.is_accepted;
      all_accepted &= stick.is_accepted;
    }
    for (int s = 0; !all_accepted && s < kTile; ++s)
      if (!is_accepted[s]) masses[s] = accepted_mass<T>(samples.low[s], samples.high[s], first + uint32_t(k), key, shape);
  }

  // Sets the first depth. Cells outside of the group that are logarithms are normalized by the largest, including the
  // group's first cell.
  COMMON_INLINE void begin(bool linear, T mean) {
    alignas(64) T largest[kTile];
    for (int s = 0; s < kTile; ++s) {
      heights_[s] = -step_[s] * mean;
      largest[s] = heights_[s];
      last_[s] = heights_[s];
      total_[s] = 0;
      count_[s] = 0;
    }
    const auto n = static_cast<int32_t>(cells_.size());
    if (!linear) {
      raise_to_largest(gammas_.data(), n, largest);
      divide_by(largest, gammas_.data(), n);
      for (int s = 0; s < kTile; ++s) {
        heights_[s] -= largest[s];
        last_[s] = heights_[s];
      }
    }
    for (int32_t j = 0; j < n; ++j)
      for (int s = 0; s < kTile; ++s) total_[s] += gammas_[size_t(j) * kTile + s];
  }

  // Draws the k-th cell of each sample; except for the first cell it is 0 once the rest is negligible. Returns whether any
  // sample reaches the cell.
  COMMON_INLINE bool draw_kth(int32_t k) {
    const T shape = T(1 + shape_);
    const double mean = mean_;
    T* __restrict const masses = &masses_[size_t(k) * kTile];
    alignas(64) T heights[kTile], none[kTile] = {};
    std::copy_n(heights_, kTile, heights);
    divide_by(none, heights, 1);
    int32_t any = 0;
    for (int s = 0; s < kTile; ++s) {
      const int32_t reached = (k == 0) | (double(heights[s]) * mean >= kNegligible * total_[s]);
      const T mass = T(reached) * shape * masses[s] * heights[s];  // a conditional would prevent vectorization
      masses[s] = mass;
      total_[s] += mass;
      count_[s] += reached;
      last_[s] = reached ? heights_[s] : last_[s];
      any |= reached;
    }
    return any != 0;
  }

  double shape_ = 0, mean_ = 0;
  Bits bits_;
  std::vector<Cell<T>> cells_;
  std::vector<uint32_t> pairs_, positions_;
  std::vector<int32_t> columns_, order_, outside_columns_, outside_positions_;
  std::vector<T> gammas_, masses_;
  alignas(64) T step_[kTile], heights_[kTile], last_[kTile];  // -y, also of the last reached cell
  alignas(64) double total_[kTile];
  alignas(64) int32_t count_[kTile];
};

}  // namespace dirichlet
