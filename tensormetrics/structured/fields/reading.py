"""Reader of JSON values in texts of a language model."""

import json
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, NamedTuple

from ..types.values import Conflict, kind_of_value, same_json

MAX_DEPTH = 500
LONGEST_TOKEN = 16  # longest literal or escape that the end of a window may split
SPACE = " \t\n\r"
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"?|[\[{\]}]', re.DOTALL)
# A bracket that JSON or the end of the text may follow; decoding fails at other brackets.
OPENING = re.compile(r'\{[ \t\n\r]*(?:["}]|\Z)|\[[ \t\n\r]*(?:[\[{"\-0-9tfnNI\]]|\Z)')
# A bracket that begins an object or an array of JSON rather than of a sentence.
JSON_LIKE = re.compile(r'\{[ \t\n\r]*"|\[[ \t\n\r]*["{\[]')
# What JSON lacks: strings in single quotes, which a comma, colon or bracket follows, constants of Python, last commas.
LOOSE = re.compile(
    r"""(?P<kept>"(?:[^"\\]|\\.)*"?)|(?P<space>(?<=[\[{,:])\s*)'(?P<text>(?:[^'\\]|\\.|'(?!\s*[,:\]}]))*)(?:'|\Z)"""
    r"""|\b(?P<constant>None|True|False)\b|(?<![\s\[{,:]),(?=\s*[\]}])""",
    re.DOTALL,
)
LOOSE_OPENING = re.compile(r"[\[{]\s*[\[{\"'}\]\-0-9tfnTFN]")
REQUOTED = {"\\'": "'", '"': '\\"'}
CONSTANTS = {"None": "null", "True": "true", "False": "false"}
FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})([^\n]*)")

Extract = Literal["lenient", "fences", "strict", "repair"]
How = Literal["json", "fence", "prose", "repaired", "object", "unreadable"]
HOWS: tuple[How, ...] = ("json", "fence", "prose", "repaired", "object", "unreadable")


class Reading(NamedTuple):
    """Result of reading: the value and how it was found, or the reason and position of the error."""

    value: Any
    how: How
    reason: str = ""
    position: int | None = None


@dataclass(frozen=True)
class Reader:
    """Reader of the answers of a model.

    Args:
        kinds: The allowed kinds of JSON values, such as {"object"}.
        extract: Locations of JSON: "strict": the text is JSON; "fences": also code blocks of Markdown; "lenient": also
            within prose; "repair": also with commas at the end, single quotes, and None, True or False.
        decimals: Keep the digits of numbers, as `Decimal`.
    """

    kinds: Collection[str]
    extract: Extract = "lenient"
    decimals: bool = False

    def read(self, answer: Any) -> Reading:
        """Read a text, or a value that is already parsed; one of a kind that is not allowed is unreadable."""
        if answer is None:
            return Reading(None, "unreadable", "no answer")
        if not isinstance(answer, str):
            return self._of_kind(answer, "object")
        text = answer.removeprefix("\ufeff").strip(SPACE)
        if not text:
            return Reading(None, "unreadable", "empty")
        try:
            return self._of_kind(self._decode(text), "json")
        except ValueError as error:
            failure = Reading(None, "unreadable", _reason(error), getattr(error, "pos", None))
        if self.extract == "strict":
            return failure
        for block in reversed(_fenced_blocks(text)):
            try:
                reading = self._of_kind(self._decode(block.strip(SPACE)), "fence")
            except ValueError:
                continue
            if reading.how == "fence":
                return reading
        if self.extract == "fences" or not {"object", "array"} & set(self.kinds):
            return failure
        reading = self._from_prose(text, failure)
        return self._repaired(text, reading) if self.extract == "repair" else reading

    def _repaired(self, text: str, reading: Reading) -> Reading:
        """Return the value of a code block or a text with what JSON lacks rewritten, unless it is that of `reading`."""
        for block in (*reversed(_fenced_blocks(text)), text):
            if opening := LOOSE_OPENING.search(block):
                repaired = self._from_prose(LOOSE.sub(_as_json, block[opening.start() :]), reading)
                is_same = reading.how == "prose" and same_json(repaired.value, reading.value)
                if repaired.how == "prose" and not is_same:
                    return repaired._replace(how="repaired")
        return reading

    def _of_kind(self, value: Any, how: How) -> Reading:
        kind = kind_of_value(value)
        if kind in self.kinds or kind == "other":
            return Reading(value, how)
        wanted = " or ".join(map(_article, sorted(self.kinds)))
        return Reading(None, "unreadable", f"got {_article(kind)}, wanted {wanted}")

    def _decode(self, text: str) -> Any:
        """Decode a text that is JSON; raise a ValueError otherwise."""
        value, end = self._decode_at(text, 0)
        if end != len(text):
            raise json.JSONDecodeError("Extra data", text, end)
        return value

    def _decode_at(self, text: str, start: int) -> tuple[Any, int]:
        decoders = _DECIMALS if self.decimals else _FLOATS
        try:
            try:
                value, end = decoders[0].raw_decode(text, start)
            except ValueError as error:
                if isinstance(error, json.JSONDecodeError):
                    raise
                value, end = decoders[1].raw_decode(text, start)
        except RecursionError:
            raise TooDeep from None
        if end - start > 2 * MAX_DEPTH and _depth(text[start:end]) > MAX_DEPTH:
            raise TooDeep
        return value, end

    def _decode_near(self, text: str, start: int) -> tuple[Any, int]:
        """Decode as `_decode_at`, in windows of doubling size, so that an error does not cost a pass over the text."""
        width = 256
        while start + width < len(text):
            try:
                value, end = self._decode_at(text[start : start + width], 0)
                return value, start + end
            except json.JSONDecodeError as error:
                if error.pos < width - LONGEST_TOKEN and not error.msg.startswith("Unterminated"):
                    raise Failure(error.msg, start + error.pos) from None
            width *= 2
        return self._decode_at(text, start)

    def _from_prose(self, text: str, failure: Reading) -> Reading:
        """Return the last value within prose, in linear time: no part of a text is decoded more than twice."""
        last, position, still_open = failure, 0, set[int]()
        while match := OPENING.search(text, position):
            start = match.start()
            position = start + 1
            if start in still_open:  # within an array or object that failed later, as this one would
                if JSON_LIKE.match(text, start):
                    return failure._replace(position=start)
                continue
            try:
                value, position = self._decode_near(text, start)
            except TooDeep as error:
                return failure._replace(reason=_reason(error), position=start)
            except ValueError as error:
                end = getattr(error, "pos", start + 1)
                if _is_truncated(text, error) or JSON_LIKE.match(text, start):
                    return failure._replace(reason=_reason(error), position=end)
                still_open.update(_open_brackets(text, start, end))
                continue
            reading = self._of_kind(value, "prose")
            if reading.how == "prose":
                last = reading
        return last


