"""HTML of the parts that need no script: tiles, tables, certificates, pictures. All input is escaped."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np

from relaydp.auditing.campaigns import SavedAttack
from relaydp.privacy import SOUND
from relaydp.report.charts import Chart
from relaydp.report.summary import Tile


class Column(NamedTuple):
    """A column of a table: its key in the rows, its heading, and how a value is written ("" for words)."""

    key: str
    head: str
    form: str = ""


class Table(NamedTuple):
    """Rows as dicts, so that the page and a CSV file have the same ones."""

    key: str
    caption: str
    columns: list[Column]
    rows: list[dict[str, Any]]
    sorted_by: str | None = None  # the column by which the rows are sorted, smallest first


def tiles_html(tiles: Sequence[Tile]) -> str:
    cells = "".join(
        f'<div class="tile"><dt>{escape(tile.name)}</dt><dd><span class="figure">{escape(tile.value)}</span>'
        f'<span class="note">{escape(tile.note)}</span></dd></div>'
        for tile in tiles
    )
    return f'<dl class="tiles">{cells}</dl>'


def notes_html(notes: Sequence[str]) -> str:
    return "".join(f'<p class="aside">{escape(note)}</p>' for note in notes)


def chart_html(place: str, chart: Chart) -> str:
    """The frame that the page's script fills."""
    return (
        f'<figure class="chart" id="{place}" data-chart="{place}"><figcaption>{escape(chart.about)}</figcaption>'
        '<noscript><p class="aside">This plot needs JavaScript. `relaydp report --files` writes it as a picture.</p>'
        f"</noscript></figure>{notes_html(chart.notes)}"
    )


def cell(value: Any, form: str) -> str:
    """
    >>> cell(0.93904, ".3f"), cell(None, ".3f"), cell(2400, ",d"), cell("recal", "")
    ('0.939', '–', '2,400', 'recal')
    """
    if value is None:
        return "–"
    return format(value, form) if form else str(value)


def table_html(table: Table) -> str:
    """A table that can be sorted by its headings. The script adds the buttons; without it the rows keep their order."""
    heads = []
    for column in table.columns:
        kind, sort = "number" if column.form else "words", ""
        if column.key == table.sorted_by:
            sort = ' aria-sort="ascending"'
        heads.append(f'<th scope="col" data-key="{column.key}" class="{kind}"{sort}>{escape(column.head)}</th>')
    body = []
    for row in table.rows:
        cells = []
        for place, column in enumerate(table.columns):
            value = row.get(column.key)
            raw = "" if value is None else escape(str(value), quote=True)
            tag = 'th scope="row"' if place == 0 else "td"
            kind = "number" if column.form else "words"
            # a missing epsilon is not unknown: there is no guarantee
            none = value is None and column.key in ("epsilon", "epsilon_planned")
            text = "none" if none else escape(cell(value, column.form))
            cells.append(f'<{tag} class="{kind}" data-value="{raw}">{text}</{"th" if place == 0 else "td"}>')
        body.append(f"<tr>{''.join(cells)}</tr>")
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(table.caption, quote=True)}">'
        f'<table class="sortable" data-table="{escape(table.key)}"><caption>{escape(table.caption)}</caption>'
        f"<thead><tr>{''.join(heads)}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
    )


def facts_html(facts: Sequence[tuple[str, str]]) -> str:
    pairs = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts)
    return f'<dl class="facts">{pairs}</dl>'


def _list(items: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(item)}</li>' for item in items)}</ul>"


def spending_table(certificate: dict[str, Any], limits: Sequence[float] | None) -> Table:
    rows = [
        {**row, "limit": None if limits is None else limits[row["agent"]]}
        for row in certificate["agents"]
    ]  # fmt: skip
    columns = [
        Column("agent", "Agent", "d"),
        Column("releases", "Releases", ",d"),
        Column("rho", "rho", ".4g"),
        Column("epsilon", "Epsilon spent", ".6g"),
        Column("limit", "Limit", "g"),
    ]
    if limits is None:  # no guarantee: rho and epsilon must not look like one
        columns = columns[:2]
    return Table("spending", "What each agent has released and spent", columns, rows, "agent")


MOST_ROWS = 200  # agents listed on the page; the certificate's JSON has them all


def certificate_html(place: str, certificate: dict[str, Any], limits: Sequence[float] | None, head: str) -> str:
    """The certificate as HTML, with a button for the file. `head` is the tag of its headings."""
    threat, mechanism = certificate["threat_model"], certificate["mechanism"]
    stands = certificate["private"]
    seal = "A guarantee stands behind this run" if stands else "No guarantee stands behind this run"
    if certificate["simulation"]:
        seal = "Simulation: no promise"
    variant = f" ({mechanism['variant']})" if mechanism["variant"] else ""
    table = spending_table(certificate, limits)
    cut = ""
    if len(table.rows) > MOST_ROWS:
        cut = notes_html([f"The first {MOST_ROWS} of {len(table.rows):,} agents; the JSON has all."])
        table = table._replace(rows=table.rows[:MOST_ROWS])
    spent = f"<{head}>What each agent has spent</{head}>{table_html(table)}{cut}" if table.rows else ""
    protected = [
        ("Adversary", threat["adversary"]),
        ("It sees", threat["sees"]),
        ("It does not see", threat["does_not_see"]),
        ("Neighbouring data", certificate["adjacency"]),
    ]
    noise = [
        ("Mechanism", f"{mechanism['name'] or 'none'}{variant}"),
        ("Noise", mechanism["noise"]),
        ("Its source", mechanism["source"]),
        ("Account", certificate["account"] or "none"),
    ]
    return (
        f'<div class="certificate {"stands" if stands else "open"}"><p class="seal">{seal}</p>'
        f'<p class="promise">{escape(_sentence(certificate["promise"]))}</p></div>'
        f'<div class="pair"><div><{head}>Against whom</{head}>{facts_html(protected)}</div>'
        f"<div><{head}>By what means</{head}>{facts_html(noise)}</div></div>"
        f'<div class="pair"><div><{head}>What is assumed</{head}>{_list(certificate["assumed"])}</div>'
        f"<div><{head}>What is not protected</{head}>{_list(certificate['not_protected'])}</div></div>"
        f'{spent}<p class="tools" data-certificate="{place}"></p>'
    )


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


