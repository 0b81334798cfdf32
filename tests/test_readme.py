"""What the README and its pages print works as printed, from files and training loops to numbers and pictures."""

import random
import re
import shlex
import warnings
from pathlib import Path

import pytest
from cases import DOMAINS
from cases import public as public_names
from click.testing import CliRunner

import tensormetrics
from tensormetrics.__main__ import main
from tensormetrics.posterior.extend import temporary_registrations

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
NAMES = (ROOT / "tensormetrics" / "README.md").read_text()
FOLDER = ROOT / "tensormetrics" / "pages"
PAGES = README + NAMES + "".join(page.read_text() for page in sorted(FOLDER.glob("*.md")))
BLOCKS = re.findall(r"^```python\n(.*?)^```\n```text\n(.*?)^```", PAGES, re.MULTILINE | re.DOTALL)
OTHERS = "accelerate", "ignite", "matplotlib", "pytorch_lightning", "pytorch_metric_learning", "transformers"
TRAINERS = re.compile(rf"^(?:import|from) ({'|'.join(OTHERS)})\b", re.MULTILINE)


INTERVAL = re.compile(r"(-?\d\.\d+)\s+\[\s*(-?\d\.\d+), (-?\d\.\d+)\]")


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """An empty working directory, where programs and trainers leave their files."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def printed_by(block: str, capsys) -> str:
    with warnings.catch_warnings(), temporary_registrations():
        for package in TRAINERS.findall(block):
            warnings.simplefilter("ignore")  # theirs
            pytest.importorskip(package)
        exec(compile(block, "a page", "exec"), {"__name__": "readme"})
    return capsys.readouterr().out


@pytest.mark.parametrize(("block", "output"), BLOCKS, ids=range(len(BLOCKS)))
def test_python_blocks_print_what_stands_below_them(block, output, folder, capsys):
    assert printed_by(block, capsys) == output


def test_every_python_block_has_an_output():
    assert len(BLOCKS) == PAGES.count("```python")


@pytest.mark.parametrize(
    "page",
    [
        *("README.md", "tensormetrics/README.md", "benchmarks/results/gallery.md"),
        *(f"tensormetrics/pages/{page.name}" for page in sorted(FOLDER.glob("*.md"))),
    ],
)
def test_links_lead_somewhere(page):
    text = without_blocks(ROOT / page)
    for target in re.findall(r"\]\(([^)]+)\)|src(?:set)?=\"([^\"]+)\"", text):
        name, _, anchor = "".join(target).partition("#")
        if name.startswith("https:"):
            continue
        path = (ROOT / page).parent / name if name else ROOT / page
        assert path.exists(), name
        if anchor:
            titles = re.findall(r"^#+ (.*)", without_blocks(path), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}, target


def without_blocks(page: Path) -> str:
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def test_two_commands_are_one_line_each():
    lines = re.findall(r"^```sh\n(python3 .*?)\n```", README, re.MULTILINE | re.DOTALL)
    assert [line.rpartition(" && ")[2] for line in lines] == ["python -m tensormetrics demo", "pytest"]
    assert not any("\n" in line for line in lines)


def test_names_of_which_function_are_public():
    page = (FOLDER / "which_function.md").read_text()
    public = {*tensormetrics.__all__}.union(*map(public_names, DOMAINS))
    rows = [line.split("|")[3] for line in page.splitlines() if line.startswith("| ") and "`" in line]
    named = {name for row in rows for name in re.findall(r"(?<![.\w])([A-Za-z_]\w+)(?=\(|`)", row)}
    methods = {"log", "log_dict", "to_latex", "to_markdown", "to_csv", "to_json", "to_frame", "plot"}
    assert len(rows) > 15 and named - methods <= public


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
    printed = printed_by(block, capsys)
    assert Path(picture).stat().st_size > 3000
    return printed


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


@pytest.mark.parametrize(
    "sheet",
    ["decimal commas", *(pytest.param(name, marks=pytest.mark.full) for name in SHEETS if name != "decimal commas")],
)
def test_a_confusion_matrix_from_a_spreadsheet(folder, sheet):
    (folder / "matrix.csv").write_bytes(SHEETS[sheet])
    text = run_line(words("**A confusion matrix from a spreadsheet**", "sh"), "matrix.png")
    assert text.split()[:4] == ["acc", "f1@macro", "matrix", "0.9100"] and "\n95% intervals\n" in text
    check_intervals(text, 2)


def test_an_encoder_that_returns_numpy(folder, capsys):
    block = words("**Embeddings from an encoder that returns numpy**", "python")
    check_intervals(run_block(block, "encoder.png", capsys), 2)


def test_glove_text(folder, capsys):
    text = run_block(words("**Word vectors in GloVe's text format**", "python"), "glove.png", capsys)
    value, low, high, p = map(float, re.findall(r"-?\d\.\d+", text))
    assert low < value < high and 0 < p < 1


def test_json_of_a_language_model(folder, capsys):
    text = run_block(words("**JSON that a language model wrote**", "python"), "report.html", capsys)
    assert "prose 1, unreadable 1" in text and "invalid values: born 1" in text


@pytest.mark.full
def test_a_lightning_module_with_a_collection(folder, capsys):
    text = run_block(words("In Lightning, log a collection", "python"), "validation.png", capsys)
    value, low, high = (float(re.search(rf"'acc{end}': (0\.\d+)", text)[1]) for end in ("", "/low", "/high"))
    assert low < value < high and "'AveragePrecision': 0." in text


def test_second_command_is_one_of_those_of_ci():
    second = re.findall(r"^python3 -m venv .*$", README, re.MULTILINE)[1]
    assert second.endswith("&& pytest") and second in (ROOT / ".ci" / "run").read_text().splitlines()