def _as_json(token: re.Match[str]) -> str:
    if token["text"] is not None:
        text = re.sub(r"\\.|\"", lambda part: REQUOTED.get(part[0], part[0]), token["text"], flags=re.DOTALL)
        return f'{token["space"]}"{text}"'
    return token["kept"] or CONSTANTS.get(token["constant"], "")


class Failure(ValueError):
    """Error of a text that is no JSON, with its position."""

    def __init__(self, message: str, pos: int) -> None:
        super().__init__(f"{message} at {pos}")
        self.pos = pos


class TooDeep(ValueError):
    """Error of a text with more than MAX_DEPTH levels."""

    def __str__(self) -> str:
        return f"deeper than {MAX_DEPTH} levels"


def build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object from keys and values; a key with different values has a `Conflict`."""
    value = dict(pairs)
    if len(value) < len(pairs):
        for key, part in pairs:
            if not same_json(value[key], part):
                value[key] = Conflict()
    return value


def _integer(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)  # of thousands of digits: infinite


def _decoders(parse_float: Callable[[str], Any] | None) -> list[json.JSONDecoder]:
    # The second decoder is for integers with too many digits for int(): a Python function for each integer is slow.
    # Both read NaN and Infinity, which are no JSON, as floats: values of no type, so that they cost their fields alone.
    return [
        json.JSONDecoder(object_pairs_hook=build_object, parse_float=parse_float, parse_int=parse_int)
        for parse_int in (None, _integer)
    ]


_FLOATS, _DECIMALS = _decoders(None), _decoders(Decimal)


def _is_truncated(text: str, error: ValueError) -> bool:
    """Return whether decoding failed at the end of the text."""
    if not isinstance(error, json.JSONDecodeError):
        return False
    return error.msg.startswith("Unterminated string") or not text[error.pos :].strip(SPACE)


def _open_brackets(text: str, start: int, end: int) -> list[int]:
    """Return the positions of the brackets that begin at or after `start` and are open at `end`."""
    opened: list[int] = []
    for token in TOKEN.finditer(text, start, end):
        if token[0] in "[{":
            opened.append(token.start())
        elif token[0] in "]}" and opened:
            opened.pop()
    return opened


def _depth(text: str) -> int:
    depth = deepest = 0
    for token in TOKEN.finditer(text):
        if token[0] in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif token[0] in "]}":
            depth -= 1
    return deepest


def _fenced_blocks(text: str) -> list[str]:
    """Return the contents of the code blocks of Markdown; an open block extends to the end of the text."""
    blocks: list[str] = []
    fence, lines = "", list[str]()
    for line in text.split("\n"):
        match = FENCE.match(line)
        if not fence:
            if match and not (match[1][0] == "`" and "`" in match[2]):
                fence, lines = match[1], []
        elif match and match[1].startswith(fence) and not match[2].strip():
            blocks.append("\n".join(lines))
            fence = ""
        else:
            lines.append(line)
    return [*blocks, "\n".join(lines)] if fence else blocks


def _reason(error: ValueError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return "truncated" if _is_truncated(error.doc, error) else f"{error.msg} at {error.pos}"
    return str(error)


def _article(kind: str) -> str:
    return kind if kind == "null" else f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
