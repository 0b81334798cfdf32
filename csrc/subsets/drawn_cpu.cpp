// How many random subsets have a sum as extreme as a bound: 64 draws side by side, drawn, summed and counted while they
// are in the cache of a core.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "common/arguments.h"
#include "common/parallel.h"
#include "common/interrupt.h"
#include "random_bits.h"

namespace subsets {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

constexpr int kRows = 64;  // draws side by side
constexpr int kSums = 8;   // vectors of sums that stay in registers

struct Draws {
  const double* units;                      // (B, N), integers whose sums stay below 2^53
  const int64_t *n, *size;                  // (B,), or (1,) for all queries, or null
  const int64_t *low, *high;                // (B,), or null
  int64_t sizes, batch, places, begin, iterations;
  const int64_t* order;           // (B,), queries of equal n and size follow each other
  std::atomic<int64_t>* extreme;  // (B,)

  COMMON_INLINE std::pair<int64_t, int64_t> sizes_of(int64_t q) const {
    return sizes == 1 ? std::pair(n[0], size[0]) : std::pair(n[q], size[q]);
  }

  // words: (columns, kRows), of the draws from `start` on
  COMMON_INLINE void draw_words(int64_t start, int64_t columns, uint64_t* words) const {
    for (int64_t c = 0; c < columns; ++c)
      for (int r = 0; r < kRows; ++r) words[c * kRows + r] = word(begin, start + r, c);
  }

  // chosen: (N, kRows), 1 for the places that a draw takes. Algorithm S, as in `random_partitions`.
  COMMON_INLINE void take_places(const uint64_t* words, std::pair<int64_t, int64_t> of, double* chosen) const {
    uint64_t needed[kRows];
    for (uint64_t& of_draw : needed) of_draw = of.first;
    const auto take_place = [&](int64_t place, int shift) COMMON_INLINE {
      const uint64_t left = std::max<int64_t>(of.second - place, 0);
      const uint64_t* const from = words + place / 2 * kRows;
      for (int r = 0; r < kRows; ++r) {
        const bool take = ((from[r] >> shift & 0xFFFFFFFFu) * left >> 32) < needed[r];
        chosen[place * kRows + r] = take ? 1.0 : 0.0;
        needed[r] -= take;
      }
    };
    for (int64_t place = 0; place < places; place += 2) {  // a word serves two places
      take_place(place, 0);
      if (place + 1 < places) take_place(place + 1, 32);
    }
  }

  COMMON_INLINE void take_signs(const uint64_t* words, double* chosen) const {
    for (int64_t i = 0; i < places * kRows; ++i) chosen[i] = static_cast<int64_t>(words[i]) < 0 ? 1.0 : 0.0;
  }

  // sums: (kRows,)
  template <int bytes>
  COMMON_INLINE void add(const double* chosen, const double* unit, double* sums) const {
    typedef double Lanes __attribute__((vector_size(bytes), aligned(8)));
    constexpr int lanes = bytes / sizeof(double);
    for (int r = 0; r < kRows; r += kSums * lanes) {
      Lanes sum[kSums] = {};
      for (int64_t place = 0; place < places; ++place)
        for (int k = 0; k < kSums; ++k)
          sum[k] += *reinterpret_cast<const Lanes*>(chosen + place * kRows + r + k * lanes) * unit[place];
      for (int k = 0; k < kSums; ++k) *reinterpret_cast<Lanes*>(sums + r + k * lanes) = sum[k];
    }
  }

