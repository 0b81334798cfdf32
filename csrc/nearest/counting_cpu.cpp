// How many entries come before each positive, among tiles of filter values, which differ from canonical distances by a
// bound.
#include <torch/csrc/stable/library.h>

#include "canonical.h"
#include "common/arguments.h"
#include "tiles.h"

namespace nearest {

constexpr int64_t kRows = 64, kColumns = 8192;  // of a tile; bins are laid out for each of its rows

// The positives of one query, nearest first: canonical distances and indices.
struct Positives {
  const double* delta;
  const int64_t* index;
  int64_t count;
};

// How many positives are before an entry that is none of them. Equal references share a distance, and so the positives
// that are at the same one.
class Places {
 public:
  enum Ties : int64_t { kByIndex, kPositivesFirst, kPositivesLast };
  Places(const Tensor& reference, const Tensor& equal, int64_t distance, int64_t ties)
      : canonical_(reference, distance), equal_(data<const int64_t>(equal)), ties_(ties), asked_(kKnown), known_(kKnown),
        wanted_(kColumns), delta_(kColumns) {}

  // Adds entries to the counts of their places: those of `count` columns, at most kColumns. For one query they have to
  // ascend, from call to call too.
  void add(int64_t number, const double* query, const int64_t* columns, int64_t count, const Positives& positives,
           int64_t* found) {
    int64_t wanted = 0;
    for (int64_t n = 0; n < count; ++n)
      if (asked_[slot(columns[n])].becomes(number, equal_[columns[n]])) wanted_[wanted++] = columns[n];
    canonical_.of_list(query, wanted_.data(), wanted, delta_.data());
    const double *other = delta_.data(), *const begin = positives.delta, *const end = begin + positives.count;
    for (int64_t n = 0; n < count; ++n) {
      Known& known = known_[slot(columns[n])];
      if (known.becomes(number, equal_[columns[n]])) {
        const int64_t first = std::lower_bound(begin, end, *other) - begin;
        const int64_t last = std::upper_bound(begin + first, end, *other++) - begin;
        known.place = ties_ == kPositivesFirst ? last : first;
        known.last = ties_ == kPositivesLast ? first : last;
      }
      while (known.place < known.last && positives.index[known.place] < columns[n]) ++known.place;
      ++found[known.place];
    }
  }

 private:
  static constexpr int64_t kKnown = 4096;
  struct Asked {
    int64_t query = -1, same = -1;

    // Was this another one?
    bool becomes(int64_t number, int64_t equal) {
      const bool other = query != number || same != equal;
      query = number, same = equal;
      return other;
    }
  };
  struct Known : Asked {
    int64_t place = 0, last = 0;
  };
  uint64_t slot(int64_t column) const { return static_cast<uint64_t>(equal_[column]) % kKnown; }

  Canonical canonical_;
  const int64_t* equal_;
  int64_t ties_;
  std::vector<Asked> asked_;  // those of which distances were wanted, in one loop
  std::vector<Known> known_;  // and those of which they are known, in the next one: both loops pass the same columns
  std::vector<int64_t> wanted_;
  std::vector<double> delta_;
};

// Bins of filter values, equally wide over where the positives are. Those that some positive's interval touches are
// hot; an entry in another one has its place by its bin.
class Bins {
 public:
  std::vector<int32_t> start, stop, number;  // of each bin: positives below it, those below or touching it, entries
  std::vector<uint8_t> hot;

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
    hot.resize(bins + 2);
    common::vectorised([bins, first = start.data(), last = stop.data(), hot = hot.data()](auto) COMMON_INLINE {
      for (int64_t b = 0; b < bins + 2; ++b) hot[b] = first[b] < last[b];
    });
  }
  // Monotone whatever is rounded, which is all that counting needs. NaN is in the last bin.
  COMMON_INLINE int32_t of(float x) const {
    const float bin = (x - low_) * scale_ + 1;
    const float below = bin < most_ ? bin : most_;
    return static_cast<int32_t>(below > 0 ? below : 0);
  }

 private:
  float low_ = 0, scale_ = 0, most_ = 0;
};

// The queries, each with its positives in order: filter values are within `error` of factor * delta + shift.
struct Asked {
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

// Counts for one query after the other, in a thread of its own.
class Counter {
 public:
  Counter(const Asked& asked, const Places& places)
      : asked_(asked), places_(places), bins_(std::clamp<int64_t>(32 * asked.width(), 256, 4096)), low_(asked.width()),
        high_(asked.width()), open_(kColumns + kStep), unsure_(kColumns), found_(asked.width() + 1) {}

  // How many entries come before each positive of query q and after those before it; last, those after all.
  const std::vector<int64_t>& operator()(int64_t q, const Entries& entries) {
    const Positives positives = asked_.positives(q);
    edges(q, positives);
    const int64_t opened = fill_bins(entries, std::nextafter(high_[positives.count - 1], kInfinity));
    settle_open(q, positives, entries, opened);
    return found_;
  }

 private:
  static constexpr float kInfinity = std::numeric_limits<float>::infinity();

  // Where the filter value of each positive may lie, and bins over all of these.
  void edges(int64_t q, const Positives& positives) {
    const double factor = data<const double>(asked_.factor)[q], shift = data<const double>(asked_.shift)[q];
    const double error = data<const double>(asked_.error)[q];
    for (int64_t p = 0; p < positives.count; ++p) {
      const double at = factor * positives.delta[p] + shift;
      low_[p] = std::nextafter(static_cast<float>(at - error), -kInfinity);
      high_[p] = std::nextafter(static_cast<float>(at + error), kInfinity);
    }
    table_.lay(low_, high_, positives.count, bins_);
  }

