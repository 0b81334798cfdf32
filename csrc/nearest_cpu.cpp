// Searches among embeddings on the CPU, over tiles of filter values, which differ from canonical distances by a bound:
// the least entries of each query, and how many entries come before each of its positives.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

// Canonical distances are sums of rounded products: nothing here may be fused.
#if defined(__clang__)
#pragma clang fp contract(off)
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#endif

namespace nearest {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

template <class T>
T* data(const Tensor& tensor) {
  return static_cast<T*>(tensor.data_ptr());
}

// `body(begin, end)` over 0..n on all threads, with the vectors of this processor: `flatten` draws it into each.
#if defined(__x86_64__)
template <class F>
__attribute__((flatten, target("avx512f,avx512dq,avx512bw,avx512vl"))) void with_512(const F& body, int64_t begin,
                                                                                    int64_t end) {
  body(begin, end);
}
template <class F>
__attribute__((flatten, target("avx2"))) void with_256(const F& body, int64_t begin, int64_t end) {
  body(begin, end);
}
#endif

template <class F>
void in_parallel(int64_t n, int64_t grain, const F& body) {
  torch::stable::parallel_for(0, n, grain, [&](int64_t begin, int64_t end) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) return with_512(body, begin, end);
    if (__builtin_cpu_supports("avx2")) return with_256(body, begin, end);
#endif
    body(begin, end);
  });
}

template <class F>
void for_type(const Tensor& tensor, F f) {
  const ScalarType type = tensor.scalar_type();
  STD_TORCH_CHECK(type == ScalarType::Float || type == ScalarType::Double, "wanted float32 or float64");
  if (type == ScalarType::Float) f(float{});
  else f(double{});
}

// Canonical distances of one query: products and sums in the order of _order.py, never fused.
enum Distance : int64_t { kEuclidean, kInner, kCosine };

template <class T>
class Canonical {
 public:
  Canonical(const Tensor& reference, int64_t distance)
      : rows_(data<const T>(reference)), dim_(reference.size(1)), distance_(distance) {
    size_ = 1;
    while (size_ < dim_) size_ *= 2;
    terms_.resize(size_);
  }
  double operator()(const T* query, int64_t index) {
    const T* row = rows_ + index * dim_;
    if (distance_ == kEuclidean) {
      return sum([&](int64_t d) {
        const double difference = double(query[d]) - double(row[d]);
        return difference * difference;
      });
    }
    const double product = inner(query, row);
    if (distance_ == kInner) return -product;
    const double norms = std::sqrt(inner(query, query)) * std::sqrt(inner(row, row));
    return norms > 0 ? 1 - product / norms : 1.0;
  }

 private:
  double inner(const T* a, const T* b) {
    return sum([&](int64_t d) { return double(a[d]) * double(b[d]); });
  }
  template <class F>
  double sum(F term) {
    double* terms = terms_.data();
    for (int64_t d = 0; d < dim_; ++d) terms[d] = term(d);
    for (int64_t d = dim_; d < size_; ++d) terms[d] = 0;
    for (int64_t half = size_ / 2; half > 0; half /= 2)
      for (int64_t d = 0; d < half; ++d) terms[d] += terms[d + half];
    return terms[0];
  }

  const T* rows_;
  int64_t dim_, size_, distance_;
  std::vector<double> terms_;
};

Tensor canonical_pairs(Tensor query, Tensor reference, Tensor row, Tensor column, int64_t distance) {
  Tensor delta = torch::stable::new_empty(row, {row.numel()}, ScalarType::Double);
  for_type(query, [&](auto zero) {
    using T = decltype(zero);
    in_parallel(row.numel(), 256, [&](int64_t begin, int64_t end) {
      Canonical<T> canonical(reference, distance);
      const int64_t dim = query.size(1), *i = data<const int64_t>(row), *j = data<const int64_t>(column);
      for (int64_t n = begin; n < end; ++n) data<double>(delta)[n] = canonical(data<const T>(query) + i[n] * dim, j[n]);
    });
  });
  return delta;
}

constexpr int64_t kStep = 32;    // entries that are looked at together
constexpr int64_t kBlock = 128;  // queries whose least entries stay in the cache

// An entry as one integer, ordered by (value, column).
template <class T>
struct Key;
template <>
struct Key<float> {
  using Bits = uint32_t;
  using type = uint64_t;
};
template <>
struct Key<double> {
  using Bits = uint64_t;
  using type = unsigned __int128;
};

