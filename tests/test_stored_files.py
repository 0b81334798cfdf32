"""Files that 337b1eb wrote are read with the values that it had: see `stored/write.py`.

The ends of intervals may change from one version to the next; values and results of searches may not.
"""

import copy
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from cases import METRICS
from stored.objects import (
    CALCULATIONS,
    DISTANCES,
    FAISS_FILE,
    KNN_FILES,
    OBJECTS,
    ROWS,
    STUDY_FILES,
    CountedRows,
    StoredObject,
    calculator_rows,
    neighbors,
    numbers_by_path,
    open_embeddings_file,
    study_numbers,
)
from torch import distributed as dist
from torch.utils._pytree import tree_flatten_with_path, tree_leaves

import tensormetrics
from tensormetrics.posterior import ConfusionPosterior, Study
from tensormetrics.retrieval import FaissKNN, TorchKNN

FOLDER = Path(__file__).parent / "stored"
EXPECTED = json.loads((FOLDER / "values.json").read_text())
STATE_DICTS = torch.load(FOLDER / "state_dicts.pt", map_location="cpu", weights_only=True)
VERSION = "0.1.0"  # that wrote the states of calculations, which are for one version alone

RENAMED = {"structured.ClusterAccuracy": "structured.ClusterMatchScores"}  # row at 337b1eb -> its present name
REMOVED = {  # name of a row at 337b1eb that the library no longer has -> the reason
    "association.ExampleMetric": "the exercise of a guide, which the tests of association write as the guide does",
}
MEDIANS = [  # whose values at 337b1eb were the medians of posteriors, and are the observed scores now
    "posterior.ConfusionPosterior",
    "ConfusionPosterior with groups",
    "ConfusionPosterior of a batch",
]
TOLERANCE = 1e-12
ADDED = {"Family": ("invalid_fields",)}  # numbers that the version at 337b1eb did not have, 0 for its states
WIDER = {  # samples of float32, and steps that carry rounding errors on
    "posterior.ConfusionPosterior": 1e-6,
    "ConfusionPosterior with groups": 1e-6,
    "ConfusionPosterior of a batch": 1e-6,
    "RepulsionAttractionNeutralization": 1e-9,
}

stored_names = pytest.mark.parametrize("name", [name for name in STATE_DICTS if name not in REMOVED])


def stored_object(name: str) -> StoredObject:
    return OBJECTS[name] if name in OBJECTS else ROWS[RENAMED.get(name, name)]


def loaded(name: str) -> Any:
    module = stored_object(name).make()
    module.load_state_dict(STATE_DICTS[name])
    return module


def assert_numbers_equal(numbers: Any, expected: Any, tolerance: float = 0.0) -> None:
    """Compare numbers in dictionaries and lists; NaN equals NaN."""
    leaves, expected_leaves = (dict(tree_flatten_with_path(side)[0]) for side in (numbers, expected))
    assert leaves.keys() == expected_leaves.keys()
    for path, value in expected_leaves.items():
        assert leaves[path] == pytest.approx(value, rel=tolerance, abs=tolerance, nan_ok=True), path


def test_stored_rows_after_renaming_are_in_the_table():
    assert REMOVED.keys() <= STATE_DICTS.keys() - OBJECTS.keys() - METRICS.keys()
    rows = STATE_DICTS.keys() - OBJECTS.keys() - REMOVED.keys()
    assert RENAMED.keys() <= rows
    assert {RENAMED.get(name, name) for name in rows} - METRICS.keys() == set()
    assert OBJECTS.keys() - STATE_DICTS.keys() == set()
    assert EXPECTED["state_dicts"].keys() == STATE_DICTS.keys()


def has_replicates(name: str) -> bool:
    return any(key.rpartition(".")[2] == "weighted" for key in STATE_DICTS[name])


@pytest.mark.parametrize("name", [*filter(has_replicates, OBJECTS)])
def test_replicates_in_stored_state_dict_are_refused(name):
    with pytest.raises(RuntimeError, match="weighted: replicates of an earlier version, without the units"):
        loaded(name)


@pytest.mark.parametrize("name", [name for name in STATE_DICTS if name not in REMOVED and not has_replicates(name)])
def test_object_with_stored_state_dict_has_stored_value(name):
    module = loaded(name)
    value = medians(module) if name in MEDIANS else stored_object(name).value(module)
    assert [float(value.pop(key)) for key in ADDED.get(name, ())] == [0.0] * len(ADDED.get(name, ()))
    assert_numbers_equal(numbers_by_path(value), EXPECTED["state_dicts"][name], WIDER.get(name, TOLERANCE))


