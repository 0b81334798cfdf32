"""`tensormetrics retrieval` on digits."""

import json
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.datasets import load_digits

from tensormetrics.__main__ import main
from tensormetrics.retrieval import AccuracyCalculator

WORDS = np.array("zero one two three four five six seven eight nine".split())


@pytest.fixture
def digits(tmp_path):
    data = load_digits()
    np.save(tmp_path / "pixels.npy", data.data[:500])
    np.save(tmp_path / "labels.npy", data.target[:500])
    (tmp_path / "words.txt").write_text("\n".join(WORDS[data.target[:500]]))
    return tmp_path, data.data[:500], data.target[:500]


def run(*arguments):
    return CliRunner().invoke(main, ["retrieval", *map(str, arguments)])


def test_retrieval_scores_equal_calculator(digits):
    folder, pixels, labels = digits
    result = run(folder / "pixels.npy", folder / "words.txt", "--json", folder / "o.json", "--plot", folder / "o.png",
                 "--per-class", "--replicates", 200)  # fmt: skip
    assert result.exit_code == 0, result.output
    answer = json.loads((folder / "o.json").read_text())
    calculator = AccuracyCalculator()
    for name, value in calculator.get_accuracy(pixels, labels).items():
        assert answer["metrics"][name]["value"] == pytest.approx(value) and f"{value:.4f}" in result.stdout
    precision = calculator.last.scores["precision_at_1"]
    for digit, word in enumerate(WORDS):
        assert answer["per_class"][word]["precision_at_1"] == pytest.approx(precision[labels == digit].mean().item())
    interval = answer["metrics"]["precision_at_1"]
    assert interval["low"] < interval["value"] < interval["high"]
    assert (folder / "o.png").read_bytes().startswith(b"\x89PNG")


def test_retrieval_with_references_and_options_equals_calculator(digits):
    folder, pixels, labels = digits
    np.save(folder / "q.npy", pixels[:50])
    np.save(folder / "ql.npy", labels[:50])
    result = run(folder / "q.npy", folder / "ql.npy", "--reference", folder / "pixels.npy", "--reference-labels",
                 folder / "labels.npy", "--metric", "ndcg_at_5", "--k", 7, "--distance", "cosine", "--knn", "torch",
                 "--json", folder / "o.json")  # fmt: skip
    assert result.exit_code == 0, result.output
    metrics = json.loads((folder / "o.json").read_text())["metrics"]
    calculator = AccuracyCalculator(include=("ndcg_at_5",), k=7, distance="cosine")
    expected = calculator.get_accuracy(pixels[:50], labels[:50], pixels, labels)
    assert metrics == {"ndcg_at_5": {"value": pytest.approx(expected["ndcg_at_5"])}}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pixels.npy", "nothing.npy"], "{}/nothing.npy: there is no such file"),
        (["pixels.npy", "header.csv"], "{}/header.csv: got 501 labels for the 500 rows of {}/pixels.npy; leave out the "
         "header"),
        (["pixels.npy", "labels.npy", "--reference", "pixels.npy"], "--reference and --reference-labels: give both or "
         "neither"),
        (["pixels.npy", "labels.npy", "--reference", "pixels.npy", "--reference-labels", "words.txt"],
         "{}/words.txt: wanted labels of the kind of {}/labels.npy, words or integers"),
        (["pixels.npy", "labels.npy", "--k", "many"], "--k: got 'many', wanted an integer >= 1 or "
         "max_bin_count; leave it out for all neighbours"),
        (["pixels.npy", "labels.npy", "--json", "no/o.json"], "{}/no/o.json: cannot be written: there is no folder "
         "{}/no"),
        (["pixels.npy", "labels.npy", "--replicates", "1"], "Invalid value for '--replicates': 1 is not 0, or at "
         "least 2. See: tensormetrics retrieval --help"),
        (["pixels.npy", "labels.npy", "--plot", "o.doc"], "{}/o.doc: got a file of type '.doc', wanted one of .png, "
         ".svg, .pdf"),
        (["pixels.npy"], "LABELS: got no file, wanted one, or --gains FILE"),
        (["pixels.npy", "labels.npy", "--knn", "hnsw"], "Invalid value for '--knn': 'hnsw' is not one of 'torch', "
         "'faiss', 'keops'. See: tensormetrics retrieval --help"),
        (["pixels.npy", "labels.npy", "--device", "meta"], "--device: got 'meta', which cannot be used here: "
         "Tensor.item() cannot be called on meta tensors"),
    ],
)  # fmt: skip
def test_retrieval_invalid_options_exit_with_status_2_and_one_line(digits, arguments, message):
    folder, _, _ = digits
    (folder / "header.csv").write_text("digit\n" + (folder / "words.txt").read_text())
    result = run(*(folder / a if "." in a else a for a in arguments))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"tensormetrics: {message.format(folder, folder)}\n"


def test_retrieval_json_to_stdout_prints_only_json(digits):
    folder, _, _ = digits
    result = run(folder / "pixels.npy", folder / "labels.npy", "--metric", "median_rank", "--per-class", "--json", "-")
    answer = json.loads(result.stdout)
    assert answer["metrics"]["median_rank"] == {"value": 1} and set(answer["per_class"]) == set("0123456789")
    assert answer["per_class"]["8"] == {"median_rank": 1} and result.stderr == ""


