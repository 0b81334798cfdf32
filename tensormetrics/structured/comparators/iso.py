"""Dates and times as ISO 8601 writes them: calendar dates, basic or extended.

Python 3.10 reads neither Z nor the basic form, and later versions read week dates too, so the forms are read here.
"""

import re
from datetime import date, datetime, time, timedelta, timezone

DATE = r"(\d{4})(?:-(\d\d)-(\d\d)|(\d\d)(\d\d))"
TIME = r"(\d\d)(?::?(\d\d)(?::?(\d\d)(?:[.,](\d+))?)?)?(?:([Zz])|([+-])(\d\d):?(\d\d)?)?"
DATE_PATTERN, TIME_PATTERN = re.compile(DATE, re.ASCII), re.compile(TIME, re.ASCII)
MOMENT_PATTERN = re.compile(f"({DATE})(?:[Tt ]({TIME}))?", re.ASCII)


def read_date(text: str) -> date:
    """Read a date, or a date-time at midnight without time zone; raise a ValueError for other texts."""
    moment = read_datetime(text)
    if moment.tzinfo is not None or moment.time() != time():
        raise ValueError("not a date")
    return moment.date()


def read_datetime(text: str) -> datetime:
    """Read a date-time, or a date as its midnight; raise a ValueError for other texts."""
    match = MOMENT_PATTERN.fullmatch(text)
    if match is None:
        raise ValueError("not ISO 8601")
    year, *parts = DATE_PATTERN.fullmatch(match[1]).groups()  # type: ignore[union-attr]
    month, day = filter(None, parts)
    clock = read_time(match[7]) if match[7] else time()
    return datetime.combine(date(int(year), int(month), int(day)), clock)


def read_time(text: str) -> time:
    """Read a time of day, with or without time zone; raise a ValueError for other texts."""
    match = TIME_PATTERN.fullmatch(text)
    if match is None:
        raise ValueError("not ISO 8601")
    hour, minute, second, fraction, utc, sign, hours, minutes = match.groups()
    zone = None
    if utc:
        zone = timezone.utc
    elif sign:
        offset = timedelta(hours=int(hours), minutes=int(minutes or 0))
        zone = timezone(-offset if sign == "-" else offset)
    microseconds = int(f"{fraction or 0:0<6}"[:6])
    return time(int(hour), int(minute or 0), int(second or 0), microseconds, zone)
