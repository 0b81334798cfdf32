"""`tensormetrics scores` on small files."""

import json
from functools import partial
from pathlib import Path

import pytest
import running

from tensormetrics import compare, interval
from tensormetrics.uncertainty import read_scores

run = partial(running.run, "scores")
right = partial(read_scores, metric="right")
succeed = partial(running.succeed, "scores")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, step in (("a.csv", 7), ("b.csv", 3), ("c.csv", 2)):
        rows = (f"q{i},{int(i % step > 0)},{'art' if i % 2 else 'law'}{i // 4}" for i in range(60))
        (tmp_path / name).write_text("\n".join(["id,right,topic", *rows]))


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("a.csv --metric right --replicates 200", {"replicates": 200}),
        ("a.csv --metric right --anytime", {"anytime": True}),
        ("judge.csv --metric score --bounds 0 10", {"bounds": (0, 10)}),
        ("judge.csv --metric score --bounds 0 10 --anytime", {"bounds": (0, 10), "anytime": True}),
    ],
)
def test_scores_of_one_file_equal_interval(words, options):
    Path("judge.csv").write_text("score\n" + "\n".join(str(i * i % 11) for i in range(40)))
    file, _, metric, *_ = words.split()
    (model,) = running.answer("scores", *words.split())["models"].values()
    assert [*model.values()] == [float(x) for x in interval(read_scores(file, metric), **options)]


def test_scores_of_several_files_rank_models():
    result = succeed("a.csv", "b.csv", "c.csv", "--metric", "right", "--format", "json")
    answer = json.loads(result.stdout)
    assert answer["ranks"]["c.csv"][1] == 3 and len(answer["comparison"]) == 3
    assert "a.csv - b.csv" in run("a.csv", "b.csv", "c.csv", "--metric", "right").stdout


@pytest.mark.parametrize("files", [("b.csv", "c.csv"), ("b.csv", "c.csv", "a.csv")])
def test_scores_power_reports_number_of_additional_items(files):
    result = succeed(*files, "--metric", "right", "--power", "0.5", "--format", "json")
    counts = json.loads(result.stdout)["more_items"]
    assert len(counts) == len(files) * (len(files) - 1) // 2
    comparison = compare(right("b.csv"), right("c.csv"))
    if len(files) > 2:
        comparison = compare({name: right(name) for name in files})["b.csv - c.csv", "difference"]
    (count, *_) = counts.values()
    assert count > 0 and float(comparison.assurance(count).better) >= 0.5 > float(
        comparison.assurance(count - 1).better
    )
    table = run(*files, "--metric", "right", "--power", "0.999").stdout
    assert "more items" in table and "no number" in table


def test_scores_refuse_options_of_other_files():
    assert "--filter: is for logs" in run("a.csv", "--model", "model", "--filter", "none").stderr
    assert "--model: is for one file" in run("a.csv", "b.csv", "--model", "model").stderr
    assert "none: got no such files, wanted a pattern" in run("none*").stderr.replace("none*", "none")
