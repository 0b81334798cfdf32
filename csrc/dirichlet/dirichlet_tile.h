// Confusion matrices of one experiment, for the samples of one tile.
#pragma once
#include <algorithm>

#include "dirichlet_stick_sampler.h"

namespace dirichlet {

template <class T>
class Tile {
 public:
  explicit Tile(const Problem<T>& problem)
      : p_(problem),
        gammas_(size_t(problem.width()) * kTile),
        fields_(size_t(problem.fields()) * kTile),
        sampler_(problem.width() / 2) {}

  void draw(int32_t e, int64_t first) {
    common::vectorized([=](auto) COMMON_INLINE { draw_vectorized(e, first); });
  }

 private:
  COMMON_INLINE void draw_vectorized(int32_t e, int64_t first) {
    const int32_t C = p_.classes;
    sampler_.set_start(p_.start + first);
    std::fill(fields_.begin(), fields_.end(), 0.0);
    std::fill(group_sums_.begin(), group_sums_.end(), Sum{});
    groups_.clear();
    if (gammas(e, 0)) {
      summarize(gammas_.data(), C);
      for (int32_t i = 0; i < C; ++i) divide(gammas_.data() + i * kTile, total_, tp(i));
    }
    for (int32_t i = 0; i < C; ++i) {
      split_class(e, i);
      if (!p_.margins) continue;
      if (p_.group(e, i).cells > 0) add_group_errors(e, i);
      else if (gammas(e, 1 + C + i)) add_errors(i);
    }
    if (p_.margins) finish();
    if (!groups_.empty()) add_unreached(e);
    const int64_t n = std::min<int64_t>(p_.samples - first, kTile);
    for (int32_t f = 0; f < p_.fields(); ++f)
      write(field(f), n, p_.out + (int64_t(e) * p_.fields() + f) * p_.samples + first);
  }

  // Draws a row's variates, up to a common factor for each sample. Returns false if all its alphas are 0.
  COMMON_NOINLINE bool gammas(int32_t e, int32_t r) {
    const Row<T> row = p_.row(e, r);
    const Mode mode = p_.mode(e, r);
    T* const g = gammas_.data();
    if (mode == kUndefined) {
      std::fill(gammas_.begin(), gammas_.end(), std::numeric_limits<T>::quiet_NaN());
      return true;
    }
    if (mode == kCertain)
      for (int32_t j = 0; j < 2 * row.pairs; ++j) std::fill_n(g + j * kTile, kTile, T(row.cells[j].d > 0));
    if (mode == kCertain || mode == kEmpty) return mode == kCertain;
    sampler_.draw(row, g);
    if (mode == kLinear) return true;
    common::vectorized([=](auto) COMMON_INLINE {
      alignas(64) T largest[kTile];
      std::fill_n(largest, kTile, -std::numeric_limits<T>::infinity());
      raise_to_largest(g, 2 * row.pairs, largest);
      divide_by(largest, g, 2 * row.pairs);
    });
    return true;
  }

  // Computes the sum of n values, the largest, and the sum of all others.
  template <class X>
  COMMON_INLINE void summarize(const X* values, int32_t n) {
    summarize(values, n, total_, largest_, rest_);
  }
  // Here and below: the compiler knows that parameters do not alias.
  template <class X>
  COMMON_INLINE static void summarize(const X* __restrict values, int32_t n, double* __restrict total,
                                   double* __restrict largest, double* __restrict rest) {
    for (double* sums : {total, largest, rest}) std::fill_n(sums, kTile, 0.0);
    for (int32_t j = 0; j < n; ++j)
      for (int s = 0; s < kTile; ++s) {
        const double x = values[j * kTile + s], before = largest[s];
        total[s] += x;
        rest[s] += x > before ? before : x;
        largest[s] = x > before ? x : before;
      }
  }

  // The sum of all summarized values except `x`, without cancellation.
  COMMON_INLINE static double sum_without(double x, double total, double largest, double rest) {
    return x == largest ? rest : total - x;
  }

  template <class X>
  COMMON_INLINE static void divide(const X* __restrict x, const double* __restrict by, double* __restrict out) {
    for (int s = 0; s < kTile; ++s) out[s] = x[s] / by[s];
  }
  COMMON_INLINE static void write(const double* __restrict x, int64_t n, T* __restrict out) {
    for (int64_t s = 0; s < n; ++s) out[s] = T(x[s]);
  }

  COMMON_INLINE void split_class(int32_t e, int32_t i) {  // tp holds the prevalence
    if (!gammas(e, 1 + i)) {
      std::fill_n(tp(i), kTile, 0.0);
      return;
    }
    summarize(gammas_.data(), 2);
    split_prevalence(gammas_.data(), total_, tp(i), fn(i));
    for (int32_t f = 0; f < p_.num_weights; ++f) add(weighted_sum(f), tp(i), p_.weight(f, i, i));
  }

