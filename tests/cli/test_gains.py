"""`tensormetrics retrieval --gains`: graded relevance from files, by ids and by rows."""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import running
import torch

from tensormetrics.retrieval import AccuracyCalculator

run = partial(running.run, "retrieval")
succeed = partial(running.succeed, "retrieval")

NAMES = ("ndcg_at_5", "mean_average_precision", "recall_at_3")
METRICS = [word for name in NAMES for word in ("--metric", name)]
QUERIES, DOCUMENTS = 12, 30


@pytest.fixture
def collection(tmp_path, monkeypatch):
    """Write files of queries, documents and judgments. Return their arrays and the judged pairs."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    queries, documents = random.normal(size=(QUERIES, 4)), random.normal(size=(DOCUMENTS, 4))
    judged = random.random((QUERIES, DOCUMENTS)) < 0.2
    gains = judged * random.integers(-1, 4, (QUERIES, DOCUMENTS))
    np.save("q.npy", queries)
    np.save("d.npy", documents)
    Path("q.txt").write_text("".join(f"q{i}\n" for i in range(QUERIES)))
    Path("d.txt").write_text("".join(f"doc {i}\n" for i in range(DOCUMENTS)))
    pairs = [(i, j, int(gains[i, j])) for i, j in zip(*judged.nonzero(), strict=True)]
    Path("rows.txt").write_text("".join(f"{i} {j} {gain}\n" for i, j, gain in pairs))
    return queries, documents, np.maximum(gains, 0), pairs


def values(*arguments):
    metrics = running.answer("retrieval", *arguments)["metrics"]
    return {name: metric["value"] for name, metric in metrics.items()}


def calculate(queries, documents, gains, names=NAMES, **options):
    labels = torch.zeros(len(queries)), torch.zeros(len(documents))
    calculator = AccuracyCalculator(names, gains=torch.from_numpy(gains), **options)
    return calculator.get_accuracy(queries, labels[0], documents, labels[1])


def test_gains_by_rows_and_by_ids_equal_calculator(collection):
    queries, documents, gains, pairs = collection
    expected = pytest.approx(calculate(queries, documents, gains), rel=1e-12)
    options = ["q.npy", "--reference", "d.npy", *METRICS]
    assert values(*options, "--gains", "rows.txt") == expected
    named = ["--ids", "q.txt", "--reference-ids", "d.txt", "--gains"]
    for name, mark, head in (
        ("beir.tsv", "\t", "query-id\tcorpus-id\tscore\n"),
        ("excel.csv", ";", ""),
        ("commas.csv", ",", "query,document,gain\n"),
    ):
        text = head + "".join(f"q{i}{mark}doc {j}{mark}{gain}.0\n" for i, j, gain in pairs)
        Path(name).write_bytes(text.encode("utf-16" if mark == ";" else "utf-8"))
        assert values(*options, *named, name) == expected, name
    Path("qrels.txt").write_text("".join(f"q{i} 0 {j} {gain}\n" for i, j, gain in pairs))
    assert values(*options, "--ids", "q.txt", "--gains", "qrels.txt") == expected
    default = (*(name for name in AccuracyCalculator().get_curr_metrics() if name not in ("AMI", "NMI")), "ndcg")
    assert tuple(values("q.npy", "--reference", "d.npy", "--gains", "rows.txt")) == default


def test_gains_with_state_faiss_and_cameras_equal_calculator(collection):
    queries, documents, gains, _ = collection
    expected = pytest.approx(calculate(queries, documents, gains, k=9), rel=1e-12)
    options = ["q.npy", "--reference", "d.npy", "--gains", "rows.txt", *METRICS, "--k", 9]
    assert values(*options, "--checkpoint", "counts.pt") == expected and Path("counts.pt").exists()
    pytest.importorskip("faiss")
    assert values(*options, "--knn", "faiss") == expected
    np.savetxt("qc.txt", np.arange(QUERIES) % 3, fmt="%d")
    np.savetxt("dc.txt", np.arange(DOCUMENTS) % 3, fmt="%d")
    cameras = ["--cameras", "qc.txt", "--reference-cameras", "dc.txt"]
    gains[np.arange(QUERIES)[:, None] % 3 == np.arange(DOCUMENTS) % 3] = 0
    assert values(*options, *cameras, "--knn", "faiss") != expected
    assert values(*options, *cameras, "--knn", "faiss") == values(*options, *cameras)


def test_gains_of_self_search_with_labels_and_intervals(collection):
    queries, _, gains, pairs = collection
    Path("c.txt").write_text("a\nb\nb\n" * 4)
    Path("own.txt").write_text("".join(f"{i} {j} {gain}\n" for i, j, gain in pairs if j < QUERIES))
    calculator = AccuracyCalculator(NAMES, gains=torch.from_numpy(gains[:, :QUERIES].copy()))
    expected = pytest.approx(calculator.get_accuracy(queries, torch.arange(QUERIES)), rel=1e-12)
    assert values("q.npy", "--gains", "own.txt", *METRICS) == expected
    result = run("q.npy", "c.txt", "--gains", "own.txt", "--per-class", "--replicates", 50, *METRICS)
    assert result.exit_code == 0 and "\na " in result.stdout and "[" in result.stdout, result.output
    repeated = np.concatenate([queries, queries[:5]])
    np.save("again.npy", repeated)
    Path("again.txt").write_text("".join(f"{i % QUERIES}\n" for i in range(len(repeated))))
    assert values("again.npy", "--gains", "own.txt", "--ids", "again.txt", *METRICS) == expected


GAINS = "--reference d.npy --gains rows.txt --replicates 50 --metric ndcg_at_5"


@pytest.mark.full  # starts three processes
@pytest.mark.parametrize("options", ["", GAINS, f"{GAINS} --checkpoint counts.pt"])
def test_retrieval_on_two_ranks_equals_one_process(collection, options):
    Path("c.txt").write_text("a\nb\nb\n" * 4)
    command = f"retrieval q.npy c.txt --metric mean_average_precision --metric recall_at_3 --format json {options}"
    started = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m"]
    done = subprocess.run([*started, "tensormetrics", *command.split()], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    expected = running.answer(command.partition("--checkpoint")[0])
    assert json.loads(done.stdout)["metrics"] == expected["metrics"]
