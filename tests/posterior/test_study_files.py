"""Files that hold no study are refused in a sentence that begins with their name."""

import json
import re
import warnings

import pytest

from tensormetrics.posterior import ConfigError, ConfigWarning, Study

MATRIX = {"confusion_matrix": [[3, 1], [2, 5]]}
STUDY = {
    "seed": 0,
    "replicates": 10_000,
    "confidence": 0.95,
    "dtype": "float32",
    "experiments": {"a": {"b": MATRIX}},
    "metrics": {"acc": {}},
}
INFINITE = float("inf")


def labels(**fields):
    return {"experiments": {"a": {"b": {"y_true": [0, 1], "y_pred": [1, 1], **fields}}}}


def matrix(**fields):
    return {"experiments": {"a": {"b": {**MATRIX, **fields}}}}


FIELDS = [
    ({"seed": INFINITE}, "seed: got inf, wanted an integer >= 0"),
    ({"seed": float("nan")}, "seed: got nan, wanted an integer >= 0"),
    ({"seed": -1}, "seed: got -1, wanted an integer >= 0"),
    ({"seed": 1.5}, "seed: got 1.5, wanted an integer >= 0"),
    ({"seed": [1]}, "seed: got [1], wanted an integer >= 0"),
    ({"replicates": 10**30}, f"replicates: got {10**30}, wanted at most 1000000000"),
    ({"replicates": INFINITE}, "replicates: got inf, wanted an integer >= 1"),
    ({"replicates": 0}, "replicates: got 0, wanted an integer >= 1"),
    ({"replicates": True}, "replicates: got True, wanted an integer >= 1"),
    ({"confidence": 0.0}, "confidence: got 0.0, wanted a number in (0, 1]"),
    ({"confidence": "x"}, "confidence: got 'x', wanted a number in (0, 1]"),
    ({"confidence": INFINITE}, "confidence: got inf, wanted a number in (0, 1]"),
    ({"confidence": 10**400}, f"confidence: got {10**400}, wanted a number in (0, 1]"),
    ({"confidence": {}}, "confidence: got {}, wanted a number in (0, 1]"),
    ({"dtype": "cuda"}, "dtype: got 'cuda', wanted one of torch.float32, torch.float64"),
    ({"dtype": "float16"}, "dtype: got 'float16', wanted one of torch.float32, torch.float64"),
    ({"dtype": 3}, "dtype: got 3, wanted one of torch.float32, torch.float64"),
    ({"device": "nope"}, "device: got 'nope', wanted a device of this machine, such as 'cpu'"),
    ({"device": "meta"}, "device: got 'meta', wanted a device of this machine, such as 'cpu'"),
    ({"device": [1]}, "device: got [1], wanted a device of this machine, such as 'cpu'"),
    ({"memory_limit": INFINITE}, "memory_limit: got inf, wanted an integer >= 1"),
    ({"zero_division": []}, "zero_division: got [], wanted 0, 1 or nan"),
    ({"other": 1}, "Study: got the argument 'other', wanted one of "),
    ({"metrics": {"acc": []}}, "metric 'acc': got [], wanted a dictionary"),
    ({"metrics": {"acc": 0}}, "metric 'acc': got 0, wanted a dictionary"),
    ({"metrics": {"acc": False}}, "metric 'acc': got False, wanted a dictionary"),
    ({"metrics": 5}, "metrics: got 5, wanted a dictionary such as {'acc': {}}"),
    ({"metrics": {"nope": {}}}, "metric 'nope': there is no metric 'nope'; "),
    ({"metrics": {"acc": {"aggregation": 5}}}, "aggregation: there is no 5; "),
    ({"metrics": {"acc": {"rho": 1}}}, "metric 'acc': got ['rho'] without 'aggregation', wanted that key too"),
    ({"experiments": []}, "experiments: got [], wanted a dictionary"),
    ({"experiments": {"a": []}}, "experiments: group 'a': got [], wanted a dictionary"),
    ({"experiments": {"a": {"b": []}}}, "experiment 'a/b': got [], wanted a dictionary"),
    ({"experiments": {"a": {"b": {}}}}, "experiment 'a/b': got nothing, wanted confusion_matrix alone, or "),
    ({"experiments": {"a/b": {"c": MATRIX}}}, "experiment: got 'a/b/c', wanted 'group/experiment' or "),
    (matrix(confusion_matrix=[[INFINITE, 1], [1, 1]]), "experiment 'a/b': confusion_matrix: got inf at [0, 0], "),
    (matrix(confusion_matrix=[[1], [1, 1]]), "experiment 'a/b': confusion_matrix: wanted rows of numbers, "),
    (matrix(confusion_prior={}), "experiment 'a/b': confusion_prior: got {}, wanted a word, a number or an array"),
    (matrix(labels=5), "experiment 'a/b': labels: got shape (), wanted a one-dimensional list of labels"),
    (matrix(prevalence_prior="flat"), "experiment 'a/b': prevalence_prior: got 'flat', wanted one of 'perks', "),
    (matrix(weights=5), "experiment 'a/b': unknown key 'weights', wanted some of "),
    (labels(y_true={}), "y_true: got shape (), wanted a one-dimensional list of labels"),
    (labels(y_true=[1, [2]]), "y_true: got nested lists, wanted a one-dimensional list of labels"),
    (labels(items=5), "experiment 'a/b': got items=5, wanted a string"),
    (labels(num_classes=INFINITE), "num_classes: got inf, wanted an integer >= 2"),
    (labels(groups={}), "groups: got a dict, wanted a tensor of integers or a list of names"),
]  # fmt: skip