  COMMON_INLINE static void split_prevalence(const T* __restrict g, const double* __restrict total, double* __restrict right,
                                  double* __restrict wrong) {
    for (int s = 0; s < kTile; ++s) {
      const double scale = right[s] / total[s];
      right[s] = scale * g[s];
      wrong[s] = scale * g[kTile + s];
    }
  }

  COMMON_INLINE void add_errors(int32_t i) {
    const int32_t C = p_.classes;
    summarize(gammas_.data(), C);
    alignas(64) double factor[kTile];
    divide(fn(i), total_, factor);
    for (int32_t j = 0; j < C; ++j) {
      if (j == i) continue;
      alignas(64) double cell[kTile];
      add_cell(factor, gammas_.data() + j * kTile, total_, largest_, rest_, cell, fp(j), tn(j));
      for (int32_t f = 0; f < p_.num_weights; ++f) add(weighted_sum(f), cell, p_.weight(f, i, j));
    }
  }

  COMMON_INLINE static void add_cell(const double* __restrict factor, const T* __restrict g,
                                     const double* __restrict total, const double* __restrict largest,
                                     const double* __restrict rest, double* __restrict cell, double* __restrict right,
                                     double* __restrict left) {
    for (int s = 0; s < kTile; ++s) {
      cell[s] = factor[s] * g[s];
      right[s] += cell[s];
      left[s] += factor[s] * sum_without(g[s], total[s], largest[s], rest[s]);
    }
  }

  // The same for a row with a group: only its few cells with a mass are added.
  COMMON_INLINE void add_group_errors(int32_t e, int32_t i) {
    if (group_sums_.empty()) {
      group_sums_.resize(size_t(2 * p_.classes) * kTile);
      depths_.resize(size_t(p_.classes) * kTile);
    }
    stick_sampler_.draw(p_, e, i, sampler_);
    groups_.push_back(i);
    alignas(64) double factors[kTile];
    for (int s = 0; s < kTile; ++s) factors[s] = fn(i)[s] / stick_sampler_.total(s);
    stick_sampler_.unreached(factors, depths(i));
    for (int s = 0; s < kTile; ++s) {
      const double factor = factors[s];
      Sum row;
      stick_sampler_.visit(s, [&](int32_t j, T g) COMMON_INLINE {
        const double cell = factor * g;
        row.add(cell);
        columns(j)[s].add(cell);
        for (int32_t f = 0; f < p_.num_weights; ++f) weighted_sum(f)[s] += p_.weight(f, i, j) * cell;
      });
      rows(i)[s] = row;
    }
  }

  COMMON_INLINE void finish() {
    const int32_t C = p_.classes;
    summarize(tp(0), C);
    for (int32_t j = 0; j < C; ++j) add_others(tp(j), total_, largest_, rest_, tn(j));
    if (!group_sums_.empty()) finish_groups();
  }

  COMMON_INLINE static void add_others(const double* __restrict x, const double* __restrict total,
                                       const double* __restrict largest, const double* __restrict rest,
                                       double* __restrict sum) {
    for (int s = 0; s < kTile; ++s) sum[s] += sum_without(x[s], total[s], largest[s], rest[s]);
  }

  // Adds rows with a group: the sum of column j to fp, the sum outside of row and column j to tn. The largest row is
  // never subtracted: the digits of all others would be lost.
  COMMON_INLINE void finish_groups() {
    const int32_t C = p_.classes;
    int32_t largest_row[kTile] = {};
    Sum smaller[kTile];
    for (int32_t i = 1; i < C; ++i)
      for (int s = 0; s < kTile; ++s) largest_row[s] = rows(i)[s].sum > rows(largest_row[s])[s].sum ? i : largest_row[s];
    for (int32_t i = 0; i < C; ++i)
      for (int s = 0; s < kTile; ++s)
        if (i != largest_row[s]) smaller[s].add(rows(i)[s]);
    for (int32_t j = 0; j < C; ++j)
      for (int s = 0; s < kTile; ++s) {
        Sum rest = smaller[s];
        if (j != largest_row[s]) {
          rest.add(rows(largest_row[s])[s]);
          rest.subtract(rows(j)[s]);
        }
        fp(j)[s] += columns(j)[s].sum;
        tn(j)[s] += rest.without(columns(j)[s]);
      }
  }

  // Adds to each column the largest mass of its unreached cells (dirichlet_stick_breaking.h).
  COMMON_INLINE void add_unreached(int32_t e) {
    double shape = 0;
    alignas(64) double first[kTile], bound[kTile];
    std::fill_n(first, kTile, std::numeric_limits<double>::infinity());
    for (const int32_t i : groups_) {
      shape = std::max(shape, p_.group(e, i).shape);
      lower(depths(i), first);
    }
    for (int s = 0; s < kTile; ++s) bound[s] = exp_of(-first[s]) / kNegligibleInColumn;
    const Key key = p_.row(e, 1 + p_.classes).key;
    const double step = 1 / (shape * static_cast<double>(groups_.size()));
    for (int32_t j = 0; j < p_.classes; ++j)
      if (any_below(fp(j), bound)) add_unreached(e, j, key, shape, step, first);
  }