def test_retrieval_options_of_scores_equal_calculator(digits):
    folder, pixels, labels = digits
    rows, labels = np.round(pixels[:60] / 8), labels[:60]  # with ties
    cameras, ids, groups = np.arange(60) % 3, np.r_[np.arange(50), np.arange(10)], np.arange(60) // 4
    np.save(folder / "x.npy", rows)
    np.save(folder / "y.npy", labels)
    levels = np.stack([labels, labels % 2], 1)
    np.savetxt(folder / "levels.csv", np.char.add("c", levels.astype(str)), "%s", ",")
    for name, codes in ("cameras", cameras), ("ids", ids), ("groups", groups):
        (folder / f"{name}.txt").write_text("\n".join(f"word{code}" for code in codes))
    metric = ("mean_average_precision_at_r",)

    def scores(*options, labels="y.npy"):
        result = run(folder / "x.npy", folder / labels, "--metric", *metric, "--format", "json", *options)
        assert result.exit_code == 0, result.output
        return [list(row.values()) for row in json.loads(result.stdout)["metrics"].values()]

    calculator = AccuracyCalculator(metric)
    assert scores("--cameras", folder / "cameras.txt") == [
        [calculator.get_accuracy(rows, labels, query_cameras=cameras)[metric[0]]]
    ]
    if find_spec("faiss"):
        assert scores("--cameras", folder / "cameras.txt", "--knn", "faiss")[0][0] > 0
    references = "--reference", folder / "x.npy", "--reference-labels", folder / "y.npy"
    both = "--cameras", folder / "cameras.txt", "--reference-cameras", folder / "cameras.txt"
    expected = calculator.get_accuracy(rows, labels, rows, labels, query_cameras=cameras, reference_cameras=cameras)
    assert scores(*references, *both) == [[*expected.values()]]
    assert scores("--ids", folder / "ids.txt") == [[*calculator.get_accuracy(rows[:50], labels[:50]).values()]]
    expected = [*calculator.get_accuracy(rows, labels).values()]
    for options, weighed in (
        ([], labels),
        (
            ["--groups", folder / "groups.txt"],
            [f"word{code}" for code in groups],
        ),
    ):
        interval = calculator.interval(replicates=50, groups=weighed)[metric[0]]
        assert scores("--replicates", 50, *options) == [[*expected, float(interval.low), float(interval.high)]]
    for option, arguments in {
        ("--average", "macro"): {"avg_of_avgs": True},
        ("--ties", "pessimistic"): {"ties": "pessimistic"},
    }.items():
        assert scores(*option) == [[*AccuracyCalculator(metric, **arguments).get_accuracy(rows, labels).values()]]
        assert scores(*option) != [expected]
    expected = AccuracyCalculator(metric, label_levels=True).get_accuracy(rows, levels).values()
    assert scores("--levels", labels="levels.csv") == [[value] for value in expected]


def test_retrieval_messages_name_options_of_the_command(digits):
    folder, _, _ = digits
    np.save(folder / "levels.npy", np.zeros((500, 2), int))
    for arguments, status, line in (
        (["labels.npy", "--k", "1"], 0, "--k=1 is below the 52 neighbours that are looked at by "
         "mean_average_precision_at_r and r_precision: lower bounds; leave --k out"),
        (["labels.npy", "--cameras", folder / "words.txt", "--metric", "nearest_centroid_accuracy"], 2,
         "--cameras: nearest_centroid_accuracy cannot leave them out; leave out --metric nearest_centroid_accuracy"),
        (["labels.npy", "--ties", "optimistic", "--knn", "faiss"], 2, "--ties: got 'optimistic', wanted 'index' with "
         "--knn faiss or keops"),
        (["levels.npy"], 2, "{}/levels.npy: got an array of shape (500, 2), wanted one label per row: (N,); levels of "
         "labels, (N, L), are an option of retrieval"),
        (["levels.npy", "--levels", "--per-class"], 2, "--per-class: not together with --levels; leave one out"),
        (["labels.npy", "--reference-cameras", folder / "words.txt"], 2, "--reference-cameras: give them where there "
         "are both --cameras and --reference, and only there"),
        (["labels.npy", "--cameras", folder / "few.txt"], 2, "{}/few.txt: got 1 labels for the 500 rows of "
         "{}/pixels.npy"),
    ):  # fmt: skip
        (folder / "few.txt").write_text("a\n")
        if "faiss" in arguments:
            pytest.importorskip("faiss")
        result = run(folder / "pixels.npy", folder / arguments[0], *arguments[1:])
        assert result.exit_code == status and result.stderr == f"tensormetrics: {line.format(folder, folder)}\n"


def test_retrieval_median_rank_has_no_interval(digits):
    folder, _, _ = digits
    result = run(folder / "pixels.npy", folder / "labels.npy", "--metric", "median_rank", "--metric", "mean_rank",
                 "--replicates", "50", "--json", "-")  # fmt: skip
    assert {name: set(row) for name, row in json.loads(result.stdout)["metrics"].items()} == {
        "median_rank": {"value"},
        "mean_rank": {"value", "low", "high"},
    }


