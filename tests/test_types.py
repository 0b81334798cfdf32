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
MISSPELT = {  # call -> a word of its error
    "LinearAssignment().forward(x, row_length=None)": '"row_length"',
    "WordEmbeddingModel.from_word2vec('vectors.txt', limt=3)": '"limt"',
    "rnd(x, x, x, x_maks=None)": '"rnd"',
    "rnd(x, x, x, per_word=True).sqrt()": '"sqrt"',
    'ConfusionPosterior(2, interval="hdl")': '"interval"',
    'RecallAtK(1, averge="macro")': '"averge"',
    'RecallAtK(1, distance="cosin")': '"distance"',
    'AccuracyCalculator(inclde=("r_precision",))': '"inclde"',
    'AccuracyCalculator(k="bogus")': '"k"',
    'TorchKNN(distanse="l2")': '"distanse"',
    'TorchKNN("cosin")': "Tensor",
    'metric_of("Document")': '"metric_of"',
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


CHECKERS = {
    "mypy": ["--no-pretty", "tensormetrics"],  # the package too
    "pyright": ["--pythonpath", sys.executable],  # as editors have it
}
TOLD = re.compile(r"\s*(\S+\.py):(\d+):(?:\d+ -)? (error|note|information): (?:Revealed t|T)?(.*)")


@pytest.fixture(scope="module", params=CHECKERS)
def errors(request, tmp_path_factory) -> dict[str, list[tuple[int, str]]]:
    """Lines with errors and revealed types of each file; one run of a checker over all files takes the time."""
    pytest.importorskip(request.param)
    folder = tmp_path_factory.mktemp("typed")
    for number, (block, _) in enumerate(BLOCKS):
        if "from transformers import" not in block:  # its Trainer is typed more narrowly than it runs
            (folder / f"block_{number}.py").write_text(block)
    (folder / "misspelt.py").write_text("\n".join([*IMPORTS, *MISSPELT]) + "\n")
    revealed = (f"reveal_type({expression})" for expression in REVEALED)
    (folder / "revealed.py").write_text("\n".join([*IMPORTS, *revealed]) + "\n")
    command = [sys.executable, "-m", request.param, *CHECKERS[request.param], str(folder)]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert told.returncode == 1, told
    found: dict[str, list[tuple[int, str]]] = {}
    for path, line, kind, text in TOLD.findall(told.stdout):
        if kind == "error" or "ype " in text:
            found.setdefault(Path(path).name, []).append((int(line) - len(IMPORTS) - 1, text))
    return found


def test_the_package_and_blocks_of_the_readme(errors):
    # What a decorator adds to a class is seen by no type checker; `metric_of(Document)` is there for it.
    wrong = [(f, text) for f, x in errors.items() if f not in ("misspelt.py", "revealed.py") for _, text in x]
    assert [x for x in wrong if not ("block_" in x[0] and 'attribute "metric"' in x[1])] == []


def test_misspelt_options_are_found(errors):
    found = dict(errors["misspelt.py"])
    assert [call for k, (call, word) in enumerate(MISSPELT.items()) if word not in found.get(k, "")] == []


def test_results_have_types(errors):
    names = [re.sub(r"[\w.]*\.(?=\w)", "", text.rpartition(' is "')[2]) for _, text in errors["revealed.py"]]
    assert dict(zip(REVEALED, (name.strip('"') for name in names), strict=True)) == REVEALED
