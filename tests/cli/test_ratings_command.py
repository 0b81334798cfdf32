"""`tensormetrics ratings` on small files."""

import json
from functools import partial

import pytest
import running

run = partial(running.run, "ratings")
succeed = partial(running.succeed, "ratings")

WINNERS = ["model_a", "model_b", "tie (bothbad)", "model_a", "tie"]
PAIRS = [("opus", "gpt"), ("gpt", "llama"), ("llama", "opus")]
BATTLES = [(f"q{i // 2}", *PAIRS[i // 2 % 3][:: 1 - 2 * (i % 2)], WINNERS[i * i % 5]) for i in range(60)]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "battles.csv").write_text(
        "\n".join(["question_id,model_a,model_b,winner", *(",".join(row) for row in BATTLES)])
    )


def test_ratings_print_a_table_pairs_and_win_rates():
    result = succeed("battles.csv", "--pairs", "--win-rates", "--option", 'anchor=["gpt", 1200]')
    assert "1200.0000 [1200.0000, 1200.0000]" in result.stdout and "position effect: " in result.stdout
    assert "gpt - llama" in result.stdout and "win rates" in result.stdout


def test_ratings_of_other_columns_and_outcomes_are_the_same(tmp_path):
    names = {"model_a": 1, "model_b": 0, "tie": 0.5, "tie (bothbad)": None}
    lines = []
    for i, (_, a, b, winner) in enumerate(BATTLES):
        vote = names[winner]
        vote = a if vote == 1 and i % 2 else b if vote == 0 and i % 2 else "draw" if vote is None else vote
        lines.append(json.dumps({"left": a, "right": b, "vote": vote}))
    (tmp_path / "votes.jsonl").write_text("\n".join(lines))
    options = ("--a", "left", "--b", "right", "--outcome", "vote")
    texts = [run(*arguments).stdout for arguments in (("battles.csv",), ("votes.jsonl", *options))]
    assert texts[0].splitlines()[:5] == texts[1].splitlines()[:5] and "opus" in texts[0]


def test_ratings_ignore_battles_without_a_judgment(tmp_path):
    (tmp_path / "more.csv").write_text("model_a,model_b,winner\nopus,gpt,\ngpt,llama,model_a\n")
    result = run("battles.csv", "more.csv", "--format", "csv")
    battles = {line.split(",")[0]: line for line in result.stdout.splitlines()}
    assert result.exit_code == 0 and ",41," in battles["gpt"] and ",40," in battles["opus"]
