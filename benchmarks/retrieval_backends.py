"""FaissKNN against the FaissKNN of pytorch-metric-learning on a CPU, and TorchKNN with and without int16 products.

Equality comes first. Self-retrieval of fresh normal rows. The contenders take turns in one process; a figure is the
median of the repeats.
"Share of the limit" is the fraction of TorchKNN's time that its products need at least, at the rates of this machine:
half of all pairs, in int16 if it is used for the first stage, else in float32.
"""

import logging
import statistics
import time
from collections.abc import Callable, Iterator
from unittest import mock

import torch
from _common import Table, arguments
from _machine import Machine, measured
from pytorch_metric_learning.utils.inference import FaissKNN as PeerFaissKNN
from torch import Tensor

from tensormetrics.retrieval import FaissKNN, TorchKNN
from tensormetrics.retrieval.search.int16.search import Int16Search

NEEDS = ("faiss", "pytorch_metric_learning")
ROUNDS = 10


def check_equal(x: Tensor, k: int) -> None:
    """Assert equal neighbors up to the order of equal float32 distances; the peer's distances are squares."""
    distances, indices = FaissKNN(distance="sqeuclidean")(x, k, x, True)
    peer_distances, peer_indices = PeerFaissKNN()(x, k, x, True)
    assert torch.equal(distances, peer_distances), "distances differ"
    assert ((indices == peer_indices) | (distances == peer_distances)).all(), "indices differ"
    agreement = (indices == TorchKNN()(x, k, x, True)[1]).double().mean().item()
    assert agreement > 0.999, f"only {agreement:.4%} of the neighbors are in the exact order"


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def without_int16(x: Tensor, k: int, *options: object) -> object:
    with mock.patch.object(Int16Search, "is_faster", lambda *_: False):
        return TorchKNN()(x, k, *options)


def row(machine: Machine, rows: int, dim: int, k: int) -> Iterator[tuple[str, ...]]:
    x = torch.randn(rows, dim)
    check_equal(x, k)
    contenders = (PeerFaissKNN(), FaissKNN(), TorchKNN(), without_int16)
    times = [[seconds(lambda knn=knn: knn(x, k, x, True)) for knn in contenders] for _ in range(ROUNDS)]
    peer, ours, exact, float32 = map(statistics.median, zip(*times, strict=True))
    limit = f"{machine.fraction_of_search(exact, rows * rows / 2, dim, rows, k):.0%}"
    times_of = (f"{seconds:.3f}" for seconds in (peer, ours, exact, float32))
    yield f"{rows:,}", f"{dim}", f"{k}", *times_of, f"{peer / ours:.2f}", f"{float32 / exact:.2f}", limit


def main() -> None:
    options = arguments(__doc__, ("cpu",))
    logging.disable(logging.WARNING)
    machine = measured()
    timed = "peer's FaissKNN (s)", "FaissKNN (s)", "TorchKNN, exact (s)", "without int16 (s)"
    columns = "rows", "D", "k", *timed, "peer / FaissKNN", "without / with int16", "share of the limit"
    notes = (
        f"Medians of {ROUNDS} interleaved runs. The two FaissKNN classes wrap the same search. {machine.description()}"
    )
    packages = ("faiss-cpu", "pytorch-metric-learning")
    table = Table(options, "FaissKNN against the peer's FaissKNN on a CPU", columns, notes, packages)
    for dim in (64,) if options.quick else (64, 128, 512):
        for k in (10,) if options.quick else (10, 100):
            table.add(row(machine, 2000 if options.quick else 10_000, dim, k))
    table.finish()


if __name__ == "__main__":
    main()