template <class T, class Bits = typename Key<T>::Bits, class Word = typename Key<T>::type>
Word key_of(T value, int32_t column) {
  constexpr Bits kSign = Bits(1) << (8 * sizeof(Bits) - 1);
  Bits bits;
  std::memcpy(&bits, &value, sizeof bits);
  bits = bits & kSign ? ~bits : bits | kSign;
  return Word(bits) << 32 | static_cast<uint32_t>(column);
}
template <class T, class Bits = typename Key<T>::Bits, class Word = typename Key<T>::type>
T value_of(Word key) {
  constexpr Bits kSign = Bits(1) << (8 * sizeof(Bits) - 1);
  Bits bits = static_cast<Bits>(key >> 32);
  bits = bits & kSign ? bits ^ kSign : ~bits;
  T value;
  std::memcpy(&value, &bits, sizeof bits);
  return value;
}

// The least entries of each query so far: up to `capacity`, then only the `kept` least of them, and what is not below
// the last of these (its limit) does not enter.
template <class T>
struct Least {
  using Word = typename Key<T>::type;
  Word* key;
  int32_t* number;
  T* limit;
  int64_t capacity, kept;

  Least(const Tensor& keys, const Tensor& number, const Tensor& limit, int64_t kept)
      : key(data<Word>(keys)), number(data<int32_t>(number)), limit(data<T>(limit)),
        capacity(keys.size(1) * keys.element_size() / sizeof(Word)), kept(kept) {}

  void push(int64_t q, T x, int64_t column) const {
    Word* keys = key + q * capacity;
    if (!(x < limit[q])) return;
    keys[number[q]++] = key_of(x, static_cast<int32_t>(column));
    if (number[q] < capacity) return;
    std::nth_element(keys, keys + kept - 1, keys + capacity);
    number[q] = static_cast<int32_t>(kept);
    limit[q] = value_of<T>(keys[kept - 1]);
  }
};

// Which x[i] + offset(i) are below limit(i): bit i. Mostly none, which is known sooner.
template <class T, class Offset, class Limit>
uint32_t below(const T* x, int64_t size, Offset offset, Limit limit) {
  uint32_t bits = 0;
  if (size == kStep) {  // a constant, for the sake of the compiler
    int any = 0;
    for (int32_t i = 0; i < kStep; ++i) any |= x[i] + offset(i) < limit(i);
    if (!any) return 0;
    for (int32_t i = 0; i < kStep; ++i) bits |= uint32_t(x[i] + offset(i) < limit(i)) << i;
  } else {
    for (int32_t i = 0; i < size; ++i) bits |= uint32_t(x[i] + offset(i) < limit(i)) << i;
  }
  return bits;
}

// Adds the entries of a tile (Q, C), contiguous along either dimension, whose columns are called first, first + 1, ...
void keep_least(Tensor tile, Tensor bias, int64_t first, Tensor keys, Tensor number, Tensor limit, int64_t kept) {
  const int64_t queries = tile.size(0), columns = tile.size(1);
  for_type(tile, [&](auto zero) {
    using T = decltype(zero);
    const Least<T> least(keys, number, limit, kept);
    const T *entries = data<const T>(tile), *offset = data<const T>(bias);
    const auto along_columns = [&](int64_t begin, int64_t end) {
      for (int64_t q = begin; q < end; ++q) {
        for (int64_t c = 0; c < columns; c += kStep) {
          const T *x = entries + q * tile.stride(0) + c, *offset_here = offset + c, limit = least.limit[q];
          uint32_t bits = below(x, std::min(kStep, columns - c), [&](int32_t i) { return offset_here[i]; },
                                [&](int32_t) { return limit; });
          for (; bits; bits &= bits - 1) {
            const int i = __builtin_ctz(bits);
            least.push(q, x[i] + offset_here[i], first + c + i);
          }
        }
      }
    };
    const auto along_queries = [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; block += kBlock) {
        for (int64_t c = 0; c < columns; ++c) {
          const T here = offset[c];
          for (int64_t q = block; q < std::min(block + kBlock, end); q += kStep) {
            const T *x = entries + c * tile.stride(1) + q, *limit = least.limit + q;
            uint32_t bits = below(x, std::min(kStep, end - q), [&](int32_t) { return here; },
                                  [&](int32_t i) { return limit[i]; });
            for (; bits; bits &= bits - 1) {
              const int i = __builtin_ctz(bits);
              least.push(q + i, x[i] + here, first + c);
            }
          }
        }
      }
    };
    if (tile.stride(1) == 1) in_parallel(queries, 8, along_columns);
    else in_parallel(queries, kBlock, along_queries);
  });
}

