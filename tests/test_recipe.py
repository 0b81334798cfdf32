"""A metric is added as CONTRIBUTING says: one file, one export, one row, and `python tests/record.py`."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]


class Recipe(NamedTuple):
    module: str  # in the domain's folder, or where a row of posterior goes
    code: str
    export: str  # an import of the domain's __init__.py
    row: str  # of METRICS in the domain's file of tests/cases, or of the oracle of posterior


RECIPES = {
    "retrieval": Recipe(
        "scores/miss_rate",
        '''
"""Share of queries without a relevant neighbor."""

from torch import Tensor
from typing_extensions import Unpack

from ..ranking.positive_ranks import PositiveRanks
from .depths import Depths, at_depths, scores_at
from .position import first_rank
from .query_metric import GradedOptions, QueryMetric


def miss_rate(ranks: PositiveRanks, k: Depths) -> Tensor:
    first = first_rank(ranks)
    return at_depths(k, lambda depth: (first > depth).double().masked_fill(first.isnan(), float("nan")))


class MissRate(QueryMetric):
    """Share of the queries none of whose k nearest neighbors is relevant.

    In [0, 1]. Options as in `PrecisionAtK`.
    """

    higher_is_better = False

    def __init__(self, k: Depths = 1, **options: Unpack[GradedOptions]) -> None:
        super().__init__(*scores_at(k, miss_rate), **options)
''',
        "from .scores.miss_rate import MissRate",
        '"MissRate": retrieval_score(lambda: retrieval.MissRate(5), lambda match: not match[:5].any()),',
    ),
    "association": Recipe(
        "metrics/gap",
        '''
"""Difference of mean cosines."""

from torch import Tensor

from ..sets import word_sets
from ..sets.word_sets import Vectors
from .base import BaseMetric


class MeanGap(BaseMetric):
    """Mean cosine of the attribute words with the second target's mean, minus that with the first's; in [-2, 2]."""

    metric_template, metric_name, metric_short_name = (2, 1), "Mean Gap", "MG"

    def measure(self, x: Vectors, y: Vectors, a: Vectors) -> dict[str, Tensor]:
        x, y, a = word_sets.read(x=x, y=y, a=a)
        to_x, to_y = (word_sets.unit(words.mean()).unsqueeze(-2) for words in (x, y))
        cosines = [word_sets.products(a.unit().mean().unsqueeze(-2), mean).flatten(-2)[..., 0] for mean in (to_x, to_y)]
        return {"gap": cosines[1] - cosines[0]}
''',
        "from .metrics.gap import MeanGap",
        '"MeanGap": query_case(association.MeanGap, "xya", lambda x, y, a: unit_rows(a).mean(0) @ (y.mean(0) / '
        "np.linalg.norm(y.mean(0)) - x.mean(0) / np.linalg.norm(x.mean(0)))),",
    ),
    "structured": Recipe(
        "suites/equal_counts",
        '''
"""Share of right counts of items."""

from typing import Any

import torch
from torch import Tensor
from typing_extensions import Unpack

from ...core.arguments import checks
from ...core.resampling.weights import ResamplingUnits
from ..tensors.reduction import CountMetric


class EqualCounts(CountMetric):
    """Share of documents with the right number of items; in [0, 1], key `equal`. Arguments: see `CountMetric`."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(2, **kwargs)

    def update(self, pred: Tensor, ref: Tensor, **items: Unpack[ResamplingUnits]) -> None:
        """Add documents.

        Shapes: pred, ref: (..., W) int, negative in the padding.
        """
        checks.integral("pred", pred)
        checks.integral("ref", ref)
        checks.shape("ref", ref, *pred.shape)
        right = ((pred >= 0).sum(-1) == (ref >= 0).sum(-1)).double()
        self.add_documents(torch.stack([right, torch.ones_like(right)], -1), **items)

    def read_scores(self, counts: Tensor) -> dict[str, Tensor]:
        right, documents = counts.unbind(-1)
        return {"equal": right / documents}
''',
        "from .suites.equal_counts import EqualCounts",
        '"EqualCounts": MetricCase(structured.EqualCounts, partitions, '
        "lambda pred, ref: ((pred >= 0).sum(-1) == (ref >= 0).sum(-1)).mean()),",
    ),
    "posterior": Recipe(
        "metrics/classification",
        'Score(("fm", "fowlkes_mallows"), "Fowlkes-Mallows", lambda tp, fp, fn: tp / ((tp + fp) * (tp + fn)).sqrt()),',
        "",
        '"fm": np.sqrt(ppv * tpr),',
    ),
}


@pytest.fixture
def copy(tmp_path) -> Path:
    """A copy of the working tree, native code included."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    for name in [*listed.stdout.split(), *(str(path.relative_to(ROOT)) for path in ROOT.rglob("tensormetrics/*.so"))]:
        if (ROOT / name).exists():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def insert(path: Path, anchor: str, text: str) -> None:
    """Write a text as the line below the first one that ends in the anchor."""
    before, found, after = path.read_text().partition(f"{anchor}\n")
    assert found, f"{path} has no line {anchor!r}"
    path.write_text(f"{before}{found}{text}\n{after}")


@pytest.mark.slow
@pytest.mark.parametrize("domain", RECIPES)
def test_one_file_one_export_and_one_row_add_a_metric(domain, copy):
    recipe, package, tests = RECIPES[domain], copy / "tensormetrics" / domain, copy / "tests"
    if domain == "posterior":
        insert(package / f"{recipe.module}.py", "SCORES = (", recipe.code)
        insert(tests / "posterior" / "metric_oracle.py", "return {", recipe.row)
    else:
        (package / f"{recipe.module}.py").write_text(recipe.code.lstrip())
        with (package / "__init__.py").open("a") as exports:
            exports.write(f"\n{recipe.export}\n__all__ += [{recipe.export.rpartition(' ')[2]!r}]\n")
        insert(tests / "cases" / f"{domain}.py", "METRICS = {", recipe.row)
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTEST_ADDOPTS": ""}
    for command in ["tests/record.py"], ["-m", "pytest", "-n", "0", "--domain", domain]:
        told = subprocess.run([sys.executable, *command], cwd=copy, env=environment, capture_output=True, text=True)
        assert told.returncode == 0, told.stdout[-6000:] + told.stderr[-3000:]
