"""Checks of the arguments of a study, and the study as a dictionary or a file."""

import hashlib
import json
import secrets
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...core.arguments import checks
from ...core.resampling.weights import units
from ...core.text.files import file_suffix, open_atomic, parsing, read_text
from ..sampling.confusion_matrix import label_cells
from ..sampling.errors import ConfigError, ConfigWarning, PosteriorWarning, UnknownNameError
from ..sampling.paired import PairedItems
from .experiment import Experiment

DTYPES = {"float32": torch.float32, "float64": torch.float64}
EXPERIMENT_KEYS = (
    "confusion_matrix prevalence_prior confusion_prior y_true y_pred num_classes labels items groups".split()
)
AGGREGATED = "aggregated"


def checked_seed(seed: Any) -> Any:
    """Return the seed; a ConfigWarning names the one that is drawn for None."""
    if seed is None:
        seed = secrets.randbits(63)
        text = f"seed: got None, {seed} is used; pass it to get the same draws again"
        warnings.warn(text, ConfigWarning, stacklevel=3)
    return seed


def checked_device(device: Any) -> Any:
    try:
        if device is None or torch.empty(0, dtype=torch.float32, device=device).device.type != "meta":
            return device
    except (TypeError, RuntimeError, AssertionError):
        pass  # not known to torch, or not of this machine
    raise ConfigError(f"device: got {device!r}, wanted a device of this machine, such as 'cpu'")


class ExperimentData(NamedTuple):
    """The arguments of `Study.add_experiment`, checked."""

    confusion_matrix: Any
    labels: Any  # names of the classes, None if they are 0, 1, ...
    items: PairedItems | None
    truth_digest: bytes | None  # to find experiments with the same y_true; None if the user wrote items=False
    config: dict[str, Any]  # the arguments as `Study.save` writes them


def read_experiment(
    full_name: str,
    confusion_matrix: Any,
    y_true: Any,
    y_pred: Any,
    num_classes: int | None,
    labels: Any,
    items: Any,
    groups: Any = None,
) -> ExperimentData:
    """Return the checked data of an experiment, from either `confusion_matrix` or `y_true` and `y_pred`.

    Args:
        full_name: "group/experiment".
        confusion_matrix: Counts (C, C), rows are the truth.
        y_true: True class of each item.
        y_pred: Predicted class of each item.
        num_classes: Number of classes of y_true and y_pred, None if all occur.
        labels: Names of the classes.
        items: Name of the set of items; experiments with equal names are paired item by item. None: unknown, and
            experiments with the same y_true cause a warning. False: the items differ from those of all others.
        groups: Group of each item.
    """
    arguments = {"confusion_matrix": confusion_matrix, "y_true": y_true, "y_pred": y_pred}
    names = [key for key, value in arguments.items() if value is not None]
    message = f"experiment {full_name!r}: got {{}}, wanted {{}}"
    for name, is_given in {"groups": groups is not None, "items": bool(items)}.items():
        if is_given and names != ["y_true", "y_pred"]:
            raise ValueError(message.format(f"{name} with {', '.join(names) or 'nothing'}", "y_true and y_pred"))
    if names == ["confusion_matrix"]:
        if num_classes is not None:
            raise ValueError(f"experiment {full_name!r}: got num_classes with confusion_matrix, which has its own")
        config = {"confusion_matrix": confusion_matrix} | ({} if labels is None else {"labels": labels})
        return ExperimentData(confusion_matrix, labels, None, None, config)
    if names != ["y_true", "y_pred"]:
        expected = "confusion_matrix alone, or y_true and y_pred"
        raise ValueError(message.format(", ".join(names) or "nothing", expected))
    return _read_predictions(full_name, y_true, y_pred, num_classes, labels, items, groups)


