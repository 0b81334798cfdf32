// Lists of pairs of gamma variates, drawn by a warp: pairs are proposed 32 at a time. Variates that the squeeze does not
// accept are queued and proposed again, also 32 at a time: a warp that repeated its pairs would wait for the slowest of 64
// variates. As a variate depends only on its address, it is the same whichever lane draws it.
#pragma once
#include "common/lanes.h"
#include "dirichlet.h"

namespace dirichlet {

constexpr int kWarp = 32;
constexpr int kQueue = 3 * kWarp;  // of a warp: a pass adds up to 2 * kWarp to fewer than kWarp

template <class T>
struct Pair {
  Cell<T> even, odd;
  uint64_t sample;
  uint32_t index;
  Key key;
  bool linear;

  DIRICHLET_FN RandomBits bits(uint32_t attempt) const {
    return block(uint32_t(sample), uint32_t(sample >> 32), index, attempt, key);
  }
  DIRICHLET_FN T value(T y, const Cell<T>& cell) const {
    return linear ? value_of<true>(y, cell) : value_of<false>(y, cell);
  }
  // The first proposals, and whether the squeeze accepts them.
  DIRICHLET_FN void propose(T (&values)[2], bool (&accepted)[2]) const {
    const RandomBits w = bits(0);
    const Normals<T> x = normals<T>(w);
    values[0] = value(x.even * even.scale, even);
    values[1] = value(x.odd * odd.scale, odd);
    accepted[0] = squeeze_accepts(x.even, w.w2, even);
    accepted[1] = squeeze_accepts(x.odd, w.w3, odd);
  }
  // A proposal for one of the two, NaN if it is rejected.
  DIRICHLET_FN T attempt(uint32_t number, bool is_odd) const {
    const Cell<T> cell = is_odd ? odd : even;
    const RandomBits w = bits(number);
    const Normals<T> x = normals<T>(w);
    const T y = (is_odd ? x.odd : x.even) * cell.scale;
    const bool accepted = number < kAttempts && accepts(y, is_odd ? w.w3 : w.w2, cell);
    return accepted ? value(y, cell) : std::numeric_limits<T>::quiet_NaN();
  }
};

// Draws a list by one of the `warps` of a block. at(k, pair) describes the k-th pair; it returns false for a pair without
// variates to draw. store(k, odd, value) is called once for each variate of the others.
template <int warps, class T, class At, class Store>
__device__ void draw_list(int32_t pairs, At at, Store store) {
  using lanes::Warp;
  __shared__ uint32_t queues[warps][kQueue];  // of (2 k + odd) 2^7 + attempt
  uint32_t* const queue = queues[threadIdx.x / kWarp];
  const int32_t lane = threadIdx.x % kWarp;
  int32_t waiting = 0;
  const auto push = [&](bool any, uint32_t variate) {
    const uint32_t pushed = __ballot_sync(lanes::kFullMask, any);
    if (any) queue[waiting + __popc(pushed & ((1u << lane) - 1))] = variate;
    waiting += __popc(pushed);
  };
  for (int32_t first = 0; first < pairs || waiting > 0;) {
    Pair<T> pair;
    if (first < pairs && waiting < kWarp) {
      const int32_t k = first + lane;
      T values[2];
      bool accepted[2] = {true, true};
      if (k < pairs && at(k, pair)) {
        pair.propose(values, accepted);
        if (pair.even.boost != 0 || pair.odd.boost != 0) {
          const RandomBits w = pair.bits(kBoost);
          values[0] += pair.even.boost * log_uniform<T>(w.w0);
          values[1] += pair.odd.boost * log_uniform<T>(w.w1);
        }
        if (accepted[0]) store(k, 0, values[0]);
        if (accepted[1]) store(k, 1, values[1]);
      }
      push(!accepted[0], uint32_t(k) << 8);
      push(!accepted[1], uint32_t(k) << 8 | 1 << 7);
      first += kWarp;
      continue;
    }
    // The last variates wait for several attempts at once, each by a lane; the first that is accepted counts.
    const int32_t n = waiting < kWarp ? waiting : kWarp;
    uint32_t attempts = kWarp;
    while (n * attempts > kWarp) attempts /= 2;
    const int32_t mine = lane / attempts;
    Warp::sync();
    waiting -= n;
    const uint32_t variate = queue[waiting + (mine < n ? mine : 0)], attempt = variate % 128 + lane % attempts;
    Warp::sync();
    const int32_t k = variate >> 8, is_odd = variate >> 7 & 1;
    T value = std::numeric_limits<T>::quiet_NaN();
    if (mine < n) {
      at(k, pair);
      value = pair.attempt(attempt, is_odd);
      const T boost = is_odd ? pair.odd.boost : pair.even.boost;
      if (boost != 0) {
        const RandomBits w = pair.bits(kBoost);
        value += boost * log_uniform<T>(is_odd ? w.w1 : w.w0);
      }
    }
    const bool accepted = value == value;
    const uint32_t same = lanes::kFullMask >> (kWarp - attempts) << mine * attempts;
    const uint32_t found = __ballot_sync(lanes::kFullMask, accepted) & same;
    const bool fails = mine < n && found == 0 && lane % attempts == 0, ends = attempt + attempts >= kAttempts;
    if (accepted ? lane + 1 == __ffs(found) : fails && ends) store(k, is_odd, value);
    push(fails && !ends, variate + attempts);
  }
}

}  // namespace dirichlet
