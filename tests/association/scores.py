"""All scores of association with their NumPy oracles, and random sets for them."""

from typing import Any

import numpy as np
import pytest
import torch
from cases import association_oracle as oracle

from tensormetrics.association import functional


def agrees(value: torch.Tensor, expected: object, rtol: float = 1e-10) -> bool:
    np.testing.assert_allclose(value.cpu().numpy(), expected, rtol=rtol, atol=1e-12)
    return value.dtype == torch.float64


# Each row holds the function, its NumPy oracle and its sets; "pp" are pairs of words, "A" is a list of groups.
SCORES = {
    "weat": (functional.weat, oracle.weat, "xyab"),
    "weat_effect_size": (functional.weat_effect_size, oracle.weat_effect_size, "xyab"),
    "sc_weat": (functional.sc_weat, oracle.sc_weat, "wab"),
    "rnd": (functional.rnd, oracle.rnd, "xya"),
    "rnd_cos": (lambda x, y, a: functional.rnd(x, y, a, "cos"), lambda *s: oracle.rnd(*s, "cos"), "xya"),
    "ripa": (functional.ripa, oracle.ripa, "ppa"),
    "ect": (functional.ect, oracle.ect, "xya"),
    "mac": (functional.mac, oracle.mac, "tA"),
    "gweat": (functional.gweat, oracle.gweat, "XA"),
    "same": (functional.same, oracle.same, "tG"),
    "direct_bias": (functional.direct_bias, oracle.direct_bias, "tP"),
    "direct_bias_3": (lambda *s: functional.direct_bias(*s, 0.5, 3), lambda *s: oracle.direct_bias(*s, 0.5, 3), "tP"),
    "direct_bias_mean_difference": (
        lambda *s: functional.direct_bias(*s, direction="mean_difference"),
        lambda *s: oracle.direct_bias(*s, direction="mean_difference"),
        "tP",
    ),
    "rnsb": (functional.rnsb, oracle.rnsb, "tab"),
    "rnsb_free_intercept": (lambda *s: functional.rnsb(*s, 0.7, False), lambda *s: oracle.rnsb(*s, 0.7, False), "tab"),
}


every_score = pytest.mark.parametrize(("score", "expected", "sets"), SCORES.values(), ids=SCORES.keys())


SIZES = {"x": 4, "y": 3, "a": 5, "b": 6, "p": 3, "t": 4, "w": 3}


GROUPS = {"A": (2, 3, 5), "X": (2, 4, 5), "G": (3, 4, 5), "P": (2, 4, 5)}


def random_sets(sets: str, generator: torch.Generator, device: torch.device, *batch_shape: int) -> list[torch.Tensor]:
    shapes = [GROUPS.get(s) or (SIZES[s], 5) for s in sets]
    return [torch.randn(*batch_shape, *shape, generator=generator, dtype=torch.float64).to(device) for shape in shapes]


def precision(sets: str) -> float:
    return 1e-5 if sets == "tab" else 1e-10  # SciPy minimizes the logistic loss to no higher precision


def with_mask(sets: str, tensors: list[torch.Tensor], name: str, mask: torch.Tensor) -> list[Any]:
    """Return the tensors; those of the set `name` get a mask (..., W)."""
    return [functional.WordSet(t, mask) if s == name else t for s, t in zip(sets, tensors, strict=True)]
