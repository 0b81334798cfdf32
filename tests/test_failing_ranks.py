"""A rank that fails, dies or does something else is named on every other rank, at once, and the rest goes on."""

import datetime
import os
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import distributed as dist

import tensormetrics
from tensormetrics._distributed import LostRankError, raise_on_all_ranks
from tensormetrics.posterior import ConfusionPosterior
from tensormetrics.retrieval import AccuracyCalculator, AveragePrecision, ShardedKNN, TorchKNN
from tensormetrics.retrieval.calculator.audit import Auditor
from tensormetrics.retrieval.calculator.search import Search
from tensormetrics.structured import Family, metametric, micro_average

TIMEOUT = 20.0  # of the group, in seconds
ODD = 1  # the rank that differs


@dataclass(frozen=True)
class Item:
    text: str
    kind: str


@metametric(normalizer="f1")
@dataclass
class Doc:
    items: list[Item]


def near(x, y):
    return (x - y).abs() <= 1


def far(x, y):
    return (x - y).abs() > 1


def raising(x, y):
    raise ZeroDivisionError("of the user's own")


def rows(rank):
    generator = torch.Generator().manual_seed(rank)
    return torch.randn(20, 4, generator=generator), torch.randint(0, 4, (20,), generator=generator)


def calculator(rank, *names, **options):
    metric = AccuracyCalculator(names or ("mean_average_precision",), **options)
    metric.update(*rows(rank))
    return metric


def differing(rank):
    """Option -> a metric of this rank, which has another value of it on the odd rank."""
    odd = rank == ODD
    yield "distance", calculator(rank, distance="cosine" if odd else "l2")
    yield "k", calculator(rank, k=3 if odd else None)
    yield "include", calculator(rank, "precision_at_1" if odd else "mean_average_precision")
    yield "label_comparison_fn", calculator(rank, label_comparison_fn=far if odd else near)
    yield "knn_func", calculator(rank, knn_func=TorchKNN("ip" if odd else "l2"))
    metric = ConfusionPosterior(3, confusion_prior=0.5 if odd else 1.0)
    metric.update(torch.tensor([0, 1, 2]), torch.tensor([0, 1, 1]))
    yield "confusion_prior", metric
    metric = AveragePrecision() if odd else calculator(rank)
    metric.update(*rows(rank))
    yield "the metric", metric
    yield "labels", family(["x", "y"] if odd else None)
    yield "by", family(None, "text" if odd else "kind")


def family(labels, by="kind"):
    scores = Family(Doc.metric, micro_average(["f1"]), by=by, labels=labels)
    scores.update([Doc([Item("a", "x")])], [Doc([Item("a", "x"), Item("b", "y")])])
    return scores


def raised(call):
    """What a call raises, and in how many seconds."""
    start = time.monotonic()
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}", time.monotonic() - start
    return "nothing", time.monotonic() - start


def out_of_memory(*args, **kwargs):
    raise MemoryError("no room")


BESIDES = {  # of which all ranks hold all rows
    "kept neighbors": (Search, "nearest", {"k": 2, "keep": "neighbors"}),
    "audit": (Auditor, "__call__", {"k": 2, "knn_func": TorchKNN(exact=False), "audit": 5}),
}


def run_rank(rank: int, world: int, folder: str) -> None:
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", "memory_budget: got")  # a budget of each rank's own is the point
    torch.set_num_threads(1)
    timeout = datetime.timedelta(seconds=TIMEOUT)
    address = f"file://{folder}/rendezvous"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=world, timeout=timeout)
    found = {option: raised(metric.compute) for option, metric in differing(rank)}
    knn = ShardedKNN(knn=TorchKNN("ip" if rank == ODD else "l2"))
    found["distance of a search"] = raised(lambda: knn(rows(rank)[0], 2, rows(rank)[0], True))

    odd = rank == ODD
    budgets = calculator(rank, memory_budget=30_000 * (1 + rank))
    results = {"budgets": budgets.compute()}
    metric = calculator(rank, label_comparison_fn=near)
    metric.comparison = metric.search.comparison = raising if odd else near
    found["comparison"] = raised(metric.compute)
    counting = tensormetrics.retrieval.ranking.rank_counts.RankCounter
    for name, options in (("counting", {}), ("neighbors", {"k": 2})):
        metric = calculator(rank, **options)
        if odd:
            before, counting.__init__ = counting.__init__, out_of_memory
            call, TorchKNN.search = TorchKNN.search, out_of_memory
        found[name] = raised(metric.compute)
        if odd:
            counting.__init__, TorchKNN.search = before, call
        results[name] = metric.compute()  # the group serves, and the rows are kept
    for name, (kind, method, options) in BESIDES.items():
        metric = calculator(rank, **options)
        if odd:
            before = getattr(kind, method)
            setattr(kind, method, out_of_memory)
        found[name] = raised(metric.compute)
        if odd:
            setattr(kind, method, before)
        results[name] = metric.compute()
    results["labels"] = family(None).compute()
    metric = calculator(rank)
    if odd:
        type(metric.scorer).__call__ = out_of_memory
    found["scoring"] = raised(metric.compute)
    with pytest.raises(KeyboardInterrupt if odd else RuntimeError), raise_on_all_ranks():
        if odd:
            raise KeyboardInterrupt

    metric = calculator(rank)
    if odd:
        os._exit(1)
    found["killed"] = raised(metric.compute)
    torch.save((found, results, metric.state_dict(), len(metric.embeddings)), Path(folder) / f"{rank}.pt")
    os._exit(0)  # not by way of a group that has lost a rank


