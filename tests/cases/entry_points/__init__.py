"""Numbers, and all public ways to each: what test_doors.py compares. One file for the numbers of each kind."""

from . import association, clusters, commands, retrieval, scores, structured
from .quantity import Number as Number
from .quantity import name_of as name_of
from .uncompared import SINGLE as SINGLE

KINDS = retrieval, clusters, scores, association, structured, commands
NUMBERS: dict[str, Number] = {name: number for kind in KINDS for name, number in kind.NUMBERS.items()}
