"""Classes keep their names: in what is asked for, what is shown and what is saved."""

import json

import numpy as np
import pytest
import torch

from tensormetrics.posterior import ConfigError, ConfusionPosterior, Study, load_csv
from tensormetrics.uncertainty import as_scalars

MATRIX = [[30, 5, 1], [4, 20, 2], [0, 3, 9]]
NAMES = ["cat", "dog", "emu"]
TRUTH, PRED = np.array(NAMES)[[0, 0, 1, 2, 2, 1]], np.array(NAMES)[[0, 1, 1, 2, 0, 1]]


def study():
    found = Study(0, metrics={"tpr": {"aggregation": "fe"}, "acc": {}})
    found.add_experiment("g/a", MATRIX, labels=NAMES)
    found.add_experiment("g/b", None, y_true=TRUTH, y_pred=PRED)  # sorted
    found.add_experiment("h/c", None, y_true=TRUTH, y_pred=PRED, labels=NAMES[::-1], items="x")
    found.add_experiment("i/d", MATRIX)
    return found


def test_a_class_is_asked_for_by_its_name():
    found = study()
    for name, index in ("cat", 0), ("dog", 1), ("emu", 2):
        for experiment in "g/a", "g/b", "g/aggregated":
            assert torch.equal(found.column("tpr", name, experiment), found.column("tpr", index, experiment))
        assert torch.equal(found.column("tpr", name, "h/c"), found.column("tpr", 2 - index, "h/c"))
    assert found.class_index("acc", None, ["g/a"]) == 0
    for wrong in "eagle", 3, True, None, "0":
        with pytest.raises(ValueError) as caught:
            found.column("tpr", wrong, "g/a")
        assert str(caught.value) == (
            f"class_label: got {wrong!r} for metric 'true_positive_rate', wanted 'cat', 'dog', 'emu' or 0 to 2 for "
            "experiment 'g/a'"
        )
    with pytest.raises(
        ValueError, match="^class_label: got 'cat' for metric 'true_positive_rate', wanted 0 to 2 for exp"
    ):
        found.column("tpr", "cat", "i/d")


def test_reports_and_plots_say_the_name():
    pytest.importorskip("matplotlib")
    found = study()
    pair = {"experiment_a": "g/a", "experiment_b": "h/c"}
    for label in "dog", 1:
        assert found.report_pairwise_comparison("tpr", label, **pair).startswith(
            "tpr, class dog of g/a minus that of h/c"
        )
        assert (
            found.plot_pairwise_comparison("tpr", label, **pair)
            .axes[0]
            .get_xlabel()
            .startswith("True Positive Rate, class dog")
        )
        figure = found.plot_experiment_aggregation("tpr", label, experiment_group="g")
        assert figure.axes[-1].get_xlabel() == "True Positive Rate, class dog"
        ranked = found.get_listwise_comparison_result("acc")
        assert ranked.metric == "acc"
    assert found.get_pairwise_random_comparison("tpr", 1, experiment="i/d").metric == "tpr, class 1"
    for group in "k", "l":
        for fold in "ab":
            found.add_experiment(f"{group}/{fold}", MATRIX if fold == "a" else np.transpose(MATRIX), labels=NAMES)
    row = found.report_fold_comparison("tpr", "emu", group_a="k", group_b="l", table_fmt="records")[0]
    assert row["Metric"] == "tpr, class emu"


@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_names_are_saved(suffix, tmp_path):
    pytest.importorskip("yaml")
    found, path = study(), tmp_path / f"study.{suffix}"
    found.save(path)
    again = Study.load(path)
    assert again.to_dict() == found.to_dict() and again.fingerprint == found.fingerprint
    assert json.dumps(found.to_dict()["experiments"]["g"]["b"]["labels"]) == json.dumps(NAMES)
    assert again["h"].labels == ("emu", "dog", "cat") and again["i/d"].labels is None
    assert torch.equal(again.column("tpr", "emu", "h/c"), found.column("tpr", "emu", "h/c"))


def test_names_from_a_file(tmp_path):
    (tmp_path / "m.csv").write_text(",cat,dog\ncat,3,1\ndog,0,2\n")
    matrix, labels = load_csv(tmp_path / "m.csv", with_labels=True)
    found = Study(0, metrics={"tpr": {}})
    found.add_experiment("m", matrix, labels=labels)
    assert float(found.column("tpr", "dog", "m", "input")) == 1


def test_groups_agree_on_their_classes():
    found = study()
    for labels in ["dog", "cat", "emu"], ["cat", "dog", "eel"]:
        with pytest.raises(ConfigError) as caught:
            found.add_experiment("g/c", MATRIX, labels=labels)
        assert str(caught.value) == (
            f"experiment 'g/c' has the classes {tuple(labels)}, the others of its group {tuple(NAMES)}"
        )
    assert found["g"].num_experiments == 2
    for labels in ["cat", "dog"], ["cat", "cat", "emu"]:
        with pytest.raises(ConfigError, match=r"^experiment 'x/x': labels: got \['cat', .*, wanted 3 distinct names$"):
            found.add_experiment("x", MATRIX, labels=labels)
    with pytest.raises(
        ValueError, match="^experiment 'x/x': got num_classes with confusion_matrix, which has its own$"
    ):
        found.add_experiment("x", MATRIX, num_classes=3)


def test_scalars_and_plots_of_the_metric(device):
    metric = ConfusionPosterior(3, ["acc", "tpr"], labels=NAMES, replicates=100, batch_shape=(3,)).to(device)
    bare = ConfusionPosterior(3, ["acc", "tpr"], replicates=100, batch_shape=(3,)).to(device)
    preds, target = torch.randint(0, 3, (2, 3, 40), device=device)
    for each in metric, bare:
        each.update(preds, target)
    numbered = as_scalars(bare.interval(), "val/")
    assert bare.as_scalars("val/") == numbered
    expected = {}
    for name, value in numbered.items():
        place, _, field = name.rpartition("/") if name.endswith(("low", "high")) else (name, "", "")
        prefix, metric_name, *index = place.split("/")
        index = [*index[:-1], NAMES[int(index[-1])]] if metric_name == "tpr" else index
        expected["/".join([prefix, metric_name, *index, *filter(None, [field])])] = value
    assert metric.as_scalars("val/") == expected and "val/tpr/2/emu/low" in expected and "val/acc/0/low" in expected
    pytest.importorskip("matplotlib")
    assert [ax.get_ylabel() for ax in metric.plot_posterior("tpr").axes][:4] == [
        f"0, class {name}" for name in NAMES
    ] + ["1, class cat"]
