"""What mkdocs does for our site beside Markdown: pages from outside docs/, links to files, the commands' help.

CONTRIBUTING.md, CHANGELOG.md and deploy/README.md stay where people look for them, and are pages of the site as well.
Links of a page to a file of the repository lead to its copy in the site. docs/commands.md gets every command's help
from the program itself, so that it cannot be out of date.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parent.parent
GUESTS = {"contributing.md": "CONTRIBUTING.md", "changes.md": "CHANGELOG.md", "deploy.md": "deploy/README.md"}
FILES = [path for folder in ("examples", "deploy") for path in sorted((ROOT / folder).iterdir()) if path.is_file()]
HELP = "<!-- help of every command -->"
LINK = re.compile(r"\]\((?!\w+:|#)([^)\s#]+)(#[^)\s]*)?\)")
WIDTH = "88"  # of the help's boxes


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that lie outside docs/, and the files that pages link to."""
    for page, source in GUESTS.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    for path in FILES:
        name = path.relative_to(ROOT).as_posix()
        if name not in GUESTS.values():
            files.append(File.generated(config, name, content=path.read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Point links at where things are in the site, and fill in the help."""
    source = ROOT / GUESTS.get(page.file.src_uri, f"docs/{page.file.src_uri}")

    def moved(found: re.Match[str]) -> str:
        return f"]({in_site(source, found[1])}{found[2] or ''})"

    text = LINK.sub(moved, markdown)
    return text.replace(HELP, all_help()) if HELP in text else text


def in_site(source: Path, target: str) -> str:
    """A link of a file in the repository, as a link of its page in the site.

    >>> in_site(ROOT / "docs" / "consortium.md", "../deploy/README.md"), in_site(ROOT / "CHANGELOG.md", "docs/faq.md")
    ('deploy.md', 'faq.md')
    """
    place = os.path.relpath(os.path.normpath(source.parent / target), ROOT)
    guests = {path: name for name, path in GUESTS.items()}
    return guests.get(place, place.removeprefix("docs/"))


def all_help() -> str:
    """Every command's --help under a heading of its own, in the order of `relaydp --help`."""
    return "\n".join(
        f"## {words} {{ #{words.replace(' ', '-')} }}\n\n```text\n{help_of(words)}\n```\n" for words in all_commands()
    )


def all_commands() -> list[str]:
    """'relaydp', 'relaydp demo', ..., 'relaydp agent reroute sign': every command and group of commands."""
    from typer.main import get_command

    from relaydp.cli.main import app

    def walk(words: str, command: Any) -> list[str]:
        inner = getattr(command, "commands", {})
        shown = [(name, part) for name, part in inner.items() if not part.hidden]
        return [words, *(line for name, part in shown for line in walk(f"{words} {name}", part))]

    return walk("relaydp", get_command(app))


def help_of(words: str) -> str:
    """What `words --help` prints."""
    from typer.testing import CliRunner

    from relaydp.cli.main import app

    settings = {"COLUMNS": WIDTH, "NO_COLOR": "1", "TERM": "dumb"}
    done = CliRunner().invoke(app, [*words.split()[1:], "--help"], prog_name="relaydp", env=settings)
    if done.exit_code != 0:
        raise SystemExit(f"`{words} --help` ended with exit code {done.exit_code}: {done.output}")
    return "\n".join(line.rstrip() for line in done.output.strip().splitlines())
