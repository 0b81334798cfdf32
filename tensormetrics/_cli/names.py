"""Names that the help lists, read from the sources of the library: importing these would import torch."""

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parents[1]
MEANS = "mean_average_precision", "mean_average_precision_at_r", "mean_reciprocal_rank"
RETRIEVAL_OF_NEIGHBORS = (*MEANS, "precision_at_1", "r_precision")
TREC = ("map", "ndcg_cut_10", "recip_rank", "P_10", "recall_100")


def __getattr__(name: str) -> Any:
    if name not in LISTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return LISTS[name]()


def _body(file: str | Path) -> ast.Module:
    return ast.parse((PACKAGE / file).read_text("utf-8"))


def _assigned(file: str, name: str) -> Any:
    """Return the tuple, the keys of the dictionary or the choices of the Literal that a file assigns to a name."""
    nodes = [node for node in _body(file).body if isinstance(node, ast.Assign | ast.AnnAssign)]
    targets = [node.targets[0] if isinstance(node, ast.Assign) else node.target for node in nodes]
    value: Any = nodes[[getattr(target, "id", None) for target in targets].index(name)].value
    keys = isinstance(value, ast.Dict)
    return tuple(map(ast.literal_eval, value.keys)) if keys else ast.literal_eval(getattr(value, "slice", value))


def _association() -> tuple[str, ...]:
    nodes = [node for file in (PACKAGE / "association" / "metrics").glob("*.py") for node in _body(file).body]
    classes = {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}

    def is_metric(name: str | None) -> bool:
        bases = [getattr(base, "id", None) for base in classes[name].bases] if name in classes else []
        return "BaseMetric" in bases or any(map(is_metric, bases))

    imports = [node for node in _body("association/__init__.py").body if isinstance(node, ast.ImportFrom)]
    return tuple(sorted(alias.name.lower() for node in imports for alias in node.names if is_metric(alias.name)))


def _retrieval() -> str:
    file = "retrieval/calculator/metric_names.py"
    names = sorted((*_assigned(file, "RANK_SCORES"), *_assigned(file, "CLUSTERING"), _assigned(file, "CENTROID")))
    return ", ".join((*names, *(f"{name}_at_K" for name in _assigned(file, "SCORES_AT_K"))))


def _aliases(file: str, row: str, choose: Callable[[tuple[str, ...]], str]) -> str:
    """Return an alias of each row of a table."""
    calls = (node for node in ast.walk(_body(file)) if isinstance(node, ast.Call))
    rows = [call.args[0] for call in calls if isinstance(call.func, ast.Name) and call.func.id == row]
    return ", ".join(choose(ast.literal_eval(aliases)) for aliases in rows)


LISTS: dict[str, Callable[[], Any]] = {
    "ASSOCIATION": _association,
    "CORRECTIONS": lambda: ("max-t", *_assigned("core/resampling/corrections.py", "CORRECTIONS")),
    "DISTANCES": lambda: _assigned("retrieval/search/distance.py", "DistanceName"),
    "POSTERIOR": lambda: _aliases("posterior/metrics/classification.py", "Score", lambda names: min(names, key=len)),
    "POSTERIOR_AVERAGES": lambda: _aliases("posterior/metrics/averaging.py", "AverageRow", lambda names: names[0]),
    "RETRIEVAL": _retrieval,
    "TAGS": lambda: _assigned("structured/suites/entities/tags.py", "_SCHEMES"),
}