def _read_predictions(
    full_name: str, y_true: Any, y_pred: Any, num_classes: int | None, labels: Any, items: Any, groups: Any
) -> ExperimentData:
    cells, classes = label_cells(y_true, y_pred, labels=labels, num_classes=num_classes)
    C = len(classes)
    matrix = cells.bincount(minlength=C * C).view(C, C)
    labels = None if classes.tolist() == list(range(C)) else classes
    named: dict[str, Any] = {} if labels is None else {"labels": labels}
    truth_digest = None if items is False else digest(classes.tolist(), cells // C)
    if groups is not None:
        groups = units("groups", groups, len(cells), cells.device)
        items = items if isinstance(items, str) else full_name  # items that no other experiment has
    if items is None or items is False:
        return ExperimentData(matrix, labels, None, truth_digest, {"confusion_matrix": matrix, **named})
    if not isinstance(items, str):
        raise TypeError(f"experiment {full_name!r}: got items={items!r}, wanted a string")
    config = {"y_true": y_true, "y_pred": y_pred, "items": items, **(named or {"num_classes": C})}
    if groups is not None:
        config["groups"] = groups.tolist()
    return ExperimentData(matrix, labels, PairedItems(items, cells, groups), truth_digest, config)


def check_items(full_name: str, items: PairedItems, num_classes: int, experiments: Iterable[Experiment]) -> None:
    """Raise a ValueError if an experiment on the same items has another truth or other classes."""
    label, cells, groups = items
    for other in experiments:
        if other.name == full_name or other.items is None or other.items.label != label:
            continue
        C, truth = other.num_classes, other.items.cells.cpu() // other.num_classes
        if C != num_classes or not torch.equal(truth, cells // num_classes):
            raise ValueError(
                f"experiment {full_name!r}: its y_true or its classes are not those of {other.name!r}, which "
                f"has the items {label!r} too; give both the same y_true and the same labels"
            )


def check_group(experiment: Experiment, others: Sequence[Experiment]) -> None:
    """Raise a ConfigError unless an experiment has as many classes as others of its group, and the same names."""
    sizes = {other.num_classes for other in others} - {experiment.num_classes}
    if sizes:
        got = f"experiment {experiment.name!r} has {experiment.num_classes} classes"
        raise ConfigError(f"{got}, the others of its group {sizes.pop()}")
    names = {other.labels for other in others} - {None, experiment.labels}
    if experiment.labels and names:
        got = f"experiment {experiment.name!r} has the classes {experiment.labels}"
        raise ConfigError(f"{got}, the others of its group {names.pop()}")


def mapping(what: str, value: Any, such_as: str = "") -> Mapping:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{what}: got {value!r}, wanted a dictionary{such_as}")
    return value


def split_name(name: Any) -> tuple[str, str]:
    """Split "group/experiment" into both names; a single name stands for both."""
    if not isinstance(name, str):
        raise TypeError(f"experiment: got {name!r}, wanted a string 'group/experiment'")
    parts = name.split("/")
    if len(parts) > 2 or not all(parts):
        raise ConfigError(f"experiment: got {name!r}, wanted 'group/experiment' or one name for both")
    return parts[0], parts[-1]


def full_name(name: str) -> str:
    return "/".join(split_name(name))


def is_pooled(name: str) -> bool:
    return name.endswith(f"/{AGGREGATED}")


def to_json(value: Any) -> Any:
    """Return a copy that JSON can hold."""
    if hasattr(value, "__array__"):
        return (value if isinstance(value, Tensor) else np.asarray(value)).tolist()
    if isinstance(value, Mapping):
        return {key: to_json(item) for key, item in value.items()}
    return [to_json(item) for item in value] if isinstance(value, list | tuple) else value


def fingerprint(config: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(config, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def digest(classes: list, truth: Tensor) -> bytes:
    """Return a digest of the true classes of items."""
    return hashlib.blake2b(repr(classes).encode() + truth.numpy().tobytes(), digest_size=16).digest()


def write(config: dict[str, Any], path: str | Path) -> None:
    path = Path(path)
    kind = _suffix(path)
    if kind == "json":
        text = json.dumps(config, indent=1)
    elif kind == "toml":
        text = _package("tomli_w", path).dumps(config)
    else:
        text = _package("yaml", path).safe_dump(config, sort_keys=False)
    with open_atomic(path) as file:
        file.write(text.encode())


def read(path: str | Path) -> Mapping[str, Any]:
    path = Path(path)
    kind = _suffix(path)
    if kind == "json":
        parse = partial(json.loads, object_pairs_hook=_distinct)
    elif kind == "toml":
        parse = _package("tomllib" if sys.version_info >= (3, 11) else "tomli", path).loads
    else:
        yaml = _package("yaml", path)
        parse = partial(yaml.load, Loader=_distinct_loader(yaml))
    with parsing(path, f"a study in {kind}", ConfigError):
        config = parse(read_text(path))
    if not isinstance(config, Mapping):
        raise ConfigError(f"{path}: got a {type(config).__name__}, wanted a study as Study.save writes it")
    return config


def _distinct(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """Return the pairs as a dictionary; raise a ValueError if a key occurs twice, of which parsers keep the last."""
    result: dict[Any, Any] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f"the key {key!r} occurs twice")
        result[key] = value
    return result


def _distinct_loader(yaml: Any) -> Any:
    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            _distinct((key.value, None) for key, _ in node.value if isinstance(key, yaml.ScalarNode))
            return super().construct_mapping(node, deep)

    return Loader


def unknown(kind: str, name: str, names: Any) -> UnknownNameError:
    names = list(names)
    close = checks.near(name, names, 3)
    known = ", ".join(map(repr, close or names))
    advice = f"the closest are {known}" if close else f"it has {known or f'no {kind} yet'}"
    return UnknownNameError(f"there is no {kind} {name!r} in the study; {advice}")


def _suffix(path: Path) -> str:
    kinds = {".json": "json", ".toml": "toml", ".yaml": "yaml", ".yml": "yaml"}
    if file_suffix(path) not in kinds:
        raise ValueError(f"path: got {str(path)!r}, wanted a name that ends in {', '.join(kinds)}")
    return kinds[file_suffix(path)]


def _package(name: str, path: Path) -> Any:
    try:
        return __import__(name)
    except ImportError:
        raise ImportError(
            f'{file_suffix(path)} files need {name}: pip install "tensormetrics[files]", or use a .json file'
        ) from None


def paired(pairs: Sequence[tuple[Experiment, Experiment]]) -> list[bool]:
    """Return which pairs of experiments have samples of the same items; warn of pairs that might have."""
    unmarked = [
        (a.name, b.name)
        for a, b in pairs
        if None not in (a.truth_digest, b.truth_digest)
        and a.truth_digest == b.truth_digest
        and not (a.items and b.items)
    ]
    if unmarked:
        a, b = unmarked[0]
        others = f" (so have {len(unmarked) - 1} other pairs)" if len(unmarked) > 1 else ""
        warnings.warn(
            f"{a!r} and {b!r} have the same y_true{others}, but are compared as if their items were different "
            "ones; write items='test' in add_experiment of both to compare them item by item, or items=False if "
            "their items do differ",
            PosteriorWarning,
            stacklevel=3,
        )
    return [bool(a.items and b.items and a.items.label == b.items.label) for a, b in pairs]
