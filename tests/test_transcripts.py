"""The README's pages lead from a file or a training loop to a number, an interval and a picture."""

import random
import re
import shlex
import warnings
from pathlib import Path

import pytest
from click.testing import CliRunner
from test_readme import PAGES

from tensormetrics.__main__ import main
from tensormetrics.posterior import temporary_registrations

INTERVAL = re.compile(r"(-?\d\.\d+)\s+\[\s*(-?\d\.\d+), (-?\d\.\d+)\]")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def words(about: str, language: str) -> str:
    """Return the first block of the pages after a text."""
    return re.search(rf"^```{language}\n(.*?)^```", PAGES.partition(about)[2], re.MULTILINE | re.DOTALL)[1]


def run_line(line: str, picture: str) -> str:
    program, *arguments = shlex.split(line)
    done = CliRunner().invoke(main, arguments)
    assert program == "tensormetrics" and done.exit_code == 0, done.output
    assert Path(picture).stat().st_size > 3000
    return done.stdout


def run_block(block: str, picture: str, capsys) -> str:
    with warnings.catch_warnings(), temporary_registrations():
        warnings.simplefilter("ignore")  # of trainers
        exec(compile(block, "a page", "exec"), {"__name__": "readme"})
    assert Path(picture).stat().st_size > 3000
    return capsys.readouterr().out


def check_intervals(text: str, at_least: int) -> None:
    found = [tuple(map(float, numbers)) for numbers in INTERVAL.findall(text)]
    assert len(found) >= at_least and all(low <= value <= high for value, low, high in found), text


def test_two_trec_files(folder):
    draw = random.Random(0)
    run = [f"{q} Q0 d{d} {d + 1} {draw.random():.4f} mine" for q in range(20) for d in range(10)]
    qrels = [f"{q} 0 d{d} {draw.randrange(3)}" for q in range(20) for d in range(0, 10, 2)]
    (folder / "run.txt").write_text("\n".join(run) + "\n")
    (folder / "qrels.txt").write_text("\n".join(qrels) + "\n")
    text = run_line(words("**Ranked documents, in TREC files.**", "sh"), "trec.png")
    assert "ndcg_cut_10" in text
    check_intervals(text, 2)


PLAIN = ",Katze,Hund,Äffchen\nKatze,90,6,4\nHund,5,88,7\nÄffchen,2,3,95\n"
SHEETS = {  # how a spreadsheet saved it
    "utf-8": PLAIN.encode(),
    "utf-8 with a mark, as Windows": PLAIN.replace("\n", "\r\n").encode("utf-8-sig"),
    "semicolons": PLAIN.replace(",", ";").replace("\n", "\r\n").encode("utf-8-sig"),
    "decimal commas": PLAIN.replace(",", ";").replace("90", "90,0").replace("3;", "3,00;").encode("utf-8-sig"),
    "tabs": PLAIN.replace(",", "\t").encode(),
    "a word in the corner": ("Wahrheit" + PLAIN).encode(),
    "cells that were once used": PLAIN.replace("\n", ",,\n").encode() + b",,,,,\n",
    "quoted": re.sub(r"([^,\n]+)", r'"\1"', PLAIN).encode(),
}


@pytest.mark.parametrize("sheet", SHEETS.values(), ids=SHEETS.keys())
def test_a_confusion_matrix_from_a_spreadsheet(folder, sheet):
    (folder / "matrix.csv").write_bytes(sheet)
    text = run_line(words("**A confusion matrix from a spreadsheet**", "sh"), "matrix.png")
    assert text.split()[:5] == ["acc", "observed", "median", "matrix", "0.9100"] and "\n95% intervals\n" in text
    check_intervals(text, 2)


def test_an_encoder_that_returns_numpy(capsys):
    block = words("**Embeddings from an encoder that returns numpy**", "python")
    check_intervals(run_block(block, "encoder.png", capsys), 2)


def test_glove_text(capsys):
    text = run_block(words("**Word vectors in GloVe's text format**", "python"), "glove.png", capsys)
    assert text.split()[:5] == ["result", "low", "high", "p_value", "GloVe"]
    value, low, high, p = map(float, text.split()[5:])
    assert low < value < high and 0 < p < 1


def test_json_of_a_language_model(capsys):
    text = run_block(words("**JSON that a language model wrote**", "python"), "report.html", capsys)
    assert "prose 1, unreadable 1" in text and "invalid values: born 1" in text


def test_a_lightning_module_with_a_collection(capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("pytorch_lightning")
    text = run_block(words("In Lightning, log a collection", "python"), "validation.png", capsys)
    value, low, high = (float(re.search(rf"'acc{end}': (0\.\d+)", text)[1]) for end in ("", "/low", "/high"))
    assert low < value < high and "'AveragePrecision': 0." in text
