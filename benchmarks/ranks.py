"""Costs of several ranks in CPU seconds, bytes sent and rows stored: predicted from one and two, measured on more.

    python benchmarks/ranks.py [--quick] [--output PATH]
    python benchmarks/ranks.py --plan ROWS COLUMNS RANKS [--queries Q] [--flops F] [--bandwidth B] [--itemsize 4]

The model of a score of N rows with D columns of b bytes on W ranks, by k neighbors or by counting:

    CPU s of neighbors  p N^2 + r N + s N (W - 1) + f W + e W (W // 2 + 1)
                         products, one per pair of rows; candidates of a row in its own rank and in each other one;
                         other work of a process; messages, W // 2 blocks of each rank with replies
    CPU s of counting    p N^2 + r N W + f W + e W (W - 1)
    bytes of neighbors  (D b + 8 + 12 k) N h + 16 N (W - 1)    h = (W - 1) / 2, and 1/4 more where W is even
    bytes of counting    2 D b N (W - 1) + 16 N (W - 1)   rows go round twice, also labels and scores
    bytes of a rank      D b N / W + 72 N + M at most            its own rows, labels and scores, and the memory budget

p, r, s, f and e are fitted to one and two ranks, and three and four are predicted; times are the minimum of three runs.
`--plan` assumes 2 D / F seconds for a product and bytes / B for sending.
"""

import argparse
import json
import multiprocessing
import resource
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from _common import Table, arguments

from tensormetrics.retrieval import AccuracyCalculator

NEEDS, DEVICES = (), ("cpu",)
DIM, PER_CLASS, BUDGET = 128, 20, 2**26


def opposite(ranks: int) -> float:
    """Return how many times all rows are sent if each product updates both of its rows."""
    return (ranks - 1) / 2 + (ranks > 1 and ranks % 2 == 0) / 4


def predicted_bytes(rows: int, width: int, ranks: int, k: int | None) -> float:
    """Return the bytes sent by all ranks; `width` is the bytes of a row."""
    labels_and_scores = 16 * rows * (ranks - 1)
    if k is None:
        return 2 * width * rows * (ranks - 1) + labels_and_scores
    return (width + 8 + 12 * k) * rows * opposite(ranks) + labels_and_scores


def max_held(rows: int, width: int, ranks: int, budget: int = BUDGET) -> float:
    """Return the maximum bytes of a rank: its rows, the data that all ranks have of every row, and the budget."""
    return width * rows / ranks + 72 * rows + budget


