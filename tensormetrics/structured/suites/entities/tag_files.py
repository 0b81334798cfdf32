"""Files of tags: a token a line with its tag in the last column, and a blank line between sentences."""

import re
from os import PathLike

from ....core.text.files import read_text
from ....core.text.joining import Item
from ....core.text.tables import blocks_of

INDEX = re.compile(r"\d+([-.]\d+)?")  # of a word in CoNLL-U, of a range of words, or of a word that is not written


def read_tag_file(path: str | PathLike) -> list[Item]:
    """Return the tags of each sentence, with its tokens.

    The token is in the first column. Where that numbers the words of a sentence, as in CoNLL-U, it is in the second;
    comments, ranges of words ("1-2") and words that are not written ("1.1") are then left out.
    """
    blocks = blocks_of(read_text(path))
    blocks = [[row for row in block if not row[1].startswith("-DOCSTART-")] for block in blocks]
    return [_sentence(block) for block in blocks if block]


def _sentence(block: list[tuple[int, str]]) -> Item:
    rows = [(line, text.split()) for line, text in block]
    words = [(line, row) for line, row in rows if row[0][0] != "#"]
    is_numbered = bool(words) and all(len(row) > 2 and INDEX.fullmatch(row[0]) for _, row in words)
    if is_numbered and words[0][1][0] in ("1", "1-2"):
        rows = [(line, row) for line, row in words if row[0].isdecimal()]
        return Item([row[-1] for _, row in rows], [line for line, _ in rows], [row[1] for _, row in rows])
    tokens = [row[0] if row[1:] else "" for _, row in rows]
    return Item([row[-1] for _, row in rows], [line for line, _ in rows], tokens)