@pytest.fixture(scope="module", params=[2, 3])
def others(request, tmp_path_factory):
    """What the ranks found that live."""
    folder, start = tmp_path_factory.mktemp("failing"), torch.multiprocessing.get_context("spawn")
    ranks = range(request.param)
    processes = [start.Process(target=run_rank, args=(rank, request.param, str(folder))) for rank in ranks]
    for process in processes:
        process.start()
    for process in processes:
        process.join(300)
        assert process.exitcode is not None
    return {rank: torch.load(folder / f"{rank}.pt", weights_only=False) for rank in ranks if rank != ODD}


OPTIONS = {
    "distance": ("'l2'", "'cosine'"),
    "k": ("None", "3"),
    "include": ("'mean_average_precision'", "'precision_at_1'"),
    "label_comparison_fn": ("near", "far"),
    "knn_func": ("distance='l2'", "distance='ip'"),
    "confusion_prior": ("1.0", "0.5"),
    "the metric": ("AccuracyCalculator", "AveragePrecision"),
    "labels": ("None", "['x', 'y']"),
    "by": ("'kind'", "'text'"),
}


@pytest.mark.parametrize("option", OPTIONS)
def test_another_option_is_named(others, option):
    for found, *_ in others.values():
        said, seconds = found[option]
        assert said.startswith(f"ValueError: {option}: got ") and f"on rank {ODD}" in said, said
        assert all(value in said for value in OPTIONS[option]), said
        assert seconds < TIMEOUT / 4


def test_another_distance_of_a_search_is_named(others):
    for found, *_ in others.values():
        said, _ = found["distance of a search"]
        assert said.startswith("ValueError: distance: got 'l2' on rank 0") and f"'ip' on rank {ODD}" in said


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("comparison", "ZeroDivisionError: of the user's own"),
        ("counting", "MemoryError: no room"),
        ("neighbors", "MemoryError: no room"),
        *((name, "MemoryError: no room") for name in BESIDES),
        ("scoring", "MemoryError: no room"),
    ],
)
def test_a_rank_that_fails_is_named_at_once(others, what, said):
    for found, *_ in others.values():
        assert found[what][0] == f"RuntimeError: rank {ODD} failed with {said}"
        assert found[what][1] < TIMEOUT / 4


def test_the_group_goes_on(others):
    world = max(others) + 1 + (len(others) == 1)
    raise_on_all_ranks = AccuracyCalculator(("mean_average_precision",))
    shallow = AccuracyCalculator(("mean_average_precision",), k=2)
    for rank in range(world):
        raise_on_all_ranks.update(*rows(rank))
        shallow.update(*rows(rank))
    for _, results, *_ in others.values():
        of_labels = results.pop("labels")
        assert of_labels["f1[x]"] == 1 and of_labels["f1[y]"] == 0
        assert results == {
            "budgets": raise_on_all_ranks.compute(),
            "counting": raise_on_all_ranks.compute(),
            "neighbors": shallow.compute(),
            **{name: shallow.compute() for name in BESIDES},
        }


def test_a_killed_rank_is_named_and_the_rows_are_kept(others):
    for found, _, state, kept in others.values():
        said, seconds = found["killed"]
        assert said.startswith(
            f"{LostRankError.__name__}: an exchange between ranks failed, no answer from rank {ODD}: "
        )
        assert seconds < TIMEOUT + 5
        assert kept == 20 and len(state) == 0
