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
      for (int32_t i = 0; i < C; ++i)
        each([](double& share, double total, T g) COMMON_INLINE { share = g / total; }, tp(i), total_, gammas_.data() + i * kTile);
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

  // Calls f(x[s], ...) for each sample. The compiler knows that parameters do not alias, here and above.
  template <class F, class... X>
  COMMON_INLINE static void each(const F& f, X* __restrict... x) {
    for (int s = 0; s < kTile; ++s) f(x[s]...);
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
    each([](double& right, double& wrong, double total, T g, T g_wrong) COMMON_INLINE {
      const double scale = right / total;
      right = scale * g;
      wrong = scale * g_wrong;
    }, tp(i), fn(i), total_, gammas_.data(), gammas_.data() + kTile);
    for (int32_t f = 0; f < p_.num_weights; ++f) add(weighted_sum(f), tp(i), p_.weight(f, i, i));
  }

  COMMON_INLINE void add_errors(int32_t i) {
    const int32_t C = p_.classes;
    summarize(gammas_.data(), C);
    alignas(64) double factors[kTile], cells[kTile];
    each([](double& factor, double wrong, double total) COMMON_INLINE { factor = wrong / total; }, factors, fn(i), total_);
    for (int32_t j = 0; j < C; ++j) {
      if (j == i) continue;
      each([](double& cell, double& right, double& left, double factor, T g, double total, double largest,
              double rest) COMMON_INLINE {
        cell = factor * g;
        right += cell;
        left += factor * sum_without(g, total, largest, rest);
      }, cells, fp(j), tn(j), factors, gammas_.data() + j * kTile, total_, largest_, rest_);
      for (int32_t f = 0; f < p_.num_weights; ++f) add(weighted_sum(f), cells, p_.weight(f, i, j));
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
    for (int32_t j = 0; j < C; ++j)
      each([](double& sum, double x, double total, double largest, double rest) COMMON_INLINE {
        sum += sum_without(x, total, largest, rest);
      }, tn(j), tp(j), total_, largest_, rest_);
    if (!group_sums_.empty()) finish_groups();
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
      each([](double& least, double depth) COMMON_INLINE { least = depth < least ? depth : least; }, first, depths(i));
    }
    for (int s = 0; s < kTile; ++s) bound[s] = exp_of(-first[s]) / kNegligibleInColumn;
    const Key key = p_.row(e, 1 + p_.classes).key;
    const double step = 1 / (shape * static_cast<double>(groups_.size()));
    for (int32_t j = 0; j < p_.classes; ++j) {
      int32_t any = 0;
      for (int s = 0; s < kTile; ++s) any |= fp(j)[s] < bound[s];
      if (any) add_unreached(e, j, key, shape, step, first);
    }
  }

  COMMON_INLINE void add_unreached(int32_t e, int32_t j, const Key key, double shape, double step, const double* first) {
    const Samples& samples = sampler_.samples();
    const auto rows = static_cast<int32_t>(groups_.size());
    Point points[kTile];  // the next of each sample
    alignas(64) double depths_of_points[kTile], heights[kTile];
    Bits bits;
    bits.draw(samples, uint32_t(j), kUnreached, key);
    for (int s = 0; s < kTile; ++s) {
      points[s] = point_of(bits[s], rows);
      depths_of_points[s] = first[s] + points[s].step * step;
      heights[s] = exp_of(-depths_of_points[s]);
    }
    for (int s = 0; s < kTile; ++s)
      for (uint32_t attempt = 1; heights[s] > kNegligibleInColumn * fp(j)[s]; ++attempt) {
        Point& point = points[s];
        double& depth = depths_of_points[s];
        const int32_t i = groups_[point.position];
        if (point.uniform * shape < p_.group(e, i).shape && depth > depths(i)[s] && p_.in_group(e, i, j)) {
          const double cell = heights[s] * point.mass;
          fp(j)[s] += cell;
          for (int32_t f = 0; f < p_.num_weights; ++f) weighted_sum(f)[s] += p_.weight(f, i, j) * cell;
          break;
        }
        point = propose_point(samples.low[s], samples.high[s], uint32_t(j), attempt, key, rows);
        depth += point.step * step;
        heights[s] = exp_of(-depth);
      }
  }

  COMMON_INLINE static void add(double* sums, const double* values, double weight) {
    each([weight](double& sum, double x) COMMON_INLINE { sum += weight * x; }, sums, values);
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
