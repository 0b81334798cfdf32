// References that may be among the k nearest, by products of rows that are rounded to 8 bits, one scale for each row.
//
// Of query x and row z, with x' and z' the rounded ones, |x.z - x'.z'| <= |x - x'| |z| + |x'| |z - z'| <= width(x)
// share(z), and the filter's value x.z + bias is off by slack(x) at most, which holds all rounding in here too. So the
// value is at least `lower` = x'.z' + bias - width share, less slack, and at most lower + 2 width share, plus slack.
#include <torch/csrc/stable/library.h>

#include <cmath>
#include <tuple>

#include "tiles.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace nearest {

namespace {

constexpr int64_t kPanel = 64, kHigh = Locks::kBlock, kWide = 512;  // columns of a panel; rows and columns of a tile

// Rounded queries x: (Q, D), D a multiple of 4, and references in panels (P, D / 4, 64, 4), each byte 128 more.
struct Operands {
  const int8_t* x;
  const float* x_scale;
  const int32_t* excess;  // (Q,) what these 128 add to a product
  const uint8_t* panels;
  const float *scale, *bias, *share;  // (N,) of all rows, of which the panels' begin with row `start`
  const float* width;                 // (Q,), or (N,)
  int64_t dim, start;
};

// A value that is below the limit of query q, of reference `at`.
struct Hit {
  int32_t q, at;
  float lower;
};

// What is found of some queries and one panel: for the queries, and where these are references too, for the panel's rows
// as queries.
struct Found {
  const float* limit;          // (kHigh,) of the queries
  const float *limits, *widths;  // (kPanel,) of the panel's rows; null: these are no queries
  std::vector<Hit> along, across;
};

#if defined(__x86_64__)

// The products of R queries and a panel. Loops are unrolled, else a compiler keeps the sums in memory.
template <int R>
COMMON_WITH_BYTES __attribute__((noinline)) void multiply_bytes(const Operands& o, int64_t query, int64_t column,
                                                                int32_t* products) {
  __m512i sum[R][4];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) sum[r][v] = _mm512_setzero_si512();
  const int8_t* const x = o.x + query * o.dim;
  const uint8_t* panel = o.panels + column * o.dim;
  for (int64_t d = 0; d < o.dim; d += 4, panel += 4 * kPanel) {
    __m512i y[4];
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) y[v] = _mm512_loadu_si512(panel + 64 * v);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      int32_t four;
      std::memcpy(&four, x + r * o.dim + d, sizeof four);
      const __m512i spread = _mm512_set1_epi32(four);
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) sum[r][v] = _mm512_dpbusd_epi32(sum[r][v], y[v], spread);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) _mm512_store_si512(products + kPanel * r + 16 * v, sum[r][v]);
}

template <int R>
COMMON_WITH_BYTES __attribute__((always_inline)) inline void multiply_rows(const Operands& o, int64_t query,
                                                                        int64_t column, const float* limit,
                                                                        Found& found) {
  alignas(64) int32_t products[R * kPanel];
  multiply_bytes<R>(o, query, column, products);
  for (int r = 0; r < R; ++r) {
    const int64_t q = query + r;
    const __m512i excess = _mm512_set1_epi32(o.excess[q]);
    const __m512 scale = _mm512_set1_ps(o.x_scale[q]), width = _mm512_set1_ps(o.width[q]);
    const __m512 most = _mm512_set1_ps(limit[r]);
    __m512 product[4], lower[4];
    uint64_t along = 0;
    for (int v = 0; v < 4; ++v) {
      const int64_t c = o.start + column + 16 * v;
      const __m512 both = _mm512_mul_ps(scale, _mm512_loadu_ps(o.scale + c));
      product[v] = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_load_si512(products + kPanel * r + 16 * v), excess)), both);
      const __m512 shift = _mm512_sub_ps(_mm512_loadu_ps(o.bias + c), _mm512_mul_ps(width, _mm512_loadu_ps(o.share + c)));
      lower[v] = _mm512_add_ps(product[v], shift);
      along |= uint64_t(_mm512_cmp_ps_mask(lower[v], most, _CMP_LT_OQ)) << 16 * v;
    }
    alignas(64) float values[kPanel];
    if (along) {
      for (int v = 0; v < 4; ++v) _mm512_store_ps(values + 16 * v, lower[v]);
      for (; along; along &= along - 1) {
        const int i = __builtin_ctzll(along);
        found.along.push_back({int32_t(q), int32_t(o.start + column + i), values[i]});
      }
    }
    if (!found.limits) continue;
    const __m512 share = _mm512_set1_ps(o.share[q]), bias = _mm512_set1_ps(o.bias[q]);
    uint64_t across = 0;
    for (int v = 0; v < 4; ++v) {
      const __m512 shift = _mm512_sub_ps(bias, _mm512_mul_ps(share, _mm512_loadu_ps(found.widths + 16 * v)));
      lower[v] = _mm512_add_ps(product[v], shift);
      across |= uint64_t(_mm512_cmp_ps_mask(lower[v], _mm512_loadu_ps(found.limits + 16 * v), _CMP_LT_OQ)) << 16 * v;
    }
    if (across) {
      for (int v = 0; v < 4; ++v) _mm512_store_ps(values + 16 * v, lower[v]);
      for (; across; across &= across - 1) {
        const int i = __builtin_ctzll(across);
        found.across.push_back({int32_t(o.start + column + i), int32_t(q), values[i]});
      }
    }
  }
}