def medians(metric: ConfusionPosterior) -> dict[str, torch.Tensor]:
    return {name: estimate.details["median"] for name, estimate in metric.interval().items()}


@pytest.mark.parametrize("name", MEDIANS)
def test_confusion_posterior_with_stored_state_dict_has_observed_scores(name):
    metric = loaded(name)
    counts = metric.counts.double()
    right, true, predicted = counts.diagonal(dim1=-2, dim2=-1), counts.sum(-1), counts.sum(-2)
    f1 = 2 * right / (true + predicted)
    observed = {"acc": right.sum(-1) / true.sum(-1), "tpr": right / true, "f1": f1, "f1@macro": f1.mean(-1)}
    tensors, estimates = metric.compute(), metric.interval()
    for score in metric.metrics:
        torch.testing.assert_close(tensors[score], observed[score], rtol=TOLERANCE, atol=TOLERANCE)
        low, high = tensors[f"{score}/low"], tensors[f"{score}/high"]
        assert (low <= tensors[score]).all() and (tensors[score] <= high).all()
        assert all(map(torch.equal, estimates[score], (tensors[score], low, high)))


WITH_INTERVAL = [
    name for name, stored in OBJECTS.items() if stored.interval and not has_replicates(name) and name not in MEDIANS
]


@pytest.mark.filterwarnings("ignore::tensormetrics.uncertainty.UncertaintyWarning")  # of few groups
@pytest.mark.parametrize("name", WITH_INTERVAL)
def test_interval_of_stored_state_dict_has_stored_value(name):
    interval = loaded(name).interval()
    estimates = interval if isinstance(interval, dict) else {"": interval}
    assert all(leaf.isfinite().all() for leaf in tree_leaves(interval))
    values = {key: estimate.value for key, estimate in estimates.items()}
    value = numbers_by_path(values if isinstance(interval, dict) else interval.value)
    assert_numbers_equal(value, EXPECTED["state_dicts"][name], WIDER.get(name, TOLERANCE))


@stored_names
def test_state_dict_with_renamed_key_is_refused(name):
    if has_replicates(name):
        return  # all of it is
    for key in STATE_DICTS[name]:
        state_dict = copy.copy(STATE_DICTS[name])
        state_dict[f"{key}_of_others"] = state_dict.pop(key)
        with pytest.raises(RuntimeError, match=f"{key}_of_others"):
            stored_object(name).make().load_state_dict(state_dict)


@pytest.mark.parametrize("file", STUDY_FILES)
def test_study_in_stored_file_has_stored_samples(file):
    study = Study.load(FOLDER / file)
    assert study.fingerprint == Study.load(FOLDER / STUDY_FILES[0]).fingerprint
    assert_numbers_equal(study_numbers(study), EXPECTED["studies"], 1e-9)


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("file", KNN_FILES)
def test_search_in_stored_references_gives_stored_neighbors(file, distance):
    knn = TorchKNN(distance)
    knn.load(FOLDER / file)
    assert_numbers_equal(neighbors(knn), EXPECTED["references"][f"{file} by {distance}"])


def test_search_in_stored_faiss_index_gives_stored_neighbors():
    pytest.importorskip("faiss")
    knn = FaissKNN()
    knn.load(FOLDER / FAISS_FILE)
    nearest, expected = neighbors(knn), EXPECTED["references"][FAISS_FILE]
    assert nearest["indices"] == expected["indices"]
    assert_numbers_equal(nearest, expected, 1e-5)  # the distances are products of matrices in float32


@pytest.fixture
def group() -> Iterator[Any]:
    """Give a group of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()


@pytest.mark.parametrize("name", CALCULATIONS)
def test_calculation_resumed_from_stored_state_gives_stored_accuracies(name, tmp_path, request):
    calculation = CALCULATIONS[name]
    for path in FOLDER.glob(f"{name}*"):
        shutil.copy(path, tmp_path)
    options = {"group": request.getfixturevalue("group")} if calculation.grouped else {}
    source = open_embeddings_file(tmp_path) if calculation.from_file else CountedRows(calculator_rows())
    if tensormetrics.__version__ != VERSION:
        with pytest.raises(ValueError, match=f"^checkpoint: .*{name}.* was written with version = {VERSION}, got "):
            calculation.accuracies(source, checkpoint=tmp_path / name, **options)
        return
    accuracies = calculation.accuracies(source, checkpoint=tmp_path / name, **options)
    assert_numbers_equal(accuracies, EXPECTED["states"][name], TOLERANCE)
    if not calculation.from_file:
        restarted = CountedRows(calculator_rows())
        assert calculation.accuracies(restarted, checkpoint=tmp_path / "new.state", **options) == accuracies
        assert source.rows_read < restarted.rows_read
