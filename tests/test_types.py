"""Types hold: over the package and over the README's blocks, and misspelt options are found."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from test_readme import BLOCKS

ROOT = Path(__file__).parents[1]
IMPORTS = [
    "import torch",
    "from tensormetrics.assignment import LinearAssignment",
    "from tensormetrics.association import PairPreference, WEAT, WordEmbeddingModel",
    "from tensormetrics.association.functional import rnd",
    "from torchmetrics.classification import BinaryAccuracy",
    "from tensormetrics.posterior import ConfusionPosterior",
    "from tensormetrics.retrieval import AccuracyCalculator, HitRate, NDCG, PairwiseROC, RecallAtK, TorchKNN",
    "from tensormetrics.structured import SpanScores, metric_of",
    "from tensormetrics.uncertainty import PassAtK, Uncertain, compare, interval, read_scores",
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
REVEALED = {
    "HitRate(1)": "HitRate[int]",
    "HitRate(1).interval(confidence=0.9)": "Estimate",
    "HitRate((1, 10)).interval()": "ScoreTable[Estimate]",
    "(NDCG().interval(), PassAtK(2).interval())": "tuple[Estimate, Estimate]",
    "interval(NDCG([1, 5], average='macro'))": "ScoreTable[Estimate]",
    "PassAtK().interval()": "ScoreTable[Estimate]",
    "PairPreference(categories=['age']).interval()": "Estimate | ScoreTable[Estimate]",
    "interval(PairwiseROC())": "ScoreTable[Estimate]",
    "Uncertain(BinaryAccuracy()).interval()": "Estimate",
    "compare(HitRate((1, 10)), HitRate((1, 10)))": "ScoreTable[Comparison]",
    "SpanScores().interval()": "ScoreTable[Estimate]",
    "interval([1, 0, 1])": "Estimate",
    "interval(x)": "Estimate",
    'interval("scores.csv")': "Estimate",
    'interval(x, score=["acc", "loss"])': "Table",
    "interval(HitRate(1))": "Estimate",
    "interval(SpanScores())": "ScoreTable[Estimate]",
    'interval(ConfusionPosterior(2, "f1"))': "ScoreTable[Estimate]",
    'interval({"a": HitRate(1), "b": SpanScores()})': "ScoreTable[Estimate]",
    "compare(HitRate(1), HitRate(1), rope=0.1)": "Comparison",
    "compare(HitRate(1), 0.5)": "Comparison",
    "compare(SpanScores(), SpanScores())": "ScoreTable[Comparison]",
    "compare([1, 0], x)": "Comparison",
    'compare({"a": x, "b": x})': "ComparisonTable",
    'compare({"a": x, "b": x}, baseline="a")': "Table",
    'compare(read_scores("scores.csv", "acc", model="model"))': "ComparisonTable",
}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def errors(tmp_path_factory) -> dict[str, list[str]]:
    """Errors and revealed types of each file; one run of mypy, over the package and all blocks, takes the time."""
    pytest.importorskip("mypy")
    folder = tmp_path_factory.mktemp("typed")
    for number, (block, _) in enumerate(BLOCKS):
        if "from transformers import" not in block:  # its Trainer is typed more narrowly than it runs
            (folder / f"block_{number}.py").write_text(block)
    (folder / "misspelt.py").write_text("\n".join([*IMPORTS, *MISSPELT]) + "\n")
    revealed = (f"reveal_type({expression})" for expression in REVEALED)
    (folder / "revealed.py").write_text("\n".join([*IMPORTS, *revealed]) + "\n")
    command = [sys.executable, "-m", "mypy", "--no-pretty", "tensormetrics", str(folder)]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert told.returncode == 1, told
    found: dict[str, list[str]] = {}
    for line in told.stdout.splitlines():
        if ": error:" in line or ": note: Revealed type is" in line:
            found.setdefault(Path(line.partition(":")[0]).name, []).append(line)
    return found


def test_the_package_and_blocks_of_the_readme(errors):
    # What a decorator adds to a class is seen by no type checker; `metric_of(Document)` is there for it.
    unseen = 'has no attribute "metric"  [attr-defined]'
    wrong = [line for file, lines in errors.items() if file not in ("misspelt.py", "revealed.py") for line in lines]
    assert [line for line in wrong if not (line.endswith(unseen) and "block_" in line)] == []


def test_misspelt_options_are_found(errors):
    found = {int(line.split(":")[1]) - len(IMPORTS) - 1: line for line in errors["misspelt.py"]}
    missed = [call for k, (call, told) in enumerate(MISSPELT.items()) if told not in found.get(k, "")]
    assert missed == []


def test_results_have_types(errors):
    names = [re.sub(r"[\w.]*\.(?=\w)", "", line.partition("Revealed type is ")[2]) for line in errors["revealed.py"]]
    assert dict(zip(REVEALED, (name.strip('"') for name in names), strict=True)) == REVEALED
