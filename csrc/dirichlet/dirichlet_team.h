// Confusion matrices, each drawn by a team of lanes that divide its columns (see lanes.h).
#pragma once
#include "dirichlet_list.h"
#include "dirichlet_tensors.h"

namespace dirichlet {

// The sum of values, the largest, and the sum of all others.
struct Summary {
  double total = 0, largest = 0, rest = 0;

  DIRICHLET_FN void add(double x) { merge(*this, {x, x, 0}); }
  DIRICHLET_FN double sum_without(double x) const { return x == largest ? rest : total - x; }  // without cancellation
  DIRICHLET_FN static void merge(Summary& a, const Summary& b) {
    a.total += b.total;
    a.rest = (a.rest + b.rest) + (a.largest < b.largest ? a.largest : b.largest);
    a.largest = a.largest < b.largest ? b.largest : a.largest;
  }
};

template <class Team, class T>
class Matrix {
  using Warp = lanes::Warp;
  static constexpr int kWarps = Team::kThreads / Team::kTeams / kWarp;
  struct alignas(16) RowSums {
    Summary variates;
    double factor;  // of variates, whose products are masses
  };

 public:
  // memory: `bytes` bytes for each team
  __device__ Matrix(Team team, const Problem<T>& problem, void* memory)
      : team_(team), p_(problem), each_(rows_of_warp(problem)), warp_(Team::lane() / kWarp),
        rows_(static_cast<RowSums*>(memory)),
        fields_(reinterpret_cast<double*>(rows_ + kWarps * each_)),
        depths_(fields_ + problem.fields()),
        gammas_(reinterpret_cast<T*>(depths_ + (problem.has_groups() ? problem.classes : 0))),
        sticks_(gammas_ + kWarps * each_ * problem.width() + warp_ * kWarp),
        steps_(sticks_ + kWarps * kWarp),
        positions_(reinterpret_cast<int32_t*>(steps_ + (kWarps - warp_) * kWarp) + warp_ * kWarp),
        order_(positions_ + (kWarps - warp_) * kWarp + warp_ * problem.classes),
        groups_(order_ + (kWarps - warp_) * problem.classes) {}

  DIRICHLET_FN static int64_t bytes(const Problem<T>& problem) {
    const int64_t rows = kWarps * rows_of_warp(problem), C = problem.classes;
    const int64_t cells = rows * (sizeof(RowSums) + problem.width() * sizeof(T)) + problem.fields() * sizeof(double);
    const int64_t batch = kWarp * (2 * sizeof(T) + sizeof(int32_t)) + C * sizeof(int32_t);
    const int64_t group = problem.has_groups() ? kWarps * batch + C * (sizeof(int32_t) + sizeof(double)) : 0;
    return (cells + group + 15) / 16 * 16;
  }

  // Rows are drawn in steps, a list of them by each warp. A single loop: the code that draws variates is not duplicated.
  __device__ void draw(int32_t e, int64_t s) {
    const int32_t C = p_.classes;
    double *const tp = fields_, *const fp = fields_ + 2 * C, *const tn = fp + C, *const weighted_sum = tn + C;
    const uint64_t sample = uint64_t(p_.start + s);
#pragma unroll 1
    for (int32_t f = team_.lane(); f < p_.fields(); f += team_.size()) fields_[f] = 0;
#pragma unroll 1
    for (int32_t r = 0, end; r < p_.rows(); r = end) {
      const int32_t of_warp = r == 0 ? 1 : r <= C ? (C + kWarps - 1) / kWarps : each_;
      const int32_t last = r == 0 ? 1 : r <= C ? 1 + C : p_.rows(), from = r + warp_ * of_warp;
      end = last < r + kWarps * of_warp ? last : r + kWarps * of_warp;
      const int32_t n = end - from < of_warp ? end - from : of_warp;
      if (n > 0) {
        draw_rows(e, from, n, sample);
        Warp::sync();
        if (r == 0 || r > C) sum_rows(e, from, n, sample);
        else split_classes(e, from, n);
      }
      team_.sync();
      if (r == 0 && p_.mode(e, 0) != kEmpty)
        for (int32_t j = team_.lane(); j < C; j += team_.size()) tp[j] = gammas_[j] / rows_[0].variates.total;
      else if (r > C) add_errors(r - 1 - C, end - r, tp, fp, tn, weighted_sum);
      team_.sync();
    }
    if (p_.margins) {
      const Summary summary = summarize<Team>(tp, C);
      for (int32_t j = team_.lane(); j < C; j += team_.size()) tn[j] += summary.sum_without(tp[j]);
    }
    team_.sync();
    if (p_.has_groups()) add_unreached(e, sample, fp, weighted_sum);
#pragma unroll 1
    for (int32_t f = team_.lane(); f < p_.fields(); f += team_.size())
      p_.out[(int64_t(e) * p_.fields() + f) * p_.samples + s] = T(fields_[f]);
    team_.sync();
  }

