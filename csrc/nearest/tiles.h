// Products of embeddings in tiles. A thread computes a tile and processes it from its cache; threads synchronize once per
// call, not once per tile.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <limits>
#include <mutex>
#include <optional>
#include <vector>

#include "canonical.h"
#include "common/parallel.h"
#include "common/interrupt.h"

namespace nearest {

// Entries of queries `query`, ... and columns `column`, ..., row by row.
template <class T>
struct Tile {
  T* entries;
  int64_t query, queries, column, columns;

  T* row(int64_t q) const { return entries + q * columns; }
  void mask_out(int64_t q, int64_t c) const {
    if (c >= column && c < column + columns) row(q)[c - column] = std::numeric_limits<T>::infinity();
  }
  // self_index: (Q,) references; the first column is reference `first`; ignored: (Q, R)
  void mask_out(const Tensor& self_index, const std::optional<Tensor>& ignored, int64_t first) const {
    const int64_t* self = data<const int64_t>(self_index) + query;
    for (int64_t q = 0; q < queries; ++q) mask_out(q, self[q] - first);
    if (!ignored) return;
    const int64_t stop = std::min(column + columns, ignored->size(1) - first), stride = ignored->stride(1);
    for (int64_t q = 0; q < queries; ++q) {
      const bool* mask = data<const bool>(*ignored) + (query + q) * ignored->stride(0);
      for (int64_t c = column; c < stop; ++c)
        if (mask[(first + c) * stride]) row(q)[c - column] = std::numeric_limits<T>::infinity();
    }
  }
};

// out: (Q, C) = x: (Q, D) times y: (C, D), transposed
template <class T>
void multiply(const Tensor& like, const T* x, const T* y, int64_t dim, const Tile<T>& out) {
  const auto matrix = [&](const T* from, std::array<int64_t, 2> sizes, std::array<int64_t, 2> strides) {
    return torch::stable::detail::from(
        torch::stable::from_blob(const_cast<T*>(from), sizes, strides, like.device(), like.scalar_type()));
  };
  std::array<StableIValue, 3> stack{matrix(x, {out.queries, dim}, {dim, 1}), matrix(y, {dim, out.columns}, {1, dim}),
                                    matrix(out.entries, {out.queries, out.columns}, {out.columns, 1})};
  TORCH_ERROR_CODE_CHECK(torch_call_dispatcher("aten::mm", "out", stack.data(), TORCH_ABI_VERSION));
  torch::stable::detail::to<Tensor>(stack[0]);
}

// Passes every tile of x: (Q, D) times y: (C, D), transposed, to the thread's function, which `make()` returns. Columns before
// query + diagonal are skipped, for the first query of a tile.
template <class T, class Make>
void for_tiles(const char* name, const Tensor& x, const Tensor& y, int64_t rows, int64_t columns, int64_t diagonal,
               const Make& make) {
  const int64_t queries = x.size(0), size = y.size(0), dim = x.size(1);
  const int64_t high = (queries + rows - 1) / rows, tiles = high * ((size + columns - 1) / columns);
  std::atomic<int64_t> next{0};
  const stop::Flag stop;
  const int64_t threads = std::min<int64_t>(torch::stable::get_num_threads(), tiles);
  common::in_parallel(name, threads, 1, [&](int64_t, int64_t) {
    std::vector<T> entries(std::min(rows, queries) * std::min(columns, size));
    auto use = make();
    for (int64_t n; (n = next++) < tiles && !stop();) {
      Tile<T> tile{entries.data(), n % high * rows, 0, n / high * columns, 0};
      tile.queries = std::min(rows, queries - tile.query);
      tile.columns = std::min(columns, size - tile.column);
      const int64_t skipped = std::clamp<int64_t>(tile.query + diagonal - tile.column, 0, tile.columns);
      tile.column += skipped;
      tile.columns -= skipped;
      if (!tile.columns) continue;
      multiply(x, data<const T>(x) + tile.query * dim, data<const T>(y) + tile.column * dim, dim, tile);
      use(tile);
    }
  });
}

// Locks for blocks of rows to which several threads write.
class Locks {
 public:
  static constexpr int64_t kBlock = 128;
  explicit Locks(int64_t rows) : locks_(rows / kBlock + 1) {}

  template <class F>
  void for_blocks(int64_t begin, int64_t end, const F& body) {
    for (int64_t stop; begin < end; begin = stop) {
      stop = std::min((begin / kBlock + 1) * kBlock, end);
      const std::lock_guard<std::mutex> lock(locks_[begin / kBlock]);
      body(begin, stop);
    }
  }

 private:
  std::vector<std::mutex> locks_;
};

constexpr int64_t kStep = 32;  // entries that are compared together

// Sets bit i if x[i] + offset(i) < limit(i). Usually no bit is set, which is tested first.
template <class T, class Offset, class Limit>
COMMON_INLINE inline uint32_t below(const T* x, int64_t size, Offset offset, Limit limit) {
  uint32_t bits = 0;
  if (size == kStep) {  // a constant trip count, which compilers vectorize
    int any = 0;
    for (int32_t i = 0; i < kStep; ++i) any |= x[i] + offset(i) < limit(i);
    if (!any) return 0;
    for (int32_t i = 0; i < kStep; ++i) bits |= uint32_t(x[i] + offset(i) < limit(i)) << i;
  } else {
    for (int32_t i = 0; i < size; ++i) bits |= uint32_t(x[i] + offset(i) < limit(i)) << i;
  }
  return bits;
}

}  // namespace nearest
