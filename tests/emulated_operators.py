"""Operators as CUDA lanes compute them, emulated on the CPU. This command builds them:

TENSORMETRICS_TESTING=1 python setup.py build_ext --inplace
"""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tensormetrics.assignment._op import SCHEMA
from tensormetrics.posterior.sampling.operators import SUMS

BUILT = (Path(__file__).parent / "_testing.so").exists()
LIBRARY = torch.library.Library("tensormetrics", "FRAGMENT")
for name, schema, teams in (("lsa", SCHEMA, ("warp", "block")), ("dirichlet_sums", SUMS, ("lane", "warp", "block"))):
    for team in teams:
        LIBRARY.define(f"{name}_{team}{schema}")
if BUILT:
    torch.ops.load_library(Path(__file__).parent / "_testing.so")


def lanes(name: str) -> Callable[..., tuple[Tensor, ...]]:
    """Return the emulated operator of that name; calling it skips the test where it was not built."""

    def call(*arguments: object, **options: object) -> tuple[Tensor, ...]:
        if not BUILT:
            pytest.skip("TENSORMETRICS_TESTING=1 python setup.py build_ext --inplace builds the emulated lanes")
        return getattr(torch.ops.tensormetrics, name)(*arguments, **options)

    return call
