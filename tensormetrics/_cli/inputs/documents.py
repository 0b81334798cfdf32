"""Files of documents: JSON lines, or one JSON array."""

import json
import re
from collections.abc import Hashable
from itertools import repeat
from typing import Any, NamedTuple

from ...core.text.files import parsing, read_bytes, text_of
from ...core.text.joining import Item, join
from ..option_types import BadInput
from .text import existing

SPACE = " \t\n\r"
ABSENT = object()
IDENTITY = "id", "doc_id", "sample_id", "question_id", "custom_id", "doc_hash", "prompt", "question"


class Documents(NamedTuple):
    """Documents of a file with their line numbers, ids and groups."""

    lines: list[int]
    values: list[Any]
    ids: list[Hashable] | None
    groups: list[Hashable] | None
    records: list[Any]  # what each line holds, None if it is no JSON


def read_documents(
    file: str,
    num_references: int | None = None,
    are_lists: bool = False,
    *,
    answer: str | None = None,
    id: str | None = None,
    group: str | None = None,
) -> Documents:
    """Return the answers of a model, or references: the line, its key `answer`, or the text of a JSON string.

    Args:
        file: Path.
        num_references: The file has predictions of so many references: empty lines are empty answers, but those at the
            end, beyond this number, are left out, and bytes that are not UTF-8 are no error. Default: references.
        are_lists: Documents are lists themselves, so an array in one line is one document.
        answer: Key of the answer, or its path, in each line; a line of the references may be the reference itself.
        id: Key of the id in each line, which does not belong to the document.
        group: Key of the group in each line, which does not belong to the document.
    """
    is_prediction = num_references is not None
    lines = _lines(file, num_references, are_lists)
    dropped = [key for key in (id, group) if key is not None]
    columns: dict[str, list[Any]] = {key: [] for key in (*([answer] if is_prediction and answer else []), *dropped)}
    records, values = [_json(line) for line in lines], []
    for number, (line, record) in enumerate(zip(lines, records, strict=True), 1):
        if columns and not isinstance(record, dict):
            raise BadInput(f"{file}, line {number}: got no object, wanted one with the key {next(iter(columns))!r}")
        for key, column in columns.items():
            value = _entry(record, key)
            if value is ABSENT:
                raise BadInput(f"{file}, line {number}: there is no key {key!r}, wanted one of {', '.join(record)}")
            column.append(value)
        value = _entry(record, answer) if answer and isinstance(record, dict) else ABSENT
        if value is not ABSENT:
            values.append(value if are_lists else _only(value, f"{file}, line {number}", answer))
        elif dropped:
            values.append({key: value for key, value in record.items() if key not in dropped})
        else:
            values.append(record if is_prediction and isinstance(record, str) else line)
    ids, groups = (None if key is None else columns[key] for key in (id, group))
    return Documents([*range(1, len(lines) + 1)], values, ids, groups, records)


def _entry(record: Any, path: str) -> Any:
    """Return the value of a key, or of a path such as "choices[0].text"; ABSENT if there is none."""
    if path in record:
        return record[path]
    try:
        for part in re.findall(r"[^.\[\]]+", path):
            record = record[int(part) if isinstance(record, list) else part]
    except (LookupError, TypeError, ValueError):
        return ABSENT
    return record


def _only(value: Any, location: str, key: str | None) -> Any:
    """Return the answer in a list of one, as logs have it."""
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value) or not value:
        return value
    if len(value) > 1:
        raise BadInput(f"{location}: got {len(value)} answers, wanted one; write --answer '{key}[0]'")
    return value[0]


def _lines(file: str, num_references: int | None, are_lists: bool) -> list[str | None]:
    """Return the lines of a file, or the items of one JSON array; None for bytes that are not UTF-8."""
    is_prediction = num_references is not None
    content = bytes(read_bytes(existing(file))).removeprefix(b"\xef\xbb\xbf")
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):  # marks of UTF-16
        content = text_of(content, file).encode()
    if (items := _items_of_array(content, are_lists)) is not None:
        return [*map(json.dumps, items)]
    parts = content.split(b"\n")
    while parts and not is_prediction and not parts[-1].strip():
        parts.pop()
    if is_prediction and not parts[-1].strip():
        parts.pop()  # the empty part after the last line end
    lines: list[str | None] = []
    for number, part in enumerate(parts, 1):
        try:
            lines.append(part.removesuffix(b"\r").decode("utf-8"))
        except UnicodeDecodeError as error:
            if not is_prediction:
                raise BadInput(f"{file}, line {number}: byte {error.start} is not UTF-8") from error
            lines.append(None)
        if not is_prediction and not (lines[-1] or "").strip(SPACE):
            raise BadInput(f"{file}, line {number}: the line is empty")
    while len(lines) > (num_references or 0) and lines[-1] is not None and not lines[-1].strip(SPACE):
        lines.pop()
    return lines


def aligned(file: str, answers: Documents, reference: str, references: Documents, answer: str | None) -> list[Any]:
    """Return the answer to each reference by id or by position; None for a missing answer."""
    has_ids = references.ids is not None and answers.ids is not None
    names = [None, None] if has_ids else _identity(answers.records, references.records, answer)
    sides = []
    for documents, column in zip((answers, references), names, strict=True):
        ids = documents.ids if has_ids and documents.ids else repeat(None)
        beside = ([name] for name in column) if column else repeat(())
        sides.append([*map(Item, documents.values, ([line] for line in documents.lines), beside, ids)])
    return join(file, sides[0], reference, sides[1], "document", is_partial=True)


def _identity(answers: list[Any], references: list[Any], answer: str | None) -> list[list[str] | None]:
    """Return the values of a key that tells documents apart: one beside the answer, or ids in another order."""
    for key in IDENTITY:
        columns = [
            [str(record[key]) for record in records if isinstance(record, dict) and key in record]
            for records in (answers, references)
        ]
        are_full = len(columns[0]) == len(answers) and len(columns[1]) == len(references) and key != answer
        are_ids = len({*columns[0]}) == len(answers) and {*columns[0]} == {*columns[1]}
        if are_full and (are_ids or answer is not None):
            return [[f"{key} {value}" for value in column] for column in columns]
    return [None, None]


def _items_of_array(content: bytes, are_lists: bool) -> list[Any] | None:
    """Return the items of one JSON array, or an object over several lines; None for lines of JSON."""
    if content.lstrip()[:1] not in (b"[", b"{"):
        return None
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, dict):
        return [value] if b"\n" in content.strip() else None
    is_one_line = b"\n" not in content.strip()
    is_document = is_one_line and (are_lists or not all(isinstance(item, dict) for item in value))
    return None if not isinstance(value, list) or is_document else value


def _json(text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return None


def json_file(file: str) -> Any:
    """Return the value of a file of JSON."""
    with parsing(file, "JSON"):
        return json.loads(text_of(read_bytes(existing(file)), file))
