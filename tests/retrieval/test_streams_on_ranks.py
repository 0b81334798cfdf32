"""References in blocks that several ranks read: scores match one process, also after one rank was interrupted."""

import shutil
import tempfile
from pathlib import Path

import pytest
import torch
from test_streams import BUDGET, DEEP, GAIN_TRIPLES, SHALLOW, InterruptedSource, Q, data, within_1
from torch import distributed as dist

from tensormetrics.retrieval import AccuracyCalculator

CASES = {
    "deep": (DEEP, {"memory_budget": BUDGET}),
    "shallow": (SHALLOW, {"k": 10, "memory_budget": BUDGET}),
    "comparison": (("mean_average_precision",), {"label_comparison_fn": within_1, "memory_budget": 4 * BUDGET}),
    "triples": (("mean_average_precision", "ndcg"), {"gains": GAIN_TRIPLES, "memory_budget": 4 * BUDGET}),
}


def calculator(name):
    names, options = CASES[name]
    return AccuracyCalculator(names, **options)


def arguments_of(source=None):
    rows, labels = map(torch.from_numpy, data())
    return rows[:Q], labels[:Q], rows if source is None else source, labels


def result_or_error(call):
    try:
        return call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def results_of(rank, pair):
    group, rows, results = dist.group.WORLD, torch.from_numpy(data()[0]), {}
    shared = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(shared)
    folder = Path(shared[0])
    for name in CASES:
        state, attempts = {"checkpoint": folder / f"{name}.pt", "checkpoint_seconds": 0, "group": group}, []
        while not attempts or isinstance(attempts[-1], str) and len(attempts) < 40:
            source = InterruptedSource(rows, 1 if rank == 1 else 2)
            attempts.append(result_or_error(lambda: calculator(name).get_accuracy(*arguments_of(source), **state)))  # noqa: B023
        source = InterruptedSource(rows, 0)  # everything is in the state
        repeated = result_or_error(lambda: calculator(name).get_accuracy(*arguments_of(source), **state))  # noqa: B023
        results[name] = attempts, repeated
    results["files"] = sorted(path.name for path in folder.glob("shallow.pt*"))
    options = {"checkpoint": folder / "deep.pt", "group": group}
    calculator_of_rank = AccuracyCalculator(DEEP, distance="cosine" if rank == 1 else "l2", memory_budget=BUDGET)
    results["options"] = result_or_error(
        lambda: calculator_of_rank.get_accuracy(*arguments_of(InterruptedSource(rows, 0)), **options)
    )
    calculator_of_rank = AccuracyCalculator(DEEP, label_levels=rank == 1)
    results["blocks"] = result_or_error(
        lambda: calculator_of_rank.get_accuracy(*arguments_of(InterruptedSource(rows, 0)), group=group)
    )
    results["memory"] = result_or_error(lambda: calculator("deep").get_accuracy(*arguments_of(), group=group))
    if rank:
        options["group"] = pair
        results["fewer"] = result_or_error(
            lambda: calculator("deep").get_accuracy(*arguments_of(InterruptedSource(rows, 0)), **options)
        )
    dist.barrier()
    if rank == 0:
        shutil.rmtree(folder)
    return results


@pytest.mark.parametrize("name", CASES)
def test_interrupted_ranks_resume_from_state(ranks, name):
    expected = calculator(name).get_accuracy(*arguments_of())
    for rank, (attempts, repeated) in ((rank, results[name]) for rank, results in enumerate(ranks)):
        assert attempts[-1] == expected and repeated == expected
        assert len(attempts) > 2
        for stop in attempts[:-1]:
            assert "InterruptedError" in stop
            assert rank == 1 or stop.startswith("RuntimeError: rank ") or stop.startswith("InterruptedError")


def test_state_of_other_options_or_group_size_is_rejected(ranks):
    for rank, results in enumerate(ranks):
        assert results["options"].startswith("ValueError: distance: got 'l2' on rank 0 and 2, 'cosine' on rank 1")
        assert "group: got one without references in blocks" in results["memory"]
        prefix = "" if rank == 1 else "RuntimeError: rank 1 failed with "
        assert results["blocks"].startswith(f"{prefix}ValueError: label_levels: got True with references in blocks")
        assert results["files"] == [f"shallow.pt.rank{rank}" for rank in range(3)]
    # In the group of two, both ranks find state files written by a group of three.
    for rank, results in enumerate(ranks[1:]):
        assert f"pt.rank{rank} was written with process = {rank} of 3, got {rank} of 2; delete it" in results["fewer"]
