"""References in blocks that several ranks read: the numbers of one process, also after a stop of one of them."""

import datetime
import os
import shutil
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from test_streams import BUDGET, DEEP, SHALLOW, SOME, Q, Stopped, close, data
from torch import distributed as dist

from tensormetrics.retrieval import AccuracyCalculator, open_embeddings

CASES = {
    "deep": (DEEP, {"memory_budget": BUDGET}),
    "shallow": (SHALLOW, {"k": 10, "memory_budget": BUDGET}),
    "comparison": (("mean_average_precision",), {"label_comparison_fn": close, "memory_budget": 4 * BUDGET}),
    "triples": (("mean_average_precision", "ndcg"), {"gains": SOME, "memory_budget": 4 * BUDGET}),
}


def calculator(name):
    names, options = CASES[name]
    return AccuracyCalculator(names, **options)


def sides(source=None):
    rows, labels = map(torch.from_numpy, data())
    return rows[:Q], labels[:Q], rows if source is None else source, labels


def joined(rank, world, folder):
    warnings.simplefilter("error")
    torch.set_num_threads(1)
    wait = datetime.timedelta(seconds=60)
    dist.init_process_group("gloo", init_method=f"file://{folder}", rank=rank, world_size=world, timeout=wait)
    return dist.group.WORLD


def attempt(call):
    try:
        return call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def results_of(rank, pair):
    group, rows, results = dist.group.WORLD, torch.from_numpy(data()[0]), {}
    told = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(told)
    folder = Path(told[0])
    for name in CASES:
        state, said = {"state": folder / f"{name}.pt", "checkpoint_seconds": 0, "group": group}, []
        while not said or isinstance(said[-1], str) and len(said) < 40:
            source = Stopped(rows, 1 if rank == 1 else 2)
            said.append(attempt(lambda: calculator(name).get_accuracy(*sides(source), **state)))  # noqa: B023
        source = Stopped(rows, 0)  # all is known
        again = attempt(lambda: calculator(name).get_accuracy(*sides(source), **state))  # noqa: B023
        results[name] = said, again
    results["files"] = sorted(path.name for path in folder.glob("shallow.pt*"))
    options = {"state": folder / "deep.pt", "group": group}
    odd = AccuracyCalculator(DEEP, distance="cosine" if rank == 1 else "l2", memory_budget=BUDGET)
    results["options"] = attempt(lambda: odd.get_accuracy(*sides(Stopped(rows, 0)), **options))
    chosen = {"include": ("rank_1",)} if rank == 1 else {}
    results["names"] = attempt(lambda: calculator("deep").get_accuracy(*sides(Stopped(rows, 0)), **chosen, group=group))
    odd = AccuracyCalculator(DEEP, label_levels=rank == 1)
    results["blocks"] = attempt(lambda: odd.get_accuracy(*sides(Stopped(rows, 0)), group=group))
    results["memory"] = attempt(lambda: calculator("deep").get_accuracy(*sides(), group=group))
    if rank:
        options["group"] = pair
        results["fewer"] = attempt(lambda: calculator("deep").get_accuracy(*sides(Stopped(rows, 0)), **options))
    dist.barrier()
    if rank == 0:
        shutil.rmtree(folder)
    return results


@pytest.fixture
def ranks(rank_results):
    return [results["test_streams_on_ranks"] for results in rank_results]


@pytest.mark.parametrize("name", CASES)
def test_ranks_go_on_where_they_were(ranks, name):
    wanted = calculator(name).get_accuracy(*sides())
    for rank, (said, again) in ((rank, found[name]) for rank, found in enumerate(ranks)):
        assert said[-1] == wanted and again == wanted
        assert len(said) > 2
        for stop in said[:-1]:
            assert "InterruptedError" in stop
            assert rank == 1 or stop.startswith("RuntimeError: rank ") or stop.startswith("InterruptedError")


def test_other_options_and_fewer_ranks_are_refused(ranks):
    for rank, results in enumerate(ranks):
        assert results["options"].startswith("ValueError: distance: got 'l2' on rank 0 and 2, 'cosine' on rank 1")
        assert "group: got one without references in blocks" in results["memory"]
        told = "" if rank == 1 else "RuntimeError: rank 1 failed with "
        assert results["names"].startswith(f"{told}ValueError: include: got 'rank_1'")
        assert results["blocks"].startswith(f"{told}ValueError: label_levels: got True with references in blocks")
        assert results["files"] == [f"shallow.pt.rank{rank}" for rank in range(3)]
    # Of the two that go on, the first finds what another process of three has written, and so does the second.
    for rank, results in enumerate(ranks[1:]):
        assert f"pt.rank{rank} was written with process = {rank} of 3, got {rank} of 2; delete it" in results["fewer"]


def dying(rank, folder, number):
    group, rows = joined(rank, 2, f"{folder}/rendezvous-{number}"), torch.from_numpy(data()[0])
    blocks = 2 if rank == 1 and not number else 100
    source = Stopped(rows, blocks)
    options = {"state": Path(folder) / "state.pt", "checkpoint_seconds": 0, "group": group}
    if rank == 1 and not number:
        read = source.read
        source.read = lambda *where: read(*where) if source.left else os._exit(9)
    said = attempt(lambda: calculator("shallow").get_accuracy(*sides(source), **options))
    torch.save((said, source.seen), f"{folder}/{number}-{rank}.pt")
    os._exit(0)  # not by way of a group that has lost a rank


@pytest.mark.slow
def test_a_killed_rank_goes_on_in_a_new_group(tmp_path):
    start = torch.multiprocessing.get_context("spawn").Process
    for number in range(2):
        processes = [start(target=dying, args=(rank, str(tmp_path), number)) for rank in range(2)]
        for process in processes:
            process.start()
        for process in processes:
            process.join(200)
    said, first = torch.load(tmp_path / "0-0.pt", weights_only=False)
    assert said.startswith("LostRankError: an exchange between ranks failed, no answer from rank 1") and first
    wanted = calculator("shallow").get_accuracy(*sides())
    for rank in range(2):
        said, seen = torch.load(tmp_path / f"1-{rank}.pt", weights_only=False)
        assert said == wanted
        assert not set(seen) & set(first) and bool(seen) == (rank == 1)


def test_files_of_a_group(tmp_path):
    """A group of one answers what no group does."""
    rows, labels = data()

    np.save(tmp_path / "x.npy", rows)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        source, group = open_embeddings(tmp_path / "x.npy"), dist.group.WORLD
        found = calculator("shallow").get_accuracy(rows[:Q], labels[:Q], source, labels, group=group)
    finally:
        dist.destroy_process_group()
    assert found == calculator("shallow").get_accuracy(*sides())
