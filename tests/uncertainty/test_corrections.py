"""p-values of many questions at once."""

import math

import numpy as np
import pytest
import scipy.stats
import torch

from tensormetrics.association import WEAT, Query, WordEmbeddingModel, run_queries
from tensormetrics.uncertainty import correct_p_values


def test_by_hand(device):
    p = torch.tensor([[0.01, 0.04, 0.03], [0.5, math.nan, 0.02]], device=device)
    holm = [[0.03, 0.06, 0.06], [0.5, math.nan, 0.04]]
    bh = [[0.03, 0.04, 0.04], [0.5, math.nan, 0.04]]
    for correction, expected in ("holm", holm), ("bh", bh):
        np.testing.assert_allclose(correct_p_values(p, correction).cpu(), expected, rtol=1e-6)


def test_agreement_with_scipy(generator, device):
    p = torch.rand(50, 20, generator=generator, dtype=torch.float64) ** 3
    expected = scipy.stats.false_discovery_control(p.numpy(), axis=1)
    np.testing.assert_allclose(correct_p_values(p.to(device), "bh").cpu(), expected, rtol=1e-12)


def test_one_false_discovery_in_twenty_families(generator):
    """1,000 families of 20 null questions: even one p-value of at most .05 comes in 1 of 20 of them."""
    p = torch.rand(1000, 20, generator=generator, dtype=torch.float64)
    for correction in ("holm", "bh"):
        assert abs((correct_p_values(p, correction) <= 0.05).any(1).double().mean() - 0.05) < 0.02
    assert (p <= 0.05).any(1).double().mean() > 0.5


def test_queries_of_a_model_are_one_family(generator):
    words = [f"w{i}" for i in range(24)]
    models = [WordEmbeddingModel.from_tensor(torch.randn(24, 5, generator=generator), words, name) for name in "ab"]
    queries = [Query([words[i : i + 4], words[i + 4 : i + 8]], [words[16:20], words[20:]]) for i in range(0, 9, 4)]
    queries = [Query(q.target_sets, q.attribute_sets, [f"t{i}", f"s{i}"]) for i, q in enumerate(queries)]
    asked = {"metric_params": {"calculate_p_value": True}, "value": "p_value", "as_dataframe": False}
    plain = run_queries(WEAT, queries, models, **asked)
    corrected = run_queries(WEAT, queries, models, correction="holm", **asked)
    assert plain.correction is None and corrected.correction == "holm"
    assert torch.equal(corrected.values, correct_p_values(plain.values))
    assert not torch.equal(plain.values, corrected.values)
    with pytest.raises(ValueError, match=r"^correction: got 'holm' with value='result', wanted value='p_value'$"):
        run_queries(WEAT, queries, models, correction="holm")
    with pytest.raises(ValueError, match="^correction: got 'x', wanted one of 'holm', 'bh'$"):
        correct_p_values(plain.values, "x")