RANKED = {"accuracy": "highest accuracy first", "excess": "least excess objective first", "objective": "least F first"}


def comparison_table(rows: Sequence[dict[str, Any]], ranked_by: str = "excess") -> Table:
    """The rows that ran. They are simulations; earlier versions saved the planned epsilon as their epsilon."""
    shown = [
        {**row, "epsilon_planned": row.get("epsilon_planned", row.get("epsilon"))}
        for row in rows
        if row["status"] != "refused"
    ]
    columns = [
        Column("algorithm", "Algorithm"),
        Column("excess", "Excess objective", ".2e"),
        Column("relative_error", "Relative error", ".2e"),
        Column("accuracy", "Accuracy", ".4f"),
        Column("epsilon_planned", "Epsilon planned", ".4g"),
        Column("plf", "PLF", ",d"),
        Column("messages", "Messages", ",d"),
        Column("vectors", "Vectors", ",d"),
        Column("seconds", "Seconds", ".1f"),
    ]
    smallest_first = ranked_by if ranked_by == "excess" else None
    return Table("comparison", f"Algorithms, {RANKED[ranked_by]}", columns, shown, smallest_first)


def reasons_html(rows: Sequence[dict[str, Any]], head: str) -> str:
    """Why cells are empty and algorithms missing, each reason once."""
    said: dict[str, list[str]] = {}
    for row in rows:
        if row["note"]:
            said.setdefault(row["note"].replace(f"for {row['algorithm']};", "here;"), []).append(row["algorithm"])
    if not said:
        return ""
    items = "".join(f"<li><b>{escape(', '.join(names))}</b>: {escape(note)}</li>" for note, names in said.items())
    return f"<{head}>Notes</{head}><ul>{items}</ul>"


def attack_table(attack: SavedAttack) -> Table:
    """The rows. The budget of a mechanism without a proof is not an epsilon, and is not shown as one."""
    rows = [{**row, "epsilon": row["epsilon"] if row["mechanism"] in SOUND else None} for row in attack.summary["rows"]]
    columns = [
        Column("run", "Run"),
        Column("method", "Method"),
        Column("epsilon", "Epsilon asked for", "g"),
        Column("recovered", "Gradients recovered", ",d"),
        Column("gradients", "of", ",d"),
        Column("median_error", "Relative error", ".1e"),
        Column("mse", "MSE", ".1e"),
        Column("psnr", "PSNR, dB", ".1f"),
        Column("ssim", "SSIM", ".3f"),
    ]
    return Table("attack", "Attacks, run by run; medians over agents", columns, rows)


def gallery_html(attack: SavedAttack) -> str:
    """The originals, and below them each attack's reconstructions, one picture per agent."""
    if not attack.images:
        return notes_html(["The records are not images and are not shown."])
    rows, scores = [], iter(attack.summary["rows"])
    for label, images in attack.images:
        original = label == "original"
        words = label.replace("\n", ", ")
        row = None if original else next(scores, None)
        score = ""
        if row is not None and row["ssim"] is not None:
            score = f"SSIM {row['ssim']:.3f}, MSE {row['mse']:.1e}"
        pictures = "".join(
            f'<img src="{png_uri(image)}" alt="{escape(_alt(original, words, agent), quote=True)}" '
            f'width="{image.shape[1]}" height="{image.shape[0]}">'
            for agent, image in enumerate(images)
        )
        rows.append(
            f'<div class="pictures"><p><b>{escape("The records themselves" if original else words)}</b>'
            f"<span>{escape(score)}</span></p><div>{pictures}</div></div>"
        )
    return f'<div class="gallery">{"".join(rows)}</div>'


def _alt(original: bool, label: str, agent: int) -> str:
    return f"record of agent {agent}" if original else f"reconstruction of agent {agent}: {label}"


def png_uri(image: np.ndarray) -> str:
    """An image (height, width, 1 or 3) in [0, 1] as a data: address of a PNG file."""
    shades = (np.clip(np.nan_to_num(image), 0.0, 1.0) * 255).round().astype(np.uint8)
    height, width, channels = shades.shape
    lines = b"".join(b"\0" + shades[k].tobytes() for k in range(height))  # 0: no filter
    head = struct.pack(">IIBBBBB", width, height, 8, 2 if channels == 3 else 0, 0, 0, 0)
    parts = [(b"IHDR", head), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b"")]
    chunks = [struct.pack(">I", len(b)) + k + b + struct.pack(">I", zlib.crc32(k + b)) for k, b in parts]
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(chunks)).decode()


def versions_text(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in versions.items())
