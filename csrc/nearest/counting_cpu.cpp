// Counts for each query the references that are nearer than each of its relevant references, the positives. Float32 filter
// values, which come from matrix products and approximate distances up to an error bound, decide most comparisons; exact
// (canonical) distances decide the others.
#include "canonical.h"
#include "tiles.h"

namespace nearest {

constexpr int64_t kRows = 64, kColumns = 8192;  // of a tile; bins are laid out for each of its rows

// The positives of one query, nearest first: canonical distances and indices.
struct Positives {
  const double* delta;
  const int64_t* index;
  int64_t count;
};

// Finds the positions of references that are no positives: the number of positives before them, by exact distances. Equal
// references have equal distances and so equal positions.
class Positions {
 public:
  enum Ties : int64_t { kByIndex, kPositivesFirst, kPositivesLast };
  Positions(const Tensor& reference, const Tensor& equal, int64_t distance, int64_t ties)
      : canonical_(reference, distance), equal_(data<const int64_t>(equal)), ties_(ties), cached_(kCacheSize),
        is_new_(kColumns), columns_(kColumns), delta_(kColumns) {}

  // Adds 1 to the count of the position of each of `count` references, at most kColumns, given by `columns`, which must
  // ascend for a query, also from call to call: positions that are cached for ties only move up.
  void add(int64_t query_index, const double* query, const int64_t* columns, int64_t count, const Positives& positives,
           int64_t* counts) {
    int64_t num_columns = 0;
    for (int64_t n = 0; n < count; ++n) {
      Cached& cached = cached_[slot(columns[n])];
      is_new_[n] = cached.query != query_index || cached.equal != equal_[columns[n]];
      if (!is_new_[n]) continue;
      cached.query = query_index, cached.equal = equal_[columns[n]];
      columns_[num_columns++] = columns[n];
    }
    canonical_.to_list(query, columns_.data(), num_columns, delta_.data());
    const double *other = delta_.data(), *const begin = positives.delta, *const end = begin + positives.count;
    for (int64_t n = 0; n < count; ++n) {
      Cached& cached = cached_[slot(columns[n])];
      if (is_new_[n]) {
        const int64_t first = std::lower_bound(begin, end, *other) - begin;
        const int64_t last = std::upper_bound(begin + first, end, *other++) - begin;
        cached.position = ties_ == kPositivesFirst ? last : first;
        cached.last = ties_ == kPositivesLast ? first : last;
      }
      while (cached.position < cached.last && positives.index[cached.position] < columns[n]) ++cached.position;
      ++counts[cached.position];
    }
  }

 private:
  static constexpr int64_t kCacheSize = 4096;
  struct Cached {
    int64_t query = -1, equal = -1, position = 0, last = 0;
  };
  uint64_t slot(int64_t column) const { return static_cast<uint64_t>(equal_[column]) % kCacheSize; }

  Canonical canonical_;
  const int64_t* equal_;
  int64_t ties_;
  std::vector<Cached> cached_;
  std::vector<uint8_t> is_new_;  // columns that are not cached, and so need a distance
  std::vector<int64_t> columns_;
  std::vector<double> delta_;
};

// Bins of filter values: bins of equal width over the range of the positives, one below and one above. A bin that the
// error interval of a positive overlaps is hot; for entries of other bins the bin determines the position.
class Bins {
 public:
  std::vector<int32_t> start, stop, entries;  // of each bin: positives below it, positives below or in it, entries
  std::vector<uint8_t> hot;

  void layout(const std::vector<float>& low, const std::vector<float>& high, int64_t count, int64_t bins) {
    const float range = high[count - 1] - low[0];
    const bool is_valid = range > 0 && range < 1e30f;
    low_ = is_valid ? low[0] : 0;
    scale_ = is_valid ? static_cast<float>(bins) / range : 0;
    max_bin_ = static_cast<float>(bins + 1);
    for (auto* table : {&start, &stop, &entries}) table->assign(bins + 3, 0);
    for (int64_t j = 0; j < count; ++j) {
      ++start[of(high[j]) + 1];
      ++stop[of(low[j])];
    }
    for (int64_t b = 1; b < bins + 2; ++b) {
      start[b] += start[b - 1];
      stop[b] += stop[b - 1];
    }
    hot.resize(bins + 2);
    common::vectorized([bins, first = start.data(), last = stop.data(), hot = hot.data()](auto) COMMON_INLINE {
      for (int64_t b = 0; b < bins + 2; ++b) hot[b] = first[b] < last[b];
    });
  }
  // Monotone in spite of rounding, as counting requires. NaN is in the last bin.
  COMMON_INLINE int32_t of(float x) const {
    const float bin = (x - low_) * scale_ + 1;
    const float below = bin < max_bin_ ? bin : max_bin_;
    return static_cast<int32_t>(below > 0 ? below : 0);
  }

