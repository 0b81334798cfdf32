"""Files of tags: a token and its tag to a line, and a blank line between sentences."""

import re
from os import PathLike

from ....core.text.files import read_text
from ....core.text.joining import Item
from ....core.text.tables import blocks_of

INDEX = re.compile(r"\d+([-.]\d+)?")  # of a word in CoNLL-U, of a range of words, or of a word that is not written
ID = re.compile(r"#\s*(?:sent_)?id\s*=?\s*(\S+)")
TAG = re.compile(r"O|[BIMELSU](-.+)?|.+-[BIMELSU]")


def read_tag_file(path: str | PathLike, column: int = -1) -> list[Item]:
    """Return the tags of each sentence, which are in a column counted from the last one, with its tokens.

    The token is in the first column. Where that numbers the words of a sentence, as in CoNLL-U, it is in the second;
    comments, ranges of words ("1-2") and words that are not written ("1.1") are then left out. Comments before a
    sentence may hold its id: `# sent_id = 1` or `# id 1`.
    """
    blocks = blocks_of(read_text(path))
    blocks = [[row for row in block if not row[1].startswith("-DOCSTART-")] for block in blocks]
    sentences = [s for block in blocks if (s := _sentence(block, column, path)).value]
    are_ids = len({sentence.id for sentence in sentences}) == len(sentences)
    return sentences if are_ids else [sentence._replace(id=None) for sentence in sentences]


def _sentence(block: list[tuple[int, str]], column: int, path: str | PathLike) -> Item:
    rows = [(line, text.split()) for line, text in block]
    id = None
    while rows and rows[0][1][0] == "#" and not TAG.fullmatch(rows[0][1][-1]):  # else a token
        match = ID.match(" ".join(rows.pop(0)[1]))
        id = match[1] if match else id
    words = [(line, row) for line, row in rows if row[0][0] != "#"]
    is_numbered = bool(words) and words[0][1][0] in ("1", "1-2")
    if is_numbered := is_numbered and all(len(row) > 2 and INDEX.fullmatch(row[0]) for _, row in words):
        rows = [(line, row) for line, row in words if row[0].isdecimal()]
    for line, row in rows if column < -1 else ():
        if len(row) + column <= is_numbered:
            got = f"got {len(row)} columns"
            raise ValueError(f"{path}, line {line}: {got}, wanted a token, its tag and the predicted tag")
    tokens = [row[is_numbered] if row[1:] else "" for _, row in rows]
    return Item([row[column] for _, row in rows], [line for line, _ in rows], tokens, id)
