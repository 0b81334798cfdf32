"""Keys of many rows, built by column, and keys of few rows, built from tuples, have the same equal rows."""

import random

import pytest
import torch

from tensormetrics.structured.objects.values import columns


def keys(values):
    return columns.Keys(values, str, torch.device("cpu"))


@pytest.mark.parametrize("choices", [3, 10**6], ids=["repeated", "more than 2^31 combinations"])
def test_combined_columns_equal_rows_get_equal_ids(choices, monkeypatch):
    draw = random.Random(0)
    rows = [tuple(draw.randrange(choices) for _ in range(5)) for _ in range(100)] * 2
    a, b, c, d, e = map(keys, zip(*rows, strict=True))
    monkeypatch.setattr(columns, "MAX_TUPLES", 0)
    device = torch.device("cpu")
    nested = columns.combine_keys([columns.combine_keys([a, b], 200, str, device), c, d, e], 200, str, device)
    assert 0 <= nested.ids.min() and nested.ids.max() < nested.size < 2**62
    expected = torch.tensor([[x == y for y in rows] for x in rows])
    assert torch.equal(nested.ids == nested.ids.unsqueeze(1), expected)
    assert nested.values == [((v, w), x, y, z) for v, w, x, y, z in rows]
