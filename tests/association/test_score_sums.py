"""Sums of scores have the same bits for any order of the scores; Triton's interpreter runs their kernel."""

from functools import partial

import pytest
import torch
from fake_device import DEVICE, Device
from kernels import INTERPRETED, interpreted

from tensormetrics.association import MLEAT, WEAT
from tensormetrics.association.functional import weat, weat_effect_size
from tensormetrics.association.metrics._score_sums import SCORE_SUMS, _score_sums

STATE = torch.tensor([2.0**-8, 2.0**-34, 2.0**-60, 3, 1], dtype=torch.float64)


def scores_of(size: int, scale: float) -> torch.Tensor:
    scores = scale * torch.randn(size, dtype=torch.float64, generator=torch.Generator().manual_seed(size))
    scores[::7], scores[1::11], scores[2::13] = torch.nan, torch.inf, -torch.inf
    return scores


SIZES = pytest.mark.parametrize("size", [0, 1, 2, 1024, 1025, 3000])
SCALES = pytest.mark.parametrize("scale", [1e-22, 1.0, 2.0**17])


@SIZES
@SCALES
def test_score_sums_have_bits_of_reference_in_any_order(size, scale):
    scores = scores_of(size, scale)
    expected = _score_sums(scores, STATE)
    assert torch.equal(SCORE_SUMS(scores, STATE), expected)
    assert torch.equal(SCORE_SUMS(scores.flip(0), STATE), expected)


@pytest.mark.emulated
@pytest.mark.skipif(torch.cuda.is_available() or INTERPRETED, reason="the test below runs in this process")
def test_score_sums_kernel_passes_test_below_when_interpreted():
    pytest.importorskip("triton")
    result = interpreted(__file__, "emulated")
    assert result.returncode == 0, result.stdout


@SIZES
@SCALES
@pytest.mark.emulated
@pytest.mark.skipif(not INTERPRETED, reason="needs Triton's interpreter")
def test_score_sums_kernel_has_bits_of_reference(size, scale):
    from tensormetrics.association.metrics.kernels import score_sums

    scores = scores_of(size, scale)
    assert torch.equal(score_sums(scores, STATE), _score_sums(scores, STATE))


@pytest.mark.parametrize("sizes", [(4, 4, 5, 3), (3, 6, 1, 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_associations_of_a_batch_on_a_device_equal_those_on_a_cpu(sizes, dtype, generator):
    sets = [torch.randn(9, size, 7, generator=generator).to(dtype) for size in sizes]
    sets[0][1, 0], sets[2][2], sets[3][3, 1, 1] = 0, 0, torch.nan
    sets[0][4] = sets[1][4] = sets[1][4, :1]  # associations are constant
    for correction in 0, 1:
        metric = WEAT(correction=correction, return_effect_size=True)
        for score in (
            weat,
            partial(weat_effect_size, correction=correction),
            metric.score,
            MLEAT(correction=correction).score,
        ):
            expected = score(*sets)
            with Device():
                found = score(*(x.to(DEVICE) for x in sets)).cpu()
            torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12, equal_nan=True)
            assert expected.isnan().nonzero().flatten().tolist() == ([3] if score is weat else [3, 4])