// The `kept` least values (Q, kept) float64, ascending, and their columns (Q, kept) int64; infinity and -1 where there
// are fewer.
std::tuple<Tensor, Tensor> sorted_least(Tensor keys, Tensor number, Tensor limit, int64_t kept) {
  const int64_t queries = limit.size(0);
  Tensor value = torch::stable::new_empty(limit, {queries, kept}, ScalarType::Double);
  Tensor column = torch::stable::new_empty(limit, {queries, kept}, ScalarType::Long);
  for_type(limit, [&](auto zero) {
    using T = decltype(zero);
    const Least<T> least(keys, number, limit, kept);
    in_parallel(queries, 8, [&](int64_t begin, int64_t end) {
      for (int64_t q = begin; q < end; ++q) {
        auto* from = least.key + q * least.capacity;
        const int64_t size = std::min<int64_t>(kept, least.number[q]);
        if (size < least.number[q]) std::nth_element(from, from + size, from + least.number[q]);
        std::sort(from, from + size);
        for (int64_t n = 0; n < kept; ++n) {
          data<double>(value)[q * kept + n] = n < size ? value_of<T>(from[n]) : std::numeric_limits<double>::infinity();
          data<int64_t>(column)[q * kept + n] = n < size ? static_cast<int32_t>(from[n]) : -1;
        }
      }
    });
  });
  return {value, column};
}

// The positives of one query, nearest first: canonical distances and indices.
struct Positives {
  const double* delta;
  const int64_t* index;
  int64_t count;
};

// How many positives are before an entry that is none of them. Equal references share a distance, and so the positives
// that are at the same one.
template <class T>
class Places {
 public:
  enum Ties : int64_t { kByIndex, kPositivesFirst, kPositivesLast };
  Places(const Tensor& reference, const Tensor& equal, int64_t distance, int64_t ties)
      : canonical_(reference, distance), equal_(data<const int64_t>(equal)), ties_(ties), known_(reference.size(0)) {}

  // For one query the columns have to ascend.
  int64_t operator()(int64_t number, const T* query, int64_t column, const Positives& positives) {
    Known& known = known_[equal_[column]];
    if (known.query != number) {
      const double other = canonical_(query, column), *begin = positives.delta, *end = begin + positives.count;
      const int64_t first = std::lower_bound(begin, end, other) - begin;
      const int64_t last = std::upper_bound(begin + first, end, other) - begin;
      known = {number, ties_ == kPositivesFirst ? last : first, ties_ == kPositivesLast ? first : last};
    }
    while (known.place < known.last && positives.index[known.place] < column) ++known.place;
    return known.place;
  }

 private:
  struct Known {
    int64_t query = -1, place = 0, last = 0;
  };
  Canonical<T> canonical_;
  const int64_t* equal_;
  int64_t ties_;
  std::vector<Known> known_;
};

// Bins of filter values, equally wide over where the positives are. Those that some positive's interval touches are
// hot; an entry in another one has its place by its bin.
class Bins {
 public:
  std::vector<int32_t> start, stop, number;  // of each bin: positives below it, those below or touching it, entries

  void lay(const std::vector<float>& low, const std::vector<float>& high, int64_t count, int64_t bins) {
    const float range = high[count - 1] - low[0];
    const bool known = range > 0 && range < 1e30f;
    low_ = known ? low[0] : 0;
    scale_ = known ? static_cast<float>(bins) / range : 0;
    most_ = static_cast<float>(bins + 1);
    for (auto* table : {&start, &stop, &number}) table->assign(bins + 3, 0);
    for (int64_t j = 0; j < count; ++j) {
      ++start[of(high[j]) + 1];
      ++stop[of(low[j])];
    }
    for (int64_t b = 1; b < bins + 2; ++b) {
      start[b] += start[b - 1];
      stop[b] += stop[b - 1];
    }
  }
  // Monotone whatever is rounded, which is all that counting needs. NaN is in the last bin.
  int32_t of(float x) const {
    const float bin = (x - low_) * scale_ + 1;
    const float below = bin < most_ ? bin : most_;
    return static_cast<int32_t>(below > 0 ? below : 0);
  }

