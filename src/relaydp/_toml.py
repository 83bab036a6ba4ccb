"""Which line of a TOML text sets a key, so that an error can point at it."""

from __future__ import annotations

import re

_KEY = r"(?:[A-Za-z0-9_-]+|\"(?:[^\"\\]|\\.)*\"|'[^']*')"
_KEYS = rf"{_KEY}(?:\s*\.\s*{_KEY})*"
_HEADER = re.compile(rf"\s*(\[{{1,2}})\s*({_KEYS})\s*\]{{1,2}}\s*(?:#.*)?$")
_ASSIGNMENT = re.compile(rf"\s*({_KEYS})\s*=")


def line_of(text: str, place: tuple[str, ...]) -> int | None:
    """The line that sets a key, or the nearest table around it; tomllib does not say.

    >>> line_of('[run]\\nseed = 1\\nsteps = {alpha = 1}', ("run", "steps", "alpha"))
    3
    >>> line_of('[[parties]]\\nname = "a"\\n[[parties]]\\nname = "b"', ("parties", "1", "name"))
    4
    """
    section: tuple[str, ...] = ()
    seen: dict[tuple[str, ...], int] = {}  # of each list of tables, the number of the last
    best, found, depth, quote = 0, None, 0, ""
    for number, line in enumerate(text.split("\n"), start=1):
        if depth or quote:  # inside a value that goes on over several lines
            depth, quote = _still_open(line, depth, quote)
            continue
        if header := _HEADER.match(line):
            keys = _split(header[2])
            if header[1] == "[[":
                seen[keys] = seen.get(keys, -1) + 1
            here = section = _numbered(keys, seen)
        elif assignment := _ASSIGNMENT.match(line):
            here = section + _split(assignment[1])
            depth, quote = _still_open(line[assignment.end() :], 0, "")
        else:
            continue
        shared = min(len(here), len(place))
        if shared > best and here[:shared] == place[:shared]:
            best, found = shared, number
    return found


def _numbered(keys: tuple[str, ...], seen: dict[tuple[str, ...], int]) -> tuple[str, ...]:
    """A header's keys as places: of a list of tables, the last one is meant."""
    place: tuple[str, ...] = ()
    for depth, key in enumerate(keys, start=1):
        place += (key, str(seen[keys[:depth]])) if keys[:depth] in seen else (key,)
    return place


def _split(keys: str) -> tuple[str, ...]:
    return tuple(key.strip("\"'") for key in re.findall(_KEY, keys))


def _still_open(line: str, depth: int, quote: str) -> tuple[int, str]:
    """Brackets and the multi-line quote left open at the end of a line of a value."""
    at = 0
    while at < len(line):
        if quote:
            if line[at] == "\\" and quote[0] == '"':
                at += 1
            elif line.startswith(quote, at):
                at += len(quote) - 1
                quote = ""
        elif line[at] in "\"'":
            quote = line[at] * (3 if line.startswith(line[at] * 3, at) else 1)
            at += len(quote) - 1
        elif line[at] == "#":
            break
        else:
            depth += (line[at] in "[{") - (line[at] in "]}")
        at += 1
    return depth, quote if len(quote) == 3 else ""
