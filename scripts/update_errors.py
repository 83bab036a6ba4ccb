"""Run the commands of docs/errors.md again and write down what they print now, where it is not what the page shows.

    python scripts/update_errors.py             docs/errors.md
    python scripts/update_errors.py PAGE...     other pages that show output

What still agrees, "..." included, stays as it is. Long lines are folded: on the page any space is as good as another.
"""

from __future__ import annotations

import sys
import tempfile
import textwrap
from pathlib import Path

from page_snippets import Block, Call, agrees, play

ROOT = Path(__file__).parent.parent
WIDTH = 88


def folded(printed: str) -> list[str]:
    """What was printed, in lines that a page has room for."""
    lines = [line.rstrip() for line in printed.strip("\n").splitlines()]
    return [
        part
        for line in lines
        for part in (textwrap.wrap(line, WIDTH, break_on_hyphens=False) if len(line) > WIDTH else [line])
    ]


def console(text: str, answers: list[tuple[Call, int, list[str]]]) -> str:
    """A console block with other answers to the same commands, which keep their lines."""
    heads: list[list[str]] = []
    open_line = False
    for line in text.splitlines():
        if line.startswith("$ "):
            heads.append([line])
        elif open_line:
            heads[-1].append(line)
        open_line = line.endswith("\\") and (open_line or line.startswith("$ "))
    lines = []
    for head, (_, code, shown) in zip(heads, answers, strict=True):
        lines += [*head, *([f"# exit code {code}"] if code else []), *shown]
    return "\n".join(lines) + "\n"


def updated(page: Path, folder: Path) -> str:
    """The page's text with what its snippets print now."""
    answers: dict[Block, list[tuple[Call, int, list[str]]]] = {}
    for block, call, code, printed in play(page, folder):
        shown = "\n".join(call.shown)
        fits = code == call.code and (not shown.strip() or agrees(shown, printed))
        answers.setdefault(block, []).append((call, code, call.shown if fits and shown.strip() else folded(printed)))
    text = page.read_text()
    for block in reversed(answers):
        start, end = block.span
        new = (
            console(block.text, answers[block])
            if block.language == "console"
            else "\n".join(answers[block][0][2]) + "\n"
        )
        text = text[:start] + new + text[end:]
    return text


def main() -> None:
    for page in [Path(name) for name in sys.argv[1:]] or [ROOT / "docs" / "errors.md"]:
        with tempfile.TemporaryDirectory() as folder:
            page.write_text(updated(page, Path(folder)))


if __name__ == "__main__":
    main()
