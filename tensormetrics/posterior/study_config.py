"""What a study may be told, checked; and the study as a dictionary or a file."""

import hashlib
import json
import numbers
import secrets
import sys
import warnings
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._files import written
from .errors import ConfigError, ConfigWarning, UnknownNameError

NUM_SAMPLES, CI_PROBABILITY = 10_000, 0.95
EXPERIMENT_KEYS = "confusion_matrix prevalence_prior confusion_prior y_true y_pred num_classes labels items".split()
AGGREGATED = "aggregated"


def checked_seed(seed: Any) -> int:
    if seed is None:
        seed = secrets.randbits(63)
        _warn(f"seed: got None, {seed} is used; pass it to get the same draws again")
    seed = _number("seed", seed, int)
    if seed < 0:
        raise ConfigError(f"seed: got {seed}, wanted an integer >= 0")
    return seed


def checked_num_samples(num_samples: Any) -> int:
    if num_samples is None:
        _warn(f"num_samples: got None, {NUM_SAMPLES} is used")
        return NUM_SAMPLES
    num_samples = _number("num_samples", num_samples, int)
    if num_samples <= 0:
        raise ConfigError(f"num_samples: got {num_samples}, wanted an integer > 0")
    if num_samples < 10_000:
        _warn(f"num_samples: got {num_samples}; at least 10000 are advised for the ends of intervals")
    return num_samples


def checked_ci_probability(ci_probability: Any) -> float:
    if ci_probability is None:
        _warn(f"ci_probability: got None, {CI_PROBABILITY} is used")
        return CI_PROBABILITY
    ci_probability = _number("ci_probability", ci_probability, float)
    if not 0 < ci_probability <= 1:
        raise ConfigError(f"ci_probability: got {ci_probability}, wanted a number in (0, 1]")
    return ci_probability


def split_name(name: Any) -> tuple[str, str]:
    """ "group/experiment", or "name" for "name/name"."""
    if not isinstance(name, str):
        raise TypeError(f"experiment: got {name!r}, wanted a string 'group/experiment'")
    parts = name.split("/")
    if len(parts) > 2 or not all(parts):
        raise ConfigError(f"experiment: got {name!r}, wanted 'group/experiment' or one name for both")
    return parts[0], parts[-1]


def plain(value: Any) -> Any:
    """A copy that JSON can hold."""
    if hasattr(value, "__array__"):
        return (value if isinstance(value, Tensor) else np.asarray(value)).tolist()
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def fingerprint(config: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(config, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def digest(classes: list, truth: Tensor) -> bytes:
    """Of the true classes of items."""
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
    with written(path) as file:
        file.write(text.encode())


def read(path: str | Path) -> dict[str, Any]:
    path = Path(path)
    kind = _suffix(path)
    wrong: tuple[type[Exception], ...] = (ValueError,)
    if kind == "json":
        parse = json.loads
    elif kind == "toml":
        parse = _package("tomllib" if sys.version_info >= (3, 11) else "tomli", path).loads
    else:
        yaml = _package("yaml", path)
        parse, wrong = yaml.safe_load, (yaml.YAMLError,)
    try:
        found = parse(path.read_text(encoding="utf-8"))
    except wrong as error:
        raise ConfigError(f"{path}: wanted a study in {kind}; {error}") from None
    if not isinstance(found, Mapping):
        raise ConfigError(f"{path}: got a {type(found).__name__}, wanted a study as Study.save writes it")
    return found


def unknown(kind: str, name: str, names: Any) -> UnknownNameError:
    names = list(names)
    closest = ", ".join(map(repr, get_close_matches(name, names, cutoff=0)))
    advice = f"the closest are {closest}" if closest else f"it has no {kind} yet"
    return UnknownNameError(f"there is no {kind} {name!r} in the study; {advice}")


def _number(name: str, value: Any, kind: type) -> Any:
    if isinstance(value, kind) and not isinstance(value, bool):
        return value
    try:
        held = value.item() if isinstance(value, np.ndarray | Tensor) and value.ndim == 0 else value
        if isinstance(held, bool) or not isinstance(held, str | numbers.Real | np.generic):
            raise TypeError
        converted = kind(held)
        if float(converted) != float(held):
            raise TypeError
    except (TypeError, ValueError):
        wanted = "an integer" if kind is int else "a number"
        raise TypeError(f"{name}: got {value!r}, wanted {wanted}") from None
    if not (kind is float and isinstance(value, int)):
        _warn(f"{name}: got {value!r}, {converted!r} is used")
    return converted


def _suffix(path: Path) -> str:
    kinds = {".json": "json", ".toml": "toml", ".yaml": "yaml", ".yml": "yaml"}
    if path.suffix not in kinds:
        raise ValueError(f"path: got {str(path)!r}, wanted a name that ends in {', '.join(kinds)}")
    return kinds[path.suffix]


def _package(name: str, path: Path) -> Any:
    try:
        return __import__(name)
    except ImportError:
        raise ImportError(
            f'{path.suffix} files need {name}: pip install "tensormetrics[files]", or use a .json file'
        ) from None


def _warn(text: str) -> None:
    warnings.warn(text, ConfigWarning, stacklevel=4)


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
