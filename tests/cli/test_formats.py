"""Output of commands: tables in five formats and plots."""

import csv
import io
import json
import platform
import re
from pathlib import Path

import numpy as np
import pytest
import running
import torch

from tensormetrics import Table, __version__

SIGNED = (  # a subset of the parts of the signature
    'reference:null|metric:["r_precision"]|k:null|knn:"torch"|distance:"cosine"|option:{"avg_of_avgs": true}|'
    "levels:false|cameras:null|groups:null|per-class:true|replicates:20|confidence:0.95"
)


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.random.default_rng(0).normal(size=(12, 3)))
    Path("y.txt").write_text("a|b\nc_d\n" * 6)
    Path("m.csv").write_text("9,1\n2,8\n")
    Path("d.csv").write_text("9000000,1\n2,8000000\n")
    options = ["--metric", "r_precision", "--per-class", "--option", "avg_of_avgs=true", "--distance", "cosine"]

    def invoke(*more):
        result = running.run("retrieval x.npy y.txt --replicates 20", *options, *more)
        warning = "tensormetrics: 2 groups: the interval rests on the range of the scores"  # of two classes
        assert result.exit_code == 0 and (not result.stderr or result.stderr.startswith(warning)), result.output
        return result.stdout

    return invoke


def test_json_has_every_option_and_version(run):
    answer = json.loads(run("--format", "json"))
    command, *parts, version = answer["signature"].split("|")
    assert command == answer["command"] == "retrieval" and version == f"version:{__version__}"
    unsigned = {"format", "json", "plot", "title", "figsize", "device", "checkpoint"}
    assert set(SIGNED.split("|")) <= set(parts) and not unsigned & {part.partition(":")[0] for part in parts}
    expected_versions = {"tensormetrics": __version__, "python": platform.python_version()}
    assert answer["versions"] == expected_versions | {"torch": torch.__version__, "numpy": np.__version__}
    expected_options = {"embeddings": "x.npy", "k": None, "metric": ["r_precision"], "per-class": True, "device": None}
    assert expected_options.items() <= answer["options"].items() and "format" not in answer["options"]
    assert answer == json.loads(run("--json", "-"))
    scores, classes = (Table.from_json(json.dumps(table)) for table in answer["tables"])
    assert float(scores["r_precision", "value"].low) == answer["metrics"]["r_precision"]["low"]
    assert classes["c_d"] == answer["per_class"]["c_d"]


def test_every_format_has_the_same_cells(run):
    value, row = json.loads(run("--format", "json"))["metrics"]["r_precision"], "r_precision"
    cells = [f"{value[end]:.4f}" for end in ("value", "low", "high")]
    cell = f"{cells[0]} [{cells[1]}, {cells[2]}]"
    assert run().splitlines()[:3] == ["metric       value", f"{row}  {cell}", "95% intervals"]
    markdown = run("--format", "markdown")
    assert f"| {row} | {cell} |" in markdown and "\n| a\\|b " in markdown and "\n| ----- | ----------: |" in markdown
    assert f"r\\_precision & {cell} \\\\" in run("--format", "latex")


def test_csv_has_all_digits_and_columns_of_ends(run):
    value = json.loads(run("--format", "json"))["metrics"]["r_precision"]
    scores, classes = run("--format", "csv").split("\n\n")
    (row,) = csv.DictReader(io.StringIO(scores))
    assert list(row) == ["metric", "value", "value/low", "value/high"]
    assert [float(cell) for cell in list(row.values())[1:]] == list(value.values())
    assert [row["class"] for row in csv.DictReader(io.StringIO(classes))] == ["a|b", "c_d"]


def test_tables_show_large_and_small_numbers(run):
    result = running.run("posterior d.csv --metric dor --metric mse")
    (row,) = (line for line in result.stdout.splitlines() if line.startswith("d "))
    assert row.count("3.6e+13 [") == 2 and "1.765e-07 [" in row


COMMANDS = {
    "retrieval": "retrieval x.npy y.txt --metric r_precision",
    "posterior": "posterior m.csv",
    "association": "association v.txt --queries q.json",
}


@pytest.mark.parametrize(
    "command", [pytest.param(c, marks=[pytest.mark.full] if c == "posterior" else []) for c in COMMANDS]
)
def test_plot_has_requested_title_and_size(run, command):
    matplotlib = pytest.importorskip("matplotlib")
    Path("v.txt").write_text("8 2\nhe 1 2\nhim 2 1\nshe 3 1\nher 1 3\nwork 2 2\nwage 4 1\nhome 1 1\ncare 2 5\n")
    sets = {"target_sets": [["he", "him"], ["she", "her"]], "attribute_sets": [["work", "wage"], ["home", "care"]]}
    Path("q.json").write_text(json.dumps([sets]))
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        options = ["--plot", "o.svg", "--title", "$5 & $\\x of it", "--figsize", "5.5x4"]
        running.succeed(COMMANDS[command], *options)
    svg = Path("o.svg").read_text()
    assert r">$5 &amp; $\x of it<" in svg and 'width="396pt" height="288pt"' in svg  # 72 points per inch
    assert "_" not in "".join(re.findall(r"<text[^>]*>([^<]*)<", svg))  # readable names, without underscores
