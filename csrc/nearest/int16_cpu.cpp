// Finds references that may be among the k nearest, by products of rows rounded to int16 with one scale per row.
//
// A query x and a reference y are rounded to x' and y'. Their product is exact: |x'| and |y'| are at most 2^15.5 units, so
// no sum exceeds 32 bits. |x.y - x'.y'| <= |x - x'| |y| + |x'| |y - y'| <= width(x) coefficient(y), so the
// filter value of the reference is at least `lower` - rounding_error(x), where lower = bias - x'.y' - width coefficient, and
// at most lower + 2 (width coefficient + bias_error) + rounding_error(x); for Euclidean distance x_scale and width include
// a factor of 2.
// search/README.md defines them.
#include <cmath>
#include <cstring>
#include <optional>

#include "candidates.h"
#include "tiles.h"

namespace nearest {

namespace {

constexpr int64_t kPanel = 64, kHigh = Locks::kBlock, kWide = 512;  // columns of a panel; rows and columns of a tile
constexpr int kRows = 6;                                           // queries that are multiplied together

// Rounded queries and references, both in panels (P, depth, 64) of int32 that hold two int16 codes.
struct Operands {
  const int32_t *x, *panels;
  const float* x_scale;                // (64 P,)
  const float *scale, *bias, *coefficient;  // (64 P,)
  const float* width;                 // (Q,)
  int64_t depth;
};

// The value of reference `column`, which is below the limit of query q.
struct Hit {
  int32_t q, column;
  float lower;
};

// Hits of a block of queries and one panel: references for the queries, and if the panel's rows are queries too,
// references for them.
struct PanelHits {
  const float* limit;             // (kHigh,) of the queries
  const float *limits, *widths;  // (kPanel,) of the panel's rows; null if they are no queries
  int64_t num_row_hits, num_col_hits;
  std::vector<Hit> row_hits, col_hits;
};

template <class V, class T>
__attribute__((always_inline)) inline V load(const T* from) {
  V vector;
  std::memcpy(&vector, from, sizeof vector);
  return vector;
}

#if defined(__x86_64__)

// Vectors of 64 bytes. Assembly is used because compilers neither select the first instruction nor fuse the second.
struct Wide {
  typedef int32_t Int __attribute__((vector_size(64), aligned(4)));
  typedef float Float __attribute__((vector_size(64), aligned(4)));
  static constexpr int kVectors = 4;  // vectors of a panel that are multiplied together
  __attribute__((always_inline)) static void multiply(Int& sum, const Int& y, const Int& x) {
    asm("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(y), "v"(x));
  }
  __attribute__((always_inline)) static void add_product(Float& sum, const Float& x, const Float& y) {
    asm("vfmadd231ps %2, %1, %0" : "+v"(sum) : "v"(x), "v"(y));
  }
  __attribute__((always_inline)) static uint32_t below(const Float& x, const Float& y) {
    uint16_t bits;
    asm("vcmpltps %2, %1, %0" : "=k"(bits) : "v"(x), "v"(y));
    return bits;
  }
};

// AVX-VNNI, with 16 registers.
struct Narrow {
  typedef int32_t Int __attribute__((vector_size(32), aligned(4)));
  typedef float Float __attribute__((vector_size(32), aligned(4)));
  static constexpr int kVectors = 2;
  __attribute__((always_inline)) static void multiply(Int& sum, const Int& y, const Int& x) {
    asm("%{vex%} vpdpwssd %2, %1, %0" : "+x"(sum) : "x"(y), "x"(x));
  }
  __attribute__((always_inline)) static void add_product(Float& sum, const Float& x, const Float& y) {
    asm("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(x), "x"(y));
  }
  __attribute__((always_inline)) static uint32_t below(const Float& x, const Float& y) {
    uint32_t bits;
    Float mask;
    asm("vcmpltps %3, %2, %1\n\tvmovmskps %1, %0" : "=r"(bits), "=&x"(mask) : "x"(x), "x"(y));
    return bits;
  }
};

// Multiplies kRows queries and a panel by pairs of codes. Loops are unrolled because compilers else keep the sums in memory.
template <class V>
__attribute__((always_inline)) inline void multiply_int16(const int32_t* x, const int32_t* panel, int64_t depth,
                                                          int32_t* products) {
  using Int = typename V::Int;
  constexpr int kLanes = sizeof(Int) / sizeof(int32_t);
  for (int part = 0; part < kPanel; part += kLanes * V::kVectors) {
    Int sum[kRows][V::kVectors];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < V::kVectors; ++v) sum[r][v] = Int{};
    const int32_t* from = panel + part;
    const int32_t* codes = x;
    for (int64_t d = 0; d < depth; ++d, from += kPanel, codes += kRows) {
      Int y[V::kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < V::kVectors; ++v) y[v] = load<Int>(from + kLanes * v);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const Int broadcast = codes[r] - Int{};
#pragma GCC unroll 4
        for (int v = 0; v < V::kVectors; ++v) V::multiply(sum[r][v], y[v], broadcast);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < V::kVectors; ++v) std::memcpy(products + kPanel * r + part + kLanes * v, &sum[r][v], sizeof(Int));
  }
}

// Finds the values of query q and the panel at `column` below their limits, from their products.
template <class V>
__attribute__((always_inline)) inline void compare(const Operands& o, int64_t q, int64_t column, float limit,
                                                   const int32_t* products, PanelHits& hits) {
  using Float = typename V::Float;
  constexpr int kLanes = sizeof(Float) / sizeof(float);
  const Float scale = o.x_scale[q] - Float{}, width = -o.width[q] - Float{}, upper = limit - Float{};
  alignas(64) float product[kPanel], values[kPanel];
  uint64_t row_mask = 0;
#pragma GCC unroll 8
  for (int i = 0; i < kPanel; i += kLanes) {
    const Float term = __builtin_convertvector(load<typename V::Int>(products + i), Float) * load<Float>(o.scale + column + i);
    Float lower = load<Float>(o.bias + column + i);
    V::add_product(lower, width, load<Float>(o.coefficient + column + i));
    V::add_product(lower, scale, term);
    row_mask |= uint64_t(V::below(lower, upper)) << i;
    std::memcpy(values + i, &lower, sizeof lower);
    std::memcpy(product + i, &term, sizeof term);
  }
  for (; row_mask; row_mask &= row_mask - 1) {
    const int i = __builtin_ctzll(row_mask);
    hits.row_hits[hits.num_row_hits++] = {int32_t(q), int32_t(column + i), values[i]};
  }
  if (!hits.limits) return;
  const Float coefficient = -o.coefficient[q] - Float{};
  uint64_t col_mask = 0;
#pragma GCC unroll 8
  for (int i = 0; i < kPanel; i += kLanes) {
    Float lower = o.bias[q] - Float{};
    V::add_product(lower, coefficient, load<Float>(hits.widths + i));
    V::add_product(lower, scale, load<Float>(product + i));
    col_mask |= uint64_t(V::below(lower, load<Float>(hits.limits + i))) << i;
    std::memcpy(values + i, &lower, sizeof lower);
  }
  for (; col_mask; col_mask &= col_mask - 1) {
    const int i = __builtin_ctzll(col_mask);
    hits.col_hits[hits.num_col_hits++] = {int32_t(column + i), int32_t(q), values[i]};
  }
}

// x: the queries by pairs of codes, interleaved by kRows
template <class V>
__attribute__((always_inline)) inline void multiply_panel_by(const Operands& o, const int32_t* x, int64_t query,
                                                             int64_t end, int64_t column, PanelHits& hits) {
  alignas(64) int32_t products[kRows * kPanel];
  for (int64_t q = query; q < end; q += kRows, x += o.depth * kRows) {
    multiply_int16<V>(x, o.panels + column * o.depth, o.depth, products);
    for (int64_t r = 0; r < std::min<int64_t>(kRows, end - q); ++r)
      compare<V>(o, q + r, column, hits.limit[q + r - query], products + kPanel * r, hits);
  }
}

COMMON_WITH_INT16_64 __attribute__((noinline)) void multiply_panel_64(const Operands& o, const int32_t* x, int64_t query,
                                                                      int64_t end, int64_t column, PanelHits& hits) {
  multiply_panel_by<Wide>(o, x, query, end, column, hits);
}
COMMON_WITH_INT16_32 __attribute__((noinline)) void multiply_panel_32(const Operands& o, const int32_t* x, int64_t query,
                                                                      int64_t end, int64_t column, PanelHits& hits) {
  multiply_panel_by<Narrow>(o, x, query, end, column, hits);
}
#endif

void multiply_panel(const Operands& o, const int32_t* x, int64_t query, int64_t end, int64_t column, PanelHits& hits) {
#if defined(__x86_64__)
  if (common::int16_vector_bytes() == 64) multiply_panel_64(o, x, query, end, column, hits);
  else multiply_panel_32(o, x, query, end, column, hits);
#endif
}

// Packs queries query, ..., end - 1 of panels by pairs of codes, interleaved by kRows and padded by zeros.
void gather_rows(const Operands& o, int64_t query, int64_t end, std::vector<int32_t>& packed) {
  packed.assign((end - query + kRows - 1) / kRows * kRows * o.depth, 0);
  int32_t* to = packed.data();
  for (; query < end; query += kRows, to += kRows * o.depth) {
    const int64_t count = std::min<int64_t>(kRows, end - query);
    const auto from = [&](int64_t q) { return o.x + q / kPanel * kPanel * o.depth + q % kPanel; };
    if (count == kRows && query % kPanel + kRows <= kPanel) {
      const int32_t* const adjacent = from(query);
      for (int64_t d = 0; d < o.depth; ++d) std::memcpy(to + kRows * d, adjacent + kPanel * d, kRows * sizeof(int32_t));
    } else {
      for (int64_t r = 0; r < count; ++r)
        for (int64_t d = 0; d < o.depth; ++d) to[kRows * d + r] = from(query + r)[kPanel * d];
    }
  }
}

}  // namespace

// Rounds `factor` * (rows - center) to rows first, first + 1, ... of panels (P, depth, 64, 2) int16. rows (N, D) have any
// floating type; `order` selects rows, -1 is a missing row; the center (D,) is float64. row = scale * codes + error with
// scale (64 P,) float32; sizes (3, 64 P) float64: |row|, |scale * codes|, |error|. Rows that are missing, not finite or at
// least 2^41 long become zeros with an infinite |row|.
void quantize_rows(Tensor rows, std::optional<Tensor> order, Tensor center, double factor, Tensor panels, Tensor scale,
                   Tensor sizes, int64_t first) {
  common::check("quantize_rows",
                "rows: strided rows N D, order: int64 M, center: float64 D, panels: int16 P H 64 2, scale: float32 64P, "
                "sizes: float64 3 64P",
                rows, order, center, panels, scale, sizes);
  if (order) common::check_range<int64_t>("quantize_rows", "order", *order, rows.size(0), -1);
  const int64_t count = order ? order->size(0) : rows.size(0), dim = rows.size(1);
  const int64_t depth = panels.size(1), all = scale.size(0);
  common::check_integer("quantize_rows", "first", first, 0, all - count);
  STD_TORCH_CHECK(2 * depth == dim + dim % 2, "quantize_rows: got rows of ", dim, " columns, but panels of ", 2 * depth);
  const double max_length = 46338 - std::sqrt(double(dim)) / 2;  // 2^15.5, less the effect of rounding
  const auto* const selected = data<const int64_t>(order);
  const auto* const centers = data<const double>(center);
  int32_t* const panel = data<int32_t>(panels);
  float* const units = data<float>(scale);
  double *const lengths = data<double>(sizes), *const code_lengths = lengths + all, *const error_lengths = code_lengths + all;
  const stop::Flag stop;
  for_rows(rows, [&](auto zero) {
    const auto* const from = data<const decltype(zero)>(rows);
    const int64_t stride = rows.stride(0), step = rows.stride(1);
    common::in_parallel("quantize_rows", count, kPanel, [&](int64_t begin, int64_t end) {
      const int64_t padded = (dim + 7) / 8 * 8;
      std::vector<double> centered(padded);
      std::vector<int16_t> buffer(padded);
      double* const x = centered.data();
      int16_t* const codes = buffer.data();
      common::vectorized([=](auto) COMMON_INLINE {
        typedef double Eight __attribute__((vector_size(64), aligned(8)));
        typedef int16_t Codes __attribute__((vector_size(16), aligned(2)));
        const auto sum = [](const Eight& v) COMMON_INLINE { return (v[0] + v[1] + v[2] + v[3]) + (v[4] + v[5] + v[6] + v[7]); };
        for (int64_t n = begin; n < end && !stop(); ++n) {
          const int64_t row_index = selected ? selected[n] : n, column = first + n;
          const auto* const row = from + std::max<int64_t>(row_index, 0) * stride;
          if (row_index < 0) std::fill_n(x, dim, 0.0);  // there may be no rows
          else if (step == 1) for (int64_t d = 0; d < dim; ++d) x[d] = (static_cast<double>(row[d]) - centers[d]) * factor;
          else for (int64_t d = 0; d < dim; ++d) x[d] = (static_cast<double>(row[d * step]) - centers[d]) * factor;
          Eight squares = {}, largest = {}, code_squares = {}, error_squares = {};
          for (int64_t d = 0; d < padded; d += 8) {
            const Eight v = load<Eight>(x + d), size = v < 0 ? -v : v;
            squares += v * v;
            largest = size > largest ? size : largest;
          }
          double high = 0;
          for (int lane = 0; lane < 8; ++lane) high = std::max(high, largest[lane]);
          const double length = std::sqrt(sum(squares));
          const bool is_valid = row_index >= 0 && length < 0x1p41, is_coded = is_valid && length > 0x1p-60;
          const float unit = is_coded ? float(std::max(length / max_length, high / 32766) * (1 + 0x1p-22)) : 0;
          const double inverse = is_coded ? 1 / double(unit) : 0, exact = double(unit);
          if (!is_coded) std::fill_n(x, dim, 0.0);
          for (int64_t d = 0; d < padded; d += 8) {
            const Eight v = load<Eight>(x + d);
            // Rounds to nearest: the spacing of numbers near 1.5 * 2^52 is 1.
            const Eight rounded = (v * inverse + 0x1.8p52) - 0x1.8p52;
            const Eight error = v - exact * rounded;
            code_squares += rounded * rounded;
            error_squares += error * error;
            const Codes eight = __builtin_convertvector(rounded, Codes);
            std::memcpy(codes + d, &eight, sizeof eight);
          }
          int32_t* to = panel + column / kPanel * kPanel * depth + column % kPanel;
          for (int64_t d = 0; d < depth; ++d, to += kPanel) std::memcpy(to, codes + 2 * d, sizeof *to);
          units[column] = unit;
          lengths[column] = is_valid ? length : std::numeric_limits<double>::infinity();
          code_lengths[column] = exact * std::sqrt(sum(code_squares));
          error_lengths[column] = is_coded ? std::sqrt(sum(error_squares)) : is_valid ? length : 0;
        }
      });
    });
  });
}

// Adds the references that may be among the k nearest of queries x. If `is_symmetric`, the queries are the first references,
// in order, and a product of two of them updates the lists of both.
void int16_candidates(Tensor x, Tensor x_scale, Tensor panels, Tensor scale, Tensor bias, Tensor coefficient,
                      Tensor bias_error, Tensor width, Tensor rounding_error, Tensor self_index, Tensor bounds,
                      Tensor column, Tensor list_size, Tensor limit, int64_t k, bool is_symmetric) {
  STD_TORCH_CHECK(common::int16_vector_bytes(), "int16_candidates: this processor does not multiply int16 (VNNI)");
  STD_TORCH_CHECK(bias.size(0) <= std::numeric_limits<int32_t>::max(), "int16_candidates: got ", bias.size(0),
                  " references, but columns are 32 bits wide");
  common::check("int16_candidates",
                "x: int16 X H 64 2, x_scale: float32 64X, panels: int16 P H 64 2, scale: float32 64P, bias: float32 64P, "
                "coefficient: float32 64P, bias_error: float32 64P, width: float32 N, rounding_error: float32 N, "
                "self_index: int64 Q, bounds: float32 N 2 C, column: int32 N C, list_size: int32 N, limit: float32 N",
                x, x_scale, panels, scale, bias, coefficient, bias_error, width, rounding_error, self_index, bounds, column,
                list_size, limit);
  common::check_integer("int16_candidates", "k", k, 1, column.size(1) - 1);
  check_lists("int16_candidates", list_size, limit, column.size(1));
  STD_TORCH_CHECK(self_index.size(0) == list_size.size(0) && list_size.size(0) <= x_scale.size(0) &&
                      (!is_symmetric || list_size.size(0) <= bias.size(0)),
                  "int16_candidates: queries, lists and references do not fit together");
  const Operands operands{data<const int32_t>(x),   data<const int32_t>(panels), data<const float>(x_scale),
                          data<const float>(scale), data<const float>(bias),     data<const float>(coefficient),
                          data<const float>(width), panels.size(1)};
  const int64_t queries = list_size.size(0), size = bias.size(0);
  const int64_t high = (queries + kHigh - 1) / kHigh, tiles = high * ((size + kWide - 1) / kWide);
  const auto* const self = data<const int64_t>(self_index);
  const auto* const errors = data<const float>(bias_error);
  std::atomic<int64_t> next{0};
  const stop::Flag stop;
  Locks locks(queries);
  common::in_parallel("int16_candidates", std::min<int64_t>(torch::stable::get_num_threads(), tiles), 1, [&](int64_t, int64_t) {
    const Candidates candidates(rounding_error, bounds, column, list_size, limit, k);
    const auto push = [&](const Hit& hit) {
      const float gap = 2 * (operands.width[hit.q] * operands.coefficient[hit.column] + errors[hit.column]);
      candidates.push(hit.q, hit.lower, gap, hit.column);
    };
    float query_limits[kHigh], limits[kPanel], widths[kPanel];
    PanelHits hits{query_limits, nullptr, nullptr, 0, 0, std::vector<Hit>(kHigh * kPanel), std::vector<Hit>(kHigh * kPanel)};
    std::vector<int32_t> packed;
    for (int64_t n; (n = next++) < tiles && !stop();) {
      const int64_t query = n % high * kHigh, end = std::min(query + kHigh, queries);
      const int64_t begin = n / high * kWide, last = std::min(begin + kWide, size);
      // Two rows of the same block of queries are compared in both orders.
      int64_t c = is_symmetric ? std::max(begin, query) : begin;
      if (c < last) gather_rows(operands, query, end, packed);
      for (; c < last; c += kPanel) {
        locks.for_blocks(query, end, [&](int64_t from, int64_t to) {
          std::copy(candidates.limit + from, candidates.limit + to, query_limits);
        });
        const bool both = is_symmetric && c >= query + kHigh && c < queries;
        if (both) {
          const int64_t last_row = std::min(c + kPanel, queries);
          std::fill_n(limits, kPanel, -kInfinity);
          std::fill_n(widths, kPanel, 0.0f);
          locks.for_blocks(c, last_row, [&](int64_t from, int64_t to) {
            std::copy(candidates.limit + from, candidates.limit + to, limits);
          });
          std::copy(operands.width + c, operands.width + last_row, widths);
        }
        hits.limits = both ? limits : nullptr;
        hits.widths = widths;
        hits.num_row_hits = hits.num_col_hits = 0;
        multiply_panel(operands, packed.data(), query, end, c, hits);
        if (hits.num_row_hits)
          locks.for_blocks(query, end, [&](int64_t, int64_t) {
            for (const Hit *hit = hits.row_hits.data(), *to = hit + hits.num_row_hits; hit < to; ++hit)
              if (hit->column != self[hit->q]) push(*hit);
          });
        if (hits.num_col_hits)
          locks.for_blocks(c, c + 1, [&](int64_t, int64_t) {
            std::for_each_n(hits.col_hits.data(), hits.num_col_hits, push);
          });
      }
    }
  });
}

// ->  () bool: whether int16_candidates is supported.
Tensor is_available(Tensor like) {
  Tensor result = torch::stable::new_empty(like, {}, ScalarType::Bool);
  *data<bool>(result) = common::int16_vector_bytes() > 0;
  return result;
}

}  // namespace nearest

STABLE_TORCH_LIBRARY_IMPL(tensormetrics, CPU, m) {
  m.impl("quantize_rows", TORCH_BOX(&nearest::quantize_rows));
  m.impl("int16_candidates", TORCH_BOX(&nearest::int16_candidates));
  m.impl("supports_int16", TORCH_BOX(&nearest::is_available));
}