  template <int bytes>
  COMMON_INLINE void count(int64_t start, uint64_t* words, double* chosen, int64_t* found) const {
    draw_words(start, n ? (places + 1) / 2 : places, words);
    if (!n) take_signs(words, chosen);
    const int rows = static_cast<int>(std::min<int64_t>(kRows, iterations - start));
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    for (int64_t b = 0; b < batch; ++b) {
      const int64_t q = order[b];
      if (n && (b == 0 || sizes_of(q) != sizes_of(order[b - 1]))) take_places(words, sizes_of(q), chosen);
      double sums[kRows];
      add<bytes>(chosen, units + q * places, sums);
      const double least = low ? low[q] : kInfinity, most = high ? high[q] : -kInfinity;
      int64_t number = 0;
      for (int r = 0; r < rows; ++r) number += (sums[r] >= least) | (sums[r] <= most);
      found[q] += number;
    }
  }

  void run(int64_t first, int64_t last, const stop::Flag& stop) const {
    std::vector<uint64_t> words((n ? (places + 1) / 2 : places) * kRows);
    std::vector<double> chosen(places * kRows);
    std::vector<int64_t> found(batch, 0);
    common::vectorized([=, draws = *this, words = words.data(), chosen = chosen.data(),
                        found = found.data()](auto bytes) COMMON_INLINE {
      for (int64_t block = first; block < last && !stop(); ++block)
        draws.count<decltype(bytes)::value>(block * kRows, words, chosen, found);
    });
    for (int64_t q = 0; q < batch; ++q) extreme[q] += found[q];
  }
};

// units: (B, N) float64, integers  n, size: (B,) or (1,) int64  low, high: (B,) int64  ->  (B,) int64
// Of the draws 0 ... iterations - 1 of the stream at `begin`: how many have a sum >= low or <= high. A draw takes n of
// the first `size` places, or, without these, each place or not.
Tensor extreme_draws(Tensor units, std::optional<Tensor> n, std::optional<Tensor> size, std::optional<Tensor> low,
                     std::optional<Tensor> high, int64_t begin, int64_t iterations) {
  common::check("extreme_draws", "units: float64 B N, n: int64 G, size: int64 G, low: int64 B, high: int64 B", units, n, size,
                low, high);
  STD_TORCH_CHECK(bool(n) == bool(size) && (!n || n->size(0) == 1 || n->size(0) == units.size(0)),
                  "extreme_draws: wanted n and size of one query or of all, or neither");
  common::check_integer("extreme_draws", "iterations", iterations, 0, common::kMaxCount);
  if (n) common::check_range<int64_t>("extreme_draws", "n", *n, units.size(1) + 1);
  if (size) common::check_range<int64_t>("extreme_draws", "size", *size, units.size(1) + 1);
  const auto data = [](const std::optional<Tensor>& of) {
    return of ? static_cast<const int64_t*>(of->data_ptr()) : nullptr;
  };
  const int64_t batch = units.size(0);
  if (!batch) return torch::stable::new_empty(units, {0}, ScalarType::Long);
  std::vector<int64_t> order(batch);
  std::vector<std::atomic<int64_t>> extreme(batch);
  const Draws draws{static_cast<const double*>(units.data_ptr()), data(n), data(size), data(low), data(high),
                    n ? n->size(0) : 1, batch, units.size(1), begin, iterations, order.data(), extreme.data()};
  std::iota(order.begin(), order.end(), 0);
  if (draws.sizes > 1)
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t p, int64_t q) { return draws.sizes_of(p) < draws.sizes_of(q); });
  const stop::Flag stop;
  const int64_t blocks = (iterations + kRows - 1) / kRows, work = kRows * (draws.places + 1) * (batch + 8);
  common::in_parallel("extreme_draws", blocks, 1 + (int64_t(1) << 18) / work, [&](int64_t first, int64_t last) {
    draws.run(first, last, stop);
  });
  Tensor counts = torch::stable::new_empty(units, {batch}, ScalarType::Long);
  std::copy(extreme.begin(), extreme.end(), static_cast<int64_t*>(counts.data_ptr()));
  return counts;
}

}  // namespace subsets

STABLE_TORCH_LIBRARY_IMPL(tensormetrics, CPU, m) { m.impl("extreme_draws", TORCH_BOX(&subsets::extreme_draws)); }
