// Counts random subsets with a sum as extreme as a bound. Blocks of 64 draws are drawn, summed and counted in the cache of
// a core.
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

using common::data, common::ScalarType, common::Tensor;

constexpr int kDraws = 64;   // draws of a block
constexpr int kVectors = 8;  // vectors of sums that stay in registers

struct SubsetDraws {
  const double* units;                      // (B, N), integers whose sums stay below 2^53
  const int64_t *n, *size;                  // (B,), or (1,) for all queries, or null
  const int64_t *low, *high;                // (B,), or null
  int64_t sizes, batch, positions, stream_offset, iterations;
  const int64_t* order;           // (B,), queries of equal n and size follow each other
  std::atomic<int64_t>* extreme;  // (B,)

  COMMON_INLINE std::pair<int64_t, int64_t> sizes_of(int64_t q) const {
    return sizes == 1 ? std::pair(n[0], size[0]) : std::pair(n[q], size[q]);
  }

  // random_bits: (columns, kDraws), of the draws from `start` on
  COMMON_INLINE void fill_random_bits(int64_t start, int64_t columns, uint64_t* random_bits) const {
    for (int64_t c = 0; c < columns; ++c)
      for (int r = 0; r < kDraws; ++r) random_bits[c * kDraws + r] = random_integer(stream_offset, start + r, c);
  }

  // Selects n of the first `size` positions per draw by selection sampling (Knuth, Algorithm S), as in `random_partitions`.
  // selected: (N, kDraws), 0 or 1
  COMMON_INLINE void sample_subsets(const uint64_t* random_bits, std::pair<int64_t, int64_t> n_and_size,
                                    double* selected) const {
    uint64_t remaining[kDraws];
    std::fill(remaining, remaining + kDraws, n_and_size.first);
    const auto sample_position = [&](int64_t i, int shift) COMMON_INLINE {
      const uint64_t candidates = std::max<int64_t>(n_and_size.second - i, 0);
      const uint64_t* const from = random_bits + i / 2 * kDraws;
      for (int r = 0; r < kDraws; ++r) {
        const bool take = ((from[r] >> shift & 0xFFFFFFFFu) * candidates >> 32) < remaining[r];
        selected[i * kDraws + r] = take ? 1.0 : 0.0;
        remaining[r] -= take;
      }
    };
    for (int64_t i = 0; i < positions; i += 2) {  // 64 random bits are used for two positions
      sample_position(i, 0);
      if (i + 1 < positions) sample_position(i + 1, 32);
    }
  }

  COMMON_INLINE void sample_signs(const uint64_t* random_bits, double* selected) const {
    for (int64_t i = 0; i < positions * kDraws; ++i) selected[i] = static_cast<int64_t>(random_bits[i]) < 0 ? 1.0 : 0.0;
  }

  // sums: (kDraws,)
  template <int bytes>
  COMMON_INLINE void sum_selected(const double* selected, const double* unit, double* sums) const {
    typedef double Lanes __attribute__((vector_size(bytes), aligned(8)));
    constexpr int lanes = bytes / sizeof(double);
    for (int r = 0; r < kDraws; r += kVectors * lanes) {
      Lanes sum[kVectors] = {};
      for (int64_t i = 0; i < positions; ++i)
        for (int k = 0; k < kVectors; ++k)
          sum[k] += *reinterpret_cast<const Lanes*>(selected + i * kDraws + r + k * lanes) * unit[i];
      for (int k = 0; k < kVectors; ++k) *reinterpret_cast<Lanes*>(sums + r + k * lanes) = sum[k];
    }
  }

