// Canonical distances of listed pairs.
#include <torch/csrc/stable/library.h>

#include "canonical.h"
#include "common/arguments.h"
#include "tiles.h"

namespace nearest {

Tensor canonical_pairs(Tensor query, Tensor reference, Tensor row, Tensor column, int64_t distance) {
  common::check("canonical_pairs", "query: float64 Q D, reference: strided rows R D, row: int64 N, column: int64 N", query,
                reference, row, column);
  common::check_range<int64_t>("canonical_pairs", "row", row, query.size(0));
  common::check_range<int64_t>("canonical_pairs", "column", column, reference.size(0));
  Tensor delta = torch::stable::new_empty(row, {row.numel()}, ScalarType::Double);
  const stop::Flag stop;
  for_rows(reference, [&](auto zero) {
    common::in_parallel("canonical_pairs", row.numel(), 256, [&](int64_t begin, int64_t end) {
      Canonical<decltype(zero)> canonical(reference, distance);
      const int64_t *i = data<const int64_t>(row), *j = data<const int64_t>(column);
      const double* rows = data<const double>(query);
      common::vectorised([&](auto) {
        for (int64_t n = begin; n < end && !stop(); ++n)
          data<double>(delta)[n] = canonical(rows + i[n] * query.size(1), j[n]);
      });
    });
  });
  return delta;
}

}  // namespace nearest

STABLE_TORCH_LIBRARY_IMPL(tensormetrics, CPU, m) {
  m.impl("canonical_pairs", TORCH_BOX(&nearest::canonical_pairs));
}
