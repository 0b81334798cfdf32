// Rows with a group of cells (dirichlet_stick_breaking.h), for the samples of one tile.
#pragma once
#include <algorithm>

#include "dirichlet_rows.h"
#include "dirichlet_tensors.h"

namespace dirichlet {

// A sum of numbers >= 0 with twice the digits: less others of its terms, it still has those of what is left.
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
    const double found = left.sum + left.rest;
    return found > 0x1p-80 * sum ? found : 0;  // less than that is rounding: 2^-106 for each term
  }
};

// For each sample the largest of n logarithms and of what there is already.
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
class Breaker {
 public:
  // The wrong answers in class i, up to a common factor for each sample.
  COMMON_INLINE void draw(const Problem<T>& p, int32_t e, int32_t i, Sampler<T>& sampler) {
    prepare(p, e, i);
    const int32_t r = 1 + p.classes + i, n = static_cast<int32_t>(columns_.size());
    const bool linear = p.mode(e, r) == kLinear;
    Row<T> row = p.row(e, r);
    const uint32_t first = 2 * row.first_pair;
    row.cells = cells_.data();
    row.pairs = static_cast<int32_t>(pairs_.size());
    row.numbers = pairs_.data();
    sampler.draw(row, gammas_.data());
    const Samples& samples = sampler.samples();
    propose(0, n, first, row.key, samples);
    begin(linear, T(1 / (n * shape_)));
    for (int32_t k = 0; reach(k) && k + 1 < n; ++k) {
      propose(k + 1, n, first, row.key, samples);
      descend(T(1 / ((n - k - 1) * shape_)));
    }
  }

  COMMON_INLINE double total(int s) const { return total_[s]; }

  // Where the unreached cells of a sample begin (unreached_depth); infinite if all are reached.
  COMMON_INLINE void unreached(const double* __restrict factor, double* __restrict depth) const {
    const auto n = static_cast<int32_t>(columns_.size());
    const double mean = mean_;
    for (int s = 0; s < kTile; ++s) {
      const double from = unreached_depth(factor[s], total_[s], mean, -double(last_[s]));
      depth[s] = count_[s] < n ? from : std::numeric_limits<double>::infinity();
    }
  }

  // found(column, variate) for all cells of a sample that may have a mass.
  template <class Found>
  COMMON_INLINE void visit(int s, const Found& found) {
    for (size_t k = 0; k < beside_.size(); ++k) found(beside_[k], gammas_[places_of_beside_[k] * kTile + s]);
    const int32_t n = count_[s];
    for (int32_t k = 0; k < n; ++k) {
      const uint32_t place = uint32_t(k) + places_[size_t(k) * kTile + s];
      const int32_t column = order_[place];
      order_[place] = order_[k];
      found(column, masses_[size_t(k) * kTile + s]);
    }
    for (int32_t k = 0; k < n; ++k) {
      const uint32_t place = uint32_t(k) + places_[size_t(k) * kTile + s];
      order_[place] = columns_[place];
    }
  }

 private:
  // Which columns are in the group; and the cells beside them, by pairs of which one at least is drawn.
  COMMON_APART void prepare(const Problem<T>& p, int32_t e, int32_t i) {
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
    beside_.clear();
    places_of_beside_.clear();
    for (int32_t q = 0; q < row.pairs; ++q) {
      if (row.cells[2 * q].d == 0 && row.cells[2 * q + 1].d == 0) continue;
      for (int32_t k = 0; k < 2; ++k) {
        cells_.push_back(row.cells[2 * q + k]);
        if (cells_.back().d == 0) continue;
        beside_.push_back(2 * q + k);
        places_of_beside_.push_back(static_cast<int32_t>(cells_.size()) - 1);
      }
      pairs_.push_back(static_cast<uint32_t>(q));
    }
    gammas_.resize(cells_.size() * kTile);
    places_.resize(columns_.size() * kTile);
    masses_.resize(columns_.size() * kTile);
  }

  COMMON_INLINE void propose(int32_t k, int32_t n, uint32_t first, const Key key, const Samples& samples) {
    const T shape = T(shape_);
    T* __restrict const masses = &masses_[size_t(k) * kTile];
    uint32_t* __restrict const places = &places_[size_t(k) * kTile];
    alignas(64) uint32_t sure[kTile];
    uint32_t all = 1;
    for (int s = 0; s < kTile; ++s) {
      const Stick<T> stick = propose_stick<T>(samples.low[s], samples.high[s], first + uint32_t(k), key, shape, n - k);
      masses[s] = stick.mass;
      step_[s] = stick.step;
      places[s] = stick.place;
      sure[s] = stick.sure;
      all &= stick.sure;
    }
    for (int s = 0; !all && s < kTile; ++s)
      if (!sure[s]) masses[s] = accepted_mass<T>(samples.low[s], samples.high[s], first + uint32_t(k), key, shape);
  }

  // The first depth; logarithms beside the group are divided by the largest, its first cell among them.
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

  COMMON_INLINE void descend(T mean) {
    for (int s = 0; s < kTile; ++s) heights_[s] -= step_[s] * mean;
  }

  // The k-th cell of each sample; 0 from where what is left is negligible, but for the first one. Is any sample's reached?
  COMMON_INLINE bool reach(int32_t k) {
    const T shape = T(1 + shape_);
    const double mean = mean_;
    T* __restrict const masses = &masses_[size_t(k) * kTile];
    alignas(64) T heights[kTile], none[kTile] = {};
    std::copy_n(heights_, kTile, heights);
    divide_by(none, heights, 1);
    int32_t any = 0;
    for (int s = 0; s < kTile; ++s) {
      const int32_t reached = (k == 0) | (double(heights[s]) * mean >= kNegligible * total_[s]);
      const T mass = T(reached) * shape * masses[s] * heights[s];  // a choice would keep the loop scalar
      masses[s] = mass;
      total_[s] += mass;
      count_[s] += reached;
      last_[s] = reached ? heights_[s] : last_[s];
      any |= reached;
    }
    return any != 0;
  }

  double shape_ = 0, mean_ = 0;
  std::vector<Cell<T>> cells_;
  std::vector<uint32_t> pairs_, places_;
  std::vector<int32_t> columns_, order_, beside_, places_of_beside_;
  std::vector<T> gammas_, masses_;
  alignas(64) T step_[kTile], heights_[kTile], last_[kTile];  // -y, and that of the last cell reached
  alignas(64) double total_[kTile];
  alignas(64) int32_t count_[kTile];
};

}  // namespace dirichlet
