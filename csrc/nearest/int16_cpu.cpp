// References that may be among the k nearest, by products of rows that are rounded to 16 bits, one scale for each row.
//
// A query x and a reference y become x' and y', whose product is an exact sum: |x'| and |y'| are at most 2^15.5 units, so
// that no sum leaves 32 bits. |x.y - x'.y'| <= |x - x'| |y| + |x'| |y - y'| <= width(x) share(y), and the place of the
// reference is at least `lower` = bias - x'.y' - width share, less slack(x), and at most lower + 2 (width share + spread),
// plus slack(x); by Euclidean distance x_scale and width hold a factor of 2. search/README.md says what each of them is.
#include <torch/csrc/stable/library.h>

#include <cmath>
#include <cstring>
#include <optional>

#include "common/arguments.h"
#include "candidates.h"
#include "tiles.h"

namespace nearest {

namespace {

constexpr int64_t kPanel = 64, kHigh = Locks::kBlock, kWide = 512;  // columns of a panel; rows and columns of a tile
constexpr int kRows = 6;                                           // of queries that are multiplied together

// Rounded queries and references, both in panels (P, depth, 64) of words, each of two numbers.
struct Operands {
  const int32_t *x, *panels;
  const float* x_scale;                // (64 P,)
  const float *scale, *bias, *share;  // (64 P,)
  const float* width;                 // (Q,)
  int64_t depth;
};

// A value that is below the limit of query q, of reference `at`.
struct Hit {
  int32_t q, at;
  float lower;
};

// What is found of some queries and one panel: for the queries, and where these are references too, for the panel's rows
// as queries.
struct Found {
  const float* limit;             // (kHigh,) of the queries
  const float *limits, *widths;  // (kPanel,) of the panel's rows; null: these are no queries
  int64_t along, across;          // how many hits there are
  std::vector<Hit> hits_along, hits_across;
};

template <class V, class T>
__attribute__((always_inline)) inline V load(const T* from) {
  V vector;
  std::memcpy(&vector, from, sizeof vector);
  return vector;
}

#if defined(__x86_64__)

// Vectors of one width. Instructions are written out: a compiler neither finds the first one nor fuses the second.
struct Wide {
  typedef int32_t Int __attribute__((vector_size(64), aligned(4)));
  typedef float Float __attribute__((vector_size(64), aligned(4)));
  static constexpr int kVectors = 4;  // of a panel that are multiplied together
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

// The products of kRows queries, word by word, and a panel. Loops are unrolled, else a compiler keeps the sums in memory.
template <class V>
__attribute__((always_inline)) inline void multiply_words(const int32_t* x, const int32_t* panel, int64_t depth,
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
    const int32_t* word = x;
    for (int64_t d = 0; d < depth; ++d, from += kPanel, word += kRows) {
      Int y[V::kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < V::kVectors; ++v) y[v] = load<Int>(from + kLanes * v);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const Int spread = word[r] - Int{};
#pragma GCC unroll 4
        for (int v = 0; v < V::kVectors; ++v) V::multiply(sum[r][v], y[v], spread);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < V::kVectors; ++v) std::memcpy(products + kPanel * r + part + kLanes * v, &sum[r][v], sizeof(Int));
  }
}

// Which values of query q and the panel at `column` are below their limits, from their products.
template <class V>
__attribute__((always_inline)) inline void compare(const Operands& o, int64_t q, int64_t column, float limit,
                                                   const int32_t* products, Found& found) {
  using Float = typename V::Float;
  constexpr int kLanes = sizeof(Float) / sizeof(float);
  const Float scale = o.x_scale[q] - Float{}, width = -o.width[q] - Float{}, most = limit - Float{};
  alignas(64) float product[kPanel], values[kPanel];
  uint64_t along = 0;
#pragma GCC unroll 8
  for (int i = 0; i < kPanel; i += kLanes) {
    const Float each = __builtin_convertvector(load<typename V::Int>(products + i), Float) * load<Float>(o.scale + column + i);
    Float lower = load<Float>(o.bias + column + i);
    V::add_product(lower, width, load<Float>(o.share + column + i));
    V::add_product(lower, scale, each);
    along |= uint64_t(V::below(lower, most)) << i;
    std::memcpy(values + i, &lower, sizeof lower);
    std::memcpy(product + i, &each, sizeof each);
  }
  for (; along; along &= along - 1) {
    const int i = __builtin_ctzll(along);
    found.hits_along[found.along++] = {int32_t(q), int32_t(column + i), values[i]};
  }
  if (!found.limits) return;
  const Float share = -o.share[q] - Float{};
  uint64_t across = 0;
#pragma GCC unroll 8
  for (int i = 0; i < kPanel; i += kLanes) {
    Float lower = o.bias[q] - Float{};
    V::add_product(lower, share, load<Float>(found.widths + i));
    V::add_product(lower, scale, load<Float>(product + i));
    across |= uint64_t(V::below(lower, load<Float>(found.limits + i))) << i;
    std::memcpy(values + i, &lower, sizeof lower);
  }
  for (; across; across &= across - 1) {
    const int i = __builtin_ctzll(across);
    found.hits_across[found.across++] = {int32_t(column + i), int32_t(q), values[i]};
  }
}

// x: the queries word by word, kRows of them together
template <class V>
__attribute__((always_inline)) inline void multiply_panel_by(const Operands& o, const int32_t* x, int64_t query,
                                                             int64_t end, int64_t column, Found& found) {
  alignas(64) int32_t products[kRows * kPanel];
  for (int64_t q = query; q < end; q += kRows, x += o.depth * kRows) {
    multiply_words<V>(x, o.panels + column * o.depth, o.depth, products);
    for (int64_t r = 0; r < std::min<int64_t>(kRows, end - q); ++r)
      compare<V>(o, q + r, column, found.limit[q + r - query], products + kPanel * r, found);
  }
}

COMMON_WITH_WORDS_64 __attribute__((noinline)) void multiply_panel_64(const Operands& o, const int32_t* x, int64_t query, int64_t end,
                                            int64_t column, Found& found) {
  multiply_panel_by<Wide>(o, x, query, end, column, found);
}
COMMON_WITH_WORDS_32 __attribute__((noinline)) void multiply_panel_32(const Operands& o, const int32_t* x, int64_t query, int64_t end,
                                            int64_t column, Found& found) {
  multiply_panel_by<Narrow>(o, x, query, end, column, found);
}
#endif

void multiply_panel(const Operands& o, const int32_t* x, int64_t query, int64_t end, int64_t column, Found& found) {
#if defined(__x86_64__)
  if (common::multiplies_words() == 64) multiply_panel_64(o, x, query, end, column, found);
  else multiply_panel_32(o, x, query, end, column, found);
#endif
}

// Queries query, ..., end - 1 of panels, word by word, kRows of them together, zeros behind the last.
void take_rows(const Operands& o, int64_t query, int64_t end, std::vector<int32_t>& words) {
  words.assign((end - query + kRows - 1) / kRows * kRows * o.depth, 0);
  int32_t* to = words.data();
  for (; query < end; query += kRows, to += kRows * o.depth) {
    const int64_t count = std::min<int64_t>(kRows, end - query);
    const auto from = [&](int64_t q) { return o.x + q / kPanel * kPanel * o.depth + q % kPanel; };
    if (count == kRows && query % kPanel + kRows <= kPanel) {
      const int32_t* const together = from(query);
      for (int64_t d = 0; d < o.depth; ++d) std::memcpy(to + kRows * d, together + kPanel * d, kRows * sizeof(int32_t));
    } else {
      for (int64_t r = 0; r < count; ++r)
        for (int64_t d = 0; d < o.depth; ++d) to[kRows * d + r] = from(query + r)[kPanel * d];
    }
  }
}

}  // namespace

// Rounds rows (N, D) of any floating type, taken in `order` where there is one, -1 = none, less the centre (D,) float64 and
// times `factor`, into places first, first + 1, ... of panels (P, depth, 64, 2) int16: row = scale * numbers, with what
// that leaves: scale (64 P,) float32, sizes (3, 64 P) float64: |row|, |scale * numbers|, |row - scale * numbers|. What is
// not finite, 2^41 long or longer, or none becomes zeros, with an infinite |row|.
void to_words(Tensor rows, std::optional<Tensor> order, Tensor centre, double factor, Tensor panels, Tensor scale,
              Tensor sizes, int64_t first) {
  common::check("to_words",
                "rows: strided rows N D, order: int64 M, centre: float64 D, panels: int16 P H 64 2, scale: float32 64P, "
                "sizes: float64 3 64P",
                rows, order, centre, panels, scale, sizes);
  if (order) common::check_range<int64_t>("to_words", "order", *order, rows.size(0), -1);
  const int64_t count = order ? order->size(0) : rows.size(0), dim = rows.size(1);
  const int64_t depth = panels.size(1), all = scale.size(0);
  common::check_integer("to_words", "first", first, 0, all - count);
  STD_TORCH_CHECK(2 * depth == dim + dim % 2, "to_words: got rows of ", dim, " columns, but panels of ", 2 * depth);
  const double most = 46338 - std::sqrt(double(dim)) / 2;  // 2^15.5, less what rounding may add to a length
  const auto* const taken = order ? data<const int64_t>(*order) : nullptr;
  const auto* const middle = data<const double>(centre);
  int32_t* const panel = data<int32_t>(panels);
  float* const units = data<float>(scale);
  double *const lengths = data<double>(sizes), *const of_rounded = lengths + all, *const of_left = of_rounded + all;
  const stop::Flag stop;
  for_rows(rows, [&](auto zero) {
    const auto* const from = data<const decltype(zero)>(rows);
    const int64_t stride = rows.stride(0), step = rows.stride(1);
    common::in_parallel("to_words", count, kPanel, [&](int64_t begin, int64_t end) {
      const int64_t padded = (dim + 7) / 8 * 8;
      std::vector<double> centred(padded);
      std::vector<int16_t> held(padded);
      double* const x = centred.data();
      int16_t* const word = held.data();
      common::vectorised([=](auto) COMMON_INLINE {
        typedef double Eight __attribute__((vector_size(64), aligned(8)));
        typedef int16_t Words __attribute__((vector_size(16), aligned(2)));
        const auto sum = [](const Eight& v) COMMON_INLINE { return (v[0] + v[1] + v[2] + v[3]) + (v[4] + v[5] + v[6] + v[7]); };
        for (int64_t n = begin; n < end && !stop(); ++n) {
          const int64_t at = taken ? taken[n] : n, place = first + n;
          const auto* const row = from + std::max<int64_t>(at, 0) * stride;
          if (at < 0) std::fill_n(x, dim, 0.0);  // there may be no row to read
          else if (step == 1) for (int64_t d = 0; d < dim; ++d) x[d] = (static_cast<double>(row[d]) - middle[d]) * factor;
          else for (int64_t d = 0; d < dim; ++d) x[d] = (static_cast<double>(row[d * step]) - middle[d]) * factor;
          Eight squares = {}, largest = {}, rounded = {}, lefts = {};
          for (int64_t d = 0; d < padded; d += 8) {
            const Eight v = load<Eight>(x + d), size = v < 0 ? -v : v;
            squares += v * v;
            largest = size > largest ? size : largest;
          }
          double high = 0;
          for (int lane = 0; lane < 8; ++lane) high = std::max(high, largest[lane]);
          const double length = std::sqrt(sum(squares));
          const bool there = at >= 0 && length < 0x1p41, known = there && length > 0x1p-60;
          const float unit = known ? float(std::max(length / most, high / 32766) * (1 + 0x1p-22)) : 0;
          const double inverse = known ? 1 / double(unit) : 0, exact = double(unit);
          if (!known) std::fill_n(x, dim, 0.0);
          for (int64_t d = 0; d < padded; d += 8) {
            const Eight v = load<Eight>(x + d);
            const Eight whole = (v * inverse + 0x1.8p52) - 0x1.8p52;  // to the nearest: units of such large numbers are 1
            const Eight left = v - exact * whole;
            rounded += whole * whole;
            lefts += left * left;
            const Words words = __builtin_convertvector(whole, Words);
            std::memcpy(word + d, &words, sizeof words);
          }
          int32_t* to = panel + place / kPanel * kPanel * depth + place % kPanel;
          for (int64_t d = 0; d < depth; ++d, to += kPanel) std::memcpy(to, word + 2 * d, sizeof *to);
          units[place] = unit;
          lengths[place] = there ? length : std::numeric_limits<double>::infinity();
          of_rounded[place] = exact * std::sqrt(sum(rounded));
          of_left[place] = known ? std::sqrt(sum(lefts)) : there ? length : 0;
        }
      });
    });
  });
}

// Adds what may be among the k nearest of queries x. With first >= 0, a multiple of 64, they are the first references, in
// order, and a product with a reference from `first` on serves both of its rows.
void int16_candidates(Tensor x, Tensor x_scale, Tensor panels, Tensor scale, Tensor bias, Tensor share, Tensor spread,
                   Tensor width, Tensor slack, Tensor own, Tensor bounds, Tensor column, Tensor number, Tensor limit,
                   int64_t k, int64_t first_column) {
  STD_TORCH_CHECK(common::multiplies_words(), "int16_candidates: this processor does not multiply words (VNNI)");
  STD_TORCH_CHECK(bias.size(0) <= std::numeric_limits<int32_t>::max(), "int16_candidates: got ", bias.size(0),
                  " references, but columns are 32 bits wide");
  common::check("int16_candidates",
                "x: int16 X H 64 2, x_scale: float32 64X, panels: int16 P H 64 2, scale: float32 64P, bias: float32 64P, "
                "share: float32 64P, spread: float32 64P, width: float32 N, slack: float32 N, own: int64 Q, "
                "bounds: float32 N 2 C, column: int32 N C, number: int32 N, limit: float32 N",
                x, x_scale, panels, scale, bias, share, spread, width, slack, own, bounds, column, number, limit);
  common::check_integer("int16_candidates", "k", k, 1, column.size(1) - 1);
  common::check_integer("int16_candidates", "first_column", first_column, -1, bias.size(0));
  check_lists("int16_candidates", number, limit, column.size(1));
  STD_TORCH_CHECK(own.size(0) <= x_scale.size(0) &&
                      (first_column < 0 ? own.size(0) == number.size(0)
                                        : own.size(0) <= number.size(0) && number.size(0) <= bias.size(0)),
                  "int16_candidates: queries, lists and references do not fit together");
  STD_TORCH_CHECK(first_column < 0 || first_column % kPanel == 0, "int16_candidates: first begins no panel");
  const Operands operands{data<const int32_t>(x),   data<const int32_t>(panels), data<const float>(x_scale),
                          data<const float>(scale), data<const float>(bias),     data<const float>(share),
                          data<const float>(width), panels.size(1)};
  const int64_t queries = own.size(0), rows = number.size(0), size = bias.size(0);
  const int64_t high = (queries + kHigh - 1) / kHigh, tiles = high * ((size + kWide - 1) / kWide);
  const bool halved = first_column >= 0;
  const auto* const self = data<const int64_t>(own);
  const auto* const spreads = data<const float>(spread);
  std::atomic<int64_t> next{0};
  const stop::Flag stop;
  Locks locks(rows);
  common::in_parallel("int16_candidates", std::min<int64_t>(torch::stable::get_num_threads(), tiles), 1, [&](int64_t, int64_t) {
    const Possible possible(slack, bounds, column, number, limit, k);
    const auto push = [&](const Hit& hit) {
      const float apart = 2 * (operands.width[hit.q] * operands.share[hit.at] + spreads[hit.at]);
      possible.push(hit.q, hit.lower, apart, hit.at);
    };
    float limit_here[kHigh], limits[kPanel], widths[kPanel];
    Found found{limit_here, nullptr, nullptr, 0, 0, std::vector<Hit>(kHigh * kPanel), std::vector<Hit>(kHigh * kPanel)};
    std::vector<int32_t> words;
    for (int64_t n; (n = next++) < tiles && !stop();) {
      const int64_t query = n % high * kHigh, end = std::min(query + kHigh, queries);
      const int64_t begin = n / high * kWide, last = std::min(begin + kWide, size);
      // Of two rows in one block of queries both orders are taken along, unless no query is such a reference.
      int64_t c = halved ? std::max(std::max(begin, query), first_column) : begin;
      if (c < last) take_rows(operands, query, end, words);
      for (; c < last; c += kPanel) {
        locks.each(query, end, [&](int64_t from, int64_t to) { std::copy(possible.limit + from, possible.limit + to, limit_here); });
        const bool both = halved && (c >= query + kHigh || first_column >= queries) && c < rows;
        if (both) {
          const int64_t stop_here = std::min(c + kPanel, rows);
          std::fill_n(limits, kPanel, -kInfinity);
          std::fill_n(widths, kPanel, 0.0f);
          locks.each(c, stop_here, [&](int64_t from, int64_t to) { std::copy(possible.limit + from, possible.limit + to, limits); });
          std::copy(operands.width + c, operands.width + stop_here, widths);
        }
        found.limits = both ? limits : nullptr;
        found.widths = widths;
        found.along = found.across = 0;
        multiply_panel(operands, words.data(), query, end, c, found);
        if (found.along)
          locks.each(query, end, [&](int64_t, int64_t) {
            for (const Hit *hit = found.hits_along.data(), *to = hit + found.along; hit < to; ++hit)
              if (hit->at != self[hit->q]) push(*hit);
          });
        if (found.across)
          locks.each(c, c + 1, [&](int64_t, int64_t) {
            std::for_each_n(found.hits_across.data(), found.across, push);
          });
      }
    }
  });
}

// ->  () bool: whether int16_candidates runs here.
Tensor words_pay(Tensor like) {
  Tensor answer = torch::stable::new_empty(like, {}, ScalarType::Bool);
  *data<bool>(answer) = common::multiplies_words() > 0;
  return answer;
}

}  // namespace nearest

STABLE_TORCH_LIBRARY_IMPL(tensormetrics, CPU, m) {
  m.impl("to_words", TORCH_BOX(&nearest::to_words));
  m.impl("int16_candidates", TORCH_BOX(&nearest::int16_candidates));
  m.impl("multiplies_words", TORCH_BOX(&nearest::words_pay));
}
