"""Conventions of all scores: zero vectors, devices, and the meaning of the defaults."""

import pytest
import torch
from raising import raises

from tensormetrics.association import functional
from tensormetrics.association.functional import permutation_p_value


def test_scores_zero_vector_has_zero_cosines(device):
    """The cosine of a zero vector with any vector is 0, its cosine distance 1."""
    zero, e, f = torch.zeros(1, 2, device=device), *torch.eye(2, device=device).split(1)
    assert functional.mac(zero, torch.stack([e, zero])) == 1 and functional.mac(e, zero[None]) == 1
    assert functional.weat(e, zero, e, f) == 1  # s(e) = 1 - 0, s(zero) = 0
    assert functional.weat(e, f, e, zero) == 1  # s = cos(w, e) - 0
    assert functional.rnd(e, zero, e, "cos") == -1 and functional.rnd(e, zero, e, "cos_similarity") == 1
    assert functional.gweat(torch.stack([e, zero]), torch.stack([e, zero])) == 0.5
    words = torch.cat([e, zero, -e])
    assert functional.ect(e, -e, words) == -1  # the zero vector ranks between the others
    assert float(functional.sc_weat(e, torch.cat([e, zero]), torch.cat([-e, zero]))) == pytest.approx(2**0.5)
    assert functional.same(zero, torch.stack([e, f])) == functional.direct_bias(zero, torch.stack([e, f])) == 0


def test_scores_tensors_on_several_devices_raise():
    x = torch.zeros(2, 3)
    with raises(ValueError, "devices differ: x on cpu, b on meta; use .to(device)"):
        functional.weat(x, x, x, x.to("meta"))
    with raises(ValueError, "devices differ: y on cpu, y.mask on meta; use .to(device)"):
        functional.rnd(x, functional.WordSet(x, torch.ones(2, dtype=torch.bool, device="meta")), x)


@pytest.mark.parametrize(("sizes", "same_as"), [((20, 12), "exact"), ((20, 13), "approximate")])
def test_permutation_auto_is_exact_up_to_32_scores(sizes, same_as, generator, device):
    u, v = (torch.randn(n, generator=generator, dtype=torch.float64).to(device) for n in sizes)
    p = {m: permutation_p_value(u, v, method=m, replicates=99) for m in ("auto", "exact", "approximate")}
    assert p["auto"] == p[same_as] and p["exact"] != p["approximate"]
