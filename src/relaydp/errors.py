"""The errors a user can meet. Each says what was found, what is needed, and what to do next.

RelayError              everything below; the command line turns it into one paragraph and exit code 2
  InputError            a value, file, graph or data set that cannot be used
  PrivacyError          a private run that would not be private as asked
"""

import difflib
from collections.abc import Iterable
from types import UnionType

__all__ = ["InputError", "PrivacyError", "RelayError"]  # what users catch; the functions are for our own modules


class RelayError(ValueError):
    """An error that the user can correct. The text says how."""


class InputError(RelayError):
    """A value, file, graph or data set that cannot be used as it is."""


class PrivacyError(RelayError):
    """A private run was asked for in a way that would not be private. Never downgraded to a warning."""


def choose(kind: str, name: object, allowed: Iterable[str]) -> str:
    """Return `name` if it is one of `allowed`, else raise with the nearest name.

    `kind` is what the name stands for, and may say where: "column in visits.csv".

    >>> choose("walk", "cyclic", ["random", "cyclic"])
    'cyclic'
    """
    names = sorted(allowed)
    if isinstance(name, str) and name in names:
        return name
    near = difflib.get_close_matches(str(name), names, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    what, _, where = kind.partition(" in ")
    place = f" in {where}" if where else ""
    raise InputError(f"unknown {what} {name!r}{place}; it must be one of: {', '.join(names)}.{hint}")


def check_kind(name: str, value: object, kind: type | UnionType | tuple[type, ...], needed: str) -> None:
    """Refuse a value of another kind than a function takes, and say what makes the right one.

    >>> check_kind("graph", "ring", dict, "a Graph, such as rd.ring(8)")
    Traceback (most recent call last):
        ...
    relaydp.errors.InputError: graph='ring'; needed a Graph, such as rd.ring(8).
    """
    if not isinstance(value, kind):
        raise InputError(f"{name}={short(value)}; needed {needed}.")


def short(value: object) -> str:
    """A value as an error shows it: cut to 60 characters. It never raises."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # thousands of digits, or of brackets
        return f"a {type(value).__name__} too long to be shown"
    return text if len(text) <= 60 else text[:57] + "..."
