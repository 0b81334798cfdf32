"""What the README and the page of names print works as printed."""

import re
import warnings
from pathlib import Path

import pytest
from cases import DOMAINS

import tensormetrics
from tensormetrics.posterior import temporary_registrations

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
NAMES = (ROOT / "tensormetrics" / "README.md").read_text()
FOLDER = ROOT / "tensormetrics" / "pages"
PAGES = README + NAMES + "".join(page.read_text() for page in sorted(FOLDER.glob("*.md")))
BLOCKS = re.findall(r"^```python\n(.*?)^```\n```text\n(.*?)^```", PAGES, re.MULTILINE | re.DOTALL)
OTHERS = "accelerate", "ignite", "matplotlib", "pytorch_lightning", "pytorch_metric_learning", "transformers"
TRAINERS = re.compile(rf"^(?:import|from) ({'|'.join(OTHERS)})\b", re.MULTILINE)


@pytest.mark.parametrize(("block", "output"), BLOCKS, ids=range(len(BLOCKS)))
def test_python_blocks_print_what_stands_below_them(block, output, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where trainers leave their files
    with warnings.catch_warnings(), temporary_registrations():
        for package in TRAINERS.findall(block):
            warnings.simplefilter("ignore")  # theirs
            pytest.importorskip(package)
        exec(compile(block, "a page", "exec"), {"__name__": "readme"})
    assert capsys.readouterr().out == output


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
    public = {*tensormetrics.__all__}
    for domain in DOMAINS:
        public |= {*getattr(tensormetrics, domain).__all__}
    rows = [line.split("|")[3] for line in page.splitlines() if line.startswith("| ") and "`" in line]
    named = {name for row in rows for name in re.findall(r"(?<![.\w])([A-Za-z_]\w+)(?=\(|`)", row)}
    methods = {"log", "log_dict", "to_latex", "to_markdown", "to_csv", "to_json", "to_frame", "plot"}
    assert len(rows) > 15 and named - methods <= public
