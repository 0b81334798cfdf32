// Rows of gamma variates for many samples at once: lanes are samples.
#pragma once
#include <algorithm>
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

// Random bits of the samples of a tile, or of other addresses. They are drawn by a function of their own, compiled once for
// each width of vectors: it is the larger part of the loops that use them.
struct Bits {
  alignas(64) uint32_t w0[kTile], w1[kTile], w2[kTile], w3[kTile];

  COMMON_INLINE RandomBits operator[](int s) const { return {w0[s], w1[s], w2[s], w3[s]}; }

  COMMON_INLINE void draw(const Samples& samples, uint32_t pair, uint32_t attempt, const Key key) {
    alignas(64) uint32_t pairs[kTile];
    std::fill_n(pairs, kTile, pair);
    draw(samples.low, samples.high, pairs, attempt, key, kTile);
  }
  // count: a multiple of kBatch
  COMMON_NOINLINE void draw(const uint32_t* low, const uint32_t* high, const uint32_t* pairs, uint32_t attempt,
                            const Key key, int count) {
    common::vectorized([=](auto) COMMON_INLINE {
      for (int k = 0; k < count; k += kBatch)
        draw_batch(low + k, high + k, pairs + k, attempt, key, w0 + k, w1 + k, w2 + k, w3 + k);
    });
  }

 private:
  COMMON_INLINE static void draw_batch(const uint32_t* __restrict low, const uint32_t* __restrict high,
                                       const uint32_t* __restrict pairs, uint32_t attempt, const Key key,
                                       uint32_t* __restrict out0, uint32_t* __restrict out1, uint32_t* __restrict out2,
                                       uint32_t* __restrict out3) {
    for (int k = 0; k < kBatch; ++k) {
      const RandomBits w = block(low[k], high[k], pairs[k], attempt, key);
      out0[k] = w.w0, out1[k] = w.w1, out2[k] = w.w2, out3[k] = w.w3;
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

  COMMON_NOINLINE void draw(const Row<T>& of, T* out) {  // (2 * pairs, kTile)
    common::vectorized([this, row = of, out](auto) COMMON_INLINE {
      int32_t open = 0;
      for (int32_t p = 0; p < row.pairs; ++p) open = first_attempt(row, p, out + 2 * kTile * p, open);
      for (uint32_t attempt = 0; open > 0 && attempt < kAttempts; ++attempt) open = next_attempt(row, attempt, out, open);
      for (int32_t k = 0; k < open; ++k) out[open_[k]] = std::numeric_limits<T>::quiet_NaN();
      for (int32_t p = 0; !row.linear && p < row.pairs; ++p) boost(row, p, out + 2 * kTile * p);
    });
  }

 private:
  // Draws a pair of cells, and appends the slots that the squeeze does not accept to the `open` slots so far.
  COMMON_INLINE int32_t first_attempt(const Row<T>& row, int32_t p, T* __restrict out, int32_t open) {
    const Cell<T> even = row.cells[2 * p], odd = row.cells[2 * p + 1];
    if (even.d == 0 && odd.d == 0) {
      std::fill_n(out, 2 * kTile, row.linear ? T(0) : even.log_d);
      return open;
    }
    bits_.draw(samples_, row.pair_index(p), 0, row.key);
    alignas(64) uint32_t undecided[2 * kTile];
    uint32_t any = 0;
    for (int s = 0; s < kTile; ++s) {
      const RandomBits w = bits_[s];
      const Normals<T> x = normals<T>(w);
      out[s] = x.even * even.scale;
      out[kTile + s] = x.odd * odd.scale;
      undecided[s] = !squeeze_accepts(x.even, w.w2, even);
      undecided[kTile + s] = !squeeze_accepts(x.odd, w.w3, odd);
      any |= undecided[s] | undecided[kTile + s];
    }
    for (int k = 0; k < 2; ++k) replace_by_values(row.linear, row.cells[2 * p + k], out + k * kTile);
    for (int s = 0; any && s < 2 * kTile; ++s) {
      open_[open] = 2 * kTile * p + s;
      open += static_cast<int32_t>(undecided[s]);
    }
    return open;
  }

  COMMON_INLINE static void replace_by_values(bool linear, const Cell<T> cell, T* __restrict y) {
    if (linear)
      for (int s = 0; s < kTile; ++s) y[s] = value_of<true>(y[s], cell);
    else
      for (int s = 0; s < kTile; ++s) y[s] = value_of<false>(y[s], cell);
  }

  COMMON_INLINE int32_t next_attempt(const Row<T>& row, uint32_t attempt, T* out, int32_t count) {
    int32_t open = 0;
    for (int32_t begin = 0; begin < count; begin += kBatch) {
      const int n = count - begin < kBatch ? count - begin : kBatch;
      uint32_t low[kBatch], high[kBatch], pairs[kBatch], odd[kBatch], accepted[kBatch];
      T d[kBatch], scale[kBatch], log_d[kBatch], ys[kBatch], logs[kBatch];
      for (int k = 0; k < kBatch; ++k) {
        const int32_t slot = open_[begin + (k < n ? k : 0)], cell = slot / kTile, s = slot % kTile;
        low[k] = samples_.low[s];
        high[k] = samples_.high[s];
        pairs[k] = row.pair_index(cell / 2);
        odd[k] = cell % 2;
        d[k] = row.cells[cell].d;
        scale[k] = row.cells[cell].scale;
        log_d[k] = row.cells[cell].log_d;
      }
      bits_.draw(low, high, pairs, attempt, row.key, kBatch);
      for (int k = 0; k < kBatch; ++k) {
        const RandomBits w = bits_[k];
        const Normals<T> both = normals<T>(w);
        const Cell<T> cell{d[k], scale[k], log_d[k], 0};
        const T y = (odd[k] ? both.odd : both.even) * cell.scale;
        ys[k] = y;
        logs[k] = value_of<false>(y, cell);
        accepted[k] = accepts(y, odd[k] ? w.w3 : w.w2, cell);
      }
      for (int k = 0; k < n; ++k) {
        const int32_t slot = open_[begin + k];
        out[slot] = row.linear ? value_of<true>(ys[k], row.cells[slot / kTile]) : logs[k];
        open_[open] = slot;
        open += !accepted[k];
      }
    }
    return open;
  }

  COMMON_INLINE void boost(const Row<T>& row, int32_t p, T* __restrict out) {
    const T even = row.cells[2 * p].boost, odd = row.cells[2 * p + 1].boost;
    if (even == 0 && odd == 0) return;
    bits_.draw(samples_, row.pair_index(p), kBoost, row.key);
    for (int s = 0; s < kTile; ++s) {
      out[s] += even * log_uniform<T>(bits_.w0[s]);
      out[kTile + s] += odd * log_uniform<T>(bits_.w1[s]);
    }
  }

  Samples samples_;
  Bits bits_;
  std::vector<int32_t> open_;  // slots of the row without an accepted variate
};

}  // namespace dirichlet
