// Conversion of tensors to sampling problems, shared by the CPU and the CUDA file of the operators.
#pragma once
#include <limits>
#include <optional>
#include <vector>

#include "common/arguments.h"
#include "dirichlet_stick_breaking.h"

namespace dirichlet {

using common::data, common::ScalarType, common::Tensor;

// How a row is drawn. A row with a single alpha above 0 is certain: its proportion is 1, without a draw. A row with an
// invalid alpha is nan.
enum Mode : int8_t { kEmpty = 0, kCertain = 1, kLinear = 2, kLogs = 3, kUndefined = 4 };

// Whether variates of this shape can be divided by their sum directly, without logarithms.
DIRICHLET_FN bool is_linear(double alpha) { return alpha == 0 || (alpha >= 1 && alpha < 1e30); }

// Counts of a row's separately drawn alphas: above 0, not linear, invalid.
struct Alphas {
  int32_t positive = 0, nonlinear = 0, undefined = 0;

  DIRICHLET_FN static void merge(Alphas& a, const Alphas& b) {
    a = {a.positive + b.positive, a.nonlinear + b.nonlinear, a.undefined + b.undefined};
  }
};

// Confusion matrices to draw. Row r of an experiment: 0 is the prevalence, 1 + i right and wrong answers in class i,
// 1 + C + i the distribution of wrong answers in class i.
template <class T>
struct Problem {
  int32_t experiments, classes, num_weights;
  bool margins;
  int64_t samples, start;
  const double *prevalence, *alphas, *weights;  // (E, C), (E, C, C), (num_weights, C, C)
  const int64_t* keys;                          // (E, 3, 2): prevalence, split, spread
  T* out;                                       // (E, fields, samples)
  Cell<T>* cells;                               // (E, cells of an experiment); shape 0 for cells of a group
  Group* groups;                                // (E, C): group of wrong answers of each class; cells is 0 without one
  int8_t* modes;                                // (E, rows)

  DIRICHLET_FN int32_t width() const { return classes + classes % 2; }
  DIRICHLET_FN int32_t rows() const { return 1 + classes * (margins ? 2 : 1); }
  DIRICHLET_FN int32_t fields() const { return (margins ? 4 : 2) * classes + num_weights; }
  DIRICHLET_FN int64_t cells_before(int32_t r) const {
    if (r <= classes) return r == 0 ? 0 : width() + 2 * int64_t(r - 1);
    return width() + 2 * int64_t(classes) + int64_t(r - 1 - classes) * width();
  }
  DIRICHLET_FN int64_t cells_of_experiment() const { return cells_before(rows()); }
  DIRICHLET_FN Mode mode(int32_t e, int32_t r) const { return Mode(modes[int64_t(e) * rows() + r]); }
  DIRICHLET_FN Group& group(int32_t e, int32_t i) const { return groups[int64_t(e) * classes + i]; }
  DIRICHLET_FN bool has_groups() const { return margins && classes > kGroupCells; }

  DIRICHLET_FN double weight(int32_t f, int32_t i, int32_t j) const {
    return weights[(int64_t(f) * classes + i) * classes + j];
  }

  DIRICHLET_FN Row<T> row(int32_t e, int32_t r) const {
    const int stream = r == 0 ? 0 : r <= classes ? 1 : 2;
    const int64_t* key = keys + (int64_t(e) * 3 + stream) * 2;
    const int32_t pairs = stream == 1 ? 1 : width() / 2, index = r == 0 ? 0 : (r - 1) % classes;
    return {cells + e * cells_of_experiment() + cells_before(r), pairs, uint32_t(index * pairs),
            {uint32_t(key[0]), uint32_t(key[1])}, mode(e, r) == kLinear};
  }

  DIRICHLET_FN double alpha(int32_t e, int32_t r, int32_t j) const {
    if (r == 0) return j < classes ? prevalence[int64_t(e) * classes + j] : 0;
    const int32_t i = (r - 1) % classes;
    const double* row_alphas = alphas + (int64_t(e) * classes + i) * classes;
    if (r > classes) return j < classes && j != i ? row_alphas[j] : 0;
    if (j == 0) return row_alphas[i];
    double others = 0;
    for (int32_t k = 0; k < classes; ++k) others += k == i ? 0 : row_alphas[k];
    return others;
  }

  DIRICHLET_FN bool in_group(int32_t e, int32_t i, int32_t j) const {
    return j != i && alphas[(int64_t(e) * classes + i) * classes + j] == group(e, i).shape;
  }

  // Finds the group among every `step`-th cell of a row, from `first` on.
  DIRICHLET_FN Group find_group(int32_t e, int32_t r, int32_t first, int32_t step) const {
    Group candidate;
    for (int32_t j = first; has_groups() && r > classes && j < classes; j += step) candidate.add(alpha(e, r, j));
    return candidate;
  }

  // Makes every `step`-th cell of a row, from `first` on.
  DIRICHLET_FN Alphas prepare(int32_t e, int32_t r, const Group& candidate, int32_t first, int32_t step) const {
    Cell<T>* const target = cells + e * cells_of_experiment() + cells_before(r);
    const bool uses_sticks = candidate.uses_sticks();
    Alphas counts;
    for (int32_t j = first; j < (r == 0 || r > classes ? width() : 2); j += step) {
      const double value = alpha(e, r, j), a = uses_sticks && value == candidate.shape ? 0 : value;
      target[j] = make_cell<T>(a);
      Alphas::merge(counts, {a > 0, !is_linear(a), !is_shape<T>(a)});
    }
    return counts;
  }

