"""Reference results of summaries, pooling and comparisons, and the sequences for which they were computed."""

import json
from pathlib import Path

import torch

KNOWN = json.loads((Path(__file__).parent / "known_statistics.json").read_text())
_k = torch.arange(1, 201, dtype=torch.float64)
X = (_k * 0.6180339887498949).frac() ** 2
Y = (_k * 0.7548776662466927).frac() ** 1.5
Z = (_k * 0.41421356237309515).frac() ** 0.5


def close(actual, expected, rtol=1e-9, atol=1e-12):
    expected = torch.as_tensor(expected, dtype=torch.float64)
    actual = torch.as_tensor(actual).cpu().double()
    torch.testing.assert_close(
        actual,
        expected,
        rtol=rtol,
        atol=atol,
        equal_nan=True,
        msg=lambda text: f"got {actual}, wanted {expected}\n{text}",
    )
