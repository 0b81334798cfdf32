// Ctrl-C in the middle of a call: one thread of Python makes the call, another one waits for it, and sets a flag that
// loops read between tiles, rows or samples. What a stopped call leaves behind is thrown away.
#pragma once
#include <cstdint>

namespace stop {

inline thread_local const int8_t* of_this_thread = nullptr;  // the flag of the call that it makes; null: none

inline bool asked(const int8_t* flag) { return flag && __atomic_load_n(flag, __ATOMIC_RELAXED); }

// Made in the thread of the call, read in all that work for it.
class Flag {
 public:
  bool operator()() const { return asked(flag_); }

 private:
  const int8_t* flag_ = of_this_thread;
};

}  // namespace stop

extern "C" __attribute__((used, visibility("default"))) inline void tensormetrics_stop_flag(const int8_t* flag) {
  stop::of_this_thread = flag;
}
