"""Quantities with all public entry points to each, compared by test_entry_points.py; there is a file for each kind."""

from . import association, clusters, retrieval, scores, structured
from .quantity import Quantity as Quantity
from .quantity import public_name as public_name

KINDS = retrieval, clusters, scores, association, structured
QUANTITIES: dict[str, Quantity] = {name: quantity for kind in KINDS for name, quantity in kind.QUANTITIES.items()}
