"""Stick-breaking against an independent Dirichlet sampler, where classes are absent or never predicted."""

import numpy as np
import pytest
import torch
from dirichlet_oracle import NAMES, assert_same_law, counts_of, reference_metrics, reference_sums

from tensormetrics.posterior.functional import sample_metrics


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("table", ["unpredicted", "absent"])
@pytest.mark.parametrize(
    "C", [65, pytest.param(100, marks=pytest.mark.full), pytest.param(200, marks=pytest.mark.slow)]
)
def test_metrics_of_rare_classes_have_dirichlet_law(C, table, dtype, device):
    S, counts = 600 if C == 200 else 1500, counts_of(C, table)
    expected = reference_metrics(*reference_sums(counts, S, "float64"))
    tensors = sample_metrics(torch.from_numpy(counts).to(device), NAMES, 2 * S, dtype=dtype)
    for name, values in zip(NAMES, tensors, strict=True):
        if name == "log_dor@macro" and dtype == torch.float32:
            continue  # infinite for a class with a share that float32 rounds to 0
        actual = values[:, 0].double().cpu().numpy()
        for j in {0, actual.shape[1] - 1}:
            columns = actual[:, j], expected[name][:, j]
            if dtype == torch.float32:  # it has the same law, up to rounding and to shares that it rounds to 0
                columns = [np.clip(np.round(column, 6), -60, 60) for column in columns]
            assert_same_law(*columns)