def terms(rows: int, ranks: int, k: int | None) -> list[float]:
    if k is None:
        return [rows**2, rows * ranks, ranks, ranks * (ranks - 1)]
    return [rows**2, rows, rows * (ranks - 1), ranks, ranks * (ranks // 2 + 1) * (ranks > 1)]


def fitted(table: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    # table: (cases, terms)  seconds: (cases,)  ->  (terms,), none negative
    """Fit non-negative costs by least squares of the relative errors."""
    weighted, costs, left = table / seconds[:, None], np.zeros(table.shape[1]), np.ones(table.shape[1], bool)
    scale = np.abs(weighted).max(0)
    while left.any():
        solution = np.linalg.lstsq((weighted / scale)[:, left], np.ones(len(seconds)), rcond=None)[0]
        if (solution >= 0).all():
            costs[left] = solution / scale[left]
            break
        left[np.flatnonzero(left)[solution.argmin()]] = False
    return costs


def sent() -> int:
    """Return the bytes sent over the loopback interface, which ranks of one machine use."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    return next(int(line.split(":")[1].split()[8]) for line in lines if line.strip().startswith("lo:"))


def memory(what: str) -> int:
    """Return bytes of memory: VmRSS is the current, VmHWM the peak size."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(what)).split()[1]) << 10


def run_rank(rank: int, ranks: int, rows: int, k: int | None, folder: str) -> None:
    torch.set_num_threads(1)
    if ranks > 1:
        address = f"file://{folder}/rendezvous"
        torch.distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=ranks)
    wait = torch.distributed.barrier if ranks > 1 else int
    generator = torch.Generator().manual_seed(0)
    x, labels = torch.randn(rows, DIM, generator=generator), torch.arange(rows) % (rows // PER_CLASS)
    local = slice(rows * rank // ranks, rows * (rank + 1) // ranks)
    for part in (slice(local.start, local.start + 40), local):  # the first call warms up
        metric = AccuracyCalculator(("mean_average_precision",), k=k, memory_budget=BUDGET)
        held = memory("VmRSS")
        metric.update(x[part], labels[part] % (10 if part is not local else rows))
        Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM
        wait()
        before, start = sent(), resource.getrusage(resource.RUSAGE_SELF)
        value = metric.compute()["mean_average_precision"].item()
        stop = resource.getrusage(resource.RUSAGE_SELF)
        wait()
    seconds = stop.ru_utime + stop.ru_stime - start.ru_utime - start.ru_stime
    held = memory("VmHWM") - held
    report = {"seconds": seconds, "bytes": sent() - before, "held": held, "value": value.hex()}
    Path(folder, f"{rank}.json").write_text(json.dumps(report))
    if ranks > 1:
        torch.distributed.destroy_process_group()


def measured(rows: int, ranks: int, k: int | None) -> tuple[float, int, str, int]:
    # ->  CPU seconds of all ranks, bytes of all, the value, bytes that a rank holds at most
    with tempfile.TemporaryDirectory() as folder:
        start = multiprocessing.get_context("spawn").Process
        processes = [start(target=run_rank, args=(rank, ranks, rows, k, folder)) for rank in range(ranks)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        reports = [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(ranks)]
    assert len({report["value"] for report in reports}) == 1
    held = max(report["held"] for report in reports)
    return sum(report["seconds"] for report in reports), reports[0]["bytes"], reports[0]["value"], held


def cases(rows: int, k: int | None) -> Iterator[list[str]]:
    sizes, measurements = (rows // 4, rows // 2, rows), {}
    for size in sizes:
        for ranks in (1, 2):
            measurements[size, ranks] = min((measured(size, ranks, k) for _ in range(3)), key=lambda result: result[0])
    table = np.array([terms(*case, k) for case in measurements], dtype=float)
    costs = fitted(table, np.array([result[0] for result in measurements.values()]))
    for ranks in (1, 2, 3, 4):
        cpu, count, value, held = measurements.get((rows, ranks)) or min(
            (measured(rows, ranks, k) for _ in range(3)), key=lambda result: result[0]
        )
        assert value == measurements[rows, 1][2], "ranks must not change the value"
        predicted = predicted_bytes(rows, 4 * DIM, ranks, k)
        yield [
            f"{rows} x {DIM}, k={k}",
            str(ranks),
            f"{np.dot(costs, terms(rows, ranks, k)):.2f}",
            f"{cpu:.2f}",
            f"{cpu / measurements[rows, 1][0]:.2f}",
            f"{predicted / (4 * DIM * rows):.2f}",
            f"{count / (4 * DIM * rows):.2f}",
            f"{max_held(rows, 4 * DIM, ranks) / 2**20:.0f}",
            f"{held / 2**20:.0f}",
        ]


def plan(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--plan", nargs=3, type=int, metavar=("ROWS", "COLUMNS", "RANKS"))
    parser.add_argument("--queries", type=int, help="default: all rows, against each other")
    parser.add_argument("--k", type=int, help="neighbors; default: all references are counted")
    parser.add_argument("--positives", type=int, default=20, help="relevant references of a query")
    parser.add_argument("--itemsize", type=int, default=4)
    parser.add_argument("--flops", type=float, default=1e14, help="of a rank, in a second")
    parser.add_argument("--bandwidth", type=float, default=5e10, help="bytes that a rank sends in a second")
    options = parser.parse_args(arguments)
    rows, columns, ranks = options.plan
    queries, width = options.queries or rows, columns * options.itemsize
    is_symmetric = options.k is not None and queries == rows
    count = predicted_bytes(rows, width, ranks, options.k if queries == rows else None) / ranks
    # The cheaper input is sent: queries with the distances and counts of their positives, or references twice.
    count = min(count, queries * (width + 32 * options.positives + 16) * (ranks - 1) / ranks)
    seconds = queries * rows * columns * (1 if is_symmetric else 2) / ranks / options.flops
    print(f"products of a rank: {seconds:.3g} s")
    print(f"sent by a rank: {count / 1e9:.3g} GB, {count / options.bandwidth:.3g} s, under way during the products")
    labels = 72 * rows / 1e9
    print(
        f"held by a rank: {width * rows / ranks / 1e9:.3g} GB of rows, the memory budget, and of labels and scores of"
    )
    print(f"  all rows {labels / 9:.3g} GB, {labels:.3g} GB at most")


def main() -> None:
    if "--plan" in sys.argv:
        plan(sys.argv[1:])
        return
    options = arguments(__doc__, DEVICES)
    title = "Ranks: predicted from one and two, and measured"
    columns = ["rows", "ranks", "CPU s predicted", "CPU s", "of one rank's", "bytes predicted, of all rows", "bytes"]
    columns += ["MiB of a rank at most", "MiB"]
    table = Table(options, title, columns, "CPU seconds and bytes of all ranks together, by gloo on one machine.")
    for rows, k in ((12_000, 10), (24_000, 10), (12_000, None)):
        table.add(cases(rows // 6 if options.quick else rows, k))
    table.finish()


if __name__ == "__main__":
    main()
