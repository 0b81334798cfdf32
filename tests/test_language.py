"""Words that `lint_words.py` would replace do not become more. A commit that replaces some lowers the limits."""

from pathlib import Path

import lint_words
import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("folders", "limit"),
    [
        (("tensormetrics", "csrc"), 295),
        (("tests",), 737),
        (("benchmarks",), 19),
        ((".github", "README.md"), 19),
    ],
)
def test_words_to_replace_do_not_exceed_the_limit(folders, limit, capsys):
    paths = [str(ROOT / folder) for folder in folders]
    failed = lint_words.main([*paths, "--limit", str(limit), "--by", "word"])
    assert not failed, capsys.readouterr().out
