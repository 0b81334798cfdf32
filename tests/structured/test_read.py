"""JSON in answers of language models: readable answers, and bounded time for hostile texts."""

from decimal import Decimal

import pytest

from tensormetrics.structured.fields import reading
from tensormetrics.structured.fields.reading import Reader
from tensormetrics.structured.types.values import Conflict


@pytest.mark.parametrize(
    ("answer", "value", "how"),
    [
        ('{"a": 1}', {"a": 1}, "json"),
        ('\ufeff\n {"a": "x\u2028y"}\r\n', {"a": "x\u2028y"}, "json"),
        ('```json\n{"a": 1}\n```', {"a": 1}, "fence"),
        ('~~~\n{"a": 1}\n~~~\nor\n  ```\n{"a": 2}\n```', {"a": 2}, "fence"),
        ('```json\n{"a": 1}\n```\n```python\nprint({})\n```', {"a": 1}, "fence"),
        ('Sure: {"a": 1}. Or rather {"a": 2}!', {"a": 2}, "prose"),
        ('[1, {"a": 2}, x]', {"a": 2}, "prose"),
        ("A set {x} and {y}.", None, "unreadable"),
        ('{"a": 1,}', None, "unreadable"),
        ("{'a': 1}", None, "unreadable"),
        ('{"a": Infinity}', {"a": float("inf")}, "json"),
        ('{"a": 1', None, "unreadable"),
        ('Here: {"a": {"b": 1}', None, "unreadable"),
        ('{"a": 1} and [NaN, x] or { b', {"a": 1}, "prose"),
        ('{"a": 1} and then { ', None, "unreadable"),
        ('Both { "a": 1} and {\n} fit', {}, "prose"),
        ("[1]", None, "unreadable"),
        ("", None, "unreadable"),
        (None, None, "unreadable"),
        ({"a": 1}, {"a": 1}, "object"),
    ],
)
def test_reader_answers_give_value_and_kind(answer, value, how):
    reading = Reader({"object"}).read(answer)
    assert (reading.value, reading.how) == (value, how)
    assert bool(reading.reason) == (how == "unreadable")


def test_reader_reason_describes_the_answer():
    answer = Reader({"object"}).read
    assert answer("[1]").reason == "got an array, wanted an object"
    assert answer('{"a": [1, 2').reason == "truncated"
    assert answer('{"a": x}').reason == "Expecting value at 6"
    far = f'see [{"x" * 500}] and {{"a": "{"x" * 500}", b}}'
    assert answer(far).position == far.index("b}")


def test_reader_repeated_keys_must_agree():
    answer = Reader({"object"}).read
    assert answer('{"a": 1, "a": 1.0}').value == {"a": 1.0}
    assert isinstance(answer('{"a": 1, "a": true}').value["a"], Conflict)
    assert isinstance(answer('{"a": {"b": [1]}, "a": {"b": [2]}}').value["a"], Conflict)


def test_reader_numbers_become_infinity_or_decimals():
    digits = "9" * 10_000  # more than int() takes
    assert Reader({"object"}).read(f'{{"a": {digits}}}').value == {"a": float("inf")}
    assert Reader({"object"}, decimals=True).read('{"a": 1.10}').value == {"a": Decimal("1.10")}


def nested(depth):
    return "[" * depth + "]" * depth


def test_reader_deep_nesting_is_unreadable():
    answer = Reader({"array"}).read
    assert answer(nested(500)).how == "json"
    assert answer(nested(501)).how == "unreadable"
    assert answer(nested(100_000)).reason == "deeper than 500 levels"
    assert answer('["' + "[" * 2000 + '"]').how == "json"  # brackets of a string are no levels


HOSTILE = ["[", "{", "[1,", '{"a":', "[x", "[1 ", "[1,[2],", 'x [1, "', "```\n", "\ud800", "\x00", '{"k": 1} ']


@pytest.mark.parametrize("part", HOSTILE, ids=ascii)
def test_hostile_texts_take_linear_time(part, monkeypatch):
    characters = [0]
    decode, open_brackets = Reader._decode_at, reading._open_brackets

    def counted_decode(self, text, start):
        characters[0] += len(text) - start
        return decode(self, text, start)

    def counted_brackets(text, start, end):
        characters[0] += end - start
        return open_brackets(text, start, end)

    monkeypatch.setattr(Reader, "_decode_at", counted_decode)
    monkeypatch.setattr(reading, "_open_brackets", counted_brackets)
    text = part * (100_000 // len(part))
    Reader({"object"}).read(text)
    assert characters[0] <= 600 * len(text)  # a window of 256 for each bracket, and its double
