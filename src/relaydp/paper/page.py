"""The page: the experiments' results, as Markdown and as one HTML file with its figures inside."""

from __future__ import annotations

import base64
import html
from pathlib import Path

from relaydp.paper.experiment import Block, Picture, ResultTable

STYLE = """
:root { color-scheme: light dark; --ink: #22272e; --paper: #fff; --rule: #d9dde2; --soft: #f4f6f8; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e7eb; --paper: #16191d; --rule: #3a4149; --soft: #20252b; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2rem auto;
  max-width: 1200px; padding: 0 1rem; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; margin: 1rem 0; }
th, td { border-bottom: 1px solid var(--rule); padding: .25rem .6rem; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
th { background: var(--soft); }
caption { text-align: left; font-weight: 600; padding: .4rem 0; }
figure { margin: 1.2rem 0; } img { max-width: 100%; background: #fff; }
code { background: var(--soft); padding: 0 .25em; }
"""


TITLE = "Differentially Private Decentralized Optimization with Relay Communication"
AUTHORS = "Luqing Wang, Luyao Guo, Shaofu Yang and Xinli Shi"
ARXIV = "arXiv 2212.10859"


class Section:
    """One experiment on the page."""

    def __init__(self, name: str, title: str, printed: str, command: str, blocks: list[Block]) -> None:
        self.name, self.title, self.printed, self.command, self.blocks = name, title, printed, command, blocks


def write_page(folder: Path, head: list[str], sections: list[Section]) -> None:
    """folder/paper.md and folder/paper.html; each is written atomically."""
    _replace(folder / "paper.md", _markdown(head, sections))
    _replace(folder / "paper.html", _html(folder, head, sections))


def _replace(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


def _markdown(head: list[str], sections: list[Section]) -> str:
    cited = f"The paper is *{TITLE}* by {AUTHORS} ([{ARXIV}](https://arxiv.org/abs/{ARXIV.split()[1]}))."
    parts = ["# The paper, reproduced", cited, *head]
    for section in sections:
        parts += [f"## {section.title}", f"{section.printed}. `{section.command}`"]
        for block in section.blocks:
            parts += markdown(block)
    return "\n\n".join(parts) + "\n"


def markdown(block: Block) -> list[str]:
    if isinstance(block, Picture):
        return [f"![{block.caption}](figures/{block.name}.png)", f"*{block.caption}*"]
    if isinstance(block, ResultTable):
        lines = ["| " + " | ".join(row) + " |" for row in (block.columns, ("---",) * len(block.columns), *block.rows)]
        return [f"**{block.title}**", "\n".join(lines), *([block.note] if block.note else [])]
    return [block]


def _html(folder: Path, head: list[str], sections: list[Section]) -> str:
    # by its number: nothing on the page refers to a network
    cited = f"<p>The paper is <cite>{TITLE}</cite> by {AUTHORS} ({ARXIV}).</p>"
    parts = ["<h1>The paper, reproduced</h1>", cited, *(f"<p>{html.escape(line)}</p>" for line in head)]
    for section in sections:
        parts.append(f'<section id="{section.name}"><h2>{html.escape(section.title)}</h2>')
        parts.append(f"<p>{html.escape(section.printed)}. <code>{html.escape(section.command)}</code></p>")
        parts += [_block(folder, block) for block in section.blocks]
        parts.append("</section>")
    page = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><title>The paper, reproduced</title>'
        f"<style>{STYLE}</style></head><body>\n{page}\n</body></html>\n"
    )


def _block(folder: Path, block: Block) -> str:
    if isinstance(block, Picture):
        image = base64.b64encode((folder / "figures" / f"{block.name}.png").read_bytes()).decode()
        caption = html.escape(block.caption)
        picture = f'<img alt="{caption}" src="data:image/png;base64,{image}">'
        return f"<figure>{picture}<figcaption>{caption}</figcaption></figure>"
    if isinstance(block, ResultTable):
        header = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in block.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in block.rows
        )
        note = f"<p>{html.escape(block.note)}</p>" if block.note else ""
        table = f"<table><caption>{html.escape(block.title)}</caption><thead><tr>{header}</tr></thead>"
        return f'<div class="wide">{table}<tbody>{body}</tbody></table></div>{note}'
    return f"<p>{html.escape(block)}</p>"
