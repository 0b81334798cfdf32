// Rows of gamma variates for many samples at once: lanes are samples.
#pragma once
#include <vector>

#include "common/parallel.h"
#include "dirichlet.h"

namespace dirichlet {

constexpr int kTile = 64;   // samples drawn together, never fewer: a loop without a remainder rounds all lanes equally
constexpr int kBatch = 16;  // rejected proposals that are repeated together

struct Samples {
  alignas(64) uint32_t low[kTile], high[kTile];

  COMMON_INLINE void set(uint64_t start) {
    for (int s = 0; s < kTile; ++s) {
      low[s] = static_cast<uint32_t>(start + s);
      high[s] = static_cast<uint32_t>((start + s) >> 32);
    }
  }
};

// Proposals that Marsaglia & Tsang's squeeze does not accept are collected over the row, then tested and repeated in batches.
template <class T>
class Sampler {
 public:
  explicit Sampler(int32_t max_pairs) : open_(size_t(2 * kTile) * max_pairs + 1) {}

  void set_start(uint64_t start) { samples_.set(start); }
  const Samples& samples() const { return samples_; }

  void draw(const Row<T>& row, T* out) {  // (2 * pairs, kTile)
    row.linear ? draw<true>(row, out) : draw<false>(row, out);
  }

 private:
  template <bool kLinear>
  COMMON_NOINLINE void draw(const Row<T>& of, T* out) {
    common::vectorized([this, row = of, out](auto) COMMON_INLINE {
      int32_t open = 0;
      for (int32_t p = 0; p < row.pairs; ++p) open = first_attempt<kLinear>(row, p, out + 2 * kTile * p, open);
      for (uint32_t attempt = 0; open > 0 && attempt < kAttempts; ++attempt)
        open = next_attempt<kLinear>(row, attempt, out, open);
      for (int32_t k = 0; k < open; ++k) out[open_[k]] = std::numeric_limits<T>::quiet_NaN();
      for (int32_t p = 0; !kLinear && p < row.pairs; ++p) boost(row, p, out + 2 * kTile * p);
    });
  }

  // Draws a pair of cells, and appends the slots that the squeeze does not accept to the `open` slots so far.
  template <bool kLinear>
  COMMON_INLINE int32_t first_attempt(const Row<T>& row, int32_t p, T* __restrict out, int32_t open) {
    const Cell<T> even = row.cells[2 * p], odd = row.cells[2 * p + 1];
    if (even.d == 0 && odd.d == 0) {
      for (int s = 0; s < 2 * kTile; ++s) out[s] = kLinear ? T(0) : even.log_d;
      return open;
    }
    const Key key = row.key;  // copied here and below, because a copy inside the loop would prevent vectorization
    const uint32_t pair = row.pair_index(p);
    alignas(64) uint32_t undecided[2 * kTile];
    uint32_t any = 0;
    for (int s = 0; s < kTile; ++s) {
      const RandomBits w = block(samples_.low[s], samples_.high[s], pair, 0, key);
      const Normals<T> x = normals<T>(w);
      out[s] = value_of<kLinear>(x.even, even);
      out[kTile + s] = value_of<kLinear>(x.odd, odd);
      undecided[s] = !squeeze_accepts(x.even, w.w2, even);
      undecided[kTile + s] = !squeeze_accepts(x.odd, w.w3, odd);
      any |= undecided[s] | undecided[kTile + s];
    }
    for (int s = 0; any && s < 2 * kTile; ++s) {
      open_[open] = 2 * kTile * p + s;
      open += static_cast<int32_t>(undecided[s]);
    }
    return open;
  }

  template <bool kLinear>
  COMMON_INLINE int32_t next_attempt(const Row<T>& row, uint32_t attempt, T* out, int32_t count) {
    const Key key = row.key;
    int32_t open = 0;
    for (int32_t begin = 0; begin < count; begin += kBatch) {
      const int n = count - begin < kBatch ? count - begin : kBatch;
      uint32_t low[kBatch], high[kBatch], pair[kBatch], odd[kBatch], accepted[kBatch];
      T d[kBatch], scale[kBatch], log_d[kBatch], value[kBatch];
      for (int k = 0; k < kBatch; ++k) {
        const int32_t slot = open_[begin + (k < n ? k : 0)], cell = slot / kTile, s = slot % kTile;
        low[k] = samples_.low[s];
        high[k] = samples_.high[s];
        pair[k] = row.pair_index(cell / 2);
        odd[k] = cell % 2;
        d[k] = row.cells[cell].d;
        scale[k] = row.cells[cell].scale;
        log_d[k] = row.cells[cell].log_d;
      }
      for (int k = 0; k < kBatch; ++k) {
        const RandomBits w = block(low[k], high[k], pair[k], attempt, key);
        const Normals<T> both = normals<T>(w);
        const T x = odd[k] ? both.odd : both.even;
        const Cell<T> cell{d[k], scale[k], log_d[k], 0};
        value[k] = value_of<kLinear>(x, cell);
        accepted[k] = accepts(x, odd[k] ? w.w3 : w.w2, cell);
      }
      for (int k = 0; k < n; ++k) {
        const int32_t slot = open_[begin + k];
        out[slot] = value[k];
        open_[open] = slot;
        open += !accepted[k];
      }
    }
    return open;
  }

  COMMON_INLINE void boost(const Row<T>& row, int32_t p, T* __restrict out) const {
    const T even = row.cells[2 * p].boost, odd = row.cells[2 * p + 1].boost;
    if (even == 0 && odd == 0) return;
    const Key key = row.key;
    const uint32_t pair = row.pair_index(p);
    for (int s = 0; s < kTile; ++s) {
      const RandomBits w = block(samples_.low[s], samples_.high[s], pair, kBoost, key);
      out[s] += even * log_uniform<T>(w.w0);
      out[kTile + s] += odd * log_uniform<T>(w.w1);
    }
  }

  Samples samples_;
  std::vector<int32_t> open_;  // slots of the row without an accepted variate
};

}  // namespace dirichlet
