// Confusion matrices of few classes, each drawn by one lane; neighboring lanes draw neighboring samples. Lanes do not wait
// for each other, all have work, and their stores are coalesced. Sums are added in the same order as on the CPU.
#pragma once
#include "dirichlet_team.h"

namespace dirichlet {

template <class T>
class LaneMatrix {
 public:
  // memory: `bytes` bytes, for the lanes of a block
  __device__ LaneMatrix(const Problem<T>& problem, char* memory)
      : p_(problem),
        fields_(reinterpret_cast<double*>(memory) + threadIdx.x),
        gammas_(reinterpret_cast<T*>(memory + kWarp * stored_fields(problem) * int64_t(sizeof(double))) + threadIdx.x) {}

  DIRICHLET_FN static int64_t bytes(const Problem<T>& problem) {
    return kWarp * (stored_fields(problem) * int64_t(sizeof(double)) + problem.width() * int64_t(sizeof(T)));
  }

  __device__ void draw(int32_t e, int64_t s) {
    const int32_t C = p_.classes;
    sample_ = uint64_t(p_.start + s);
    out_ = p_.out + int64_t(e) * p_.fields() * p_.samples + s;
    for (int32_t f = 0; f < stored_fields(p_); ++f) fields_[f * kWarp] = 0;
    double fn = 0;
    // A single loop over all rows: the code that draws variates is not duplicated and stays in the instruction cache.
#pragma unroll 1
    for (int32_t k = 0; k < p_.rows(); ++k) {  // the prevalence; then of each class right or wrong, and the wrong answers
      const int32_t i = p_.margins ? (k - 1) / 2 : k - 1;
      const bool is_error_row = p_.margins && k > 0 && k % 2 == 0;
      const bool any = gammas(e, k == 0 ? 0 : is_error_row ? 1 + C + i : 1 + i);
      if (k == 0) set_prevalence(any);
      else if (!is_error_row) fn = split_class(i, any);
      else if (any) add_errors(i, fn);
    }
    if (!p_.margins) return;
    const Summary summary = summarize(fields_);
    for (int32_t j = 0; j < C; ++j) {
      write_field(2 * C + j, fp(j));
      write_field(3 * C + j, tn(j) + summary.sum_without(tp(j)));
    }
    for (int32_t f = 0; f < p_.num_weights; ++f) write_field(4 * C + f, weighted_sum(f));
  }

 private:
  // Draws a row's variates, up to a common factor. Returns false if all its alphas are 0.
  __device__ bool gammas(int32_t e, int32_t r) {
    const Mode mode = p_.mode(e, r);
    if (mode == kEmpty) return false;
    const Row<T> row = p_.row(e, r);
    if (mode == kLinear || mode == kLogs) variates(row);
    else
      for (int32_t j = 0; j < 2 * row.pairs; ++j)
        gamma(j) = mode == kCertain ? T(row.cells[j].d > 0) : std::numeric_limits<T>::quiet_NaN();
    if (mode != kLogs) return true;
    T largest = -std::numeric_limits<T>::infinity();
    for (int32_t j = 0; j < 2 * row.pairs; ++j) largest = largest < gamma(j) ? gamma(j) : largest;
    for (int32_t j = 0; j < 2 * row.pairs; ++j) gamma(j) = exp_of(gamma(j) - largest);
    return true;
  }

