"""`tensormetrics trec` on two small files."""

from functools import partial

import pytest
import running

succeed = partial(running.succeed, "trec run.txt qrels.txt")


RUN = "q1 Q0 a 1 3 t\nq1 Q0 b 2 2 t\nq2 Q0 a 1 1 t\n"
QRELS = "q1 0 b 1\nq2 0 a 1\nq3 0 a 1\n"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.txt").write_text(RUN)
    (tmp_path / "qrels.txt").write_text(QRELS)


def test_trec_table_shows_intervals_and_queries():
    result = succeed(
        "--metric", "recip_rank", "--metric", "num_ret", "--per-query", "--replicates", "200", "--confidence", "0.9"
    )
    assert result.output.splitlines()[0].split() == ["metric", "value"] and "\n90% intervals\n" in result.output
    assert result.output.splitlines()[1].split()[:2] == ["recip_rank", "0.7500"]
    assert "\nq1         0.5000   2.0000\nq2         1.0000   1.0000\n" in result.output
    assert "2 items: the interval rests on the range of the scores" in result.stderr
