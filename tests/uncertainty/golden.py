"""Stored cases of statistics."""

import json
from pathlib import Path

import pytest


def golden(file: str, function: str) -> pytest.MarkDecorator:
    """Parametrize a test by the stored cases of a function."""
    cases = json.loads((Path(__file__).parent / f"golden_{file}.json").read_text())
    cases = [case for case in cases if case["function"] == function]
    return pytest.mark.parametrize("case", cases, ids=lambda case: case["id"])
