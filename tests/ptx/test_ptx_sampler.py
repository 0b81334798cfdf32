"""The sampler as nvcc compiled it, host code included, on the CPU: its draws are those of the CPU's kernels."""

import pytest
import torch
from dirichlet_oracle import assert_same_law, counts_of, reference_metrics, reference_sums
from library import CARDS
from torch import Tensor

from tensormetrics.posterior.functional import dirichlet_prior
from tensormetrics.posterior.sampling import operators

START = 2**32 - 2  # the high word of the sample's number changes


@pytest.fixture(params=["H100", "of one multiprocessor"])
def sampler(dirichlet, request):
    dirichlet.insert(request.param)
    return dirichlet


def keys(*shape: int) -> Tensor:
    return torch.randint(0, 2**32, (*shape, 2), generator=torch.Generator().manual_seed(1))


def assert_same_draws(ptx, name: str, shape: tuple[int, ...], dtype: torch.dtype, *given) -> None:
    found, wanted = (torch.full(shape, torch.nan, dtype=dtype) for _ in range(2))
    getattr(ptx.ops, name)(found, *given)
    getattr(operators, name)(wanted, *given)
    if dtype == torch.float64:
        torch.testing.assert_close(found, wanted, rtol=1e-11, atol=1e-300)
    else:  # rounding may let a proposal pass, and so change a row of one sample
        assert not found.isnan().any()
        assert torch.isclose(found, wanted, rtol=1e-5, atol=1e-37).double().mean() > 0.95


def sums(
    ptx, C: int, dtype: torch.dtype, forms: int = 2, samples: int = 3, margins: bool = True, groups: bool = False
) -> None:
    cells = torch.randint(0, 9, (2, C, C)).double() + torch.tensor([0.3, 1.0]).view(2, 1, 1)
    if groups:  # rows that share a small prior, the second table with a few counts and fractions
        cells = torch.where(torch.rand(2, C, C) < torch.tensor([0, 0.05]).view(2, 1, 1), cells, 2**-9)
    if C > 3 and not groups:
        cells[0, 1] = 0
        cells[0, 2] = 0
        cells[0, 2, 3] = 5  # a certain row
    weights = torch.rand(forms, C, C, dtype=torch.float64) if forms else None
    shape = 2, (4 if margins else 2) * C + forms, samples
    assert_same_draws(ptx, "dirichlet_sums", shape, dtype, cells.sum(-1), cells, weights, keys(2, 3), START)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("C", [1, 2, 3, 10, 33, 48, 49, 100, pytest.param(256, marks=pytest.mark.slow), 257])
