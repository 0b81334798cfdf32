// What lanes.h needs of CUDA, on a CPU: the lanes of a block take turns, each on a stack of its own, from one meeting to
// the next; their order changes, and warps get ahead of each other. So a lane that reads what no meeting has ordered gets
// another answer than the kernel on the CPU, and lanes of a warp that meet in different ways, or not at all, are an error.
#pragma once
#undef _FORTIFY_SOURCE  // its longjmp refuses to change stacks
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#define __device__
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))

struct Index {
  unsigned x;
};
static Index threadIdx, blockIdx;

namespace lanes {

enum Meeting { kNone, kSync, kExchange, kReduce, kBlock, kEnd };

struct Lane {
  ucontext_t start;
  jmp_buf place;
  Meeting at = kNone;
  bool waits = false, started = false;
  int64_t given[2];  // at an exchange, by turns
  int turn = 0;
};

struct Emulation {
  static constexpr size_t kStack = 1 << 18;
  std::vector<Lane> lanes;
  std::vector<char> stacks;
  std::function<void()> body;
  Lane* current = nullptr;  // null between the turns of lanes
  std::string failure;
  uint32_t chance = 0;
  jmp_buf home;
};
static Emulation emulation;  // one block at a time, in one thread

// Ends the block: run_block throws.
[[noreturn]] inline void fail(const std::string& why) {
  emulation.failure = "emulated lanes: " + why;
  if (emulation.current) _longjmp(emulation.home, 1);  // an exception would not leave the stack of a lane
  throw std::runtime_error(emulation.failure);
}

__attribute__((noinline)) inline void meet(Meeting at) {
  Lane& lane = *emulation.current;
  lane.at = at;
  lane.waits = true;
  if (_setjmp(lane.place) == 0) _longjmp(emulation.home, 1);
}

inline void begin_lane() {
  emulation.body();
  emulation.current->at = kEnd;
  emulation.current->waits = true;
  _longjmp(emulation.home, 1);
}

__attribute__((noinline)) inline void resume(Lane& lane, unsigned index) {
  threadIdx.x = index;
  emulation.current = &lane;
  if (_setjmp(emulation.home) != 0) {
    emulation.current = nullptr;
    if (!emulation.failure.empty()) throw std::runtime_error(emulation.failure);
    return;
  }
  if (lane.started) _longjmp(lane.place, 1);
  lane.started = true;
  setcontext(&lane.start);
}

// Lets go the warps whose lanes have met, or else the whole block. False: all lanes are at their end.
inline bool release(std::vector<Lane>& lanes) {
  bool any = false;
  for (size_t first = 0; first < lanes.size(); first += 32) {
    const Meeting at = lanes[first].at;
    const bool wait = lanes[first].waits;
    for (size_t k = first; k < first + 32; ++k) {
      if (lanes[k].at != at || lanes[k].waits != wait) fail("the lanes of a warp part");
      lanes[k].waits = wait && at >= kBlock;
    }
    any |= !lanes[first].waits;
  }
  if (any) return true;
  for (Lane& lane : lanes) {
    if (lane.at != lanes[0].at) fail("the warps of a block part");
    lane.waits = lane.at == kEnd;
  }
  return !lanes[0].waits;
}

// `threads` is a power of two.
inline void run_block(unsigned block, int threads, std::function<void()> body) {
  Emulation& e = emulation;
  e.lanes.assign(threads, Lane());
  e.stacks.resize(threads * Emulation::kStack);
  e.body = std::move(body);
  e.failure.clear();
  blockIdx.x = block;
  for (int k = 0; k < threads; ++k) {
    getcontext(&e.lanes[k].start);
    e.lanes[k].start.uc_stack.ss_sp = e.stacks.data() + k * Emulation::kStack;
    e.lanes[k].start.uc_stack.ss_size = Emulation::kStack;
    makecontext(&e.lanes[k].start, begin_lane, 0);
  }
  uint32_t resting = 0;  // a bit for each warp, for some turns
  for (int turn = 0; turn == 0 || release(e.lanes); ++turn) {
    e.chance = e.chance * 1664525u + 1013904223u;
    if (turn % 32 == 0) resting = e.chance >> 16;
    const int step = e.chance >> 31 ? 1 : threads - 1;
    for (int k = 0, index = e.chance >> 8 & (threads - 1); k < threads; ++k, index = (index + step) % threads) {
      const bool rests = resting >> (index / 32 % 8) & 1;
      if (!rests && !e.lanes[index].waits) resume(e.lanes[index], index);
    }
  }
}

// What the lanes of this one's warp give, in their order.
template <class Use>
auto together(int64_t given, Meeting at, Use use) {
  Lane& mine = *emulation.current;
  const int turn = mine.turn;
  mine.given[turn] = given;
  mine.turn = 1 - turn;
  meet(at);
  const Lane* const warp = &emulation.lanes[threadIdx.x / 32 * 32];
  return use([&](int lane) { return warp[lane].given[turn]; });
}

}  // namespace lanes

inline void __syncwarp() { lanes::meet(lanes::kSync); }
inline void __syncthreads() { lanes::meet(lanes::kBlock); }

inline int __shfl_xor_sync(unsigned, int x, int offset) {
  return lanes::together(x, lanes::kExchange, [&](auto of) { return int(of((threadIdx.x % 32) ^ offset)); });
}

template <class X>
X __reduce_min_sync(unsigned, X x) {  // int or unsigned
  return lanes::together(x, lanes::kReduce, [&](auto of) {
    X least = X(of(0));
    for (int lane = 1; lane < 32; ++lane) least = std::min(least, X(of(lane)));
    return least;
  });
}
