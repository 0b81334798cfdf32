// Cells of a row with a common small shape a. Of n cells the few with non-negligible mass are drawn; of the others only the
// largest of each column.
//
// A cell is Gamma(1 + a) exp(-y), where the depth y is exponential with mean 1 / a. In the order of their depths the cells
// are a random permutation, and each step to the next depth is exponential, the k-th with mean 1 / ((n - k) a) (Rényi 1953,
// doi:10.1007/BF02127580). Given a cell at depth y, the expected total mass from it on is at most exp(-y) (1 + n a): cells
// after the first one are not reached if that is below 2^-53 of the row's mass so far.
//
// Unreached cells are negligible in their row, but not in their column: all other cells of the column may be smaller, and
// so may the right answers that they are compared with. Exponentials are memoryless: beyond the depth b where the row
// stopped, an unreached cell is Exp(a) deeper. The points of a Poisson process, with rate the number of rows times their
// largest a, are assigned to random rows and accepted with probability a / (largest a) if they exceed their row's b. In
// each column the first accepted point is the smallest depth of its unreached cells. The other masses are omitted: their
// expected fraction is the sum of a over the column, and a column without reached cells has probability
// exp(-37 sum of a). Gamma(1 + a) is approximated by an exponential, with an error of at most a / 2 in law.
//
// Gamma(1 + a) is (1 + a) z; z is exponential and accepted with probability (z e^(1 - z))^a, above 0.99 on average.
#pragma once
#include "dirichlet.h"

namespace dirichlet {

constexpr uint32_t kStick = 0x40000000;        // first attempt index of sticks
constexpr int32_t kGroupCells = 64;            // minimum number of cells; fewer cells are drawn separately
constexpr double kGroupShape = 0x1p-8;         // maximum shape: about 40 n a cells have non-negligible mass
constexpr double kGroupMass = 16;              // maximum sum of shapes
constexpr double kNegligible = 0x1p-53;        // in a row
constexpr double kNegligibleInColumn = 0x1p-30;
constexpr double kAllReached = 1e300;          // deeper than any cell
constexpr uint32_t kUnreached = 0x20000000;    // first attempt index of unreached cells

// The cells of a row with its smallest positive shape.
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
  DIRICHLET_FN bool uses_sticks() const {
    return cells >= kGroupCells && shape <= kGroupShape && cells * shape <= kGroupMass;
  }
};

template <class T>
struct Stick {
  T mass, step;          // z; the step from the previous depth, in units of its mean
  uint32_t position;     // among the remaining cells
  uint32_t is_accepted;  // 1 if z is accepted; 0 if that is undecided
};

template <class T>
DIRICHLET_FN Stick<T> stick_of(const RandomBits& w, T shape, int32_t left) {
  const T z = -log_uniform<T>(w.w0), offset = z - 1;  // ln z >= 1 - 1 / z: (z e^(1 - z))^a >= 1 - a (z - 1)^2 / z
  return {z, -log_uniform<T>(w.w2), uint32_t(uint64_t(w.w3) * uint32_t(left) >> 32),
          uniform<T>(~w.w1) * z > shape * offset * offset};
}

template <class T>
DIRICHLET_FN Stick<T> propose_stick(uint32_t low, uint32_t high, uint32_t index, const Key& key, T shape, int32_t left) {
  return stick_of(block(low, high, index, kStick, key), shape, left);
}

template <class T>
DIRICHLET_FN T accepted_mass(uint32_t low, uint32_t high, uint32_t index, const Key& key, T shape) {
  for (uint32_t attempt = 0; attempt < kAttempts; ++attempt) {
    const RandomBits w = block(low, high, index, kStick + attempt, key);
    const T z = -log_uniform<T>(w.w0);
    if (log_uniform<T>(w.w1) < shape * (1 + log_of(split(z)) - z)) return z;
  }
  return std::numeric_limits<T>::quiet_NaN();
}

// A point of the process of unreached cells of a column.
struct Point {
  double step, mass;  // step from the last point in units of its mean; mass relative to its depth
  double uniform;
  uint32_t position;  // of its row among the rows with a group
};

DIRICHLET_FN Point point_of(const RandomBits& w, int32_t rows) {
  return {-log_uniform<double>(w.w0), -log_uniform<double>(w.w2), uniform<double>(w.w3),
          uint32_t(uint64_t(w.w1) * uint32_t(rows) >> 32)};
}

DIRICHLET_FN Point propose_point(uint32_t low, uint32_t high, uint32_t column, uint32_t attempt, const Key& key,
                                 int32_t rows) {
  return point_of(block(low, high, column, kUnreached + attempt, key), rows);
}

// The depth from which cells of a row are unreached, given the row's sum `total`, the depth `last` of the last reached
// cell, and the `factor` that multiplies the cells. Infinite for factor 0.
DIRICHLET_FN double unreached_depth(double factor, double total, double mean, double last) {
  const double bound = log_of(split(mean / total)) + 36.7368005696771, depth = bound > last ? bound : last;  // 53 ln 2
  return factor > 0 ? depth - log_of(split(factor)) : std::numeric_limits<double>::infinity();
}

}  // namespace dirichlet