  // All cells get a first proposal. Then each lane repeats its rejected cells: it rarely waits for the lane with the most
  // rejections, while a loop within each pair would wait for the slowest lane of every pair.
  __device__ void variates(const Row<T>& row) {
    const auto pair_of = [&](int32_t q) {
      return Pair<T>{row.cells[2 * q], row.cells[2 * q + 1], sample_, row.first_pair + q, row.key, row.linear};
    };
    uint64_t open = 0;
    for (int32_t q = 0; q < row.pairs; ++q) {
      T values[2];
      bool accepted[2];
      pair_of(q).propose(values, accepted);
      gamma(2 * q) = values[0];
      gamma(2 * q + 1) = values[1];
      open |= (uint64_t(!accepted[0]) | uint64_t(!accepted[1]) << 1) << 2 * q;
    }
    int32_t j = 0;
    for (uint32_t attempt = 0; open;) {
      for (; !(open & 1); open >>= 1) ++j;
      gamma(j) = pair_of(j / 2).attempt(attempt, j % 2);
      if (!(gamma(j) == gamma(j)) && ++attempt < kAttempts) continue;
      open &= ~uint64_t(1);
      attempt = 0;
    }
    for (int32_t q = 0; !row.linear && q < row.pairs; ++q) {
      const T even = row.cells[2 * q].boost, odd = row.cells[2 * q + 1].boost;
      if (even == 0 && odd == 0) continue;
      const RandomBits w = pair_of(q).bits(kBoost);
      gamma(2 * q) += even * log_uniform<T>(w.w0);
      gamma(2 * q + 1) += odd * log_uniform<T>(w.w1);
    }
  }

  __device__ void set_prevalence(bool any) {
    if (!any) return;
    const Summary summary = summarize(gammas_);
    for (int32_t j = 0; j < p_.classes; ++j) tp(j) = gamma(j) / summary.total;
  }

  // Splits class i, whose prevalence is in tp, into right and wrong answers. Returns fn.
  __device__ double split_class(int32_t i, bool any) {
    const double scale = any ? tp(i) / (double(gamma(0)) + gamma(1)) : 0;
    const double right = any ? scale * gamma(0) : 0, wrong = any ? scale * gamma(1) : 0;
    tp(i) = right;
    write_field(i, right);
    write_field(p_.classes + i, wrong);
    for (int32_t f = 0; f < p_.num_weights; ++f) weighted_sum(f) += p_.weight(f, i, i) * right;
    return wrong;
  }

  __device__ void add_errors(int32_t i, double fn) {
    const Summary summary = summarize(gammas_);
    const double factor = fn / summary.total;
    for (int32_t j = 0; j < p_.classes; ++j) {
      if (j == i) continue;
      // Rounded also where no weight needs it: a fused sum would depend on what else is asked for.
      const double g = gamma(j), cell = __dmul_rn(factor, g);
      fp(j) += cell;
      tn(j) += factor * summary.sum_without(g);
      for (int32_t f = 0; f < p_.num_weights; ++f) weighted_sum(f) += p_.weight(f, i, j) * cell;
    }
  }

  template <class X>
  __device__ Summary summarize(const X* values) const {
    Summary summary;
    for (int32_t j = 0; j < p_.classes; ++j) summary.add(values[j * kWarp]);
    return summary;
  }

  // Fields of a sample: tp, fp and tn of each class, then the weighted sums. Final values are written immediately.
  DIRICHLET_FN static int32_t stored_fields(const Problem<T>& p) {
    return p.margins ? 3 * p.classes + p.num_weights : p.classes;
  }
  __device__ double& tp(int32_t j) { return fields_[j * kWarp]; }
  __device__ double& fp(int32_t j) { return fields_[(p_.classes + j) * kWarp]; }
  __device__ double& tn(int32_t j) { return fields_[(2 * p_.classes + j) * kWarp]; }
  __device__ double& weighted_sum(int32_t f) { return fields_[(3 * p_.classes + f) * kWarp]; }
  __device__ T& gamma(int32_t j) { return gammas_[j * kWarp]; }
  __device__ void write_field(int32_t f, double x) { out_[f * p_.samples] = T(x); }

  const Problem<T>& p_;
  double* fields_;  // of this lane, like the following members
  T* gammas_;
  T* out_ = nullptr;
  uint64_t sample_ = 0;
};

// Draws the samples of one of `blocks` blocks.
template <class T>
__device__ void draw_samples(const Problem<T>& problem, int64_t blocks, char* memory) {
  const int64_t of_experiment = (problem.samples + kWarp - 1) / kWarp;
  LaneMatrix<T> matrix(problem, memory);
  for (int64_t k = blockIdx.x; k < problem.experiments * of_experiment; k += blocks) {
    const int64_t s = k % of_experiment * kWarp + threadIdx.x;
    if (s < problem.samples) matrix.draw(static_cast<int32_t>(k / of_experiment), s);
  }
}

}  // namespace dirichlet