COMMON_WITH_BYTES void multiply_panel(const Operands& o, int64_t query, int64_t end, int64_t column,
                                                   Found& found) {
  for (int64_t q = query, left; (left = end - q) > 0;) {
    const float* const limit = found.limit + (q - query);
    if (left >= 6 && left != 8) {
      multiply_rows<6>(o, q, column, limit, found);
      q += 6;
    } else if (left >= 4) {
      multiply_rows<4>(o, q, column, limit, found);
      q += 4;
    } else {
      multiply_rows<1>(o, q, column, limit, found);
      q += 1;
    }
  }
}
#else
void multiply_panel(const Operands&, int64_t, int64_t, int64_t, Found&) {}
#endif

// What may be among the k nearest of each query so far. Where that is more than there is room for, nothing is known: the
// query is flooded, and `number` is `capacity`.
struct Possible {
  float* lower;  // (Q, capacity)
  int32_t* column;
  int32_t* number;  // (Q,)
  float* limit;     // (Q,) what is not below does not enter
  float* upper;     // (Q, k) the least upper bounds, ascending
  const float *share, *width, *slack;
  int64_t capacity, k;

  void push(int64_t q, float value, int64_t at) {
    if (!(value < limit[q])) return;
    bound(q, value + 2 * width[q] * share[at]);
    const int64_t n = number[q]++;
    lower[q * capacity + n] = value;
    column[q * capacity + n] = static_cast<int32_t>(at);
    if (n + 1 == capacity) cut(q);
  }

  // At least k references have a value of at most the k-th least upper bound, but for the slack.
  void bound(int64_t q, float most) {
    float* const least = upper + q * k;
    if (!(most < least[k - 1])) return;
    int64_t i = k - 1;
    for (; i > 0 && most < least[i - 1]; --i) least[i] = least[i - 1];
    least[i] = most;
    limit[q] = std::nextafter(least[k - 1] + 2 * slack[q], std::numeric_limits<float>::infinity());
  }

  void cut(int64_t q) {
    float* const values = lower + q * capacity;
    int32_t* const columns = column + q * capacity;
    int64_t left = 0;
    for (int64_t i = 0; i < capacity; ++i) {
      if (!(values[i] < limit[q])) continue;
      values[left] = values[i];
      columns[left++] = columns[i];
    }
    const bool flooded = left > capacity - capacity / 8;
    number[q] = static_cast<int32_t>(flooded ? capacity : left);
    if (flooded) limit[q] = -std::numeric_limits<float>::infinity();
  }
};

}  // namespace

// Rows (N, D) float32 rounded to (N, D') int8, D' the next multiple of 4: row = scale * bytes, with what that leaves.
// ->  bytes, scale (N,) float32, (3, N) float64: |row|, |scale * bytes|, |row - scale * bytes|
std::tuple<Tensor, Tensor, Tensor> to_bytes(Tensor rows) {
  const int64_t count = rows.size(0), dim = rows.size(1), padded = (dim + 3) / 4 * 4;
  Tensor bytes = torch::stable::new_empty(rows, {count, padded}, ScalarType::Char);
  Tensor scale = torch::stable::new_empty(rows, {count});
  Tensor sizes = torch::stable::new_empty(rows, {3, count}, ScalarType::Double);
  common::in_parallel("to_bytes", count, 256, [&](int64_t begin, int64_t end) {
    common::vectorised([&](auto) {
      for (int64_t n = begin; n < end; ++n) {
        const float* const row = data<const float>(rows) + n * dim;
        int8_t* const to = data<int8_t>(bytes) + n * padded;
        float largest = 0;
        for (int64_t d = 0; d < dim; ++d) largest = std::abs(row[d]) > largest ? std::abs(row[d]) : largest;
        const float unit = largest / 127, inverse = largest > 0x1p-100f ? 127 / largest : 0;
        constexpr int kParts = 16;
        double sums[3][kParts] = {};
        const auto add = [&](int64_t d, int part) {
          const float whole = std::nearbyint(row[d] * inverse);
          const float held = whole > 127 ? 127 : whole < -127 ? -127 : whole;
          const double x = row[d], rounded = double(unit) * held, left = x - rounded;
          to[d] = static_cast<int8_t>(held);
          sums[0][part] += x * x;
          sums[1][part] += rounded * rounded;
          sums[2][part] += left * left;
        };
        int64_t d = 0;
        for (; d + kParts <= dim; d += kParts)
          for (int part = 0; part < kParts; ++part) add(d + part, part);
        for (; d < dim; ++d) add(d, 0);
        for (; d < padded; ++d) to[d] = 0;
        data<float>(scale)[n] = unit;
        for (int size = 0; size < 3; ++size) {
          double sum = 0;
          for (int part = 0; part < kParts; ++part) sum += sums[size][part];
          data<double>(sizes)[size * count + n] = std::sqrt(sum);
        }
      }
    });
  });
  return {bytes, scale, sizes};
}

