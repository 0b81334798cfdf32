"""Coverage of the population's effect size by intervals over small sets of words. -s prints the fractions."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("words", [5, 8, 15, 30])
def test_intervals_over_small_sets_cover_population_effect_size(words, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import _association_samples

    coverage = {
        model.kind: _association_samples.coverage_of(model, words).after for model in _association_samples.models()
    }
    print(words, coverage)
    assert {kind: fraction for kind, fraction in coverage.items() if fraction < 0.92} == {}