 private:
  float low_ = 0, scale_ = 0, max_bin_ = 0;
};

// The queries, each with its positives in order: filter values are within `error` of factor * delta + shift.
struct Queries {
  const Tensor &query, &delta, &index, &relevant, &factor, &shift, &error;

  int64_t width() const { return index.size(1); }
  const double* row(int64_t q) const { return data<const double>(query) + q * query.size(1); }
  Positives positives(int64_t q) const {
    return {data<const double>(delta) + q * width(), data<const int64_t>(index) + q * width(),
            data<const int64_t>(relevant)[q]};
  }
};

// Entries of references start, start + 1, ...: filter values are x[c] + bias[c].
struct Entries {
  const float *x, *bias;
  int64_t columns, start;
};

// Counts for one query at a time, in one thread.
class Counter {
 public:
  Counter(const Queries& queries, const Positions& positions)
      : queries_(queries), positions_(positions), num_bins_(std::clamp<int64_t>(32 * queries.width(), 256, 4096)), low_(queries.width()),
        high_(queries.width()), open_(kColumns + kStep), uncertain_(kColumns), counts_(queries.width() + 1) {}

  // Counts the entries between each positive of query q and its predecessor. The last count, of entries after all
  // positives, is a part of them only: blocks of such entries are skipped.
  const std::vector<int64_t>& operator()(int64_t q, const Entries& entries) {
    const Positives positives = queries_.positives(q);
    edges(q, positives);
    const int64_t opened = fill_bins(entries, std::nextafter(high_[positives.count - 1], kInfinity));
    count_open(q, positives, entries, opened);
    return counts_;
  }

 private:
  static constexpr float kInfinity = std::numeric_limits<float>::infinity();

  // Bounds of the filter value of each positive, and bins over all bounds.
  void edges(int64_t q, const Positives& positives) {
    const double factor = data<const double>(queries_.factor)[q], shift = data<const double>(queries_.shift)[q];
    const double error = data<const double>(queries_.error)[q];
    for (int64_t p = 0; p < positives.count; ++p) {
      const double value = factor * positives.delta[p] + shift;
      low_[p] = std::nextafter(static_cast<float>(value - error), -kInfinity);
      high_[p] = std::nextafter(static_cast<float>(value + error), kInfinity);
    }
    bins_.layout(low_, high_, positives.count, num_bins_);
  }

  // Counts the entries of all blocks that have one below `furthest` by their bins, lists those in hot bins, and returns the
  // length of the list.
  int64_t fill_bins(const Entries& entries, float furthest) {
    const float *x = entries.x, *bias = entries.bias;
    const uint8_t* hot = bins_.hot.data();
    int32_t *bin_counts = bins_.entries.data(), *open = open_.data();
    int64_t opened = 0;
    common::vectorized([=, columns = entries.columns, bins = &bins_, &opened](auto) COMMON_INLINE {
      int64_t count = 0;
      for (int64_t c = 0; c < columns; c += kStep) {
        const int64_t stop = std::min(c + kStep, columns);
        if (!below(x + c, stop - c, [=](int32_t i) COMMON_INLINE { return bias[c + i]; },
                   [=](int32_t) COMMON_INLINE { return furthest; }))
          continue;
        int32_t bin[kStep];
        for (int64_t i = c; i < stop; ++i) bin[i - c] = bins->of(x[i] + bias[i]);
        for (int64_t i = c; i < stop; ++i) {
          const int32_t b = bin[i - c];
          ++bin_counts[b];
          open[count] = static_cast<int32_t>(i);
          count += hot[b];
        }
      }
      opened = count;
    });
    return opened;
  }

