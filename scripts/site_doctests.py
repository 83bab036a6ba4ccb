"""An extension for griffe: examples in docstrings (`>>> ...`) become code blocks. Markdown would quote them."""

from __future__ import annotations

import re
from typing import Any

import griffe

# An example and its output, at any indentation: all lines up to a blank one, or one that is indented less.
EXAMPLE = re.compile(r"^(?P<indent> *)>>> .*\n(?:(?P=indent)\S.*\n|(?P=indent) +\S.*\n)*", re.M)


def fenced(text: str) -> str:
    """Put fences round the examples of a docstring, indented as the examples are.

    >>> fenced("Add.\\n\\n>>> 1 + 1\\n2\\n").splitlines()
    ['Add.', '', '```pycon', '>>> 1 + 1', '2', '```']
    >>> fenced("Example:\\n    >>> 1 + 1\\n    2\\n").splitlines()
    ['Example:', '    ```pycon', '    >>> 1 + 1', '    2', '    ```']
    """

    def fence(found: re.Match[str]) -> str:
        return f"{found['indent']}```pycon\n{found[0].rstrip()}\n{found['indent']}```\n"

    return EXAMPLE.sub(fence, text + "\n").rstrip("\n")


class Doctests(griffe.Extension):
    """Rewrites every docstring as it is read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
