"""Bits of every row of tests/cases/: value, interval and comparison, with one and two threads and on two ranks.

    python -m tests.freeze FILE           write them
    python -m tests.freeze FILE BEFORE    write them, and list what differs from an earlier file

Run it before and after a change that must keep values. The exit status is 1 if anything differs. Files are not
committed: bits differ between processors.
"""

import argparse
import hashlib
import json
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))

from cases import FUNCTIONS, METRICS  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

from tensormetrics import compare, interval  # noqa: E402
from tensormetrics.core.metric.base import Metric  # noqa: E402

N = 60
Bits = dict[str, str]  # what was computed -> digest, or the type of its error


def digest(compute: Callable[[], Any]) -> str:
    """Return a digest of dtypes, shapes and bits of all tensors in a result."""
    try:
        leaves = tree_leaves(compute())
    except Exception as error:
        return type(error).__name__
    bits = hashlib.sha256()
    for leaf in leaves:
        if not isinstance(leaf, torch.Tensor):
            bits.update(repr(leaf).encode())
            continue
        x = leaf.detach().to_dense().contiguous() if leaf.is_sparse else leaf.detach().contiguous()
        bits.update(f"{x.dtype} {tuple(x.shape)}".encode() + x.reshape(-1).view(torch.uint8).numpy().tobytes())
    return bits.hexdigest()[:24]


def fields_of(result: Any) -> Any:
    """Return the tensors of an estimate or a comparison, or of each one in a dictionary."""
    if isinstance(result, Mapping):
        return {str(key): fields_of(value) for key, value in result.items()}
    return [x for name in result.tensors if (x := getattr(result, name)) is not None]


def with_replicates(metric: Metric) -> Metric:
    """Make a metric of sums again so that it keeps what its interval needs."""
    positional, named = metric._arguments
    try:
        return type(metric)(*positional, **{**named, "replicates": 200})
    except TypeError:  # no such option
        return metric


def of_another_model(inputs: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    """Return other floating-point numbers, or another last argument, for the same items."""
    changed = [index for index, x in enumerate(inputs) if x.is_floating_point()] or [len(inputs) - 1]
    return [x.roll(1, 0) if index in changed[:1] else x for index, x in enumerate(inputs)]


def freeze_metrics(rank: int = 0, world: int = 1) -> Bits:
    bits = {}
    for name, case in METRICS.items():
        inputs = case.inputs(torch.Generator().manual_seed(0), N)
        pair = with_replicates(case.make()), with_replicates(case.make())
        for metric, arguments in zip(pair, (inputs, of_another_model(inputs)), strict=True):
            metric.update(*(x.tensor_split(world)[rank] for x in arguments))
        bits[f"{name} value"] = digest(pair[0].compute)
        bits[f"{name} interval"] = digest(lambda pair=pair: fields_of(interval(pair[0])))
        bits[f"{name} comparison"] = digest(lambda pair=pair: fields_of(compare(*pair)))
    return bits


def freeze_functions() -> Bits:
    arguments = {name: case.inputs(torch.Generator().manual_seed(0), (2, 3)) for name, case in FUNCTIONS.items()}
    return {f"{name} value": digest(lambda name=name: FUNCTIONS[name].call(*arguments[name])) for name in FUNCTIONS}


def run_rank(rank: int, folder: str) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    Path(folder, f"{rank}.json").write_text(json.dumps(freeze_metrics(rank, 2)))
    torch.distributed.destroy_process_group()


def freeze() -> dict[str, Bits]:
    frozen = {}
    for threads in (1, 2):
        torch.set_num_threads(threads)
        frozen[f"{threads} threads"] = freeze_metrics() | freeze_functions()
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(run_rank, args=(folder,), nprocs=2)
        for rank in range(2):
            frozen[f"rank {rank} of 2"] = json.loads(Path(folder, f"{rank}.json").read_text())
    return frozen


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("before", type=Path, nargs="?")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    now = freeze()
    options.file.write_text(json.dumps(now, indent=1))
    print(f"{sum(map(len, now.values()))} digests")
    if options.before is None:
        return 0
    before = json.loads(options.before.read_text())
    changed = [
        f"{setting}: {name}: {before.get(setting, {}).get(name)} -> {now.get(setting, {}).get(name)}"
        for setting in sorted({*before, *now})
        for name in sorted({*before.get(setting, {}), *now.get(setting, {})})
        if before.get(setting, {}).get(name) != now.get(setting, {}).get(name)
    ]
    print(*changed or ["equal"], sep="\n")
    return bool(changed)


if __name__ == "__main__":
    sys.exit(main())
