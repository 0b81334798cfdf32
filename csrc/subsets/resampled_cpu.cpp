// How often each word is drawn when as many are drawn, with replacement, as there are.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/arguments.h"
#include "common/parallel.h"
#include "common/interrupt.h"
#include "random_bits.h"

namespace subsets {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

// size: (B, G) int64, at most `width`  ->  (B, rows, G, width) int64
// Replicates `start` and following of the stream at `begin`. Addresses run through the groups first, so that a width
// takes none from the words; queries of equal sizes share their draws.
Tensor resampled_counts(Tensor size, int64_t width, int64_t begin, int64_t start, int64_t rows) {
  common::check("resampled_counts", "size: int64 B G", size);
  common::check_range<int64_t>("resampled_counts", "size", size, width + 1);
  const int64_t batch = size.size(0), groups = size.size(1), row_size = groups * width;
  Tensor counts = torch::stable::new_empty(size, {batch, rows, groups, width}, ScalarType::Long);
  int64_t* const out = static_cast<int64_t*>(counts.data_ptr());
  const int64_t* const sizes = static_cast<const int64_t*>(size.data_ptr());
  const stop::Flag stop;
  const int64_t grain = 1 + (int64_t(1) << 14) / (1 + batch * row_size);
  common::in_parallel("resampled_counts", rows, grain, [&](int64_t first, int64_t last) {
    std::vector<double> uniform(row_size);  // in [0, 1), of 53 bits
    for (int64_t row = first; row < last && !stop(); ++row) {
      common::vectorised([=, numbers = uniform.data()](auto) COMMON_INLINE {
        for (int64_t i = 0; i < row_size; ++i) {
          const int64_t bits = static_cast<int64_t>(word(begin, start + row, i)) >> 11;
          numbers[i] = static_cast<double>(bits) / (int64_t(1) << 53) + 0.5;
        }
      });
      for (int64_t b = 0; b < batch; ++b) {
        int64_t* const counts_of = out + (b * rows + row) * row_size;
        std::fill(counts_of, counts_of + row_size, 0);
        for (int64_t g = 0; g < groups; ++g) {
          const int64_t n = sizes[b * groups + g];
          for (int64_t i = 0; i < n; ++i) ++counts_of[g * width + static_cast<int64_t>(uniform[i * groups + g] * n)];
        }
      }
    }
  });
  return counts;
}

}  // namespace subsets

STABLE_TORCH_LIBRARY_IMPL(tensormetrics, CPU, m) { m.impl("resampled_counts", TORCH_BOX(&subsets::resampled_counts)); }
