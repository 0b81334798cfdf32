"""Types hold: over the package and over the README's blocks, and misspelt options are found."""

import subprocess
import sys
from pathlib import Path

import pytest
from test_readme import BLOCKS

ROOT = Path(__file__).parents[1]
IMPORTS = [
    "import torch",
    "from tensormetrics.assignment import LinearAssignment",
    "from tensormetrics.association import WordEmbeddingModel, rnd",
    "from tensormetrics.posterior import ConfusionPosterior",
    "from tensormetrics.retrieval import AccuracyCalculator, RecallAtK, TorchKNN",
    "from tensormetrics.structured import metric_of",
    "x = torch.zeros(2, 3)",
]
MISSPELT = {
    "LinearAssignment().forward(x, row_length=None)": 'Unexpected keyword argument "row_length"',
    "WordEmbeddingModel.from_word2vec('vectors.txt', limt=3)": 'Unexpected keyword argument "limt"',
    "rnd(x, x, x, x_maks=None)": 'No overload variant of "rnd" matches argument types',
    "rnd(x, x, x, per_word=True).sqrt()": '"tuple[Tensor, Tensor]" has no attribute "sqrt"',
    'ConfusionPosterior(2, interval="hdl")': 'Argument "interval" to "ConfusionPosterior" has incompatible type',
    'RecallAtK(1, averge="macro")': 'Unexpected keyword argument "averge" for "RecallAtK"',
    'RecallAtK(1, distance="cosin")': 'Argument "distance" to "RecallAtK" has incompatible type',
    'AccuracyCalculator(inclde=("r_precision",))': 'Unexpected keyword argument "inclde"',
    'AccuracyCalculator(k="bogus")': 'Argument "k" to "AccuracyCalculator" has incompatible type',
    'TorchKNN(distanse="l2")': 'Unexpected keyword argument "distanse"',
    'TorchKNN("cosin")': 'Argument 1 to "TorchKNN" has incompatible type',
    'metric_of("Document")': 'Argument 1 to "metric_of" has incompatible type',
}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def errors(tmp_path_factory) -> dict[str, list[str]]:
    """What mypy says of each file; one run of it, over the package and all blocks, is what takes the time."""
    pytest.importorskip("mypy")
    folder = tmp_path_factory.mktemp("typed")
    for number, (block, _) in enumerate(BLOCKS):
        if "from transformers import" not in block:  # its Trainer is typed more narrowly than it runs
            (folder / f"block_{number}.py").write_text(block)
    (folder / "misspelt.py").write_text("\n".join([*IMPORTS, *MISSPELT]) + "\n")
    command = [sys.executable, "-m", "mypy", "--no-pretty", "tensormetrics", str(folder)]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert told.returncode == 1, told
    found: dict[str, list[str]] = {}
    for line in told.stdout.splitlines():
        if ": error:" in line:
            found.setdefault(Path(line.partition(":")[0]).name, []).append(line)
    return found


def test_the_package_and_blocks_of_the_readme(errors):
    # What a decorator adds to a class is seen by no type checker; `metric_of(Document)` is there for it.
    unseen = 'has no attribute "metric"  [attr-defined]'
    wrong = [line for file, lines in errors.items() if file != "misspelt.py" for line in lines]
    assert [line for line in wrong if not (line.endswith(unseen) and "block_" in line)] == []


def test_misspelt_options_are_found(errors):
    found = {int(line.split(":")[1]) - len(IMPORTS) - 1: line for line in errors["misspelt.py"]}
    missed = [call for k, (call, told) in enumerate(MISSPELT.items()) if told not in found.get(k, "")]
    assert missed == []
