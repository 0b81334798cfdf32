"""Rows whose rounding to int16, or whose order, is difficult."""

import pytest
import torch

from tensormetrics.core.native import native
from tensormetrics.retrieval.search import operators

needs_int16 = pytest.mark.skipif(
    not native.has_kernel("supports_int16", "cpu") or not operators.supports_int16(torch.zeros(1)),
    reason="this processor has no int16 products",
)
OTHERS = ("far from 0", "outliers", "clusters", "some clusters", "tiny", "whole numbers")


def kinds(*others):
    """Return kinds of rows, of which a few are in the first tier."""
    return [
        "Gaussian",
        "equal",
        "not finite",
        *(pytest.param(kind, marks=pytest.mark.full) for kind in OTHERS + others),
    ]


def rows(kind: str, n: int, dim: int, generator: torch.Generator) -> torch.Tensor:
    x = torch.randn(n, dim, generator=generator)
    if kind == "far from 0":
        x += 100
    if kind == "sizes":
        x *= 10.0 ** torch.randint(-15, 16, (n, 1), generator=generator)
    if kind == "outliers":
        x[::50] *= 30
        x[:, 3] *= 20
    if kind == "clusters":
        x = 10 * x[torch.arange(n) % (n // 100)] + 0.01 * x
    if kind == "sorted clusters":
        x = 3 * x[torch.arange(n) * 10 // n] + x
    if kind == "tight clusters":
        x = x[torch.arange(n) % 3] + 1e-7 * x
    if kind == "equal":
        x = x[torch.randint(0, n // 10, (n,), generator=generator)]
    if kind == "all equal":
        x = x[:1].repeat(n, 1)
    if kind in ("some clusters", "one class on one rank"):
        part = n // 10 if kind == "some clusters" else n // 3
        x[:part] = x[0] + 1e-3 * x[:part]
    if kind == "not finite":
        x[5, 1], x[70, 0], x[n - 1] = torch.nan, torch.inf, -torch.inf
    if kind == "tiny":
        x *= 1e-30
        x[9] = 0
    if kind == "whole numbers":
        x = (2 * x).round().clamp(-3, 3)
    return x.half() if kind == "half" else x.bfloat16() if kind == "bfloat16" else x