// Adds what may be among the k nearest of queries x. With start >= 0 what is kept is of all rows, of which x are the first
// and the panels those from `start` on, a multiple of 128, and a product serves both of its rows: 0 where x are the
// references too.
void keep_possible(Tensor x, Tensor x_scale, Tensor excess, Tensor panels, Tensor scale, Tensor bias, Tensor share,
                   Tensor width, Tensor slack, Tensor own, Tensor lower, Tensor column, Tensor number, Tensor limit,
                   Tensor upper, int64_t start) {
  STD_TORCH_CHECK(common::multiplies_bytes(), "keep_possible: this processor does not multiply bytes (AVX-512 VNNI)");
  STD_TORCH_CHECK(start <= 0 || (start % kHigh == 0 && start >= x.size(0)),
                  "keep_possible: start is not a multiple of 128 behind the queries");
  STD_TORCH_CHECK(bias.size(0) <= std::numeric_limits<int32_t>::max(), "columns are 32 bits wide: too many references");
  const Operands operands{data<const int8_t>(x),       data<const float>(x_scale), data<const int32_t>(excess),
                          data<const uint8_t>(panels), data<const float>(scale),   data<const float>(bias),
                          data<const float>(share),    data<const float>(width),   x.size(1), std::max<int64_t>(start, 0)};
  const int64_t queries = x.size(0), size = kPanel * panels.size(0), rows = limit.size(0);
  const int64_t high = (queries + kHigh - 1) / kHigh, tiles = high * ((size + kWide - 1) / kWide);
  const auto* const self = data<const int64_t>(own);
  std::atomic<int64_t> next{0};
  const stop::Flag stop;
  Locks locks(rows);
  common::in_parallel("keep_possible", std::min<int64_t>(torch::stable::get_num_threads(), tiles), 1, [&](int64_t, int64_t) {
    Possible possible{data<float>(lower),       data<int32_t>(column),    data<int32_t>(number), data<float>(limit),
                      data<float>(upper),       data<const float>(share), operands.width,        data<const float>(slack),
                      lower.size(1), upper.size(1)};
    float limit_here[kHigh], limits[kPanel], widths[kPanel];
    Found found{limit_here, nullptr, nullptr, {}, {}};
    for (int64_t n; (n = next++) < tiles && !stop();) {
      const int64_t query = n % high * kHigh, end = std::min(query + kHigh, queries);
      const int64_t first = n / high * kWide, last = std::min(first + kWide, size);
      // Of two rows in one block of queries both orders are taken along.
      for (int64_t c = start == 0 ? std::max(first, query) : first; c < last; c += kPanel) {
        const int64_t row = c + operands.start;
        locks.each(query, end, [&](int64_t from, int64_t to) { std::copy(possible.limit + from, possible.limit + to, limit_here); });
        const bool both = start >= 0 && row >= query + kHigh && row < rows;
        if (both) {
          const int64_t stop_here = std::min(row + kPanel, rows);
          std::fill_n(limits, kPanel, -std::numeric_limits<float>::infinity());
          std::fill_n(widths, kPanel, 0.0f);
          locks.each(row, stop_here, [&](int64_t from, int64_t to) { std::copy(possible.limit + from, possible.limit + to, limits); });
          std::copy(operands.width + row, operands.width + stop_here, widths);
        }
        found.limits = both ? limits : nullptr;
        found.widths = widths;
        multiply_panel(operands, query, end, c, found);
        if (!found.along.empty())
          locks.each(query, end, [&](int64_t, int64_t) {
            for (const Hit& hit : found.along)
              if (hit.at != self[hit.q]) possible.push(hit.q, hit.lower, hit.at);
          });
        if (!found.across.empty())
          locks.each(row, row + 1, [&](int64_t, int64_t) {
            for (const Hit& hit : found.across) possible.push(hit.q, hit.lower, hit.at);
          });
        found.along.clear();
        found.across.clear();
      }
    }
  });
}

// ->  () bool: whether keep_possible runs here.
Tensor bytes_pay(Tensor like) {
  Tensor answer = torch::stable::new_empty(like, {}, ScalarType::Bool);
  *data<bool>(answer) = common::multiplies_bytes();
  return answer;
}

}  // namespace nearest

STABLE_TORCH_LIBRARY_IMPL(tensormetrics, CPU, m) {
  m.impl("to_bytes", TORCH_BOX(&nearest::to_bytes));
  m.impl("keep_possible", TORCH_BOX(&nearest::keep_possible));
  m.impl("multiplies_bytes", TORCH_BOX(&nearest::bytes_pay));
}