 private:
  // One list of several rows leaves fewer lanes idle; two rows have room for the right and wrong answers in all classes.
  DIRICHLET_FN static int32_t rows_of_warp(const Problem<T>& problem) {
    return kWarps > 1 ? 1 : problem.classes <= 128 ? 8 : 4;
  }
  __device__ T* gammas() { return gammas_ + warp_ * each_ * p_.width(); }  // of this warp

  // Draws n rows from row r on, each up to a common factor, or logarithms.
  __device__ void draw_rows(int32_t e, int32_t r, int32_t n, uint64_t sample) {
    const Row<T> first = p_.row(e, r);
    const int8_t* const modes = p_.modes + int64_t(e) * p_.rows() + r;
    const float share = 1 / float(first.pairs);
    T* const g = gammas();
    const auto at = [&](int32_t k, Pair<T>& pair) {
      const Mode mode = Mode(modes[int32_t((float(k) + 0.5f) * share)]);
      pair = {first.cells[2 * k], first.cells[2 * k + 1], sample, first.first_pair + k, first.key, mode == kLinear};
      const bool draws = mode == kLinear || mode == kLogs;
      if (draws && (pair.even.d != 0 || pair.odd.d != 0)) return true;
      const T none = mode == kLogs ? -std::numeric_limits<T>::infinity() : mode == kUndefined ? nan : T(0);
      g[2 * k] = mode == kCertain ? T(pair.even.d > 0) : none;
      g[2 * k + 1] = mode == kCertain ? T(pair.odd.d > 0) : none;
      return false;
    };
    draw_list<Team::kThreads / kWarp, T>(n * first.pairs, at, [&](int32_t k, int32_t odd, T x) { g[2 * k + odd] = x; });
  }

  // Makes variates of logarithms, draws the cells of groups, and sums n rows from row r on, each by as many lanes.
  __device__ void sum_rows(int32_t e, int32_t r, int32_t n, uint64_t sample) {
    const int32_t per_row = kWarp / each_, row = Warp::lane() / per_row, W = p_.width(), i = r + row - 1 - p_.classes;
    const Mode mode = row < n ? p_.mode(e, r + row) : kEmpty;
    const Group group = row < n && i >= 0 ? p_.group(e, i) : Group{};
    T* const g = gammas() + row * W;
    const int32_t from = row < n ? Warp::lane() % per_row : W;
    T depth = 0, largest = -std::numeric_limits<T>::infinity();
    if (group.cells > 0) {
      const Row<T> of = p_.row(e, r + row);
      depth = propose_stick(low(sample), high(sample), 2 * of.first_pair, of.key, T(group.shape), group.cells).step *
              T(1 / (group.cells * group.shape));
      largest = -depth;
    }
    for (int32_t j = from; mode == kLogs && j < W; j += per_row) largest = g[j] > largest ? g[j] : largest;
    largest = lanes::butterfly_reduce(largest, per_row, [](T& a, const T& b) { a = a < b ? b : a; });
    for (int32_t j = from; mode == kLogs && j < W; j += per_row) g[j] = exp_of(g[j] - largest);
    if (p_.has_groups() && r > p_.classes) {
      if (from == 0) depths_[i] = mode == kLogs ? depth + largest : depth;
      Warp::sync();
#pragma unroll 1
      for (int32_t k = 0; k < n; ++k)
        if (p_.group(e, r + k - 1 - p_.classes).cells > 0) draw_group(e, r + k, sample, gammas() + k * W);
      Warp::sync();
    }
    Summary sums;
    for (int32_t j = from; j < W; j += per_row) sums.add(g[j]);
    sums = lanes::butterfly_reduce(sums, per_row, Summary::merge);
    if (from != 0) return;
    const double factor = mode == kEmpty || i < 0 ? 0 : fields_[p_.classes + i] / sums.total;
    rows_[warp_ * each_ + row] = {sums, factor};
    if (group.cells == 0) return;
    const double mean = 1 + group.cells * group.shape, last = depths_[i];
    depths_[i] = last < kAllReached ? unreached_depth(factor, sums.total, mean, last)
                                    : std::numeric_limits<double>::infinity();
  }

