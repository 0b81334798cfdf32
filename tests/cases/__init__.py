"""Table used by test_conformance.py and test_distributed.py: one row for every public metric and tensor function, keyed
"domain.Name".

A row makes the metric and its input, and computes the expected values in NumPy float64, item by item. The properties
that all metrics share are tested with these rows alone. There is a file for each domain.
"""

from importlib import import_module
from typing import Any

from . import assignment, association, latent, posterior, retrieval, statistics, structured, uncertainty
from .case import FunctionCase as FunctionCase
from .case import LeftOut as LeftOut
from .case import MetricCase as MetricCase

FILES = {
    "assignment": [assignment],
    "association": [association],
    "posterior": [posterior],
    "retrieval": [retrieval],
    "structured": [structured, latent],
    "uncertainty": [uncertainty, statistics],
}

DOMAINS = tuple(FILES)


FRONTS = [import_module(f"tensormetrics.{domain}") for domain in DOMAINS]
PLACES = [getattr(front, place) for front in FRONTS for place in ("functional", "extend") if hasattr(front, place)]
PLACES = [*FRONTS, *PLACES]  # modules with public names


def public(domain: str) -> dict[str, Any]:
    places = [place for place in PLACES if place.__name__.split(".")[1] == domain]
    return {name: getattr(place, name) for place in places for name in place.__all__}


PUBLIC = {f"{domain}.{name}": value for domain in DOMAINS for name, value in public(domain).items()}


def merge_rows(kind: str) -> dict[str, Any]:
    """Merge the rows of all files; a name in two files of a domain is an error."""
    table: dict[str, Any] = {}
    for domain, files in FILES.items():
        for file in files:
            for name, case in getattr(file, kind, {}).items():
                if table.setdefault(f"{domain}.{name}", case) is not case:
                    raise ValueError(f"{kind}: {domain}.{name} has two rows")
    return table


METRICS: dict[str, MetricCase] = merge_rows("METRICS")
FUNCTIONS: dict[str, FunctionCase] = merge_rows("FUNCTIONS")