def test_retrieval_on_two_ranks_equals_one_process(digits):
    folder, _, _ = digits
    command = ["-m", "tensormetrics", "retrieval", str(folder / "pixels.npy"), str(folder / "labels.npy")]
    options = ["--metric", "mean_average_precision", "--metric", "precision_at_1", "--device", "cpu", "--json"]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    answers = []
    for start in ([sys.executable], launcher):
        file = folder / f"{len(start)}.json"
        subprocess.run([*start, *command, *options, str(file)], check=True, capture_output=True)
        answers.append(json.loads(file.read_text())["metrics"])
    assert answers[0] == answers[1]


def test_retrieval_resumes_state_with_references_in_several_files(digits):
    folder, pixels, labels = digits
    np.save(folder / "q.npy", pixels[:50])
    for index, rows in enumerate(np.array_split(np.arange(500), 3)):
        np.save(folder / f"base-{index}.npy", pixels[rows])
        (folder / f"words-{index}.txt").write_text("\n".join(WORDS[labels[rows]]))
    (folder / "q.txt").write_text("\n".join(WORDS[labels[:50]]))
    arguments = [folder / "q.npy", folder / "q.txt", "--reference", folder / "base-*.npy", "--reference-labels",
             folder / "words-*.txt", "--metric", "mean_average_precision", "--json", folder / "o.json"]  # fmt: skip
    calculator = AccuracyCalculator(include=("mean_average_precision",))
    expected = calculator.get_accuracy(pixels[:50], labels[:50], pixels, labels)["mean_average_precision"]
    for _ in range(2):
        result = run(*arguments, "--state", folder / "state.pt")
        assert result.exit_code == 0, result.output
        assert json.loads((folder / "o.json").read_text())["metrics"]["mean_average_precision"]["value"] == expected
    result = run(*arguments, "--state", folder / "state.pt", "--distance", "ip")
    assert result.exit_code == 2 and "state.pt was written with distance = 'l2', got 'ip'; delete it" in result.output
    result = run(folder / "pixels.npy", folder / "labels.npy", "--state", folder / "state.pt")
    assert result.exit_code == 2 and "--state: wanted a --reference, which is read in blocks" in result.output
    result = run(folder / "none-*.npy", folder / "labels.npy")
    assert result.exit_code == 2 and f"{folder}/none-*.npy: no file has such a name" in result.output


def test_retrieval_reads_columns_of_parquet_files(digits):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    folder, pixels, labels = digits
    for index, rows in enumerate(np.array_split(np.arange(500), 2)):
        lists = pa.FixedSizeListArray.from_arrays(pa.array(pixels[rows].ravel()), pixels.shape[1])
        columns = {"x": lists, "word": WORDS[labels[rows]], "number": labels[rows]}
        parquet.write_table(pa.table(columns), folder / f"digits-{index}.parquet")
    expected = AccuracyCalculator(include=("precision_at_1",)).get_accuracy(pixels, labels)["precision_at_1"]
    for column in ("word", "number"):
        table = f"{folder}/digits-*.parquet"
        arguments = ["--metric", "precision_at_1", "--json", folder / "o.json", "--per-class"]
        result = run(f"{table}:x", f"{table}:{column}", *arguments)
        assert result.exit_code == 0, result.output
        answer = json.loads((folder / "o.json").read_text())
        assert answer["metrics"]["precision_at_1"]["value"] == pytest.approx(expected)
        assert set(answer["per_class"]) == (set(WORDS) if column == "word" else set("0123456789"))
    result = run(f"{table}:word", f"{table}:number")
    assert (
        result.exit_code == 2
        and "word: got a column of string, wanted a list of D numbers in each row" in result.output
    )


def test_retrieval_audit_reports_recall_of_the_index(digits):
    pytest.importorskip("faiss")
    folder, pixels, labels = digits
    arguments = [
        folder / "pixels.npy",
        folder / "labels.npy",
        "--metric",
        "precision_at_1",
        "--k",
        10,
        "--knn",
        "faiss",
    ]
    result = run(*arguments, "--index", "IVF8,Flat", "--audit", 500, "--json", folder / "o.json")
    assert result.exit_code == 0, result.output
    audit = json.loads((folder / "o.json").read_text())["audit"]
    exact = AccuracyCalculator(include=("precision_at_1",), k=10).get_accuracy(pixels, labels)["precision_at_1"]
    assert audit["exact"]["precision_at_1"] == pytest.approx({"value": exact, "low": exact, "high": exact})
    assert audit["queries"] == 500 and [row["k"] for row in audit["recall"]] == [*range(1, 11)]
    assert 0.5 < audit["recall"][0]["value"] < 1
    assert "recall of the index" in result.stdout and "by the index" in result.stdout
    for wrong, message in ((["--audit", 5], "--audit: wanted --knn faiss"), (["--index", "Flat"], "--index: wanted")):
        result = run(*arguments[:-2], *wrong)
        assert result.exit_code == 2 and message in result.output