  // Counts the entries below `furthest` by their bins, and lists those in hot ones: how many these are.
  int64_t fill_bins(const Entries& entries, float furthest) {
    const float *x = entries.x, *bias = entries.bias;
    const uint8_t* hot = table_.hot.data();
    int32_t *number = table_.number.data(), *open = open_.data();
    int64_t opened = 0;
    common::vectorised([=, columns = entries.columns, bins = &table_, &opened](auto) COMMON_INLINE {
      int64_t count = 0;
      for (int64_t c = 0; c < columns; c += kStep) {
        const int64_t stop = std::min(c + kStep, columns);
        if (!below(x + c, stop - c, [=](int32_t i) COMMON_INLINE { return bias[c + i]; },
                   [=](int32_t) COMMON_INLINE { return furthest; }))
          continue;
        int32_t bin[kStep];
        for (int64_t i = c; i < stop; ++i) bin[i - c] = bins->of(x[i] + bias[i]);
        for (int64_t i = c; i < stop; ++i) {
          const int32_t here = bin[i - c];
          ++number[here];
          open[count] = static_cast<int32_t>(i);
          count += hot[here];
        }
      }
      opened = count;
    });
    return opened;
  }

  // The counts: bins that no positive touches have one place, and each listed entry gets its own.
  void settle_open(int64_t q, const Positives& positives, const Entries& entries, int64_t opened) {
    std::fill(found_.begin(), found_.end(), 0);
    for (int64_t here = 0; here < bins_ + 2; ++here)
      if (!table_.hot[here]) found_[table_.start[here]] += table_.number[here];
    const float* high = high_.data();
    int64_t unsure = 0;
    for (int64_t n = 0; n < opened; ++n) {
      const int64_t c = open_[n];
      const float value = entries.x[c] + entries.bias[c];
      if (!(value < kInfinity)) continue;
      const int32_t here = table_.of(value);
      const int64_t at = std::lower_bound(high + table_.start[here], high + table_.stop[here], value) - high;
      const bool sure = at == positives.count || value < low_[at];
      if (sure) ++found_[at];
      else unsure_[unsure++] = entries.start + c;
    }
    places_.add(q, asked_.row(q), unsure_.data(), unsure, positives, found_.data());
  }

  const Asked& asked_;
  Places places_;
  Bins table_;
  int64_t bins_;
  std::vector<float> low_, high_;  // of each positive
  std::vector<int32_t> open_;      // columns in hot bins
  std::vector<int64_t> unsure_;    // references whose distances say where they are
  std::vector<int64_t> found_;
};

// Adds to before[q][p] the entries that come before positive p of query q and after those before it, among x: (Q, D)
// times rows: (C, D), transposed, + bias: of references first, first + 1, ...
// delta, index (Q, P): positives in order, the first `relevant` of each row; factor, shift, error (Q,): as in `Asked`;
// equal (R,): of equal references the same one.
void count_before(Tensor x, Tensor rows, Tensor bias, int64_t first, Tensor own, std::optional<Tensor> ignored,
                  Tensor query, Tensor reference, Tensor equal, Tensor delta, Tensor index, Tensor relevant,
                  Tensor factor, Tensor shift, Tensor error, int64_t distance, int64_t ties, Tensor before) {
  common::check("count_before",
                "x: float32 Q D, rows: float32 C D, bias: float32 B, own: int64 Q, ignored: strided bool Q J, "
                "query: float64 Q E, reference: strided rows R E, equal: int64 R, delta: float64 Q P, index: int64 Q P, "
                "relevant: int64 Q, factor: float64 Q, shift: float64 Q, error: float64 Q, before: int64 Q P+1",
                x, rows, bias, own, ignored, query, reference, equal, delta, index, relevant, factor, shift, error, before);
  common::check_integer("count_before", "first", first, 0, std::min(bias.size(0), reference.size(0)) - rows.size(0));
  common::check_integer("count_before", "distance", distance, 0, kDistances - 1);
  common::check_integer("count_before", "ties", ties, 0, Places::kPositivesLast);
  common::check_range<int64_t>("count_before", "relevant", relevant, index.size(1) + 1);
  const Asked asked{query, delta, index, relevant, factor, shift, error};
  const int64_t width = asked.width();
  Locks locks(x.size(0));
  // With few queries every thread has a tile.
  const int64_t threads = torch::stable::get_num_threads();
  const int64_t height = std::clamp<int64_t>((x.size(0) + threads - 1) / threads, 1, kRows);
  for_tiles<float>("count_before", x, rows, height, kColumns, -x.size(0), [&] {
    const Places places(reference, equal, distance, ties);
    return [&, count = Counter(asked, places)](const Tile<float>& tile) mutable {
      const int64_t start = first + tile.column;
      tile.hide(own, ignored, first);
      for (int64_t n = 0; n < tile.queries; ++n) {
        const int64_t q = tile.query + n;
        const Positives positives = asked.positives(q);
        if (!positives.count) continue;
        for (int64_t p = 0; p < positives.count; ++p) tile.hide(n, positives.index[p] - first);
        const auto& found = count(q, {tile.row(n), data<const float>(bias) + start, tile.columns, start});
        locks.each(q, q + 1, [&](int64_t, int64_t) {
          int64_t* sums = data<int64_t>(before) + q * (width + 1);
          for (int64_t p = 0; p <= width; ++p) sums[p] += found[p];
        });
      }
    };
  });
}

}  // namespace nearest

STABLE_TORCH_LIBRARY_IMPL(tensormetrics, CPU, m) {
  m.impl("count_before", TORCH_BOX(&nearest::count_before));
}
