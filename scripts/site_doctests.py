"""An extension for griffe: examples in docstrings (`>>> ...`) become code blocks. Markdown would quote them."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"(?:^>>> .*\n(?:(?!>>> )\S.*\n|>>> .*\n|\.\.\. ?.*\n)*)", re.M)


def fenced(text: str) -> str:
    """Put fences round the examples of a docstring.

    >>> fenced("Add.\\n\\n>>> 1 + 1\\n2\\n").splitlines()
    ['Add.', '', '```pycon', '>>> 1 + 1', '2', '```']
    """
    return EXAMPLE.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", text + "\n").rstrip("\n")


class Doctests(griffe.Extension):
    """Rewrites every docstring as it is read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
