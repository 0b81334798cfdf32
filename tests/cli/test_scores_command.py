"""`tensormetrics scores` on small files."""

import json
from functools import partial

import pytest
import running

from tensormetrics import compare
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


def test_scores_of_two_files_print_their_comparison():
    result = succeed("a.csv", "b.csv", "--metric", "right", "--rope", "0.01")
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["metric", "a.csv", "b.csv", "difference", "p", "p_rope", "verdict"]
    assert f"{compare(*map(right, ('a.csv', 'b.csv'))):.4f}".partition(", p")[0] in lines[1]


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