 private:
  float low_ = 0, scale_ = 0, most_ = 0;
};

// Adds to before[q][p] the entries of a tile (Q, C) that come before positive p of query q and after those before it.
// delta, index (Q, P): positives in order, the first `relevant` of each row; factor, shift, error (Q,): filter values
// are within `error` of factor * delta + shift; equal (R,): of equal references the same one. The tile is spoilt.
void count_before(Tensor tile, Tensor bias, int64_t first, Tensor own, Tensor query, Tensor reference, Tensor equal,
                  Tensor delta, Tensor index, Tensor relevant, Tensor factor, Tensor shift, Tensor error,
                  int64_t distance, int64_t ties, Tensor before) {
  const int64_t columns = tile.size(1), width = index.size(1);
  const int64_t bins = std::clamp<int64_t>(32 * width, 256, 4096);
  for_type(query, [&](auto zero) {
    using T = decltype(zero);
    in_parallel(tile.size(0), 4, [&](int64_t begin, int64_t end) {
      Places<T> places(reference, equal, distance, ties);
      Bins table;
      std::vector<float> low(width), high(width);
      std::vector<int32_t> open(columns + kStep);
      const float *offset = data<const float>(bias), infinity = std::numeric_limits<float>::infinity();
      for (int64_t q = begin; q < end; ++q) {
        const Positives positives{data<const double>(delta) + q * width, data<const int64_t>(index) + q * width,
                                  data<const int64_t>(relevant)[q]};
        if (!positives.count) continue;
        float* row = data<float>(tile) + q * columns;
        int64_t* found = data<int64_t>(before) + q * (width + 1);
        const auto hide = [&](int64_t j) {
          if (j >= first && j < first + columns) row[j - first] = infinity;
        };
        hide(data<const int64_t>(own)[q]);
        const double a = data<const double>(factor)[q], b = data<const double>(shift)[q];
        const double margin = data<const double>(error)[q];
        for (int64_t p = 0; p < positives.count; ++p) {
          hide(positives.index[p]);
          const double at = a * positives.delta[p] + b;
          low[p] = std::nextafter(static_cast<float>(at - margin), -infinity);
          high[p] = std::nextafter(static_cast<float>(at + margin), infinity);
        }
        table.lay(low, high, positives.count, bins);
        const float furthest = std::nextafter(high[positives.count - 1], infinity);
        int64_t opened = 0;
        for (int64_t c = 0; c < columns; c += kStep) {
          const int64_t stop = std::min(c + kStep, columns);
          if (!below(row + c, stop - c, [&](int32_t i) { return offset[c + i]; }, [&](int32_t) { return furthest; }))
            continue;
          int32_t bin[kStep];
          for (int64_t i = c; i < stop; ++i) bin[i - c] = table.of(row[i] + offset[i]);
          for (int64_t i = c; i < stop; ++i) {
            const int32_t here = bin[i - c];
            ++table.number[here];
            open[opened] = static_cast<int32_t>(i);
            opened += table.start[here] < table.stop[here];
          }
        }
        for (int64_t here = 0; here < bins + 2; ++here)
          if (table.start[here] == table.stop[here]) found[table.start[here]] += table.number[here];
        for (int64_t n = 0; n < opened; ++n) {
          const float x = row[open[n]] + offset[open[n]];
          if (!(x < infinity)) continue;
          const int32_t here = table.of(x);
          const float* above = high.data();
          const int64_t at = std::lower_bound(above + table.start[here], above + table.stop[here], x) - above;
          const int64_t column = first + open[n];
          const bool sure = at == positives.count || x < low[at];
          ++found[sure ? at : places(q, data<const T>(query) + q * query.size(1), column, positives)];
        }
      }
    });
  });
}

}  // namespace nearest

STABLE_TORCH_LIBRARY_IMPL(tensormetrics, CPU, m) {
  m.impl("canonical_pairs", TORCH_BOX(&nearest::canonical_pairs));
  m.impl("keep_least", TORCH_BOX(&nearest::keep_least));
  m.impl("sorted_least", TORCH_BOX(&nearest::sorted_least));
  m.impl("count_before", TORCH_BOX(&nearest::count_before));
}
