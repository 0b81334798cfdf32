"""FaissKNN against the FaissKNN of pytorch-metric-learning on a CPU, and next to TorchKNN. Equality comes first.

    python benchmarks/retrieval_backends.py --rows 10000 --dims 64 128 512 --k 10 100

Self-retrieval of fresh normal rows. The contenders take turns in one process; a figure is the median of the repeats.
"""

import argparse
import datetime
import logging
import os
import platform
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version

import torch
from pytorch_metric_learning.utils.inference import FaissKNN as PeerFaissKNN
from torch import Tensor

from tensormetrics.retrieval import FaissKNN, TorchKNN


def check_equal(x: Tensor, k: int) -> None:
    """The same neighbours; the peer's distances are squares. Rows of equal float32 distances may be in any order."""
    distances, indices = FaissKNN(distance="sqeuclidean")(x, k, x, True)
    peer_distances, peer_indices = PeerFaissKNN()(x, k, x, True)
    assert torch.equal(distances, peer_distances), "distances differ"
    assert ((indices == peer_indices) | (distances == peer_distances)).all(), "indices differ"
    agreement = (indices == TorchKNN()(x, k, x, True)[1]).double().mean().item()
    assert agreement > 0.999, f"only {agreement:.4%} of the neighbours are in the exact order"


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000])
    parser.add_argument("--dims", type=int, nargs="+", default=[64, 128, 512])
    parser.add_argument("--k", type=int, nargs="+", default=[10, 100])
    parser.add_argument("--repeats", type=int, default=10)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)

    packages = ("torch", "faiss-cpu", "pytorch-metric-learning")
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, {datetime.date.today()}")
    print(", ".join(f"{package} {version(package)}" for package in packages), end="\n\n")
    print("| rows | D | k | peer's FaissKNN (s) | FaissKNN (s) | TorchKNN, exact (s) | peer / FaissKNN |")
    print("|---|---|---|---|---|---|---|")
    for rows in arguments.rows:
        for dim in arguments.dims:
            for k in arguments.k:
                x = torch.randn(rows, dim)
                check_equal(x, k)
                contenders = (PeerFaissKNN(), FaissKNN(), TorchKNN())
                times = [
                    [seconds(lambda knn=knn: knn(x, k, x, True)) for knn in contenders]  # noqa: B023
                    for _ in range(arguments.repeats)
                ]
                peer, ours, exact = map(statistics.median, zip(*times, strict=True))
                print(f"| {rows:,} | {dim} | {k} | {peer:.3f} | {ours:.3f} | {exact:.3f} | {peer / ours:.2f} |")


if __name__ == "__main__":
    main()
