"""`tensormetrics retrieval` on digits."""

import json
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import running
from sklearn.datasets import load_digits

from tensormetrics.retrieval import AccuracyCalculator

run = partial(running.run, "retrieval")
succeed = partial(running.succeed, "retrieval")

WORDS = np.array("zero one two three four five six seven eight nine".split())


@pytest.fixture
def digits(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = load_digits()
    pixels, labels = data.data[:500], data.target[:500]
    np.save("pixels.npy", pixels)
    np.save("labels.npy", labels)
    Path("words.txt").write_text("\n".join(WORDS[labels]))
    return pixels, labels


def test_retrieval_scores_equal_calculator(digits):
    pixels, labels = digits
    options = "--json o.json --plot o.png --per-class --replicates 200"
    result = running.succeed(f"retrieval pixels.npy words.txt {options}")
    answer = json.loads(Path("o.json").read_text())
    calculator = AccuracyCalculator()
    assert [*answer["metrics"]] == list(calculator.get_curr_metrics())
    for name, value in calculator.get_accuracy(pixels, labels).items():
        assert answer["metrics"][name]["value"] == pytest.approx(value) and f"{value:.4f}" in result.stdout
    precision = calculator.last.scores["precision_at_1"]
    for digit, word in enumerate(WORDS):
        assert answer["per_class"][word]["precision_at_1"] == pytest.approx(precision[labels == digit].mean().item())
    interval = answer["metrics"]["precision_at_1"]
    assert interval["low"] < interval["value"] < interval["high"]
    assert Path("o.png").read_bytes().startswith(b"\x89PNG")


def test_retrieval_with_references_and_options_equals_calculator(digits):
    pixels, labels = digits
    np.save("q.npy", pixels[:50])
    np.save("ql.npy", labels[:50])
    files = "q.npy ql.npy --reference pixels.npy --reference-labels labels.npy"
    metrics = running.answer(
        f"retrieval {files} --metric ndcg_at_5 --k 7 --distance cosine --knn torch --replicates 0"
    )["metrics"]
    calculator = AccuracyCalculator(include=("ndcg_at_5",), k=7, distance="cosine")
    expected = calculator.get_accuracy(pixels[:50], labels[:50], pixels, labels)
    assert metrics == {"ndcg_at_5": {"value": pytest.approx(expected["ndcg_at_5"])}}


def test_retrieval_options_of_scores_equal_calculator(digits):
    pixels, labels = digits
    rows, labels = np.round(pixels[:60] / 8), labels[:60]  # with ties
    cameras, ids, groups = np.arange(60) % 3, np.r_[np.arange(50), np.arange(10)], np.arange(60) // 4
    np.save("x.npy", rows)
    np.save("y.npy", labels)
    levels = np.stack([labels, labels % 2], 1)
    np.savetxt("levels.csv", np.char.add("c", levels.astype(str)), "%s", ",")
    for name, codes in ("cameras", cameras), ("ids", ids), ("groups", groups):
        Path(f"{name}.txt").write_text("\n".join(f"word{code}" for code in codes))
    metric = ("mean_average_precision_at_r",)

    def scores(*options, labels="y.npy"):
        rows = running.answer("retrieval x.npy", labels, "--metric", *metric, "--replicates", 0, *options)["metrics"]
        return [list(row.values()) for row in rows.values()]

    calculator = AccuracyCalculator(metric)
    assert scores("--cameras", "cameras.txt") == [
        [calculator.get_accuracy(rows, labels, query_cameras=cameras)[metric[0]]]
    ]
    if find_spec("faiss"):
        assert scores("--cameras", "cameras.txt", "--knn", "faiss")[0][0] > 0
    references = "--reference", "x.npy", "--reference-labels", "y.npy"
    both = "--cameras", "cameras.txt", "--reference-cameras", "cameras.txt"
    expected = calculator.get_accuracy(rows, labels, rows, labels, query_cameras=cameras, reference_cameras=cameras)
    assert scores(*references, *both) == [[*expected.values()]]
    assert scores("--ids", "ids.txt") == [[*calculator.get_accuracy(rows[:50], labels[:50]).values()]]
    expected = [*calculator.get_accuracy(rows, labels).values()]
    of_file = ["--groups", "groups.txt"]
    for options, weighed in ([], labels), (of_file, [f"word{code}" for code in groups]):
        interval = calculator.interval(replicates=50, groups=weighed)[metric[0]]
        assert scores("--replicates", 50, *options) == [[*expected, float(interval.low), float(interval.high)]]
    for option, arguments in {
        ("--option", "avg_of_avgs=true"): {"avg_of_avgs": True},
        ("--option", "ties=pessimistic"): {"ties": "pessimistic"},
    }.items():
        assert scores(*option) == [[*AccuracyCalculator(metric, **arguments).get_accuracy(rows, labels).values()]]
        assert scores(*option) != [expected]
    expected = AccuracyCalculator(metric, label_levels=True).get_accuracy(rows, levels).values()
    assert scores("--levels", labels="levels.csv") == [[value] for value in expected]


def test_retrieval_of_few_neighbors_says_that_scores_are_lower_bounds(digits):
    result = run("pixels.npy", "labels.npy", "--k", "1")
    assert result.exit_code == 0 and result.stderr == (
        "tensormetrics: --k=1 is below the 52 neighbors that are looked at by mean_average_precision_at_r and "
        "r_precision: lower bounds; write k=None\n"
    )


def test_retrieval_median_rank_has_no_interval(digits):
    files = "pixels.npy labels.npy --per-class"
    answer = running.answer(f"retrieval {files} --metric median_rank --metric mean_rank --replicates 50")
    assert [*map(set, answer["metrics"].values())] == [{"value"}, {"value", "low", "high"}]
    assert set(answer["per_class"]) == set("0123456789") and answer["per_class"]["8"]["median_rank"] == 1


def test_retrieval_resumes_state_with_references_in_several_files(digits):
    pixels, labels = digits
    np.save("q.npy", pixels[:50])
    for index, rows in enumerate(np.array_split(np.arange(500), 3)):
        np.save(f"base-{index}.npy", pixels[rows])
        Path(f"words-{index}.txt").write_text("\n".join(WORDS[labels[rows]]))
    Path("q.txt").write_text("\n".join(WORDS[labels[:50]]))
    arguments = ["q.npy", "q.txt", "--reference", "base-*.npy", "--reference-labels",
             "words-*.txt", "--metric", "mean_average_precision", "--json", "o.json"]  # fmt: skip
    calculator = AccuracyCalculator(include=("mean_average_precision",))
    expected = calculator.get_accuracy(pixels[:50], labels[:50], pixels, labels)["mean_average_precision"]
    for _ in range(2):
        result = succeed(*arguments, "--checkpoint", "state.pt")
        assert json.loads(Path("o.json").read_text())["metrics"]["mean_average_precision"]["value"] == expected
    result = run(*arguments, "--checkpoint", "state.pt", "--distance", "ip")
    assert result.exit_code == 2 and "state.pt was written with distance = 'l2', got 'ip'; delete it" in result.output
    result = run("pixels.npy", "labels.npy", "--checkpoint", "state.pt")
    assert result.exit_code == 2 and "--checkpoint: wanted a --reference, which is read in blocks" in result.output
    result = run("none-*.npy", "labels.npy")
    assert result.exit_code == 2 and "none-*.npy: no file has such a name" in result.output


def test_retrieval_reads_columns_of_parquet_files(digits):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pixels, labels = digits
    for index, rows in enumerate(np.array_split(np.arange(500), 2)):
        lists = pa.FixedSizeListArray.from_arrays(pa.array(pixels[rows].ravel()), pixels.shape[1])
        columns = {"x": lists, "word": WORDS[labels[rows]], "number": labels[rows]}
        parquet.write_table(pa.table(columns), f"digits-{index}.parquet")
    expected = AccuracyCalculator(include=("precision_at_1",)).get_accuracy(pixels, labels)["precision_at_1"]
    for column in ("word", "number"):
        table = "digits-*.parquet"
        arguments = ["--metric", "precision_at_1", "--json", "o.json", "--per-class"]
        result = succeed(f"{table}:x", f"{table}:{column}", *arguments)
        answer = json.loads(Path("o.json").read_text())
        assert answer["metrics"]["precision_at_1"]["value"] == pytest.approx(expected)
        assert set(answer["per_class"]) == (set(WORDS) if column == "word" else set("0123456789"))
    result = run(f"{table}:word", f"{table}:number")
    assert result.exit_code == 2 and "word: got a column of string, wanted a list of D numbers" in result.output


def test_retrieval_audit_reports_recall_of_the_index(digits):
    pytest.importorskip("faiss")
    pixels, labels = digits
    arguments = ["pixels.npy", "labels.npy", *"--metric precision_at_1 --k 10 --knn faiss".split()]
    result = succeed(*arguments, "--index", "IVF8,Flat", "--audit", 500, "--json", "o.json")
    audit = json.loads(Path("o.json").read_text())["audit"]
    exact = AccuracyCalculator(include=("precision_at_1",), k=10).get_accuracy(pixels, labels)["precision_at_1"]
    assert audit["exact"]["precision_at_1"] == pytest.approx({"value": exact, "low": exact, "high": exact})
    assert audit["queries"] == 500 and [row["k"] for row in audit["recall"]] == [*range(1, 11)]
    assert 0.5 < audit["recall"][0]["value"] < 1
    assert "recall of the index" in result.stdout and "by the index" in result.stdout
    for wrong, message in ((["--audit", 5], "--audit: wanted --knn faiss"), (["--index", "Flat"], "--index: wanted")):
        result = run(*arguments[:-2], *wrong)
        assert result.exit_code == 2 and message in result.output