  DIRICHLET_FN void decide(int32_t e, int32_t r, const Group& candidate, const Alphas& counts) const {
    const bool uses_sticks = candidate.uses_sticks() && counts.undefined == 0;
    const Mode cell_mode = counts.positive == 0    ? kEmpty
                           : counts.positive == 1  ? kCertain
                           : counts.nonlinear == 0 ? kLinear
                                                   : kLogs;
    const Mode group_mode = counts.positive > 0 && counts.nonlinear == 0 ? kLinear : kLogs;
    modes[int64_t(e) * rows() + r] = counts.undefined > 0 ? kUndefined : uses_sticks ? group_mode : cell_mode;
    if (r > classes) group(e, r - 1 - classes) = uses_sticks ? candidate : Group{};
  }
};

template <class T>
Problem<T> make_problem(const Tensor& out, const Tensor& prevalence, const Tensor& alphas,
                        const std::optional<Tensor>& weights, const Tensor& keys, int64_t start) {
  common::check("dirichlet_sums",
                "out: real E F S, prevalence: float64 E C, cells: float64 E C C, weights: float64 G C C, keys: int64 E 3 2",
                out, prevalence, alphas, weights, keys);
  common::check_integer("dirichlet_sums", "start", start, 0, common::kMaxCount);
  constexpr int64_t kMaxSize = std::numeric_limits<int32_t>::max();
  STD_TORCH_CHECK(alphas.size(0) <= kMaxSize && alphas.size(1) <= kMaxSize && (!weights || weights->size(0) <= kMaxSize),
                  "dirichlet_sums: got sizes above 2^31 - 1");
  Problem<T> problem{};
  problem.experiments = static_cast<int32_t>(alphas.size(0));
  problem.classes = static_cast<int32_t>(alphas.size(1));
  problem.num_weights = weights ? static_cast<int32_t>(weights->size(0)) : 0;
  problem.margins = out.size(1) > 2 * alphas.size(1);
  STD_TORCH_CHECK(out.size(1) == problem.fields(), "dirichlet_sums: got out of ", out.size(1), " fields, wanted ",
                  problem.fields());
  problem.samples = out.size(2);
  problem.start = start;
  problem.prevalence = data<const double>(prevalence);
  problem.alphas = data<const double>(alphas);
  problem.weights = data<const double>(weights);
  problem.keys = data<const int64_t>(keys);
  problem.out = data<T>(out);
  return problem;
}

// Weights of items to sum by cell.
struct ItemProblem {
  int64_t experiments, items, cells, samples, start;
  const int64_t* cell;  // (E, items)
  Key key;
  double* out;  // (E, cells, samples)

  DIRICHLET_FN int64_t row(int64_t e, int64_t item) const { return e * cells + cell[e * items + item]; }
};

// Leaves the key empty: CUDA reads it on the device.
inline ItemProblem make_item_problem(const Tensor& out, const Tensor& cells, const Tensor& key, int64_t start) {
  common::check("item_sums", "out: float64 E C S, cells: int64 E N, key: int64 2", out, cells, key);
  common::check_integer("item_sums", "start", start, 0, common::kMaxCount);
  return {out.size(0), cells.size(1), out.size(1), out.size(2), start, data<const int64_t>(cells),
          {}, data<double>(out)};
}

inline void check_log_gamma(const Tensor& out, const Tensor& alpha, const Tensor& keys, int64_t start) {
  common::check_integer("log_gamma", "start", start, 0, common::kMaxCount);
  common::check("log_gamma", "out: real E R C S, alpha: float64 E R C, keys: int64 E 2", out, alpha, keys);
}

inline void check_uniforms(const Tensor& out, const Tensor& key, int64_t draw) {
  common::check_integer("uniforms", "draw", draw, 0, common::kMaxCount);
  common::check("uniforms", "out: float64 N, key: int64 2", out, key);
}

// Calls draw(problem) with tables in host memory.
template <class Draw>
void with_tables(const Tensor& out, const Tensor& prevalence, const Tensor& alphas, const std::optional<Tensor>& weights,
                 const Tensor& keys, int64_t start, Draw draw) {
  common::for_real(out, [&](auto zero) {
    using T = decltype(zero);
    Problem<T> problem = make_problem<T>(out, prevalence, alphas, weights, keys, start);
    std::vector<Cell<T>> cells(problem.experiments * problem.cells_of_experiment());
    std::vector<Group> groups(int64_t(problem.experiments) * problem.classes);
    std::vector<int8_t> modes(int64_t(problem.experiments) * problem.rows());
    problem.cells = cells.data();
    problem.groups = groups.data();
    problem.modes = modes.data();
    for (int32_t e = 0; e < problem.experiments; ++e)
      for (int32_t r = 0; r < problem.rows(); ++r) {
        const Group candidate = problem.find_group(e, r, 0, 1);
        problem.decide(e, r, candidate, problem.prepare(e, r, candidate, 0, 1));
      }
    draw(problem);
  });
}

}  // namespace dirichlet