  COMMON_INLINE static void lower(const double* __restrict x, double* __restrict minimum) {
    for (int s = 0; s < kTile; ++s) minimum[s] = x[s] < minimum[s] ? x[s] : minimum[s];
  }
  COMMON_INLINE static bool any_below(const double* __restrict x, const double* __restrict bound) {
    int32_t any = 0;
    for (int s = 0; s < kTile; ++s) any |= x[s] < bound[s];
    return any != 0;
  }

  // The next point of each sample in one column.
  struct Points {
    alignas(64) double depth[kTile], height[kTile], mass[kTile], uniform[kTile];
    alignas(64) uint32_t position[kTile];

    COMMON_INLINE void set(int s, const Point& point, double step) {
      depth[s] += point.step * step;
      height[s] = exp_of(-depth[s]);
      mass[s] = point.mass;
      uniform[s] = point.uniform;
      position[s] = point.position;
    }
  };

  COMMON_INLINE static void propose_points(const Samples& samples, uint32_t j, const Key key, int32_t rows, double step,
                                           Points& points) {
    Bits bits;
    bits.draw(samples, j, kUnreached, key);
    double *__restrict const depth = points.depth, *__restrict const height = points.height;
    double *__restrict const mass = points.mass, *__restrict const uniform = points.uniform;
    uint32_t* __restrict const position = points.position;
    for (int s = 0; s < kTile; ++s) {
      const Point point = point_of(bits[s], rows);
      depth[s] += point.step * step;
      height[s] = -depth[s];
      mass[s] = point.mass;
      uniform[s] = point.uniform;
      position[s] = point.position;
    }
    alignas(64) const double none[kTile] = {};
    divide_by(none, height, 1);
  }

  COMMON_INLINE void add_unreached(int32_t e, int32_t j, const Key key, double shape, double step, const double* first) {
    const Samples& samples = sampler_.samples();
    const auto rows = static_cast<int32_t>(groups_.size());
    Points points;
    std::copy_n(first, kTile, points.depth);
    propose_points(samples, uint32_t(j), key, rows, step, points);
    for (int s = 0; s < kTile; ++s)
      for (uint32_t attempt = 1; points.height[s] > kNegligibleInColumn * fp(j)[s]; ++attempt) {
        const int32_t i = groups_[points.position[s]];
        if (points.uniform[s] * shape < p_.group(e, i).shape && points.depth[s] > depths(i)[s] && p_.in_group(e, i, j)) {
          const double cell = points.height[s] * points.mass[s];
          fp(j)[s] += cell;
          for (int32_t f = 0; f < p_.num_weights; ++f) weighted_sum(f)[s] += p_.weight(f, i, j) * cell;
          break;
        }
        points.set(s, propose_point(samples.low[s], samples.high[s], uint32_t(j), attempt, key, rows), step);
      }
  }

  COMMON_INLINE static void add(double* __restrict sum, const double* __restrict x, double weight) {
    for (int s = 0; s < kTile; ++s) sum[s] += weight * x[s];
  }

  COMMON_INLINE double* field(int32_t f) { return fields_.data() + size_t(f) * kTile; }
  COMMON_INLINE double* tp(int32_t i) { return field(i); }
  COMMON_INLINE double* fn(int32_t i) { return field(p_.classes + i); }
  COMMON_INLINE double* fp(int32_t i) { return field(2 * p_.classes + i); }
  COMMON_INLINE double* tn(int32_t i) { return field(3 * p_.classes + i); }
  COMMON_INLINE double* weighted_sum(int32_t f) { return field(4 * p_.classes + f); }
  // Sums of the wrong answers in rows with a group, by column and by row.
  COMMON_INLINE Sum* columns(int32_t j) { return group_sums_.data() + size_t(j) * kTile; }
  COMMON_INLINE Sum* rows(int32_t i) { return columns(p_.classes + i); }
  COMMON_INLINE double* depths(int32_t i) { return depths_.data() + size_t(i) * kTile; }

  const Problem<T> p_;
  std::vector<T> gammas_;
  std::vector<double> fields_;
  std::vector<Sum> group_sums_;
  std::vector<int32_t> groups_;  // rows with a group
  std::vector<double> depths_;   // depth of the first unreached cell of each row
  alignas(64) double total_[kTile], largest_[kTile], rest_[kTile];
  Sampler<T> sampler_;
  StickSampler<T> stick_sampler_;
};

}  // namespace dirichlet
