// The sampling operators on the CPU: tiles of samples, distributed over threads.
#include <algorithm>

#include "common/parallel.h"
#include "common/interrupt.h"
#include "dirichlet_tile.h"

namespace dirichlet {

// Work divided into steps, which threads share; each thread has separate state.
template <class T>
struct Sums {
  Problem<T> problem;
  stop::Flag stop{};

  int64_t tiles() const { return (problem.samples + kTile - 1) / kTile; }
  int64_t steps() const { return problem.experiments * tiles(); }
  void run(int64_t begin, int64_t end) const {
    Tile<T> tile(problem);
    for (int64_t step = begin; step < end && !stop(); ++step)
      tile.draw(static_cast<int32_t>(step / tiles()), step % tiles() * kTile);
  }
};
template <class T>
Sums(Problem<T>) -> Sums<T>;

template <class T>
struct Logs {
  const double* alpha;  // (experiments, rows, cells)
  const int64_t* keys;  // (experiments, 2)
  int64_t experiments, rows, cells, samples, start;
  T* out;  // (experiments, rows, cells, samples)
  stop::Flag stop{};

  int64_t tiles() const { return (samples + kTile - 1) / kTile; }
  int64_t steps() const { return experiments * rows * tiles(); }
  void run(int64_t begin, int64_t end) const {
    const auto pairs = static_cast<int32_t>((cells + 1) / 2);
    std::vector<Cell<T>> table(2 * size_t(pairs), make_cell<T>(0));
    std::vector<T> logs(2 * size_t(pairs) * kTile);
    Sampler<T> sampler(pairs);
    for (int64_t step = begin; step < end && !stop(); ++step) {
      const int64_t r = step / tiles(), first = step % tiles() * kTile;
      const int64_t* const key = keys + r / rows * 2;
      if (step == begin || first == 0)
        for (int64_t k = 0; k < cells; ++k) table[k] = make_cell<T>(alpha[r * cells + k]);
      sampler.set_start(start + first);
      sampler.draw({table.data(), pairs, uint32_t(r % rows * pairs), {uint32_t(key[0]), uint32_t(key[1])}, false},
                   logs.data());
      const int64_t n = std::min<int64_t>(samples - first, kTile);
      for (int64_t k = 0; k < cells; ++k) std::copy_n(&logs[k * kTile], n, out + (r * cells + k) * samples + first);
    }
  }
};

// Sums of the weights of the items in each cell. The weight of an item, -ln u, is equal in all experiments. A cell
// accumulates the product of its u, with one logarithm per kFactors of them: u >= 2^-33, and 2^-33^kFactors is normal.
struct ItemSums {
  static constexpr int kFactors = 30;
  ItemProblem problem;
  stop::Flag stop{};

  int64_t steps() const { return (problem.samples + kTile - 1) / kTile; }
  COMMON_INLINE void run(int64_t begin, int64_t end) const {
    const ItemProblem& p = problem;
    const int64_t rows = p.experiments * p.cells;
    std::vector<double> products(rows * kTile);
    std::vector<uint8_t> counts(rows);
    Samples samples;
    Bits bits;
    alignas(64) double factors[4][kTile];
    for (int64_t step = begin; step < end && !stop(); ++step) {
      const int64_t first = step * kTile, n = std::min<int64_t>(p.samples - first, kTile);
      samples.set(p.start + first);
      std::fill(products.begin(), products.end(), 1.0);
      std::fill(counts.begin(), counts.end(), 0);
      for (int64_t row = 0; row < rows; ++row) std::fill_n(p.out + row * p.samples + first, n, 0.0);
      const auto flush = [&](int64_t row) COMMON_INLINE {
        double* __restrict const product = products.data() + row * kTile;
        double* __restrict const sum = p.out + row * p.samples + first;
        for (int64_t s = 0; s < n; ++s) sum[s] -= log_of(split(product[s]));
        std::fill_n(product, kTile, 1.0);
        counts[row] = 0;
      };
      for (int64_t item = 0; item < p.items; item += 4) {
        bits.draw(samples, uint32_t(item / 4), 0, p.key);
        for (int s = 0; s < kTile; ++s) {
          const RandomBits w = bits[s];
          factors[0][s] = uniform<double>(w.w0);
          factors[1][s] = uniform<double>(w.w1);
          factors[2][s] = uniform<double>(w.w2);
          factors[3][s] = uniform<double>(w.w3);
        }
        for (int64_t k = 0; k < 4 && item + k < p.items; ++k)
          for (int64_t e = 0; e < p.experiments; ++e) {
            const int64_t row = p.row(e, item + k);
            double* __restrict const product = products.data() + row * kTile;
            for (int s = 0; s < kTile; ++s) product[s] *= factors[k][s];
            if (++counts[row] == kFactors) flush(row);
          }
      }
      for (int64_t row = 0; row < rows; ++row)
        if (counts[row]) flush(row);
    }
  }
};

// The weight of each item in each replicate: an entry of the table, selected by 16 bits. A block yields 8 replicates.
struct ItemWeights {
  Key key;
  int64_t items, replicates, start;
  const int64_t* unit;  // (items,)
  const double* table;  // 2^16 numbers
  double* out;          // (replicates, items)
  stop::Flag stop{};

