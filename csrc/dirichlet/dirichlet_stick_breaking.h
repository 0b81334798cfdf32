// Cells of a row that share one small shape a: of n, the few that have a mass are drawn, and of the rest the largest of
// each column.
//
// A cell is Gamma(1 + a) exp(-y), y exponential with mean 1 / a. In the order of their depths y the cells come at random
// without replacement, and each step to the next depth is exponential, the k-th with mean 1 / ((n - k) a) (Rényi 1953,
// doi:10.1007/BF02127580). Given one cell at depth y, those from it on have a mean of exp(-y) (1 + n a) at most: but for
// the first one they are not reached where that is below 2^-53 of the row's mass so far.
//
// Unreached cells are negligible in their row, but not in their column: all others of it may be smaller still, and so may
// the right answers that they are compared with. Exponentials have no memory: from the depth b where the row stopped, an
// unreached cell is still Exp(a) deep. The points of a Poisson process, whose rate is the number of rows times their
// largest a, are assigned to rows at random and kept with probability a / (largest a) if they lie beyond their row's b.
// In each column the first point kept is the least depth of its unreached cells. Their other masses are left out: the
// sum of a over a column is their mean share, and a column of which no cell is reached has probability exp(-37 sum of a).
// Here Gamma(1 + a) is taken for exponential, an error of at most a / 2 in law.
//
// Gamma(1 + a) is (1 + a) z, z exponential and accepted with probability (z e^(1 - z))^a, which is above 0.99 on average.
#pragma once
#include "dirichlet.h"

namespace dirichlet {

constexpr uint32_t kStick = 0x40000000;        // the attempt numbers of sticks begin here
constexpr int32_t kGroupCells = 64;            // fewer are drawn one by one,
constexpr double kGroupShape = 0x1p-8;         // as are those with a larger shape: some 40 n a cells have a mass,
constexpr double kGroupMass = 16;              // and those that have more of it together
constexpr double kNegligible = 0x1p-53;        // in a row, and
constexpr double kNegligibleInColumn = 0x1p-30;
constexpr double kAllReached = 1e300;          // deeper than any cell
constexpr uint32_t kUnreached = 0x20000000;    // the attempt numbers of unreached cells begin here

// The cells of a row that have its least positive shape.
struct Group {
  double shape = 0;
  int32_t cells = 0;

  DIRICHLET_FN void add(double alpha) {
    if (alpha > 0) merge(*this, {alpha, 1});
  }
  DIRICHLET_FN static void merge(Group& a, const Group& b) {
    if (b.cells == 0 || (a.cells > 0 && a.shape < b.shape)) return;
    a = {b.shape, b.cells + (a.shape == b.shape ? a.cells : 0)};
  }
  DIRICHLET_FN bool breaks() const {
    return cells >= kGroupCells && shape <= kGroupShape && cells * shape <= kGroupMass;
  }
};

template <class T>
struct Stick {
  T mass, step;    // z; the step from the depth before, in units of its mean
  uint32_t place;  // among the cells that are left
  uint32_t sure;   // is z accepted? 0: that is open
};

template <class T>
DIRICHLET_FN Stick<T> propose_stick(uint32_t low, uint32_t high, uint32_t number, const Key& key, T shape, int32_t left) {
  const Words w = block(low, high, number, kStick, key);
  const T z = -log_uniform<T>(w.w0), beside = z - 1;  // ln z >= 1 - 1 / z: (z e^(1 - z))^a >= 1 - a (z - 1)^2 / z
  return {z, -log_uniform<T>(w.w2), uint32_t(uint64_t(w.w3) * uint32_t(left) >> 32),
          uniform<T>(~w.w1) * z > shape * beside * beside};
}

template <class T>
DIRICHLET_FN T accepted_mass(uint32_t low, uint32_t high, uint32_t number, const Key& key, T shape) {
  for (uint32_t attempt = 0; attempt < kAttempts; ++attempt) {
    const Words w = block(low, high, number, kStick + attempt, key);
    const T z = -log_uniform<T>(w.w0);
    if (log_uniform<T>(w.w1) < shape * (1 + log_of(split(z)) - z)) return z;
  }
  return std::numeric_limits<T>::quiet_NaN();
}

// A point of the process of unreached cells of a column.
struct Point {
  double step, mass;  // step from the last point in units of its mean; mass relative to its depth
  double uniform;
  uint32_t place;  // of its row among those with a group
};

DIRICHLET_FN Point propose_point(uint32_t low, uint32_t high, uint32_t column, uint32_t attempt, const Key& key,
                                 int32_t rows) {
  const Words w = block(low, high, column, kUnreached + attempt, key);
  return {-log_uniform<double>(w.w0), -log_uniform<double>(w.w2), uniform<double>(w.w3),
          uint32_t(uint64_t(w.w1) * uint32_t(rows) >> 32)};
}

// The depth from which cells of a row are unreached: where its sum was `total` and the last one reached lay at `last`,
// for cells that are multiplied by `factor`. Infinite for factor 0.
DIRICHLET_FN double unreached_depth(double factor, double total, double mean, double last) {
  const double bound = log_of(split(mean / total)) + 36.7368005696771, depth = bound > last ? bound : last;  // 53 ln 2
  return factor > 0 ? depth - log_of(split(factor)) : std::numeric_limits<double>::infinity();
}

}  // namespace dirichlet
