"""`tensormetrics scores` on small files."""

import json

import pytest
from click.testing import CliRunner

from tensormetrics import compare, interval
from tensormetrics.__main__ import main


@pytest.fixture
def invoke(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, step in (("a.csv", 7), ("b.csv", 3), ("c.csv", 2)):
        rows = (f"q{i},{int(i % step > 0)},{'art' if i % 2 else 'law'}{i // 4}" for i in range(60))
        (tmp_path / name).write_text("\n".join(["id,right,topic", *rows]))
    return lambda *arguments: CliRunner().invoke(main, ["scores", *arguments])


def test_scores_of_one_file_equal_interval(invoke):
    result = invoke("a.csv", "--metric", "right", "--groups", "topic", "--replicates", "200", "--format", "json")
    assert result.exit_code == 0, result.output
    expected = interval("a.csv", metric="right", groups="topic", replicates=200)
    (model,) = json.loads(result.stdout)["models"].values()
    assert [*model.values()] == [float(x) for x in expected]


def test_scores_of_two_files_print_their_comparison(invoke):
    result = invoke("a.csv", "b.csv", "--metric", "right", "--rope", "0.01")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["metric", "a.csv", "b.csv", "difference", "p", "p_rope", "verdict"]
    assert f"{compare('a.csv', 'b.csv', metric='right'):.4f}".partition(", p")[0] in lines[1]


def test_scores_of_several_files_rank_models(invoke):
    result = invoke("a.csv", "b.csv", "c.csv", "--metric", "right", "--format", "json")
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert answer["ranks"]["c.csv"][1] == 3 and len(answer["comparison"]) == 3
    assert "a.csv - b.csv" in invoke("a.csv", "b.csv", "c.csv", "--metric", "right").stdout


@pytest.mark.parametrize("files", [("b.csv", "c.csv"), ("b.csv", "c.csv", "a.csv")])
def test_scores_power_reports_number_of_additional_items(invoke, files):
    result = invoke(*files, "--metric", "right", "--power", "0.5", "--format", "json")
    assert result.exit_code == 0, result.output
    counts = json.loads(result.stdout)["more_items"]
    assert len(counts) == len(files) * (len(files) - 1) // 2
    comparison = compare("b.csv", "c.csv", metric="right")
    (count, *_) = counts.values()
    assert count > 0 and float(comparison.assurance(count).better) >= 0.5 > float(
        comparison.assurance(count - 1).better
    )
    table = invoke(*files, "--metric", "right", "--power", "0.999").stdout
    assert "more items" in table and "no number" in table


def test_scores_anytime_equals_interval_and_compare(invoke):
    result = invoke("a.csv", "--metric", "right", "--anytime", "--format", "json")
    (model,) = json.loads(result.stdout)["models"].values()
    assert [*model.values()] == [float(x) for x in interval("a.csv", metric="right", anytime=True)]
    result = invoke("a.csv", "b.csv", "--metric", "right", "--anytime", "--format", "json")
    expected = compare("a.csv", "b.csv", metric="right", anytime=True)
    (comparison,) = json.loads(result.stdout)["comparison"].values()
    assert comparison["p_value"] == float(expected.p_value) and comparison["test"] == "anytime"
    assert f"{expected:.4f}".partition(", p")[0] in invoke("a.csv", "b.csv", "--metric", "right", "--anytime").stdout


def test_scores_with_bounds_equal_interval(invoke, tmp_path):
    (tmp_path / "judge.csv").write_text("score\n" + "\n".join(str(i * i % 11) for i in range(40)))
    for options in ([], ["--anytime"]):
        result = invoke("judge.csv", "--bounds", "0", "10", *options, "--format", "json")
        (model,) = json.loads(result.stdout)["models"].values()
        expected = interval("judge.csv", metric="score", bounds=(0, 10), anytime=bool(options))
        assert [*model.values()] == [float(x) for x in expected]


def test_scores_invalid_arguments_exit_with_status_2(invoke, tmp_path):
    (tmp_path / "d.csv").write_text("id,right\nq1,1\n")
    (tmp_path / "e.csv").write_text("score\n5\n2\n")
    for arguments, message in (
        (["a.csv"], "--metric: got 'score', wanted one of 'id', 'right', 'topic' of a.csv"),
        (["a.csv", "d.csv", "--metric", "right"], "d.csv lacks 59 of 60, 59 are missing in some model; write --on"),
        (["a.csv", "--metric", "right", "--rope", "1"], "--rope: is for several files"),
        (["a.csv", "--metric", "right", "--power", ".8"], "--power: is for several files"),
        (["a.csv", "a.csv", "--metric", "right"], "a.csv: got this file twice"),
        (["a.csv", "b.csv", "c.csv", "--metric", "right", "--anytime"], "--anytime: is for one file or two"),
        (
            ["e.csv", "--anytime"],
            "--bounds: got none, wanted the least and the largest possible score; write --bounds 0",
        ),
        (["e.csv", "--bounds", "0", "1"], "got 5.0, wanted scores within the bounds 0.0 and 1.0"),
        (["no.csv"], "no.csv: there is no such file"),
    ):
        result = invoke(*arguments)
        assert result.exit_code == 2 and message in result.stderr, result.output
