"""Run the snippets of a Markdown page as a reader would, in an empty folder, from top to bottom.

    ```python                 runs, in one namespace a page; a ```text block right after it shows what it printed
    ```console                each line after "$ " is a command; what follows it is what was printed
    ```toml title="run.toml"  any block with a title is written to a file of that name
    <!-- not run: reason -->  on the line before a block: it is not run, and the reader of the source sees why

A command ends with exit code 0 unless the line after it says otherwise, `# exit code 2`. `relaydp` runs in this
process, which saves its start; anything else in a shell. Shown output is compared with "..." for anything, whole
numbers to the digit, other numbers to two per cent, and any space as good as any other. Output that is not shown is
not compared.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

FENCE = re.compile(
    r"^(?P<fence>```+)(?P<language>[\w+-]*)[ ]?(?P<options>[^\n`]*)\n(?P<text>.*?)^(?P=fence)[ ]*$", re.M | re.S
)
MARK = re.compile(r"<!-- not run: (.+?) -->\n\Z")
NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?", re.I)
COLUMNS = "80"  # the width that tables and help are printed in
NEAR = 0.02  # other machines round differently, and noise makes more of it


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    title: str | None
    text: str
    line: int  # of the page, where its fence stands
    reason: str | None  # why it is not run
    follows: bool  # whether nothing but blank lines is between it and the block before
    span: tuple[int, int]  # of `text`, in the page


@dataclass
class Call:
    """A command of a console block, and what the page says comes of it."""

    command: str
    code: int = 0
    shown: list[str] = field(default_factory=list)


class SnippetError(AssertionError):
    """A snippet does not do what its page says."""


def blocks_of(text: str) -> list[Block]:
    """The fenced blocks of a page, in order.

    >>> [block.language for block in blocks_of("a\\n```python\\n1 + 1\\n```\\n\\n```text\\n2\\n```\\n")]
    ['python', 'text']
    """
    found, last = [], 0
    for match in FENCE.finditer(text):
        mark = MARK.search(text[: match.start()])
        title = re.search(r'title="([^"]+)"', match["options"])
        found.append(
            Block(
                match["language"],
                title[1] if title else None,
                match["text"],
                text.count("\n", 0, match.start()) + 1,
                mark[1] if mark else None,
                not text[last : match.start()].strip(),
                match.span("text"),
            )
        )
        last = match.end()
    return found


def calls_of(text: str) -> list[Call]:
    """The commands of a console block.

    >>> [(call.command, call.code) for call in calls_of("$ ls \\\\\\n    -a\\n$ false\\n# exit code 1\\n")]
    [('ls -a', 0), ('false', 1)]
    """
    calls: list[Call] = []
    open_line = False
    for line in text.splitlines():
        if open_line:
            calls[-1].command += " " + line.strip().rstrip("\\").rstrip()
            open_line = line.endswith("\\")
        elif line.startswith("$ "):
            open_line = line.endswith("\\")
            calls.append(Call(line[2:].rstrip("\\").rstrip()))
        elif not calls:
            raise SnippetError(f"a console block begins with {line!r}; needed a command, '$ ...'.")
        elif (code := re.fullmatch(r"# exit code (\d+)", line)) and not calls[-1].shown:
            calls[-1].code = int(code[1])
        else:
            calls[-1].shown.append(line)
    return calls


def run_command(command: str, folder: Path) -> tuple[int, str]:
    """(exit code, what was printed) of a command line in a folder."""
    words = shlex.split(command, comments=True)
    settings = {"COLUMNS": COLUMNS, "NO_COLOR": "1", "TERM": "dumb"}
    alone = words[:3] == ["relaydp", "agent", "serve"]  # it starts processes, which this one need not be fit for
    if words[0] == "relaydp" and not alone and not re.search(r"[|<>;&]", command):
        from typer.testing import CliRunner

        from relaydp.cli.main import app

        with contextlib.chdir(folder):
            done = CliRunner().invoke(app, words[1:], prog_name="relaydp", env=settings)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise SnippetError(f"`{command}` fell over: {done.exception!r}") from done.exception
        return done.exit_code, done.output
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=os.environ | settings | {"PATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.returncode, done.stdout


def agrees(shown: str, printed: str) -> bool:
    """Whether what a page shows is what was printed.

    >>> agrees("accuracy 0.95, ... in 3 rounds", "accuracy  0.951, after 2 s in 3 rounds")
    True
    >>> agrees("3 rounds", "4 rounds"), agrees("epsilon 1.0", "epsilon 2.0"), agrees("a", "a b")
    (False, False, False)
    """
    pattern, numbers, at = "", [], 0
    for token in re.finditer(rf"\.\.\.|\s+|{NUMBER.pattern}", shown.strip(), re.I):
        pattern += re.escape(shown.strip()[at : token.start()])
        at = token.end()
        if token[0] == "...":
            pattern += r".*?"
        elif token[0].isspace():
            pattern += r"\s+"
        else:
            numbers.append(token[0])
            pattern += f"({NUMBER.pattern})"
    pattern += re.escape(shown.strip()[at:])
    found = re.fullmatch(pattern, printed.strip(), re.S | re.I)
    return found is not None and all(map(_near, numbers, found.groups()))


def _near(shown: str, printed: str) -> bool:
    whole = re.fullmatch(r"[-+]?[\d,]+", shown)
    if whole:
        return shown == printed
    a, b = (float(text.replace(",", "")) for text in (shown, printed))
    return math.isclose(a, b, rel_tol=NEAR, abs_tol=1e-12)


def play(page: Path, folder: Path) -> Iterator[tuple[Block, Call, int, str]]:
    """Run a page's blocks in `folder`, one after the other: (block, command, exit code, what was printed).

    What a Python block printed comes with the block that shows it, as of a command called "python".
    """
    names: dict[str, Any] = {"__name__": "snippet"}
    said = None
    for block in blocks_of(page.read_text()):
        printed, said = said, None
        if block.reason is not None:
            continue
        if block.title is not None:
            (folder / block.title).write_text(block.text)
        elif block.language == "python":
            with contextlib.redirect_stdout(io.StringIO()) as heard, contextlib.chdir(folder):
                exec(compile("\n" * block.line + block.text, str(page), "exec"), names)
            said = heard.getvalue()
        elif block.language == "console":
            for call in calls_of(block.text):
                yield block, call, *run_command(call.command, folder)
        elif block.language == "text" and block.follows and printed is not None:
            yield block, Call("python", 0, block.text.splitlines()), 0, printed


def run_page(page: Path, folder: Path) -> None:
    """Run a page's blocks in `folder`; raises where one does not do as the page says."""
    for block, call, code, printed in play(page, folder):
        where = f"{page.name}, line {block.line}: `{call.command}`"
        if code != call.code:
            raise SnippetError(f"{where} ended with exit code {code}, not {call.code}:\n{printed}")
        shown = "\n".join(call.shown)
        if shown.strip() and not agrees(shown, printed):
            raise SnippetError(f"{where} is shown with\n{shown}\nand printed\n{printed}")


def parse_command(words: list[str]) -> None:
    """Let relaydp's own parser read a command that is not run: a flag that does not exist is a usage error."""
    from typer.main import get_command

    from relaydp.cli.main import app

    command: Any = get_command(app)
    context, rest = None, words
    while True:
        asks_help = {"--help", "-h"} & set(rest)
        context = command.make_context(command.name, list(rest), parent=context, resilient_parsing=bool(asks_help))
        if not hasattr(command, "resolve_command"):  # not a group
            return
        rest = [*context._protected_args, *context.args]
        if not rest or asks_help == set(rest):
            return
        _, command, rest = command.resolve_command(context, rest)
