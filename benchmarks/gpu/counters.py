"""One warm call of each fact between the marks of a profiler: ncu ... python -m benchmarks.gpu.counters REGEX"""

import re
import sys

import torch

from benchmarks.gpu.facts import FACTS, STAND_IN, synchronize

names = [name for name in FACTS if re.search(sys.argv[1], name)]
for name in names:
    call = FACTS[name]()[1]
    call()
    synchronize()
    if not STAND_IN:
        torch.cuda.profiler.start()
        call()
        synchronize()
        torch.cuda.profiler.stop()
print(f"called: {', '.join(names)}" if names else f"no fact matches {sys.argv[1]!r}")
sys.exit(not names)
