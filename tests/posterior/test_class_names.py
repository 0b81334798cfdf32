"""Class names are used in requests, reports, plots and saved files."""

import numpy as np
import pytest
import torch
from raising import raises

from tensormetrics.posterior import ConfigError, ConfusionPosterior, Study, load_csv
from tensormetrics.uncertainty import as_scalars

MATRIX = [[30, 5, 1], [4, 20, 2], [0, 3, 9]]
NAMES = ["cat", "dog", "emu"]
TRUTH, PRED = np.array(NAMES)[[0, 0, 1, 2, 2, 1]], np.array(NAMES)[[0, 1, 1, 2, 0, 1]]


def make_study():
    study = Study(0, metrics={"tpr": {"aggregation": "fe"}, "acc": {}})
    study.add_experiment("g/a", MATRIX, labels=NAMES)
    study.add_experiment("g/b", None, y_true=TRUTH, y_pred=PRED)  # sorted
    study.add_experiment("h/c", None, y_true=TRUTH, y_pred=PRED, labels=NAMES[::-1], items="x")
    study.add_experiment("i/d", MATRIX)
    return study


def test_class_label_selects_by_name():
    study = make_study()
    for name, index in ("cat", 0), ("dog", 1), ("emu", 2):
        for experiment in "g/a", "g/b", "g/aggregated":
            assert torch.equal(study.column("tpr", name, experiment), study.column("tpr", index, experiment))
        assert torch.equal(study.column("tpr", name, "h/c"), study.column("tpr", 2 - index, "h/c"))
    assert study.class_index("acc", None, "g/a") == 0
    for wrong in "eagle", 3, True, None, "0":
        with raises(
            ValueError,
            f"class_label: got {wrong!r} for metric 'true_positive_rate', wanted 'cat', 'dog', 'emu' or 0 to 2 for "
            "experiment 'g/a'",
        ):
            study.column("tpr", wrong, "g/a")
    with pytest.raises(
        ValueError, match="^class_label: got 'cat' for metric 'true_positive_rate', wanted 0 to 2 for exp"
    ):
        study.column("tpr", "cat", "i/d")


def test_tables_and_plots_contain_class_name():
    pytest.importorskip("matplotlib")
    study = make_study()
    assert [*study.table("tpr", experiments=["g/a", "h/c"]).columns] == ["tpr/cat", "tpr/dog", "tpr/emu"]
    for label in "dog", 1:
        figure, _ = study.plot("tpr", label, experiments=["g/a"], minus="h/c", grid_samples=20)
        assert figure.axes[-1].get_xlabel() == "True Positive Rate, class dog: difference"
        figure, _ = study.plot("tpr", label, experiments=["g/a", "g/aggregated"], grid_samples=20)
        assert figure.axes[-1].get_xlabel() == "True Positive Rate, class dog"


def test_class_names_of_csv_select_columns(tmp_path):
    (tmp_path / "m.csv").write_text(",cat,dog\ncat,3,1\ndog,0,2\n")
    matrix, labels = load_csv(tmp_path / "m.csv", with_labels=True)
    study = Study(0, metrics={"tpr": {}})
    study.add_experiment("m", matrix, labels=labels)
    assert float(study.column("tpr", "dog", "m", "input")) == 1


def test_experiments_of_group_with_other_classes_raise():
    study = make_study()
    for labels in ["dog", "cat", "emu"], ["cat", "dog", "eel"]:
        with raises(
            ConfigError, f"experiment 'g/c' has the classes {tuple(labels)}, the others of its group {tuple(NAMES)}"
        ):
            study.add_experiment("g/c", MATRIX, labels=labels)
    assert len(study.list_experiments()) == 4
    for labels in ["cat", "dog"], ["cat", "cat", "emu"]:
        with pytest.raises(ConfigError, match=r"^experiment 'x/x': labels: got \['cat', .*, wanted 3 distinct names$"):
            study.add_experiment("x", MATRIX, labels=labels)
    with pytest.raises(
        ValueError, match="^experiment 'x/x': got num_classes with confusion_matrix, which has its own$"
    ):
        study.add_experiment("x", MATRIX, num_classes=3)


def test_scalars_and_plots_of_metric_contain_class_names(device):
    metric = ConfusionPosterior(3, ["acc", "tpr"], labels=NAMES, replicates=100, batch_shape=(3,)).to(device)
    bare = ConfusionPosterior(3, ["acc", "tpr"], replicates=100, batch_shape=(3,)).to(device)
    preds, target = torch.randint(0, 3, (2, 3, 40), device=device)
    for posterior in metric, bare:
        posterior.update(preds, target)
    numbered = as_scalars(bare.interval(), "val/")
    assert bare.as_scalars("val/") == numbered
    expected = {}
    for name, value in numbered.items():
        path, _, field = name.rpartition("/") if name.endswith(("low", "high")) else (name, "", "")
        prefix, metric_name, *index = path.split("/")
        index = [*index[:-1], NAMES[int(index[-1])]] if metric_name == "tpr" else index
        expected["/".join([prefix, metric_name, *index, *filter(None, [field])])] = value
    assert metric.as_scalars("val/") == expected and "val/tpr/2/emu/low" in expected and "val/acc/0/low" in expected
    pytest.importorskip("matplotlib")
    assert [ax.get_ylabel() for ax in metric.plot_posterior("tpr")[1]][:4] == [f"0, class {name}" for name in NAMES] + [
        "1, class cat"
    ]
