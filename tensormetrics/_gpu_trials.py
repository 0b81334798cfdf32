"""The trials of `_gpu_kernels`: a public function on a tiny input, on a device and on the CPU, which must agree."""

from collections.abc import Callable

import torch
from torch import Tensor

from .assignment import linear_sum_assignment
from .association import permutation_p_value, sign_flip_p_value
from .posterior import sample_sums
from .retrieval import TorchKNN, positive_ranks
from .retrieval.search.distance import DISTANCES

Trial = Callable[[torch.device], bool]  # whether the device answers as the CPU does


def _random(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float32, device="cpu")


def _agree(compute: Callable[..., tuple[Tensor, ...]], device: torch.device, *inputs: Tensor, rtol: float = 0) -> bool:
    expected, results = compute(*inputs), compute(*(x.to(device) for x in inputs))
    pairs = zip(expected, results, strict=True)
    return all(torch.allclose(x.double(), y.double().cpu(), rtol=rtol, atol=0, equal_nan=True) for x, y in pairs)


def _canonical_distances(device: torch.device) -> bool:
    def compute(x: Tensor) -> tuple[Tensor, ...]:
        row, column = torch.arange(12, device=x.device).view(2, 6)
        return tuple(distance.of_pairs(x, x, row, column, memory=2**20) for distance in DISTANCES.values())

    return _agree(compute, device, _random(12, 20))


def _search(device: torch.device) -> bool:
    def compute(x: Tensor) -> tuple[Tensor, ...]:
        # Of many references few blocks are read again, and of few references all.
        return TorchKNN().indices(x, 1, x, True), TorchKNN("ip").indices(x[:5], 10, x[:1024])

    return _agree(compute, device, _random(2304, 16))


def _counting(device: torch.device) -> bool:
    def compute(x: Tensor) -> tuple[Tensor, ...]:
        ranks = positive_ranks(x, torch.arange(len(x), device=x.device) % 40)
        return ranks.rank, ranks.relevant

    return _agree(compute, device, _random(130, 16))


def _subset_sums(device: torch.device) -> bool:
    def compute(u: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        p_value = permutation_p_value(u, v, method="approximate", replicates=300)
        return p_value, sign_flip_p_value(u, method="approximate", replicates=300)

    return _agree(compute, device, *_random(2, 3, 20))


def _solver(device: torch.device) -> bool:
    def compute(cost: Tensor) -> tuple[Tensor, ...]:
        assignment = linear_sum_assignment(cost)
        return assignment.col_of_row, assignment.cost

    return _agree(compute, device, _random(3, 5, 7))


def _sampler(device: torch.device) -> bool:
    def compute(counts: Tensor) -> tuple[Tensor, ...]:
        sums = sample_sums(counts.long().abs(), 20, seed=0)
        assert sums.fp is not None  # as always with margins
        return sums.tp, sums.fp

    return _agree(compute, device, 10 * _random(3, 3), rtol=1e-5)


TRIALS: dict[str, Trial] = {
    "canonical distances": _canonical_distances,
    "search": _search,
    "preparation": _search,
    "counting": _counting,
    "drawn sums": _subset_sums,
    "solver": _solver,
    "sampler": _sampler,
}
