// Confusion matrices, each drawn by a team of lanes that divide its columns (see lanes.h).
#pragma once
#include "dirichlet_tensors.h"
#include "common/lanes.h"

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
  static constexpr int kLanes = Team::kThreads / Team::kTeams;

 public:
  // memory: `bytes` bytes for each team
  __device__ Matrix(Team team, const Problem<T>& problem, void* memory)
      : team_(team), p_(problem), fields_(static_cast<double*>(memory)),
        depths_(fields_ + problem.fields()),
        gammas_(reinterpret_cast<T*>(depths_ + (problem.has_groups() ? problem.classes : 0))),
        sticks_(gammas_ + problem.width()),
        steps_(sticks_ + kLanes),
        positions_(reinterpret_cast<int32_t*>(steps_ + kLanes)),
        order_(positions_ + kLanes),
        groups_(order_ + problem.classes) {}

  DIRICHLET_FN static int64_t bytes(const Problem<T>& problem) {
    const int64_t cells = problem.fields() * int64_t(sizeof(double)) + problem.width() * int64_t(sizeof(T));
    const int64_t batch = kLanes * int64_t(2 * sizeof(T) + sizeof(int32_t));
    const int64_t of_class = 2 * sizeof(int32_t) + sizeof(double);
    const int64_t group = problem.has_groups() ? batch + problem.classes * of_class : 0;
    return (cells + group + 15) / 16 * 16;
  }

  __device__ void draw(int32_t e, int64_t s) {
    const int32_t C = p_.classes;
    double *const tp = fields_, *const fn = tp + C, *const fp = fn + C, *const tn = fp + C, *const weighted_sum = tn + C;
    const uint64_t sample = uint64_t(p_.start + s);
    for (int32_t f = team_.lane(); f < p_.fields(); f += team_.size()) fields_[f] = 0;
    team_.sync();
    if (gammas(e, 0, sample)) {
      const Summary summary = summarize(gammas_, C);
      for (int32_t j = team_.lane(); j < C; j += team_.size()) tp[j] = gammas_[j] / summary.total;
      team_.sync();
    }
    for (int32_t i = team_.lane(); i < C; i += team_.size()) split_class(e, i, sample, tp[i], fn[i]);
    team_.sync();
    for (int32_t i = 0; p_.margins && i < C; ++i) {
      add_weighted(weighted_sum, i, i, [&](int32_t) { return tp[i]; });
      if (!gammas(e, 1 + C + i, sample)) continue;
      const Summary summary = summarize(gammas_, C);
      const double factor = fn[i] / summary.total;
      if (team_.lane() == 0 && p_.group(e, i).cells > 0) {  // depths_ holds the group's last depth
        const double mean = 1 + p_.group(e, i).cells * p_.group(e, i).shape, last = depths_[i];
        depths_[i] = last < kAllReached ? unreached_depth(factor, summary.total, mean, last)
                                        : std::numeric_limits<double>::infinity();
      }
      for (int32_t j = team_.lane(); j < C; j += team_.size()) {
        if (j == i) continue;
        fp[j] += factor * gammas_[j];
        tn[j] += factor * summary.sum_without(gammas_[j]);
      }
      add_weighted(weighted_sum, i, -1, [&](int32_t j) { return factor * gammas_[j]; });
      team_.sync();
    }
    if (p_.margins) {
      const Summary summary = summarize(tp, C);
      for (int32_t j = team_.lane(); j < C; j += team_.size()) tn[j] += summary.sum_without(tp[j]);
    }
    team_.sync();
    if (p_.has_groups()) add_unreached(e, sample, fp, weighted_sum);
    for (int32_t f = team_.lane(); f < p_.fields(); f += team_.size())
      p_.out[(int64_t(e) * p_.fields() + f) * p_.samples + s] = T(fields_[f]);
    team_.sync();
  }

 private:
  // Draws a row's variates, up to a common factor. Returns false if all its alphas are 0.
  __device__ bool gammas(int32_t e, int32_t r, uint64_t sample) {
    const Mode mode = p_.mode(e, r);
    if (mode == kEmpty) return false;
    const Row<T> row = p_.row(e, r);
    const Group group = r > p_.classes ? p_.group(e, r - 1 - p_.classes) : Group{};
    const uint32_t first = 2 * row.first_pair;
    T depth = 0, largest = -std::numeric_limits<T>::infinity();
    if (group.cells > 0) {
      depth = propose_stick(low(sample), high(sample), first, row.key, T(group.shape), group.cells).step *
              T(1 / (group.cells * group.shape));
      largest = -depth;
    }
    for (int32_t q = team_.lane(); q < row.pairs; q += team_.size()) {
      T* const g = gammas_ + 2 * q;
      draw_cells(mode, row, q, sample, g);
      largest = g[0] > largest ? g[0] : largest;
      largest = g[1] > largest ? g[1] : largest;
    }
    if (mode == kLogs) {
      largest = team_.reduce(largest, [](T& a, const T& b) { a = a < b ? b : a; });
      for (int32_t q = team_.lane(); q < row.pairs; q += team_.size())
        for (int32_t k = 0; k < 2; ++k) gammas_[2 * q + k] = exp_of(gammas_[2 * q + k] - largest);
      depth += largest;
    }
    team_.sync();
    if (group.cells > 0) draw_group(group, e, r - 1 - p_.classes, first, row.key, sample, depth);
    return true;
  }

  // All lanes propose sticks; one of them adds the masses of the cells to gammas_, which is 0 for cells of the group.
  __device__ void draw_group(const Group& group, int32_t e, int32_t i, uint32_t first, const Key& key, uint64_t sample,
                              T depth) {
    const double* const alphas = p_.alphas + (int64_t(e) * p_.classes + i) * p_.classes;
    const double mean = 1 + group.cells * group.shape;
    double total = summarize(gammas_, p_.classes).total;
    if (team_.lane() == 0)
      for (int32_t j = 0, n = 0; j < p_.classes; ++j)
        if (alphas[j] == group.shape && j != i) order_[n++] = j;
    int32_t is_active = 1;
    T last = depth;
    for (int32_t begin = 0; is_active && begin < group.cells; begin += team_.size()) {
      const int32_t mine = begin + team_.lane();
      if (mine < group.cells) {
        const Stick<T> stick = propose_stick(low(sample), high(sample), first + uint32_t(mine), key, T(group.shape),
                                             group.cells - mine);
        sticks_[team_.lane()] = stick.is_accepted ? stick.mass
            : accepted_mass(low(sample), high(sample), first + uint32_t(mine), key, T(group.shape));
        steps_[team_.lane()] = stick.step;
        positions_[team_.lane()] = mine + static_cast<int32_t>(stick.position);
      }
      team_.sync();
      const int32_t end = group.cells - begin < team_.size() ? group.cells : begin + team_.size();
      for (int32_t k = begin; team_.lane() == 0 && is_active && k < end; ++k) {
        const int32_t b = k - begin, column = order_[positions_[b]];
        if (k > 0) depth += steps_[b] * T(1 / ((group.cells - k) * group.shape));
        const T height = exp_of(-depth);
        is_active = k == 0 || double(height) * mean >= kNegligible * total;
        last = is_active ? depth : last;
        const T mass = is_active ? T(1 + group.shape) * sticks_[b] * height : T(0);
        order_[positions_[b]] = order_[k];
        gammas_[column] += mass;
        total += mass;
      }
      is_active = team_.reduce(team_.lane() == 0 ? is_active : 0, [](int32_t& a, const int32_t& b) { a |= b; });
      team_.sync();
    }
    if (team_.lane() == 0) depths_[i] = is_active ? 2 * kAllReached : double(last);
  }

  // Adds to each column the largest mass of its unreached cells (dirichlet_stick_breaking.h).
  __device__ void add_unreached(int32_t e, uint64_t sample, double* fp, double* weighted_sum) {
    const int32_t C = p_.classes;
    int32_t rows = 0;  // rows with a group: counted by every lane, listed by one
    double shape = 0, first = std::numeric_limits<double>::infinity();
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

  __device__ static void draw_cells(Mode mode, const Row<T>& row, int32_t q, uint64_t sample, T* out) {
    const Cell<T>* const cells = row.cells + 2 * q;
    if (mode != kUndefined && cells[0].d == 0 && cells[1].d == 0) {
      for (int32_t k = 0; k < 2; ++k) out[k] = mode == kLogs ? -std::numeric_limits<T>::infinity() : T(0);
      return;
    }
    if (mode == kLinear) draw_pair<true>(sample, row.first_pair + q, row.key, cells, out);
    else if (mode == kLogs) draw_pair<false>(sample, row.first_pair + q, row.key, cells, out);
    else for (int32_t k = 0; k < 2; ++k) out[k] = mode == kCertain ? T(cells[k].d > 0) : std::numeric_limits<T>::quiet_NaN();
  }

  // Splits class i, whose prevalence is in tp, into right and wrong answers, by one lane.
  __device__ void split_class(int32_t e, int32_t i, uint64_t sample, double& tp, double& fn) const {
    const Mode mode = p_.mode(e, 1 + i);
    T g[2] = {0, 0};
    if (mode != kEmpty) draw_cells(mode, p_.row(e, 1 + i), 0, sample, g);
    if (mode == kLogs) {
      const T largest = g[0] < g[1] ? g[1] : g[0];
      g[0] = exp_of(g[0] - largest);
      g[1] = exp_of(g[1] - largest);
    }
    const double scale = mode == kEmpty ? 0 : tp / (double(g[0]) + g[1]);
    tp = scale * g[0];
    fn = scale * g[1];
  }

  template <class X>
  __device__ Summary summarize(const X* values, int32_t n) {
    Summary mine;
    for (int32_t j = team_.lane(); j < n; j += team_.size()) mine.add(values[j]);
    return team_.reduce(mine, [](Summary& a, const Summary& b) { Summary::merge(a, b); });
  }

  // Adds the weighted values of row i: of column `only`, or if that is -1, of all columns except i.
  template <class Value>
  __device__ void add_weighted(double* weighted_sum, int32_t i, int32_t only, Value value) {
    for (int32_t f = 0; f < p_.num_weights; ++f) {
      double sum = 0;
      for (int32_t j = team_.lane(); j < p_.classes; j += team_.size())
        if (only < 0 ? j != i : j == only) sum += p_.weight(f, i, j) * value(j);
      sum = team_.reduce(sum, [](double& a, const double& b) { a += b; });
      if (team_.lane() == 0) weighted_sum[f] += sum;
    }
  }

  Team team_;
  const Problem<T>& p_;
  double* fields_;  // tp, fn, fp, tn of each class, then the weighted sums
  double* depths_;  // depth of the first unreached cell of each row, in matrices with groups
  T* gammas_;
  T *sticks_, *steps_;  // of a group, one per lane
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
