"""The table behind test_conformance.py and test_distributed.py: one row for every public metric and tensor function.

A row says how to make the metric, how to make its input and what it must answer, in numpy float64, item by item.
What every metric must have in common is tested from these rows alone. A file for each domain.
"""

from . import assignment, association, latent, posterior, retrieval, structured
from .case import FunctionCase as FunctionCase
from .case import MetricCase as MetricCase

FILES = assignment, association, latent, posterior, retrieval, structured
METRICS = {name: case for file in FILES for name, case in getattr(file, "METRICS", {}).items()}
FUNCTIONS = {name: case for file in FILES for name, case in file.FUNCTIONS.items()}