def refused(path, message):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConfigWarning)
        with pytest.raises(ConfigError, match=f"^{re.escape(f'{path}: {message}')}") as caught:
            Study.load(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("fields", "message"), FIELDS, ids=lambda x: x[:30] if isinstance(x, str) else "")
def test_wrong_field_of_file_raises_error_with_name_of_file(fields, message, tmp_path):
    path = tmp_path / "study.json"
    path.write_text(json.dumps({**STUDY, **fields}))
    refused(path, message)


TEXTS = [
    ("json", json.dumps(STUDY)[:40], "wanted a study in json; Unterminated string"),
    ("json", "", "wanted a study in json; Expecting value"),
    ("json", "null", "got a NoneType, wanted a study as Study.save writes it"),
    *((suffix, "{seed: [", f"wanted a study in {suffix}; ") for suffix in ("json", "yaml", "toml")),
    *((suffix, "[1]", "got a list, wanted a study as Study.save writes it") for suffix in ("json", "yaml")),
    ("json", "[" * 100_000, "wanted a study in json; it is nested too deeply"),
    ("json", '{"a":' * 100_000, "wanted a study in json; it is nested too deeply"),
    ("json", '{"seed": 1, "seed": 2}', "wanted a study in json; the key 'seed' occurs twice"),
    ("json", '{"experiments": {"a": {}, "a": {}}}', "wanted a study in json; the key 'a' occurs twice"),
    ("yaml", "[" * 2_000, "wanted a study in yaml; it is nested too deeply"),
    ("yaml", "seed: 1\nseed: 2\n", "wanted a study in yaml; the key 'seed' occurs twice"),
    ("toml", "seed = 1\nseed = 2\n", "wanted a study in toml; Cannot overwrite a value"),
]


@pytest.mark.parametrize(("suffix", "text", "message"), TEXTS, ids=range(len(TEXTS)))
def test_text_that_is_no_study_raises_error_with_name_of_file(suffix, text, message, tmp_path):
    if suffix == "yaml":
        pytest.importorskip("yaml")
    path = tmp_path / f"study.{suffix}"
    path.write_text(text)
    refused(path, message)


def test_bytes_that_are_no_text_raise_error_with_name_of_file(tmp_path):
    path = tmp_path / "study.json"
    path.write_bytes(b"\xff\xfe{")
    refused(path, "got a file marked as UTF-16 that is not whole, or is none")