  // All lanes of a warp propose sticks; one of them adds the masses of the cells to g, which is 0 for cells of the group.
  // depths_ holds the first depth, and then the last.
  __device__ void draw_group(int32_t e, int32_t r, uint64_t sample, T* g) {
    const int32_t i = r - 1 - p_.classes;
    const Group group = p_.group(e, i);
    const Row<T> row = p_.row(e, r);
    const Key key = row.key;
    const uint32_t first = 2 * row.first_pair;
    const double* const alphas = p_.alphas + (int64_t(e) * p_.classes + i) * p_.classes;
    const double mean = 1 + group.cells * group.shape;
    double total = summarize<Warp>(g, p_.classes).total;
    if (Warp::lane() == 0)
#pragma unroll 1
      for (int32_t j = 0, n = 0; j < p_.classes; ++j)
        if (alphas[j] == group.shape && j != i) order_[n++] = j;
    int32_t is_active = 1;
    T depth = T(depths_[i]), last = depth;
    for (int32_t begin = 0; is_active && begin < group.cells; begin += kWarp) {
      const int32_t mine = begin + Warp::lane();
      if (mine < group.cells) {
        const Stick<T> stick = propose_stick(low(sample), high(sample), first + uint32_t(mine), key, T(group.shape),
                                             group.cells - mine);
        sticks_[Warp::lane()] = stick.is_accepted ? stick.mass
            : accepted_mass(low(sample), high(sample), first + uint32_t(mine), key, T(group.shape));
        steps_[Warp::lane()] = stick.step;
        positions_[Warp::lane()] = mine + static_cast<int32_t>(stick.position);
      }
      Warp::sync();
      const int32_t end = group.cells - begin < kWarp ? group.cells : begin + kWarp;
#pragma unroll 1
      for (int32_t k = begin; Warp::lane() == 0 && is_active && k < end; ++k) {
        const int32_t b = k - begin, column = order_[positions_[b]];
        if (k > 0) depth += steps_[b] * T(1 / ((group.cells - k) * group.shape));
        const T height = exp_of(-depth);
        is_active = k == 0 || double(height) * mean >= kNegligible * total;
        last = is_active ? depth : last;
        const T mass = is_active ? T(1 + group.shape) * sticks_[b] * height : T(0);
        order_[positions_[b]] = order_[k];
        g[column] += mass;
        total += mass;
      }
      is_active = __any_sync(lanes::kFullMask, Warp::lane() == 0 && is_active);
      Warp::sync();
    }
    if (Warp::lane() == 0) depths_[i] = is_active ? 2 * kAllReached : double(last);
  }

  // Splits n classes from row r on, whose prevalence is in fields_, into right and wrong answers.
  __device__ void split_classes(int32_t e, int32_t r, int32_t n) {
#pragma unroll 1
    for (int32_t k = Warp::lane(); k < n; k += kWarp) {
      const Mode mode = p_.mode(e, r + k);
      const T *const g = gammas() + 2 * k, largest = mode != kLogs ? 0 : g[0] < g[1] ? g[1] : g[0];
      const T right = mode == kLogs ? exp_of(g[0] - largest) : g[0], wrong = mode == kLogs ? exp_of(g[1] - largest) : g[1];
      double *const tp = fields_ + r + k - 1, *const fn = tp + p_.classes;
      const double scale = mode == kEmpty ? 0 : *tp / (double(right) + wrong);
      *tp = scale * right;
      *fn = scale * wrong;
    }
  }

  // Adds the errors of n classes from class i on; each lane has columns of its own.
  __device__ void add_errors(int32_t i, int32_t n, const double* tp, double* fp, double* tn, double* weighted_sum) {
    const int32_t C = p_.classes, W = p_.width();
    for (int32_t j = team_.lane(); j < C; j += team_.size()) {
      double right = fp[j], left = tn[j];
      for (int32_t k = 0; k < n; ++k) {
        if (j == i + k) continue;
        const double g = gammas_[k * W + j], factor = rows_[k].factor;
        right += factor * g;
        left += factor * rows_[k].variates.sum_without(g);
      }
      fp[j] = right;
      tn[j] = left;
    }
#pragma unroll 1
    for (int32_t f = 0; f < p_.num_weights; ++f) {
      double sum = 0;
      for (int32_t k = 0; k < n; ++k)
        for (int32_t j = team_.lane(); j < C; j += team_.size())
          sum += p_.weight(f, i + k, j) * (j == i + k ? tp[j] : rows_[k].factor * gammas_[k * W + j]);
      sum = team_.reduce(sum, [](double& a, const double& b) { a += b; });
      if (team_.lane() == 0) weighted_sum[f] += sum;
    }
  }

