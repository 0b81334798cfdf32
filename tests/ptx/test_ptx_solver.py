"""The solver as nvcc compiled it, host code included: on the CPU it has the bits of the CPU's own kernel."""

import pytest
import torch
from library import CARDS
from oracle import HARD, costs, equal
from torch import Tensor

from tensormetrics.assignment import _op

SHAPES = [(40, 9, 9), (40, 5, 40), (40, 40, 5), (3, 70, 70), (2, 3, 8, 6), (0, 3, 3), (2, 0, 3), (2, 3, 0), (7, 1, 1)]
SHAPES += [(3, 33, 32), (2, 128, 128), (1, 129, 20), (1, 2, 40, 140), (2, 9, 1500)]
SHAPES += [(1, 40, 200), (1, 20, 310), (1, 20, 500), (1, 9, 1000)]
LAYOUTS = {  # most columns -> warps of a problem and columns of a lane, as the kernel's name says them
    torch.float32: {32: "ILi1ELi1Ef", 128: "ILi1ELi4Ef", 320: "ILi1ELi10Ef", 1024: "ILi8ELi4Ef", 1025: "kernelIf"},
    torch.float64: {32: "ILi1ELi1Ed", 128: "ILi1ELi4Ed", 1024: "ILi8ELi4Ed", 1025: "kernelId"},
}
LARGE = [(5, 300, 300), (2, 3, 200, 90), (2, 9, 7000)]


@pytest.fixture
def solver(lsa):
    lsa.insert("H100")
    return lsa


def assert_same_bits(ptx, cost: Tensor, *options) -> Tensor:
    found, wanted = ptx.ops.lsa(cost, *options), _op.lsa(cost, *options)
    assert equal(found, wanted)
    return found[4]


def random_options(cost: Tensor) -> list[tuple]:
    *lead, rows, cols = cost.shape
    lengths = torch.randint(0, rows + 1, lead), torch.randint(0, cols + 1, lead)
    mask, capacity = torch.rand(cost.shape) < 0.9, torch.randint(0, 3, (*lead, cols))
    unmatched = torch.randn(lead, dtype=cost.dtype)
    return [
        (False,),
        (True, *lengths),
        (False, None, None, mask),
        (False, None, None, None, capacity),
        (True, lengths[0], None, mask, None, unmatched),
        (False, None, None, None, None, None, 5),
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [*SHAPES, *(pytest.param(shape, marks=pytest.mark.slow) for shape in LARGE)])
def test_solver_has_the_bits_of_the_cpu(shape, dtype, solver):
    ties = torch.randint(0, 3, shape).to(dtype)
    zeros = (ties - 1) * torch.randint(0, 2, shape)  # of both signs, among 1 and -1
    problems = torch.randn(shape, dtype=dtype), ties, ties.masked_fill(ties > 1.5, torch.inf), zeros
    for cost in problems if shape[-1] <= 128 else problems[1:2]:  # several warps take long
        for options in random_options(cost):
            assert_same_bits(solver, cost, *options)
    strided = torch.randn(*shape[:-2], shape[-1], 2 * shape[-2], dtype=dtype)[..., ::2].mT
    assert_same_bits(solver, strided, False, None, None, torch.rand(strided.mT.shape).mT < 0.9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("family", HARD)
@pytest.mark.parametrize("n", [5, 32, 61, pytest.param(200, marks=pytest.mark.slow)])
def test_families(n, family, dtype, solver):
    cost = costs(family, n, n, dtype=dtype)
    for some in (cost, cost[: n // 2 + 1], cost.T):
        assert_same_bits(solver, some, False)
        assert_same_bits(solver, -some, True)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(20, 9, 9), (2, 70, 70), (1, 20, 140)])
def test_cards_without_reductions(shape, lsa_without_reductions):
    lsa_without_reductions.insert("T4")
    for cost in (torch.randn(shape), torch.randint(0, 3, shape).float()):
        for options in random_options(cost):
            assert_same_bits(lsa_without_reductions, cost, *options)


def test_failed_problems(solver):
    cost = torch.randn(6, 40, 40)
    cost[1, 3, 4], cost[2, :, 5], cost[3, 7] = torch.nan, torch.inf, torch.inf
    cost[4, 0, 0] = -torch.inf
    lengths = torch.tensor([40, 40, 40, 40, 40, 41])
    assert assert_same_bits(solver, cost, False, lengths).tolist() == [0, 2, 1, 1, 2, 2]


@pytest.mark.parametrize("card", CARDS)
@pytest.mark.parametrize("dtype", LAYOUTS)
def test_layout_follows_the_longer_side(card, dtype, lsa):
    lsa.insert(card)
    for columns, layout in LAYOUTS[dtype].items():
        lsa.history()
        assert_same_bits(lsa, costs("uniform", 1, 2, columns, dtype=dtype), False)
        assert_same_bits(lsa, costs("uniform", 1, columns, 2, dtype=dtype), False)
        assert all(layout in kernel and int(blocks) == 1 for _, kernel, blocks, *_ in lsa.history())


def test_rows_further_apart_than_32_bits_count(solver, tmp_path):
    """Of a file without most of its content: such strides are for the search in global memory alone."""
    solver.history()
    whole = torch.from_file(str(tmp_path / "sparse"), shared=True, size=2**31 + 40)
    cost = whole.as_strided((1, 2, 30), (0, 2**31, 1)).copy_(torch.rand(1, 2, 30))
    for some in (cost, cost.mT):
        assert_same_bits(solver, some, False)
    assert [line[-1] for line in solver.history()] == ["0", "0"]


@pytest.mark.parametrize("problems", [1, 4, 5, 31, 32, 33, 70])
def test_problems_are_shared_among_few_workers(problems, lsa):
    lsa.insert("of one multiprocessor")
    assert_same_bits(lsa, torch.rand(problems, 4, 5), False)
    assert_same_bits(lsa, torch.rand(problems, 2, 130), True)


@pytest.mark.parametrize("shape, most", [((16, 30, 30), 13_000), ((2, 100, 100), 66_000), ((1, 300, 300), 365_000)])
def test_instructions_of_a_problem(shape, most, solver):
    """A search in shared memory took 15,672, 102,376 and 2,472,481."""
    solver.instructions()
    assert_same_bits(solver, costs("uniform", *shape, dtype=torch.float32), False)
    assert solver.instructions() / shape[0] < most
