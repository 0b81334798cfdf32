// Cells of a row that share one small shape a: of n, the few that have a mass are drawn, and the rest are 0.
//
// A cell is Gamma(1 + a) exp(-y), y exponential with mean 1 / a. In the order of their depths y the cells come at random
// without replacement, and each step to the next depth is exponential, the k-th with mean 1 / ((n - k) a) (Rényi 1953,
// doi:10.1007/BF02127580). Given one cell at depth y, those from it on have a mean of exp(-y) (1 + n a) at most: they are
// 0 where that is below 2^-53 of the row's mass so far.
//
// Gamma(1 + a) is (1 + a) z, z exponential and accepted with probability (z e^(1 - z))^a, which is above 0.99 on average.
#pragma once
#include "dirichlet.h"

namespace dirichlet {

constexpr uint32_t kStick = 0x40000000;        // the attempt numbers of sticks begin here
constexpr int32_t kGroupCells = 64;            // fewer are drawn one by one,
constexpr double kGroupShape = 0x1p-8;         // as are those with a larger shape: some 40 n a cells have a mass,
constexpr double kGroupMass = 16;              // and those that have more of it together
constexpr double kNegligible = 0x1p-53;

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

}  // namespace dirichlet
