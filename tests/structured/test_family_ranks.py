"""Two ranks with different labels, one of them without documents at first, give the scores of one process."""

import math
import warnings
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from tensormetrics.structured import Family, Suite, macro_average, metametric, micro_average

SHARDS = [[], [("ab", "a"), ("", "b")]], [[("cd", "ccd"), ("a", "d")], [("a", "b"), ("cc", "c")]]  # of a rank, in turn
LABELS = {"met": None, "chosen": ["d", "a", "z"]}


@dataclass
class Item:
    label: str


@metametric(normalizer="f1")
@dataclass
class Doc:
    items: list[Item]


def read(pairs):
    return [[Doc([Item(label) for label in text]) for text in part] for part in zip(*pairs, strict=True)] or [[], []]


def make() -> Suite:
    averages = {"micro": micro_average(["f1"]), "macro": macro_average(["recall"])}
    return Suite({name: Family(Doc.metric, averages, by="label", labels=labels) for name, labels in LABELS.items()})


def floats(values):
    return {key: value.item() for key, value in values.items()}


def run_rank(rank: int, folder: str) -> None:
    warnings.simplefilter("error")
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    try:
        suite, results = make(), []
        for pairs in SHARDS[rank]:
            single = suite(*read(pairs)) if pairs else {}  # no exchange: the other rank does not come along
            results.append((single, suite.compute()))
        torch.save(results, Path(folder) / f"{rank}.pt")
    finally:
        torch.distributed.destroy_process_group()


def test_families_on_two_ranks_equal_one_process(tmp_path):
    torch.multiprocessing.spawn(run_rank, args=(str(tmp_path),), nprocs=2)
    ranks = [torch.load(tmp_path / f"{rank}.pt") for rank in range(2)]
    combined = make()
    for step, shards in enumerate(zip(*SHARDS, strict=True)):
        combined.update(*read([pair for pairs in shards for pair in pairs]))
        expected = floats(combined.compute())
        for rank, shard in zip(ranks, shards, strict=True):
            separate, result = rank[step]
            # the ranks meet the labels in another order, in which they are averaged
            assert floats(result) == pytest.approx(expected, rel=1e-14, nan_ok=True)
            single = make()
            single.update(*read(shard))
            assert not shard or floats(separate) == pytest.approx(floats(single.compute()), rel=1e-14, nan_ok=True)
    assert {"met-f1[b]", "met-f1[c]", "chosen-f1[z]", "chosen-types-f1"} <= expected.keys()
    assert not any(math.isnan(value) for value in expected.values())