def test_sums(C, dtype, sampler):
    sums(sampler, C, dtype, samples=200 // C + 1)
    if C < 100:
        sums(sampler, C, dtype, forms=0, samples=40)
        sums(sampler, C, dtype, forms=0, samples=40, margins=False)


@pytest.mark.parametrize("C", [3, 10, 33, 48, 49])
def test_sums_have_the_same_bits_whatever_else_is_asked_for(C, dirichlet):
    cells = torch.rand(1, C, C, dtype=torch.float64) * 9 + 0.3
    found = []
    for forms in (0, 1, 3):
        found.append(torch.full((1, 4 * C + forms, 40), torch.nan, dtype=torch.float64))
        weights = torch.rand(forms, C, C, dtype=torch.float64) if forms else None
        dirichlet.ops.dirichlet_sums(found[-1], cells.sum(-1), cells, weights, keys(1, 3), START)
    assert all(torch.equal(sums[:, : 4 * C], found[0]) for sums in found[1:])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("C", [80, pytest.param(300, marks=pytest.mark.slow)])
def test_sums_of_rows_with_groups(C, dtype, sampler):
    sums(sampler, C, dtype, groups=True)


@pytest.mark.parametrize("table", ["unpredicted", "absent"])
def test_metrics_of_rare_classes_have_the_plain_law(table, dirichlet):
    dirichlet.insert("H100")
    C, counts = 67, torch.from_numpy(counts_of(67, table))
    out = torch.empty(1, 4 * C, 200, dtype=torch.float64)
    cells = (counts + dirichlet_prior("balanced", (C, C)))[None]
    dirichlet.ops.dirichlet_sums(out, counts.sum(-1)[None] + 1 / C, cells, None, keys(1, 3), START)
    values = reference_metrics(*out[0].T.numpy().reshape(-1, 4, C).swapaxes(0, 1))
    expected = reference_metrics(*reference_sums(counts.numpy(), 1000, "float64"))
    for name, actual in values.items():
        assert_same_law(actual[:, -1], expected[name][:, -1])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("shape", [(2, 3, 5, 7), (1, 1, 4, 5000), (3, 2, 1, 100)])
def test_log_gamma(shape, dtype, sampler):
    alpha = torch.rand(shape[:3], dtype=torch.float64) * 5
    alpha.view(-1)[0] = 0
    assert_same_draws(sampler, "log_gamma", shape, dtype, alpha, keys(shape[0]), START)


@pytest.mark.parametrize("dtype, rtol", [(torch.float64, 1e-11), (torch.float32, 2e-5)])
@pytest.mark.parametrize("pairs", [1, 31, 33, 64, 65])
@pytest.mark.parametrize("shapes", [(2.5, 1.0), (0.2, 3.0), (torch.nan, 1.0), (1e6, 0.0)])
def test_a_variate_is_the_same_whichever_lane_draws_it(shapes, pairs, dtype, rtol, dirichlet):
    """Some, some with another factor, all of one and none are rejected and queued."""
    dirichlet.insert("H100")
    alpha, found, wanted = torch.tensor([[shapes]]).double(), *torch.full((2, 1, 1, 2, pairs), -1, dtype=dtype)
    dirichlet.ops.log_gamma(found, alpha, keys(1), START)
    operators.log_gamma(wanted, alpha, keys(1), START)
    torch.testing.assert_close(found, wanted, rtol=rtol, atol=rtol, equal_nan=True)
    last = torch.empty(1, 1, 2, 1, dtype=dtype)
    dirichlet.ops.log_gamma(last, alpha, keys(1), START + pairs - 1)
    torch.testing.assert_close(last, found[..., -1:], rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("shape, most", [(2.5, 500), (1.0, 540), (30.0, 430)])
def test_instructions_of_64_variates(shape, most, dirichlet):
    """A warp that repeated each of 32 pairs until all were accepted took 760, 945 and 378."""
    dirichlet.insert("of one multiprocessor")
    out = torch.empty(1, 1, 64, 1024)
    dirichlet.instructions()
    dirichlet.ops.log_gamma(out, torch.full((1, 1, 64), shape, dtype=torch.float64), keys(1), START)
    assert dirichlet.instructions() / (out.numel() / 64) < most


@pytest.mark.parametrize("E, cells, items, samples", [(2, 7, 50, 300), (1, 3, 1, 1), (1, 100, 129, 129), (2, 4, 0, 5)])
def test_item_sums(E, cells, items, samples, sampler):
    index = torch.randint(0, cells, (E, items))
    assert_same_draws(sampler, "item_sums", (E, cells, samples), torch.float64, index, keys(1)[0], START)


def test_a_block_takes_several_cells(dirichlet):
    """Of many, empty ones among them; and a sum has the same bits whatever the other samples."""
    dirichlet.insert("of one multiprocessor")
    index = torch.arange(40).remainder(9)[None] * 30
    dirichlet.history()
    found, alone = (torch.full((1, 270, S), torch.nan, dtype=torch.float64) for S in (99, 1))
    dirichlet.ops.item_sums(found, index, keys(1)[0], START)
    assert int(dirichlet.history()[-1][2]) == 4 * (64 // 4 + 1)
    dirichlet.ops.item_sums(alone, index, keys(1)[0], START + 98)
    assert torch.equal(found[..., 98:], alone)
    wanted = torch.empty_like(found)
    operators.item_sums(wanted, index, keys(1)[0], START)
    torch.testing.assert_close(found, wanted, rtol=1e-11, atol=0)


@pytest.mark.parametrize("n", [1, 3, 4, 511, 512, 513, 5000])
def test_uniforms(n, sampler):
    found, wanted = (torch.full((n,), torch.nan, dtype=torch.float64) for _ in range(2))
    sampler.ops.uniforms(found, keys(1)[0], 3)
    operators.uniforms(wanted, keys(1)[0], 3)
    assert torch.equal(found, wanted)


def test_nothing_to_draw_launches_nothing(sampler):
    sampler.history()
    cells = torch.rand(2, 3, 3, dtype=torch.float64)
    sampler.ops.dirichlet_sums(torch.empty(2, 12, 0), cells.sum(-1), cells, None, keys(2, 3), 0)
    sampler.ops.log_gamma(torch.empty(2, 3, 3, 0), cells, keys(2), 0)
    sampler.ops.item_sums(torch.empty(2, 4, 0, dtype=torch.float64), torch.zeros(2, 1).long(), keys(1)[0], 0)
    sampler.ops.uniforms(torch.empty(0, dtype=torch.float64), keys(1)[0], 2)
    assert sampler.history() == []


@pytest.mark.parametrize("card", CARDS)
def test_launches_stay_within_every_card(card, dirichlet):
    """Sums in shared memory, and beyond it; blocks no more than run at once."""
    dirichlet.insert(card)
    dirichlet.history()
    for C, forms, dtype in (
        (49, 2, torch.float64),
        (257, 2, torch.float32),
        (2, 2, torch.float64),
        (2, 1450, torch.float64),
        (48, 2, torch.float64),
    ):
        sums(dirichlet, C, dtype, forms=forms, samples=1)
    launched = [line for line in dirichlet.history() if line[0] == "launch" and "sums_kernel" in line[1]]
    four_warps = 4 * (32 * 8 * (3 * 48 + 2 + 48) + 1024) <= CARDS[card][2]
    assert [int(line[-1]) > 0 for line in launched] == [True, True, True, False, four_warps]
    assert all(int(line[2]) <= 4 * CARDS[card][0] for line in launched)


@pytest.mark.parametrize("forms", [0, 400])
def test_a_lane_takes_several_samples(forms, dirichlet):
    """In shared memory, and beyond it, on the card that runs few blocks."""
    dirichlet.insert("of one multiprocessor")
    dirichlet.history()
    sums(dirichlet, 2, torch.float64, forms=forms, samples=600)
    ((_, _, blocks, threads, bytes_),) = [line for line in dirichlet.history() if "lane_sums_kernel" in line[1]]
    assert (int(blocks), int(threads)) == (4 if forms else 16, 32) and (int(bytes_) == 0) == (forms > 0)


def test_a_card_that_runs_no_block_says_so(dirichlet):
    dirichlet.insert((1, 49152, 8192))
    with pytest.raises(RuntimeError, match="the GPU runs no block of 128 threads with 36096 bytes of shared memory"):
        sums(dirichlet, 49, torch.float64, forms=500, samples=1)
