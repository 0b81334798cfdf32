"""Types hold: over the package and over the README's blocks, and misspelt options are found."""

import subprocess
import sys
from pathlib import Path

import pytest
from test_readme import BLOCKS, TRAINERS

ROOT = Path(__file__).parents[1]
MISSPELT = {
    'AccuracyCalculator(inclde=("r_precision",))': 'Unexpected keyword argument "inclde"',
    'AccuracyCalculator(k="bogus")': 'Argument "k" to "AccuracyCalculator" has incompatible type',
    'TorchKNN(distanse="l2")': 'Unexpected keyword argument "distanse"',
    'TorchKNN("cosin")': 'Argument 1 to "TorchKNN" has incompatible type',
    'metric_of("Document")': 'Argument 1 to "metric_of" has incompatible type',
}

pytestmark = pytest.mark.slow


def mypy(*arguments: object) -> list[str]:
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", "--no-pretty", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.splitlines()


def test_the_package():
    assert "Success: no issues found" in mypy()[-1]


def test_blocks_of_the_readme(tmp_path):
    for number, (block, _) in enumerate(BLOCKS):
        if not TRAINERS.search(block):  # theirs are typed more narrowly than they run
            (tmp_path / f"block_{number}.py").write_text(block)
    # What a decorator adds to a class is seen by no type checker (`metric_of(Document)` is there for it), nor what
    # `run_queries` returns under which options.
    unseen = "--disable-error-code=attr-defined", "--disable-error-code=union-attr"
    found = [line for line in mypy(*unseen, tmp_path) if ": error:" in line]
    assert found == []


def test_misspelt_options_are_found(tmp_path):
    file = tmp_path / "misspelt.py"
    names = {"retrieval": "AccuracyCalculator, TorchKNN", "structured": "metric_of"}
    imports = [f"from tensormetrics.{domain} import {some}" for domain, some in names.items()]
    file.write_text("\n".join([*imports, *MISSPELT]) + "\n")
    found = {int(line.split(":")[1]) - 3: line for line in mypy(file) if ": error:" in line}
    missed = [call for k, (call, told) in enumerate(MISSPELT.items()) if told not in found.get(k, "")]
    assert missed == []
