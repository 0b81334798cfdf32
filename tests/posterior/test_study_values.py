"""Edge cases of a study in which a result is easily wrong."""

import pytest

from tensormetrics.posterior import Study
from tensormetrics.posterior.study import config

PRIORS = {"prevalence_prior": 1, "confusion_prior": 1}


def test_aggregated_metric_has_negative_values():
    study = Study(0, metrics={"ba+adjusted=True": {"aggregation": "fe"}})
    for fold in "ab":
        study.add_experiment(f"g/{fold}", [[20, 22], [21, 20]], **PRIORS)
    values = study.samples("ba+adjusted=True", "g/aggregated")
    assert 0.4 < (values < 0).double().mean() < 0.7 and values.min() > -1


def test_experiment_names_containing_aggregated_are_no_aggregates():
    study = Study(0, metrics={"acc": {"aggregation": "fe"}})
    for name in "not_aggregated/a", "b/aggregated_by_hand":
        study.add_experiment(name, [[9, 1], [2, 8]], **PRIORS)
    table = study.table()
    assert [float(table[row, "acc"]) for row in table.rows] == pytest.approx([0.85, 0.85])  # the observed scores


def test_cached_samples_lookup_hashes_no_matrix(monkeypatch):
    study = Study(0, metrics={"acc": {"aggregation": "fe"}})
    for fold in "ab":
        study.add_experiment(f"g/{fold}", [[9, 1], [2, 8]], **PRIORS)
    cached = [study.samples("acc", f"g/{name}") for name in ("a", "b", "aggregated")]
    for name in "fingerprint", "to_json":
        monkeypatch.delattr(config, name)
    for name, result in zip(("a", "b", "aggregated"), cached, strict=True):
        assert study.samples("acc", f"g/{name}") is result
