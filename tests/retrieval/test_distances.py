"""Distances are defined by one table; no other code of the domain compares their names."""

import ast
from pathlib import Path
from typing import get_args

import pytest
import torch

from tensormetrics import retrieval
from tensormetrics.retrieval import AccuracyCalculator, TorchKNN
from tensormetrics.retrieval.search.distance import DISTANCES, DistanceName

FOLDER = Path(retrieval.__file__).parent


def test_distance_name_type_lists_all_table_entries():
    assert get_args(DistanceName) == tuple(DISTANCES) == tuple(distance.name for distance in DISTANCES.values())


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.py")), ids=lambda path: path.relative_to(FOLDER).as_posix())
def test_distance_names_are_never_compared_in_code(path):
    nodes = (
        child
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Compare | ast.Dict | ast.MatchValue)
        for child in ast.walk(node)
    )
    assert [child.lineno for child in nodes if isinstance(child, ast.Constant) and child.value in DISTANCES] == []


def test_nearest_centroid_accuracy_custom_distance_raises():
    # Centroids use canonical distances, which a custom function does not define.
    def cityblock(a, b):
        return torch.cdist(a, b, p=1)

    calculator = AccuracyCalculator(("nearest_centroid_accuracy",), knn_func=TorchKNN(cityblock))
    with pytest.raises(
        ValueError, match=r"(?s)^nearest_centroid_accuracy: got .*cityblock.*wanted one of 'l2', .*exclude="
    ) as error:
        calculator.get_accuracy(torch.randn(20, 3), torch.arange(20) % 2)
    assert str(error.value).endswith("write exclude=('nearest_centroid_accuracy',)")
