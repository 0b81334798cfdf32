"""A rank that fails, dies or has other options is named immediately on all other ranks, which remain usable."""

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
from tensormetrics.core.metric.distributed import LostRankError, raise_on_all_ranks
from tensormetrics.posterior import ConfusionPosterior
from tensormetrics.retrieval import AccuracyCalculator, AveragePrecision, ShardedKNN, TorchKNN
from tensormetrics.retrieval.calculator.audit import Auditor
from tensormetrics.retrieval.calculator.search import Search
from tensormetrics.structured import Family, metametric, micro_average

TIMEOUT = 20.0  # seconds, of the process group
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


def differing_metrics(rank):
    """Yield the name of each option with a metric whose value of that option differs on the odd rank."""
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


def outcome_of(call):
    """Return the error that a call raises, or "nothing", and its duration in seconds."""
    start = time.monotonic()
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}", time.monotonic() - start
    return "nothing", time.monotonic() - start


def out_of_memory(*args, **kwargs):
    raise MemoryError("no room")


GATHERED_STEPS = {  # steps that run on all ranks with the gathered rows
    "kept neighbors": (Search, "nearest", {"k": 2, "keep": "neighbors"}),
    "audit": (Auditor, "__call__", {"k": 2, "knn_func": TorchKNN(exact=False), "audit": 5}),
}


def run_rank(rank: int, world: int, folder: str) -> None:
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", "memory_budget: got")  # this test needs different budgets
    torch.set_num_threads(1)
    timeout = datetime.timedelta(seconds=TIMEOUT)
    address = f"file://{folder}/rendezvous"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=world, timeout=timeout)
    outcomes = {option: outcome_of(metric.compute) for option, metric in differing_metrics(rank)}
    knn = ShardedKNN(knn=TorchKNN("ip" if rank == ODD else "l2"))
    outcomes["distance of a search"] = outcome_of(lambda: knn(rows(rank)[0], 2, rows(rank)[0], True))

    odd = rank == ODD
    budgets = calculator(rank, memory_budget=30_000 * (1 + rank))
    results = {"budgets": budgets.compute()}
    metric = calculator(rank, label_comparison_fn=near)
    metric.comparison = metric.search.comparison = raising if odd else near
    outcomes["comparison"] = outcome_of(metric.compute)
    counting = tensormetrics.retrieval.ranking.rank_counts.RankCounter
    for name, options in (("counting", {}), ("neighbors", {"k": 2})):
        metric = calculator(rank, **options)
        if odd:
            before, counting.__init__ = counting.__init__, out_of_memory
            call, TorchKNN.search = TorchKNN.search, out_of_memory
        outcomes[name] = outcome_of(metric.compute)
        if odd:
            counting.__init__, TorchKNN.search = before, call
        results[name] = metric.compute()  # the group still works, and no rows are lost
    for name, (kind, method, options) in GATHERED_STEPS.items():
        metric = calculator(rank, **options)
        if odd:
            before = getattr(kind, method)
            setattr(kind, method, out_of_memory)
        outcomes[name] = outcome_of(metric.compute)
        if odd:
            setattr(kind, method, before)
        results[name] = metric.compute()
    results["labels"] = family(None).compute()
    metric = calculator(rank)
    if odd:
        type(metric.scorer).__call__ = out_of_memory
    outcomes["scoring"] = outcome_of(metric.compute)
    with pytest.raises(KeyboardInterrupt if odd else RuntimeError), raise_on_all_ranks():
        if odd:
            raise KeyboardInterrupt

    metric = calculator(rank)
    if odd:
        os._exit(1)
    outcomes["killed"] = outcome_of(metric.compute)
    torch.save((outcomes, results, metric.state_dict(), len(metric.embeddings)), Path(folder) / f"{rank}.pt")
    os._exit(0)  # skip the teardown of a group that has lost a rank


@pytest.fixture(scope="module", params=[2, 3])
def surviving_ranks(request, tmp_path_factory):
    """Return what the surviving ranks have saved."""
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
def test_differing_option_is_named_on_other_ranks(surviving_ranks, option):
    for outcomes, *_ in surviving_ranks.values():
        message, seconds = outcomes[option]
        assert message.startswith(f"ValueError: {option}: got ") and f"on rank {ODD}" in message, message
        assert all(value in message for value in OPTIONS[option]), message
        assert seconds < TIMEOUT / 4


def test_differing_distance_of_search_is_named_on_other_ranks(surviving_ranks):
    for outcomes, *_ in surviving_ranks.values():
        message, _ = outcomes["distance of a search"]
        assert message.startswith("ValueError: distance: got 'l2' on rank 0") and f"'ip' on rank {ODD}" in message


@pytest.mark.parametrize(
    ("step", "expected_error"),
    [
        ("comparison", "ZeroDivisionError: of the user's own"),
        ("counting", "MemoryError: no room"),
        ("neighbors", "MemoryError: no room"),
        *((name, "MemoryError: no room") for name in GATHERED_STEPS),
        ("scoring", "MemoryError: no room"),
    ],
)
def test_failing_rank_is_named_immediately(surviving_ranks, step, expected_error):
    for outcomes, *_ in surviving_ranks.values():
        assert outcomes[step][0] == f"RuntimeError: rank {ODD} failed with {expected_error}"
        assert outcomes[step][1] < TIMEOUT / 4


def test_group_still_works_after_errors(surviving_ranks):
    world = max(surviving_ranks) + 1 + (len(surviving_ranks) == 1)
    calculator_of_all_rows = AccuracyCalculator(("mean_average_precision",))
    shallow = AccuracyCalculator(("mean_average_precision",), k=2)
    for rank in range(world):
        calculator_of_all_rows.update(*rows(rank))
        shallow.update(*rows(rank))
    for _, results, *_ in surviving_ranks.values():
        label_scores = results.pop("labels")
        assert label_scores["f1[x]"] == 1 and label_scores["f1[y]"] == 0
        assert results == {
            "budgets": calculator_of_all_rows.compute(),
            "counting": calculator_of_all_rows.compute(),
            "neighbors": shallow.compute(),
            **{name: shallow.compute() for name in GATHERED_STEPS},
        }


def test_killed_rank_is_named_and_local_rows_remain(surviving_ranks):
    for outcomes, _, state, num_rows in surviving_ranks.values():
        message, seconds = outcomes["killed"]
        assert message.startswith(
            f"{LostRankError.__name__}: an exchange between ranks failed, no answer from rank {ODD}: "
        )
        assert seconds < TIMEOUT + 5
        assert num_rows == 20 and len(state) == 0
