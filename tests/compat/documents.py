"""Programs in documents of other packages, with imports from `tensormetrics.compat` in place of theirs."""

import ast
import re
import textwrap
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "documents"
FENCE = re.compile(r"^([ \t]*)```python\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE)
DIRECTIVE = re.compile(r"^\.\. code:: python3?\n\n((?:[ \t]+[^\n]*\n|[ \t]*\n)+)", re.MULTILINE)


def code_blocks(name: str) -> list[str]:
    """Return the blocks of Python of a document in Markdown or reStructuredText, in order."""
    text = (FOLDER / name).read_text(encoding="utf-8").expandtabs(4)
    found = DIRECTIVE.findall(text) if name.endswith(".rst") else [body for _, body in FENCE.findall(text)]
    return [textwrap.dedent(block).strip("\n") for block in found]


def with_our_imports(source: str, package: str) -> str:
    """Replace the modules of a package in import lines by `tensormetrics.compat.<package>`, and nothing else.

    Relative imports are those of a file inside of the package.
    """
    lines = source.splitlines()
    for node in reversed(list(ast.walk(ast.parse(source)))):
        if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").partition(".")[0] == package):
            start = lines[node.lineno - 1][: node.col_offset]
            imported = ast.unparse(ast.ImportFrom(f"tensormetrics.compat.{package}", node.names, 0))
            lines[node.lineno - 1 : node.end_lineno] = [start + imported]
    return "\n".join(lines)
