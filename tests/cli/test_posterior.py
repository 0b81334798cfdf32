"""`tensormetrics posterior` on small matrices."""

import json

import pytest
from click.testing import CliRunner

from tensormetrics.__main__ import main
from tensormetrics._cli.posterior import draw
from tensormetrics.posterior import Study


def run(*arguments):
    return CliRunner().invoke(main, ["posterior", *map(str, arguments)])


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a.csv").write_text("90,10\n12,88\n")
    (tmp_path / "b.csv").write_text("95,5\n10,90\n")
    return tmp_path


def test_numbers_are_those_of_the_library(folder):
    result = run(folder / "a.csv", folder / "b.csv", "--metric", "acc", "--metric", "tpr", "--compare",
                 "--min-sig-diff", "0.01", "--seed", 3, "--json", folder / "o.json",
                 "--plot", folder / "o.png")  # fmt: skip
    assert result.exit_code == 0, result.output
    scores = json.loads((folder / "o.json").read_text())["scores"]
    assert list(scores) == ["acc", "tpr, class 0", "tpr, class 1"]
    study = Study(3, metrics={"acc": {}})
    study.add_experiment("a", [[90, 10], [12, 88]], 0, 0)
    study.add_experiment("b", [[95, 5], [10, 90]], 0, 0)
    row = study.report_metric_summaries("acc", table_fmt="records")[0]
    assert scores["acc"]["summaries"][0]["Median"] == row["Median"]
    assert scores["acc"]["summaries"][0]["95.0% HDI"] == list(row["95.0% HDI"])
    pair = study.compare_all_pairs("acc", min_sig_diff=0.01)
    assert scores["acc"]["pairs"][0]["p_ROPE"] == float(pair.p_rope[0])
    ranks = {row["Experiment"]: row["Rank 1"] for row in scores["acc"]["ranks"]}
    assert ranks["b"] > 0.8 and sum(ranks.values()) == pytest.approx(1)
    assert f"{row['Median']:.4f}" in result.stdout and (folder / "o.png").read_bytes().startswith(b"\x89PNG")


def test_the_figure_has_all_scores_of_all_experiments():
    study = Study(0, metrics={"acc": {}, "tpr": {}})
    for name in ("a", "mlp/b"):
        study.add_experiment(name, [[90, 10], [12, 88]], 0, 0)
    figure = draw(study, [("tpr", 0), ("tpr", 1), ("acc", None)])
    assert [ax.get_ylabel() for ax in figure.axes] == ["a", "mlp/b"] * 3
    labels = [ax.get_xlabel() for ax in figure.axes if ax.get_xlabel()]
    assert labels == ["True Positive Rate, class 0", "True Positive Rate, class 1", "Accuracy"]
    assert len(figure.legends) == 1


def test_a_folder_is_a_group(folder):
    for group in ("mlp", "cnn"):
        (folder / group).mkdir()
        (folder / group / "fold.csv").write_text("9,1\n2,8\n")
    result = run(folder / "mlp" / "fold.csv", folder / "cnn" / "fold.csv", "--metric", "acc")
    assert result.exit_code == 0 and "mlp/fold" in result.stdout and "cnn/fold" in result.stdout


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        (None, [], "MATRIX.csv: got no file, wanted at least one, or --paired FILE"),
        (None, ["none.csv"], "{}/none.csv: there is no such file"),
        ("", ["c.csv"], "{}/c.csv"),
        ("1,2\n3\n", ["c.csv"], "{}/c.csv"),
        ("1,2\n", ["c.csv"], "{}/c.csv"),
        ("1,x\n3,4\n", ["c.csv"], "{}/c.csv"),
        ("1,-2\n3,4\n", ["c.csv"], "{}/c.csv"),
        ("1,nan\n3,4\n", ["c.csv"], "{}/c.csv"),
        ("1,2\n3,4\n", ["c.csv", "c.csv"], "{}/c.csv: got a second experiment called c; rename one"),
        ("1,2\n3,4\n", ["c.csv", "--metric", "acuracy"], "metric 'acuracy': "),
        ("1,2\n3,4\n", ["c.csv", "--prior", "flat"], ""),
        ("truth,m\na\n", ["--paired", "c.csv"], "{}/c.csv, line 2: got 1 columns, wanted 2 as above"),
        ("truth\na\n", ["--paired", "c.csv"], "{}/c.csv: wanted a header, then rows of the true label and"),
    ],
)
def test_bad_input_is_one_line_and_status_2(folder, text, arguments, message):
    if text is not None:
        (folder / "c.csv").write_text(text)
    result = run(*(folder / a if ".csv" in a else a for a in arguments))
    assert result.exit_code == 2 and len(result.stderr.splitlines()) == 1, result.output
    assert result.stderr.startswith(f"tensormetrics: {message.format(folder)}")
