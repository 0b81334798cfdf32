"""A rank that fails, dies or has other options is named immediately on all other ranks, which remain usable."""

import os
import time
import warnings
from dataclasses import dataclass

import pytest
import ranks
import torch

from tensormetrics.core.metric.distributed import LostRankError, raise_on_all_ranks
from tensormetrics.posterior import ConfusionPosterior
from tensormetrics.retrieval import AccuracyCalculator, AveragePrecision, ShardedKNN, TorchKNN
from tensormetrics.retrieval.calculator.audit import Auditor
from tensormetrics.retrieval.calculator.search import RankSearch
from tensormetrics.retrieval.ranking.rank_counts import RankCounter
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


STEPS = {  # what runs out of memory on the odd rank; the last two run on all ranks with the gathered rows
    "counting": ([(RankCounter, "__init__")], {}),
    "neighbors": ([(RankCounter, "__init__"), (TorchKNN, "search")], {"k": 2}),
    "kept neighbors": ([(RankSearch, "nearest")], {"k": 2, "keep": "neighbors"}),
    "audit": ([(Auditor, "__call__")], {"k": 2, "knn_func": TorchKNN(exact=False), "audit": 5}),
}


def outcomes_and_results(rank, world):
    warnings.filterwarnings("ignore", "memory_budget: got")  # this test needs different budgets
    odd = rank == ODD
    outcomes = {option: outcome_of(metric.compute) for option, metric in differing_metrics(rank)}
    knn = ShardedKNN(knn=TorchKNN("ip" if odd else "l2"))
    outcomes["distance of a search"] = outcome_of(lambda: knn(rows(rank)[0], 2, rows(rank)[0], True))
    results = {"budgets": calculator(rank, memory_budget=30_000 * (1 + rank)).compute()}
    metric = calculator(rank, label_comparison_fn=near)
    metric.comparison = metric.search.comparison = raising if odd else near
    outcomes["comparison"] = outcome_of(metric.compute)
    for name, (methods, options) in STEPS.items():
        metric = calculator(rank, **options)
        with pytest.MonkeyPatch.context() as patch:
            for kind, method in methods if odd else ():
                patch.setattr(kind, method, out_of_memory)
            outcomes[name] = outcome_of(metric.compute)
        results[name] = metric.compute()  # the group still works, and no rows are lost
    results["labels"] = family(None).compute()
    metric = calculator(rank)
    with pytest.MonkeyPatch.context() as patch:
        if odd:
            patch.setattr(type(metric.scorer), "__call__", out_of_memory)
        outcomes["scoring"] = outcome_of(metric.compute)
    with pytest.raises(KeyboardInterrupt if odd else RuntimeError), raise_on_all_ranks():
        if odd:
            raise KeyboardInterrupt
    return outcomes, results


def outcome_of_lost_rank(rank, world):
    metric = calculator(rank)
    if rank == ODD:
        os._exit(1)
    return *outcome_of(metric.compute), metric.state_dict(), len(metric.embeddings)


@pytest.fixture(scope="module", params=[pytest.param(world, marks=pytest.mark.full) for world in (2, 3)])
def answers(request):
    """Return what all ranks return."""
    return ranks.run(outcomes_and_results, world=request.param, timeout=TIMEOUT)


def others(answers):
    return [answer for rank, answer in enumerate(answers) if rank != ODD]


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
    "distance of a search": ("'l2' on rank 0", "'ip'"),
}


def test_differing_option_is_named_on_other_ranks(answers):
    for outcomes, _ in others(answers):
        for option, values in OPTIONS.items():
            message, seconds = outcomes[option]
            name = option.removesuffix(" of a search")
            assert message.startswith(f"ValueError: {name}: got ") and f"on rank {ODD}" in message, message
            assert all(value in message for value in values), message
            assert seconds < TIMEOUT / 4


def test_failing_rank_is_named_immediately(answers):
    errors = {"comparison": "ZeroDivisionError: of the user's own"}
    errors |= dict.fromkeys((*STEPS, "scoring"), "MemoryError: no room")
    for outcomes, _ in others(answers):
        for step, error in errors.items():
            message, seconds = outcomes[step]
            assert message == f"RuntimeError: rank {ODD} failed with {error}" and seconds < TIMEOUT / 4


def test_group_still_works_after_errors(answers):
    deep = AccuracyCalculator(("mean_average_precision",))
    shallow = AccuracyCalculator(("mean_average_precision",), k=2)
    for rank in range(len(answers)):
        deep.update(*rows(rank))
        shallow.update(*rows(rank))
    for _, results in answers:
        label_scores = results.pop("labels")
        assert label_scores["f1[x]"] == 1 and label_scores["f1[y]"] == 0
        expected = {name: (shallow if "k" in options else deep).compute() for name, (_, options) in STEPS.items()}
        assert results == {"budgets": deep.compute(), **expected}


@pytest.mark.full
@pytest.mark.parametrize("world", [2, 3])
def test_killed_rank_is_named_and_local_rows_remain(world):
    answers = ranks.survivors(outcome_of_lost_rank, world=world, timeout=TIMEOUT)
    assert answers.keys() == {*range(world)} - {ODD}
    for message, seconds, state, num_rows in answers.values():
        assert message.startswith(
            f"{LostRankError.__name__}: an exchange between ranks failed, no answer from rank {ODD}: "
        )
        assert seconds < TIMEOUT + 5
        assert num_rows == 20 and len(state) == 0
