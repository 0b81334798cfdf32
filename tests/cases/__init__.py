"""The table behind test_conformance.py and test_distributed.py: one row for every public metric and tensor function,
keyed "domain.Name".

A row says how to make the metric, how to make its input and what it must answer, in numpy float64, item by item.
What every metric must have in common is tested from these rows alone. A file for each domain.
"""

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


def joined(kind: str) -> dict[str, Any]:
    """The rows of all files; a name that stands in two files of a domain is an error."""
    table: dict[str, Any] = {}
    for domain, files in FILES.items():
        for file in files:
            for name, case in getattr(file, kind, {}).items():
                if table.setdefault(f"{domain}.{name}", case) is not case:
                    raise ValueError(f"{kind}: {domain}.{name} has two rows")
    return table


METRICS: dict[str, MetricCase] = joined("METRICS")
FUNCTIONS: dict[str, FunctionCase] = joined("FUNCTIONS")
ROWLESS: dict[str, str] = joined("ROWLESS")  # functions of no batch, and why
