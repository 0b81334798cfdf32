"""Null distributions: draws, native counts and exact counts refer to the same cases."""

import dataclasses

import pytest
import torch
from raising import raises

from tensormetrics.association import GWEAT, WEAT
from tensormetrics.association.functional import WordSet
from tensormetrics.association.resampling.null_distribution import ALTERNATIVES, NullDistribution
from tensormetrics.association.resampling.permutation import partition_null, sign_null


def nulls(generator: torch.Generator, device: torch.device) -> dict[str, NullDistribution]:
    u, v = torch.randn(2, 5, 9, generator=generator, dtype=torch.float64).to(device)
    mask = (torch.rand(5, 9, generator=generator) < 0.7).index_fill(-1, torch.tensor([0, 1]), True).to(device)
    words = torch.arange(9, device=device) // 3
    return {
        "partitions": partition_null(u + 0.3, v),
        "partitions with masks": partition_null(WordSet(u + 0.3, mask), WordSet(v, mask.flip(0))),
        "partitions of words": partition_null(WordSet(u + 0.3, words=words), WordSet(v, words=words)),
        "signs": sign_null(u + 0.3),
        "signs with a mask": sign_null(WordSet(u + 0.3, mask)),
        "signs of words": sign_null(WordSet(u + 0.3, words=words)),
    }


@pytest.mark.parametrize("alternative", ALTERNATIVES)
def test_p_value_native_count_equals_count_of_scores(alternative, generator, device):
    for name, null in nulls(generator, device).items():
        generic = dataclasses.replace(null, count=None, margin=1e-10)
        p = null.p_value(alternative, "approximate", 500)
        assert torch.equal(p, generic.p_value(alternative, "approximate", 500)), name
        assert ((p > 1 / 501) & (p <= 1)).any(), name


def test_p_value_exact_without_enumeration_raises(generator):
    x = torch.randn(2, 3, 4, generator=generator)
    null = GWEAT().null_distributions(x, x)["p_value"]
    with raises(ValueError, "method: got 'exact' for cases that can only be drawn (GWEAT, masks); write 'approximate'"):
        null.p_value(method="exact")


def test_p_value_of_subclass_uses_its_null_distribution(generator):
    class Flipped(WEAT):
        def null_distributions(self, x, y, a, b):
            return {"p_value": sign_null((x - y).mean(-1), seed=self.seed)}

    x, y, a, b = torch.randn(4, 5, 3, generator=generator)
    p = Flipped(p_value=True).evaluate(x, y, a, b).details["p_value"]
    assert p == sign_null((x - y).mean(-1)).p_value()
    assert p != WEAT(p_value=True).evaluate(x, y, a, b).details["p_value"]