  int64_t steps() const { return (replicates + 7) / 8; }
  COMMON_INLINE void run(int64_t begin, int64_t end) const {
    alignas(64) uint32_t entries[8][kTile], low[kTile], high[kTile], zeros[kTile] = {};
    Bits bits;
    for (int64_t first = 0; first < items && !stop(); first += kTile) {
      const int64_t n = std::min<int64_t>(items - first, kTile);
      for (int64_t i = 0; i < kTile; ++i) {
        const auto address = uint64_t(i < n ? unit[first + i] : 0);
        low[i] = uint32_t(address), high[i] = uint32_t(address >> 32);
      }
      for (int64_t step = begin; step < end; ++step) {
        bits.draw(low, zeros, high, uint32_t(start + step), key, kTile);
        for (int i = 0; i < kTile; ++i) {
          const RandomBits w = bits[i];
          entries[0][i] = w.w0 & 0xffff, entries[1][i] = w.w0 >> 16;
          entries[2][i] = w.w1 & 0xffff, entries[3][i] = w.w1 >> 16;
          entries[4][i] = w.w2 & 0xffff, entries[5][i] = w.w2 >> 16;
          entries[6][i] = w.w3 & 0xffff, entries[7][i] = w.w3 >> 16;
        }
        for (int64_t k = 0; k < std::min<int64_t>(replicates - 8 * step, 8); ++k) {
          double* __restrict const row = out + (8 * step + k) * items + first;
          for (int64_t i = 0; i < n; ++i) row[i] = table[entries[k][i]];
        }
      }
    }
  }
};

// Uniform variates, four from each block.
struct Uniforms {
  Key key;
  uint32_t draw;
  int64_t count;
  double* out;
  stop::Flag stop{};

  int64_t steps() const { return (count + 4 * kTile - 1) / (4 * kTile); }
  COMMON_INLINE void run(int64_t begin, int64_t end) const {
    alignas(64) uint32_t low[kTile], blocks[kTile], zeros[kTile] = {};
    alignas(64) double values[4 * kTile];
    Bits bits;
    std::fill_n(low, kTile, draw);
    for (int64_t step = begin; step < end && !stop(); ++step) {
      for (int b = 0; b < kTile; ++b) blocks[b] = static_cast<uint32_t>(step * kTile + b);
      bits.draw(low, zeros, blocks, 0, key, kTile);
      for (int b = 0; b < kTile; ++b) {
        const RandomBits w = bits[b];
        values[4 * b] = uniform<double>(w.w0);
        values[4 * b + 1] = uniform<double>(w.w1);
        values[4 * b + 2] = uniform<double>(w.w2);
        values[4 * b + 3] = uniform<double>(w.w3);
      }
      const int64_t first = step * 4 * kTile;
      std::copy_n(values, std::min<int64_t>(count - first, 4 * kTile), out + first);
    }
  }
};

template <class Work>
void in_parallel(const char* name, const Work& work) {
  common::in_parallel(name, work.steps(), 1, [&](int64_t begin, int64_t end) {
    common::vectorized([=](auto) COMMON_INLINE { work.run(begin, end); });
  });
}

Key key_of(const Tensor& key) {
  return {uint32_t(data<const int64_t>(key)[0]), uint32_t(data<const int64_t>(key)[1])};
}

void sums_on_cpu(Tensor out, Tensor prevalence, Tensor alphas, std::optional<Tensor> weights, Tensor keys,
                 int64_t start) {
  with_tables(out, prevalence, alphas, weights, keys, start,
              [](const auto& problem) { in_parallel("dirichlet_sums", Sums{problem}); });
}

void log_gamma_on_cpu(Tensor out, Tensor alpha, Tensor keys, int64_t start) {
  check_log_gamma(out, alpha, keys, start);
  common::for_real(out, [&](auto zero) {
    using T = decltype(zero);
    const Logs<T> logs{data<const double>(alpha), data<const int64_t>(keys),
                       out.size(0), out.size(1), out.size(2), out.size(3), start, data<T>(out)};
    in_parallel("log_gamma", logs);
  });
}

void item_sums_on_cpu(Tensor out, Tensor cells, Tensor key, int64_t start) {
  ItemSums sums{make_item_problem(out, cells, key, start)};
  common::check_range<int64_t>("item_sums", "cells", cells, out.size(1));
  sums.problem.key = key_of(key);
  in_parallel("item_sums", sums);
}

void item_weights_on_cpu(Tensor out, Tensor units, Tensor table, Tensor key, int64_t start) {
  common::check("item_weights", "out: float64 R N, units: int64 N, table: float64 65536, key: int64 2", out, units, table,
                key);
  common::check_integer("item_weights", "start", start, 0, common::kMaxCount);
  in_parallel("item_weights", ItemWeights{key_of(key), out.size(1), out.size(0), start, data<const int64_t>(units),
                                          data<const double>(table), data<double>(out)});
}

void uniforms_on_cpu(Tensor out, Tensor key, int64_t draw) {
  check_uniforms(out, key, draw);
  in_parallel("uniforms", Uniforms{key_of(key), uint32_t(draw), out.numel(), data<double>(out)});
}

}  // namespace dirichlet

STABLE_TORCH_LIBRARY_IMPL(tensormetrics, CPU, m) {
  m.impl("dirichlet_sums", TORCH_BOX(&dirichlet::sums_on_cpu));
  m.impl("log_gamma", TORCH_BOX(&dirichlet::log_gamma_on_cpu));
  m.impl("item_sums", TORCH_BOX(&dirichlet::item_sums_on_cpu));
  m.impl("item_weights", TORCH_BOX(&dirichlet::item_weights_on_cpu));
  m.impl("uniforms", TORCH_BOX(&dirichlet::uniforms_on_cpu));
}