  // Adds up the counts: all entries of a bin that is not hot share a position, each listed entry has its own.
  void count_open(int64_t q, const Positives& positives, const Entries& entries, int64_t opened) {
    std::fill(counts_.begin(), counts_.end(), 0);
    for (int64_t b = 0; b < num_bins_ + 2; ++b)
      if (!bins_.hot[b]) counts_[bins_.start[b]] += bins_.entries[b];
    const float* high = high_.data();
    int64_t num_uncertain = 0;
    for (int64_t n = 0; n < opened; ++n) {
      const int64_t c = open_[n];
      const float value = entries.x[c] + entries.bias[c];
      if (!(value < kInfinity)) continue;
      const int32_t b = bins_.of(value);
      const int64_t position = std::lower_bound(high + bins_.start[b], high + bins_.stop[b], value) - high;
      const bool is_certain = position == positives.count || value < low_[position];
      if (is_certain) ++counts_[position];
      else uncertain_[num_uncertain++] = entries.start + c;
    }
    positions_.add(q, queries_.row(q), uncertain_.data(), num_uncertain, positives, counts_.data());
  }

  const Queries& queries_;
  Positions positions_;
  Bins bins_;
  int64_t num_bins_;
  std::vector<float> low_, high_;  // of each positive
  std::vector<int32_t> open_;      // columns in hot bins
  std::vector<int64_t> uncertain_;    // references whose distances determine their position
  std::vector<int64_t> counts_;
};

// Adds to before[q][p] the entries that come before positive p of query q and after those before it, among x: (Q, D)
// times rows: (C, D), transposed, + bias: of references first, first + 1, ...
// delta, index (Q, P): positives in order, the first `relevant` of each row; factor, shift, error (Q,): as in `Queries`;
// equal (R,): a number for each set of equal references.
void count_before(Tensor x, Tensor rows, Tensor bias, int64_t first, Tensor self_index, std::optional<Tensor> ignored,
                  Tensor query, Tensor reference, Tensor equal, Tensor delta, Tensor index, Tensor relevant,
                  Tensor factor, Tensor shift, Tensor error, int64_t distance, int64_t ties, Tensor before) {
  common::check("count_before",
                "x: float32 Q D, rows: float32 C D, bias: float32 B, self_index: int64 Q, "
                "ignored: strided bool Q J, query: float64 Q E, reference: strided rows R E, equal: int64 R, delta: float64 Q P, index: int64 Q P, "
                "relevant: int64 Q, factor: float64 Q, shift: float64 Q, error: float64 Q, before: int64 Q P+1",
                x, rows, bias, self_index, ignored, query, reference, equal, delta, index, relevant, factor, shift, error, before);
  common::check_integer("count_before", "first", first, 0, std::min(bias.size(0), reference.size(0)) - rows.size(0));
  common::check_integer("count_before", "distance", distance, 0, kDistances - 1);
  common::check_integer("count_before", "ties", ties, 0, Positions::kPositivesLast);
  common::check_range<int64_t>("count_before", "relevant", relevant, index.size(1) + 1);
  const Queries queries{query, delta, index, relevant, factor, shift, error};
  const int64_t width = queries.width();
  Locks locks(x.size(0));
  // Few queries are split so that every thread has a tile.
  const int64_t threads = torch::stable::get_num_threads();
  const int64_t height = std::clamp<int64_t>((x.size(0) + threads - 1) / threads, 1, kRows);
  for_tiles<float>("count_before", x, rows, height, kColumns, -x.size(0), [&] {
    const Positions positions(reference, equal, distance, ties);
    return [&, count = Counter(queries, positions)](const Tile<float>& tile) mutable {
      const int64_t start = first + tile.column;
      tile.mask_out(self_index, ignored, first);
      for (int64_t n = 0; n < tile.queries; ++n) {
        const int64_t q = tile.query + n;
        const Positives positives = queries.positives(q);
        if (!positives.count) continue;
        for (int64_t p = 0; p < positives.count; ++p) tile.mask_out(n, positives.index[p] - first);
        const auto& counts = count(q, {tile.row(n), data<const float>(bias) + start, tile.columns, start});
        locks.for_blocks(q, q + 1, [&](int64_t, int64_t) {
          int64_t* sums = data<int64_t>(before) + q * (width + 1);
          for (int64_t p = 0; p <= width; ++p) sums[p] += counts[p];
        });
      }
    };
  });
}

}  // namespace nearest

STABLE_TORCH_LIBRARY_IMPL(tensormetrics, CPU, m) {
  m.impl("count_before", TORCH_BOX(&nearest::count_before));
}
