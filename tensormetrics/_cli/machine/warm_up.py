"""Launch every Triton kernel once, so that it is compiled and cached before a program needs it."""

import torch
from torch import Tensor

from ...association.functional import permutation_p_value, sign_flip_p_value
from ...retrieval import TorchKMeans, TorchKNN
from ...retrieval.functional import positive_ranks
from ...retrieval.search.distance import DistanceName

Job = tuple[str, DistanceName | None, int]  # function, distance, columns of the rows
DISTANCES: tuple[DistanceName, ...] = ("l2", "ip", "cosine")


def jobs(columns: tuple[int, ...]) -> list[Job]:
    of_rows = [(what, distance, dim) for dim in columns for what in FOR_DISTANCE for distance in DISTANCES]
    return [("draws", None, 0), *of_rows, *(("clusters", None, dim) for dim in columns)]


def run(job: Job, device: str) -> None:
    what, distance, columns = job
    if what == "draws":
        return _draws(device)
    x = _random(2304, columns).to(device)
    if what == "clusters":
        TorchKMeans(2, init="k-means++")(x[:260], 100)
    elif distance is not None:
        FOR_DISTANCE[what](x, distance)


def _search(x: Tensor, distance: DistanceName) -> None:
    knn = TorchKNN(distance)
    knn(x, 1, x, True)  # all of them, of which few blocks are read again
    knn.indices(x[:5], 10, x)  # many are


def _ranks(x: Tensor, distance: DistanceName) -> None:
    positive_ranks(x[:130], torch.arange(130, device=x.device) % 40, distance=distance)


def _random(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float32, device="cpu")


def _draws(device: str) -> None:
    u, v = _random(2, 3, 20).to(device)
    permutation_p_value(u, v, method="approximate", replicates=1000)
    permutation_p_value(u.repeat(1, 2), v.repeat(1, 2), method="approximate", replicates=1000)
    sign_flip_p_value(u, method="approximate", replicates=1000)


FOR_DISTANCE = {"search": _search, "ranks": _ranks}
