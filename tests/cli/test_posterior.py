"""`tensormetrics posterior` on small matrices."""

import json
from functools import partial
from pathlib import Path

import pytest
import running

from tensormetrics._cli.commands.posterior import draw
from tensormetrics.posterior import Study
from tensormetrics.uncertainty import Table

run = partial(running.run, "posterior")
succeed = partial(running.succeed, "posterior")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "a.csv").write_text("90,10\n12,88\n")
    (tmp_path / "b.csv").write_text("95,5\n10,90\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_posterior_scores_equal_study(folder):
    options = "--metric acc --metric tpr --compare --rope 0.01 --seed 3 --json o.json --plot o.png"
    result = running.succeed(f"posterior a.csv b.csv {options}")
    scores = json.loads(Path("o.json").read_text())["scores"]
    assert list(scores) == ["acc", "tpr/0", "tpr/1"]
    study = Study(3, metrics={"acc": {}})
    study.add_experiment("a", [[90, 10], [12, 88]])
    study.add_experiment("b", [[95, 5], [10, 90]])
    value, low, high = map(float, study.table()["a", "acc"])
    assert [scores["acc"]["a"][name] for name in ("value", "low", "high")] == [value, low, high]
    assert scores["acc"]["a"]["median"] == study.table()["a", "acc"].details["median"]
    assert study.compare("acc", rope=0.01).to_text(4).splitlines()[1] in result.stdout
    assert f"{value:.4f} [{low:.4f}, {high:.4f}]" in result.stdout and Path("o.png").read_bytes().startswith(b"\x89PNG")


def test_posterior_prior_option_equals_study_with_prior(folder):
    for prior in ("0", "jeffreys", "balanced", "hierarchical"):
        result = run("a.csv", "--metric", "acc", "--prior", prior, "--json", "-")
        study = Study(0, metrics={"acc": {}})
        priors = ("perks", prior) if prior in ("balanced", "hierarchical") else (prior if prior != "0" else 0,) * 2
        study.add_experiment("a", [[90, 10], [12, 88]], *priors)
        score = json.loads(result.stdout)["scores"]["acc"]["a"]
        assert score["median"] == study.table()["a", "acc"].details["median"]


def test_draw_shows_all_scores_of_all_experiments():
    study = Study(0, metrics={"acc": {}, "tpr": {}})
    for name in ("a", "mlp/b"):
        study.add_experiment(name, [[90, 10], [12, 88]], 0, 0)
    figure = draw(study, [("tpr", 0), ("tpr", 1), ("acc", None)])
    assert [ax.get_ylabel() for ax in figure.axes] == ["a", "mlp/b"] * 3
    labels = [ax.get_xlabel() for ax in figure.axes if ax.get_xlabel()]
    assert labels == ["True Positive Rate, class 0", "True Positive Rate, class 1", "Accuracy"]
    assert len(figure.legends) == 1


@pytest.mark.full
def test_draw_with_compare_shows_differences_from_the_best():
    study = Study(0, metrics={"acc": {}})
    for name, right in ("a", 80), ("b", 95), ("c", 90):
        study.add_experiment(name, [[right, 100 - right], [10, 90]], 0, 0)
    figure = draw(study, [("acc", None)], compare=True, rope=0.01)
    labels = [ax.get_xlabel() for ax in figure.axes if ax.get_xlabel()]
    assert labels == ["Accuracy", "Accuracy: difference"]
    assert [ax.get_ylabel() for ax in figure.axes[3:]] == ["a − b", "c − b"]
    shown = [text.get_text() for ax in figure.axes[3:] for text in ax.texts]
    for text, name in zip(shown[1::3], "ac", strict=True):
        difference = (study.column("acc", None, name) - study.column("acc", None, "b")).double()
        assert text == f"{float((difference.abs() <= 0.01).double().mean()):.2%} equivalent"


def test_posterior_folder_names_the_group(folder):
    for group in ("mlp", "cnn"):
        (folder / group).mkdir()
        (folder / group / "fold.csv").write_text("9,1\n2,8\n")
    result = run("mlp/fold.csv", "cnn/fold.csv", "--metric", "acc")
    assert result.exit_code == 0 and "mlp/fold" in result.stdout and "cnn/fold" in result.stdout


def test_posterior_zero_division_sets_undefined_scores(folder):
    Path("never.csv").write_text("9,0\n3,0\n")
    observed = []
    for option in [], ["--zero-division", "1"]:
        result = run("never.csv", "--metric", "ppv", "--prior", "0", *option, "--json", "-")
        observed.append(json.loads(result.stdout)["scores"]["ppv/1"]["never"]["value"])
    assert observed[0] is None or observed[0] != observed[0]
    assert observed[1] == 1


def test_posterior_paired_classes_are_sorted_as_numbers(folder):
    rows = [f"{truth},{truth},{(truth + 1) % 11}" for truth in range(11)]
    Path("items.csv").write_text("\n".join(["truth,right,next", *rows]))
    result = run("--paired", "items.csv", "--metric", "mae", "--metric", "tpr", "--json", "-")
    scores = json.loads(result.stdout)["scores"]
    assert list(scores)[1:] == [f"tpr/{label}" for label in range(11)]
    assert scores["mae"]["next"]["value"] == pytest.approx(20 / 11)  # ten errors of 1 and one error of 10


def test_posterior_width_reports_needed_items(folder):
    result = running.succeed("posterior a.csv --metric acc --metric tpr --width 0.02 --json o.json")
    needed = Table.from_json(json.dumps(json.loads(Path("o.json").read_text())["tables"][1]))
    accuracy, recall = needed["a", "acc"], needed["a", "tpr/1"]
    assert accuracy == pytest.approx(0.89 * 0.11 * (2 * 1.96 / 0.02) ** 2, rel=0.05) and recall > accuracy
    assert "items for an interval of 0.02" in result.stdout


def test_posterior_unreachable_width_is_reported(folder):
    result = run("a.csv", "--metric", "acc", "--width", "1e-30")
    assert result.exit_code == 0 and "--width: got 1e-30, which even 1e+12 items would not reach" in result.output