  // Adds to each column the largest mass of its unreached cells (dirichlet_stick_breaking.h).
  __device__ void add_unreached(int32_t e, uint64_t sample, double* fp, double* weighted_sum) {
    const int32_t C = p_.classes;
    int32_t rows = 0;  // rows with a group: counted by every lane, listed by one
    double shape = 0, first = std::numeric_limits<double>::infinity();
#pragma unroll 1
    for (int32_t i = 0; i < C; ++i) {
      if (p_.group(e, i).cells == 0) continue;
      if (team_.lane() == 0) groups_[rows] = i;
      ++rows;
      shape = shape < p_.group(e, i).shape ? p_.group(e, i).shape : shape;
      first = depths_[i] < first ? depths_[i] : first;
    }
    team_.sync();
    if (rows == 0) return;
    const Key key = p_.row(e, 1 + C).key;
    const double step = 1 / (shape * static_cast<double>(rows));
    for (int32_t begin = 0; begin < C; begin += team_.size()) {
      const int32_t j = begin + team_.lane();
      double depth = first, cell = 0;
      int32_t row = 0;
#pragma unroll 1
      for (uint32_t attempt = 0; j < C; ++attempt) {
        const Point point = propose_point(low(sample), high(sample), uint32_t(j), attempt, key, rows);
        depth += point.step * step;
        const double height = exp_of(-depth);
        if (!(height > kNegligibleInColumn * fp[j])) break;
        row = groups_[point.position];
        if (!(point.uniform * shape < p_.group(e, row).shape && depth > depths_[row] && p_.in_group(e, row, j))) continue;
        cell = height * point.mass;
        fp[j] += cell;
        break;
      }
#pragma unroll 1
      for (int32_t f = 0; f < p_.num_weights; ++f) {
        double sum = cell > 0 ? p_.weight(f, row, j) * cell : 0;
        sum = team_.reduce(sum, [](double& a, const double& b) { a += b; });
        if (team_.lane() == 0) weighted_sum[f] += sum;
      }
    }
    team_.sync();
  }

  __device__ static uint32_t low(uint64_t sample) { return uint32_t(sample); }
  __device__ static uint32_t high(uint64_t sample) { return uint32_t(sample >> 32); }

  template <class Lanes, class X>
  __device__ static Summary summarize(const X* values, int32_t n) {
    Summary mine;
    for (int32_t j = Lanes::lane(); j < n; j += Lanes::size()) mine.add(values[j]);
    return Lanes::reduce(mine, Summary::merge);
  }

  static constexpr T nan = std::numeric_limits<T>::quiet_NaN();
  Team team_;
  const Problem<T>& p_;
  int32_t each_, warp_;  // rows that a warp draws at once; this warp
  RowSums* rows_;        // of the rows of a step
  double* fields_;       // tp, fn, fp, tn of each class, then the weighted sums
  double* depths_;       // depth of the first unreached cell of each row, in matrices with groups
  T* gammas_;            // of the rows of a step
  T *sticks_, *steps_;   // of a group, one per lane
  int32_t *positions_, *order_, *groups_;  // positions; the remaining columns; the rows with a group
};

// Draws the samples of one block. `scratch` is the memory of all teams, or null if `shared` is the memory of this block.
template <class Team, class T>
__device__ void draw_assigned(const Problem<T>& problem, int64_t teams, char* scratch, char* shared) {
  const int64_t within = threadIdx.x / Team::size(), team = int64_t(blockIdx.x) * Team::kTeams + within;
  const int64_t bytes = Matrix<Team, T>::bytes(problem);
  Matrix<Team, T> matrix(Team{}, problem, scratch ? scratch + team * bytes : shared + within * bytes);
  for (int64_t k = team; k < problem.experiments * problem.samples; k += teams)
    matrix.draw(static_cast<int32_t>(k / problem.samples), k % problem.samples);
}

}  // namespace dirichlet
