"""`tensormetrics trec` on two small files."""

import json

import pytest
from click.testing import CliRunner

from tensormetrics.__main__ import main

RUN = "q1 Q0 a 1 3 t\nq1 Q0 b 2 2 t\nq2 Q0 a 1 1 t\n"
QRELS = "q1 0 b 1\nq2 0 a 1\nq3 0 a 1\n"


@pytest.fixture
def invoke(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.txt").write_text(RUN)
    (tmp_path / "qrels.txt").write_text(QRELS)
    return lambda *arguments: CliRunner().invoke(main, ["trec", "run.txt", "qrels.txt", *arguments])


def test_table(invoke):
    result = invoke(
        "--metric", "recip_rank", "--metric", "num_ret", "--per-query", "--replicates", "200", "--confidence", "0.9"
    )
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[0].split() == ["metric", "value", "90%", "interval"]
    assert result.output.splitlines()[1].split()[:2] == ["recip_rank", "0.7500"]
    assert result.output.splitlines()[-4:-2] == ["q1         0.5000   2.0000", "q2         1.0000   1.0000"]


def test_json_and_picture(invoke, tmp_path):
    result = invoke("--json", "o.json", "--plot", "o.png", "--complete", "--replicates", "100")
    assert result.exit_code == 0, result.output
    answer = json.loads((tmp_path / "o.json").read_text())
    assert answer["metrics"]["recip_rank"]["value"] == 0.5 and answer["queries"] == 3 and answer["options"]["complete"]
    assert answer["metrics"]["map"]["low"] <= 0.5 <= answer["metrics"]["map"]["high"]
    assert (tmp_path / "o.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("run.txt", "", "run.txt: the file is empty"),
        ("run.txt", "q1 Q0 a 1 3\n", "run.txt, line 1: got 5 fields, wanted 6: query - document - score -"),
        ("run.txt", "q1 Q0 a 1 x t\n", "run.txt, line 1: got the score 'x', wanted a number"),
        ("run.txt", "q1 Q0 a 1 nan t\n", "run.txt, line 1: got the score 'nan', wanted a number"),
        ("run.txt", RUN + RUN, "run.txt: got the document 'a' twice for the query 'q1'"),
        ("run.txt", "q9 Q0 a 1 1 t\n", "run, qrels: no query is in both; their names begin with 'q9', 'q1', 'q2'"),
        ("qrels.txt", "", "qrels.txt: the file is empty"),
        ("qrels.txt", "q1 0 a\nq1 0 b 1\n", "qrels.txt, line 2: got 4 fields, wanted 3: query document gain"),
        ("qrels.txt", "q1 0 b 0.5\n", "qrels.txt: got the gain '0.5' for 'b', wanted an integer"),
        ("qrels.txt", "q1 0 b one\n", "qrels.txt, line 1: got the gain 'one', wanted a number"),
        ("qrels.txt", QRELS + "q1 0 b 0\n", "qrels.txt: got the document 'b' twice for the query 'q1'"),
        ("qrels.txt", b"\xff\xfe" + QRELS.encode("utf-16-le"), None),
        ("run.txt", b"q1 Q0 \xff 1 3 t\n" * 2, None),
        ("run.txt", b"\x93NUMPY" + bytes(100), None),
    ],
)
def test_malformed_files(invoke, tmp_path, name, content, line):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    result = invoke("--json", "o.json")
    assert result.exit_code == 2 and not result.stdout and not (tmp_path / "o.json").exists()
    assert len(result.stderr.splitlines()) == 1 and (line is None or result.stderr == f"tensormetrics: {line}\n")


def test_bad_options(invoke):
    result = invoke("--metric", "ndgc")
    assert result.exit_code == 2 and result.stderr.startswith("tensormetrics: --metric: got 'ndgc', wanted some of map")