  template <int bytes>
  COMMON_INLINE void count(int64_t start, uint64_t* random_bits, double* selected, int64_t* counts) const {
    fill_random_bits(start, n ? (positions + 1) / 2 : positions, random_bits);
    if (!n) sample_signs(random_bits, selected);
    const int rows = static_cast<int>(std::min<int64_t>(kDraws, iterations - start));
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    for (int64_t b = 0; b < batch; ++b) {
      const int64_t q = order[b];
      if (n && (b == 0 || sizes_of(q) != sizes_of(order[b - 1]))) sample_subsets(random_bits, sizes_of(q), selected);
      double sums[kDraws];
      sum_selected<bytes>(selected, units + q * positions, sums);
      const double lower = low ? low[q] : kInfinity, upper = high ? high[q] : -kInfinity;
      int64_t num_extreme = 0;
      for (int r = 0; r < rows; ++r) num_extreme += (sums[r] >= lower) | (sums[r] <= upper);
      counts[q] += num_extreme;
    }
  }

  void run(int64_t first, int64_t last, const stop::Flag& stop) const {
    std::vector<uint64_t> random_bits((n ? (positions + 1) / 2 : positions) * kDraws);
    std::vector<double> selected(positions * kDraws);
    std::vector<int64_t> counts(batch, 0);
    common::vectorized([=, draws = *this, random_bits = random_bits.data(), selected = selected.data(),
                        counts = counts.data()](auto bytes) COMMON_INLINE {
      for (int64_t block = first; block < last && !stop(); ++block)
        draws.count<decltype(bytes)::value>(block * kDraws, random_bits, selected, counts);
    });
    for (int64_t q = 0; q < batch; ++q) extreme[q] += counts[q];
  }
};

// units: (B, N) float64, integers  n, size: (B,) or (1,) int64  low, high: (B,) int64  ->  (B,) int64
// Counts the draws 0 ... iterations - 1 of the stream at offset `begin` with a sum >= low or <= high. A draw selects n of the
// first `size` positions, or without n and size a uniformly random subset.
Tensor extreme_draws(Tensor units, std::optional<Tensor> n, std::optional<Tensor> size, std::optional<Tensor> low,
                     std::optional<Tensor> high, int64_t begin, int64_t iterations) {
  common::check("extreme_draws", "units: float64 B N, n: int64 G, size: int64 G, low: int64 B, high: int64 B", units, n, size,
                low, high);
  STD_TORCH_CHECK(bool(n) == bool(size) && (!n || n->size(0) == 1 || n->size(0) == units.size(0)),
                  "extreme_draws: wanted n and size of one query or of all, or neither");
  common::check_integer("extreme_draws", "iterations", iterations, 0, common::kMaxCount);
  if (n) common::check_range<int64_t>("extreme_draws", "n", *n, units.size(1) + 1);
  if (size) common::check_range<int64_t>("extreme_draws", "size", *size, units.size(1) + 1);
  const int64_t batch = units.size(0);
  if (!batch) return torch::stable::new_empty(units, {0}, ScalarType::Long);
  std::vector<int64_t> order(batch);
  std::vector<std::atomic<int64_t>> extreme(batch);
  const SubsetDraws draws{data<const double>(units), data<const int64_t>(n), data<const int64_t>(size),
                          data<const int64_t>(low), data<const int64_t>(high), n ? n->size(0) : 1, batch,
                          units.size(1), begin, iterations, order.data(), extreme.data()};
  std::iota(order.begin(), order.end(), 0);
  if (draws.sizes > 1)
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t p, int64_t q) { return draws.sizes_of(p) < draws.sizes_of(q); });
  const stop::Flag stop;
  const int64_t blocks = (iterations + kDraws - 1) / kDraws, work = kDraws * (draws.positions + 1) * (batch + 8);
  common::in_parallel("extreme_draws", blocks, 1 + (int64_t(1) << 18) / work, [&](int64_t first, int64_t last) {
    draws.run(first, last, stop);
  });
  Tensor counts = torch::stable::new_empty(units, {batch}, ScalarType::Long);
  std::copy(extreme.begin(), extreme.end(), data<int64_t>(counts));
  return counts;
}

}  // namespace subsets

STABLE_TORCH_LIBRARY_IMPL(tensormetrics, CPU, m) { m.impl("extreme_draws", TORCH_BOX(&subsets::extreme_draws)); }
