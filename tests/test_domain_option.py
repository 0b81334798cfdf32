"""The option `--domain` of the test suite."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.full
def test_domain_option_selects_tests_and_rows_of_domain():
    paths = ["tests/assignment/test_options.py", "tests/test_docstrings.py", "tests/test_checks.py"]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "--domain", "assignment", *paths]
    listing = subprocess.run([*command, "-o", "addopts="], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    ids = [line for line in listing.splitlines() if "::" in line]
    assert any(line.startswith("tests/assignment/test_options.py") for line in ids)
    assert any("[assignment-HungarianMatcher]" in line for line in ids)
    list_test = "test_public_names_are_listed_on_page"  # has the marker `lists`, which every domain runs
    assert any(list_test in line for line in ids)
    assert all(line.startswith("tests/assignment/") or "[assignment-" in line or list_test in line for line in ids)
