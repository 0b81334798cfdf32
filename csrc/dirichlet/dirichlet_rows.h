// Rows of gamma variates for many samples at once: lanes are samples.
#pragma once
#include <vector>

#include "common/parallel.h"
#include "dirichlet.h"

namespace dirichlet {

constexpr int kTile = 64;   // samples drawn together, always all of them: a loop without a rest rounds every lane alike
constexpr int kBatch = 16;  // refused proposals drawn again together

struct Samples {
  alignas(64) uint32_t low[kTile], high[kTile];

  COMMON_INLINE void set(uint64_t start) {
    for (int s = 0; s < kTile; ++s) {
      low[s] = static_cast<uint32_t>(start + s);
      high[s] = static_cast<uint32_t>((start + s) >> 32);
    }
  }
};

// What Marsaglia & Tsang's squeeze leaves open is gathered over the whole row, and judged and drawn again in batches.
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
  COMMON_APART void draw(const Row<T>& of, T* out) {
    common::vectorised([this, row = of, out](auto) COMMON_INLINE {
      int32_t open = 0;
      for (int32_t p = 0; p < row.pairs; ++p) open = first_attempt<kLinear>(row, p, out + 2 * kTile * p, open);
      for (uint32_t attempt = 0; open > 0 && attempt < kAttempts; ++attempt)
        open = next_attempt<kLinear>(row, attempt, out, open);
      for (int32_t k = 0; k < open; ++k) out[open_[k]] = std::numeric_limits<T>::quiet_NaN();
      for (int32_t p = 0; !kLinear && p < row.pairs; ++p) boost(row, p, out + 2 * kTile * p);
    });
  }

  // Draws a pair of cells, and adds what it cannot surely accept to the first `open` places that are left open.
  template <bool kLinear>
  COMMON_INLINE int32_t first_attempt(const Row<T>& row, int32_t p, T* __restrict out, int32_t open) {
    const Cell<T> even = row.cells[2 * p], odd = row.cells[2 * p + 1];
    if (even.d == 0 && odd.d == 0) {
      for (int s = 0; s < 2 * kTile; ++s) out[s] = kLinear ? T(0) : even.log_d;
      return open;
    }
    const Key key = row.key;  // here as below: a copy made inside the loop would keep it scalar
    const uint32_t pair = row.number(p);
    alignas(64) uint32_t unsure[2 * kTile];
    uint32_t any = 0;
    for (int s = 0; s < kTile; ++s) {
      const Words w = block(samples_.low[s], samples_.high[s], pair, 0, key);
      const Normals<T> x = normals<T>(w);
      out[s] = value_of<kLinear>(x.even, even);
      out[kTile + s] = value_of<kLinear>(x.odd, odd);
      unsure[s] = !surely_accepts(x.even, w.w2, even);
      unsure[kTile + s] = !surely_accepts(x.odd, w.w3, odd);
      any |= unsure[s] | unsure[kTile + s];
    }
    for (int s = 0; any && s < 2 * kTile; ++s) {
      open_[open] = 2 * kTile * p + s;
      open += static_cast<int32_t>(unsure[s]);
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
        const int32_t place = open_[begin + (k < n ? k : 0)], cell = place / kTile, s = place % kTile;
        low[k] = samples_.low[s];
        high[k] = samples_.high[s];
        pair[k] = row.number(cell / 2);
        odd[k] = cell % 2;
        d[k] = row.cells[cell].d;
        scale[k] = row.cells[cell].scale;
        log_d[k] = row.cells[cell].log_d;
      }
      for (int k = 0; k < kBatch; ++k) {
        const Words w = block(low[k], high[k], pair[k], attempt, key);
        const Normals<T> both = normals<T>(w);
        const T x = odd[k] ? both.odd : both.even;
        const Cell<T> cell{d[k], scale[k], log_d[k], 0};
        value[k] = value_of<kLinear>(x, cell);
        accepted[k] = accepts(x, odd[k] ? w.w3 : w.w2, cell);
      }
      for (int k = 0; k < n; ++k) {
        const int32_t place = open_[begin + k];
        out[place] = value[k];
        open_[open] = place;
        open += !accepted[k];
      }
    }
    return open;
  }

  COMMON_INLINE void boost(const Row<T>& row, int32_t p, T* __restrict out) const {
    const T even = row.cells[2 * p].boost, odd = row.cells[2 * p + 1].boost;
    if (even == 0 && odd == 0) return;
    const Key key = row.key;
    const uint32_t pair = row.number(p);
    for (int s = 0; s < kTile; ++s) {
      const Words w = block(samples_.low[s], samples_.high[s], pair, kBoost, key);
      out[s] += even * log_uniform<T>(w.w0);
      out[kTile + s] += odd * log_uniform<T>(w.w1);
    }
  }

  Samples samples_;
  std::vector<int32_t> open_;  // places of the row without an accepted variate
};

}  // namespace dirichlet
