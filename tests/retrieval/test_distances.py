"""One table says what each distance is: nothing else in the domain asks for its name."""

import ast
from pathlib import Path
from typing import get_args

import pytest
import torch

from tensormetrics import retrieval
from tensormetrics.retrieval import AccuracyCalculator, TorchKNN
from tensormetrics.retrieval.search.distance import DISTANCES, DistanceName

FOLDER = Path(retrieval.__file__).parent


def test_the_type_of_a_name_lists_the_table():
    assert get_args(DistanceName) == tuple(DISTANCES) == tuple(distance.name for distance in DISTANCES.values())


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.py")), ids=lambda path: path.relative_to(FOLDER).as_posix())
def test_no_name_of_a_distance_is_compared(path):
    sides = (
        side
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Compare | ast.Dict | ast.MatchValue)
        for side in ast.walk(node)
    )
    assert [side.lineno for side in sides if isinstance(side, ast.Constant) and side.value in DISTANCES] == []


def test_centroids_are_not_compared_by_another_distance_than_that_of_the_search():
    # Their distances are canonical ones, of which a function has none.
    def cityblock(a, b):
        return torch.cdist(a, b, p=1)

    calculator = AccuracyCalculator(("nearest_centroid_accuracy",), knn_func=TorchKNN(cityblock))
    with pytest.raises(
        ValueError, match=r"(?s)^nearest_centroid_accuracy: got .*cityblock.*wanted one of 'l2', .*exclude="
    ) as told:
        calculator.get_accuracy(torch.randn(20, 3), torch.arange(20) % 2)
    assert str(told.value).endswith("write exclude=('nearest_centroid_accuracy',)")
