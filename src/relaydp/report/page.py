"""The report: one HTML file with everything in it, made from saved runs, comparisons and attacks.

Words, numbers, tables, certificates and pictures are written here, so they need no script. Plots and the player are
drawn by assets/page.js from one block of JSON. Nothing on the page can use the network: its Content-Security-Policy
forbids it, and allows only the page's own three scripts, by their checksums.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import re
import tempfile
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from relaydp._version import __version__
from relaydp.algorithm import ALGORITHMS
from relaydp.errors import InputError
from relaydp.privacy import SOUND
from relaydp.report import charts, markup, summary
from relaydp.report.baton_path import Travels, travels
from relaydp.report.sources import Run, Sources

GENERATOR = f"relaydp {__version__}"
MARK = '<meta name="generator" content="relaydp '  # marks pages made by relaydp
SCRIPTS = {"d3": "d3.min.js", "plot": "plot.umd.min.js", "script": "page.js"}


@dataclass
class Parts:
    """The parts collected so far."""

    sections: list[tuple[str, str, str]] = field(default_factory=list)  # (id, title, HTML)
    charts: dict[str, Any] = field(default_factory=dict)
    travels: dict[str, Any] = field(default_factory=dict)
    certificates: dict[str, Any] = field(default_factory=dict)

    def chart(self, place: str, chart: charts.Chart) -> str:
        self.charts[place] = chart.to_json()
        return markup.chart_html(place, chart)


def asset(name: str) -> str:
    return (files("relaydp.report") / "assets" / name).read_text(encoding="utf-8")


def make_page(sources: Sources, title: str | None = None) -> str:
    """The whole page as text."""
    parts = Parts()
    if sources.runs:
        _runs(parts, sources.runs)
    if sources.comparisons:
        _comparisons(parts, sources)
    if sources.attacks:
        _attacks(parts, sources)
    _again(parts, sources)
    scripts = {name: asset(file) for name, file in SCRIPTS.items()}
    blocks = {
        "policy": _policy(list(scripts.values())),
        "generator": escape(GENERATOR),
        "title": escape(title or _title(sources)),
        "style": asset("page.css"),
        "contents": "".join(f'<li><a href="#{key}">{escape(name)}</a></li>' for key, name, _ in parts.sections),
        "warning": _warning(sources),
        "sections": "\n".join(
            f'<section id="{key}" aria-labelledby="{key}-head"><h2 id="{key}-head">{escape(name)}</h2>{html}</section>'
            for key, name, html in parts.sections
        ),
        "data": script_json({key: getattr(parts, key) for key in ("charts", "travels", "certificates")}),
        **scripts,
    }
    # One pass: inserted text is not searched for placeholders again.
    return re.sub(r"\{\{(\w+)\}\}", lambda found: blocks[found[1]], asset("page.html"))


def script_json(content: Any) -> str:
    """JSON that cannot end its script element, whatever the name of a data set.

    >>> script_json("</script><!--")
    '"\\\\u003c/script\\\\u003e\\\\u003c!--"'
    """
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _policy(scripts: list[str]) -> str:
    """No external sources; scripts by checksum. Plot writes its own style elements, which need unsafe-inline."""
    sums = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts)
    allowed = " ".join(f"'sha256-{each}'" for each in sums)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; "
        "form-action 'none'"
    )


def _title(sources: Sources) -> str:
    names = [run.result.config["problem"]["data"] for run in sources.runs]
    names += [found.about["data"] for _, found in sources.comparisons]
    names += [attack.summary["data"] for _, attack in sources.attacks]
    return ", ".join(dict.fromkeys(map(str, names)))


def _warning(sources: Sources) -> str:
    if not sources.shows_records:
        return ""
    return (
        '<p class="warning" role="note"><b>This page contains training records.</b> The attack section shows them, and '
        "what was made out of them. Keep this file as you keep the records.</p>"
    )


def _each(items: list[tuple[str, str]]) -> str:
    """One after the other; several can be folded, and the first is open."""
    if len(items) == 1:
        return items[0][1]
    return "".join(
        f'<details class="group"{" open" if k == 0 else ""}><summary><h3>{escape(label)}</h3></summary>'
        f"<div>{html}</div></details>"
        for k, (label, html) in enumerate(items)
    )


def _runs(parts: Parts, runs: list[Run]) -> None:
    several = len(runs) > 1
    told = []
    for run in runs:
        name = f"<h3>{escape(run.label)}</h3>" if several else ""
        told.append(f'<article>{name}{_no_promise(run)}<p class="lead">{escape(summary.tell_run(run))}</p>')
        told.append(markup.tiles_html(summary.tiles(run)) + "</article>")
    told.append(markup.notes_html(_covers(runs)))
    parts.sections.append(("run", "What was run", "".join(told)))
    if (chart := charts.convergence(runs)) is not None:
        parts.sections.append(("convergence", chart.title, parts.chart("chart-convergence", chart)))
    if (chart := charts.accuracy_by_epsilon(runs)) is not None:
        parts.sections.append(("bought", chart.title, parts.chart("chart-bought", chart)))
    spent = [(run.label, k, chart) for k, run in enumerate(runs) if (chart := charts.spending(run)) is not None]
    if spent:
        items = [(label, parts.chart(f"chart-spending-{k}", chart)) for label, k, chart in spent]
        parts.sections.append(("spending", "Budget spent by each agent", _each(items)))
    paths = [(run.label, _path(parts, k, run)) for k, run in enumerate(runs)]
    if any(html for _, html in paths):
        parts.sections.append(("baton", _path_title(runs), _each([item for item in paths if item[1]])))
    certificates = []
    for k, run in enumerate(runs):
        place = f"certificate-{k}"
        parts.certificates[place] = {"name": f"{run.label}-certificate.json", "content": run.certificate}
        limits = None if run.spending is None else charts.agent_limits(run)
        head = "h4" if several else "h3"
        certificates.append((run.label, markup.certificate_html(place, run.certificate, limits, head)))
    parts.sections.append(("certificate", "Certificate", _each(certificates)))


def _no_promise(run: Run) -> str:
    if not run.result.simulation:
        return ""
    costs = "a private run of the same plan costs"
    if run.result.mechanism not in SOUND:
        costs = "the same plan costs in real numbers, to which alone the proof of noise in the objective applies"
    return (
        '<p class="warning" role="note"><b>Simulation: no promise.</b> The noise of this run comes from a seed. An '
        f"epsilon named here is what {costs}, and protects nobody.</p>"
    )


def _covers(runs: list[Run]) -> list[str]:
    """The numbers of the page that no epsilon covers, and the consequence."""
    if any(run.trace is not None for run in runs):
        text = "Accuracy, objective, relative error and their plots are measured without noise; no epsilon covers them."
        if any(run.result.private for run in runs):
            text += " Keep this page where the records are: relaydp report --public makes one without them."
        return [text]
    if all(run.result.private for run in runs):
        return ["All on this page is covered by the promise, or was known without the records."]
    return []


def _path_title(runs: list[Run]) -> str:
    return "The baton's path" if any(run.result.walk is not None for run in runs) else "Who sent when"


def _path(parts: Parts, k: int, run: Run) -> str:
    found = travels(run)
    if found is None:
        return ""
    if isinstance(found, str):
        return markup.notes_html([found])
    place = f"player-{k}"
    parts.travels[place] = found.to_json()
    return (
        f'<div class="player" id="{place}" data-travels="{place}">{_still(found)}</div>{markup.notes_html(found.notes)}'
    )


def _still(found: Travels) -> str:
    """The text for a path without a script."""
    counts = ", ".join(f"agent {agent} {count:,}" for agent, count in enumerate(found.counts().tolist()))
    return f'<noscript><p class="aside">The player needs JavaScript. Uses of records: {escape(counts)}.</p></noscript>'


def _comparisons(parts: Parts, sources: Sources) -> None:
    items, several = [], len(sources.comparisons) > 1
    for k, (label, found) in enumerate(sources.comparisons):
        html = f'<p class="lead">{escape(summary.tell_comparison(found))}</p>'
        html += markup.table_html(markup.comparison_table(found.rows, found.ranked_by))
        html += f'<p class="tools" data-table-tools="{escape(label, quote=True)}"></p>'
        html += markup.reasons_html(found.rows, "h4" if several else "h3")
        if (chart := charts.comparison_curves(label, found)) is not None:
            head = "h4" if several else "h3"
            html += f"<{head}>{escape(chart.title)}</{head}>" + parts.chart(f"chart-comparison-{k}", chart)
        items.append((label, html))
    parts.sections.append(("comparison", "Algorithms compared", _each(items)))


def _attacks(parts: Parts, sources: Sources) -> None:
    items, several = [], len(sources.attacks) > 1
    for k, (label, attack) in enumerate(sources.attacks):
        html = f'<p class="lead">{escape(summary.tell_attack(attack))}</p>'
        if attack.images:
            html += '<p class="warning" role="note"><b>These are training records</b>, or what an attack made out of '
            html += "them. No epsilon covers showing them.</p>"
        html += markup.gallery_html(attack)
        html += markup.table_html(markup.attack_table(attack))
        html += f'<p class="tools" data-table-tools="{escape(label, quote=True)}"></p>'
        notes = list(dict.fromkeys(note for row in attack.summary["rows"] for note in row["notes"]))
        if any(row["mechanism"] == "published" for row in attack.summary["rows"]):
            notes.append("The epsilon in a published run's name is what was asked of it. It keeps none.")
        html += markup.notes_html(notes)
        if (chart := charts.search_curves(label, attack)) is not None:
            head = "h4" if several else "h3"
            html += f"<{head}>{escape(chart.title)}</{head}>" + parts.chart(f"chart-search-{k}", chart)
        items.append((label, html))
    parts.sections.append(("attack", "What an attack gets", _each(items)))


def _again(parts: Parts, sources: Sources) -> None:
    items = []
    for run in sources.runs:
        again, note = f"relaydp rerun {run.label}", []
        if run.result.private:
            again += " --seed 0"
            note = ["A private run cannot be repeated: its noise was kept nowhere. This simulates its plan."]
        html = f"<pre><code>{escape(again)}</code></pre>{markup.notes_html(note)}{markup.facts_html(_settings(run))}"
        items.append((run.label, html))
    for label, found in sources.comparisons:
        about = {**found.about, "seeds": ", ".join(map(str, found.about["seeds"]))}
        facts = [(name, str(value)) for name, value in about.items() if value is not None]
        if (budget := found.budget) is not None:
            facts.append(("budget", f"epsilon {budget.epsilon:g}, delta {summary.small(budget.delta)}"))
        items.append((label, markup.facts_html([*facts, ("versions", markup.versions_text(found.versions))])))
    for label, attack in sources.attacks:
        facts = [(name, str(attack.summary[name])) for name in ("data", "loss", "agents", "shape")]
        facts.append(("methods", ", ".join(dict.fromkeys(row["method"] for row in attack.summary["rows"]))))
        items.append((label, markup.facts_html([*facts, ("versions", markup.versions_text(attack.versions))])))
    parts.sections.append(("again", "How to make it again", _each(items)))


def _settings(run: Run) -> list[tuple[str, str]]:
    result, problem = run.result, run.result.config["problem"]
    asked = result.config["solve"]
    method = ALGORITHMS.get(result.algorithm)
    budget = asked["budget"]
    facts = [
        ("data", problem["data"]),  # without its checksum, which would confirm a guess at a record
        ("loss", f"{problem['loss']}, l2 {problem['l2']:g}, r = {problem['regulariser']['kind']}"),
        ("graph", f"{result.graph}, {len(result.config['graph']['edges']):,} edges"),
        ("algorithm", result.algorithm if method is None else f"{result.algorithm}: {method.title}"),
        ("walk", result.walk or "none: rounds"),
        ("mechanism", f"{result.mechanism or 'none'}{f' ({result.variant})' if result.variant else ''}"),
        (
            "budget",
            "none" if budget is None else f"epsilon {budget['epsilon']:g}, delta {summary.small(budget['delta'])}",
        ),
        ("activations", f"{result.activations:,}{'' if asked['activations'] else ', chosen from public facts'}"),
        ("steps", asked["steps"] if isinstance(asked["steps"], str) else json.dumps(asked["steps"])[:200]),
        *([("seed", str(asked["seed"]))] if "seed" in asked else []),
        *([("seconds", f"{result.seconds:.2f}")] if math.isfinite(result.seconds) else []),
        ("versions", markup.versions_text(result.versions)),
    ]
    return facts


def check_page(path: Path, overwrite: bool) -> None:
    """Refuse an --out that cannot be written, before anything is read."""
    if path.is_dir():
        raise InputError(f"--out {path} is a folder; it must be a file, such as {path / 'report.html'}.")
    if path.exists() and not overwrite:
        raise InputError(f"--out {path} exists already; choose another name, or pass --overwrite to replace it.")
    if path.exists() and MARK not in path.read_bytes()[:4000].decode("utf-8", "replace"):
        raise InputError(
            f"--out {path} is not a report of relaydp, so --overwrite does not replace it; choose another name."
        )
    parent = path.absolute().parent
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise InputError(
            f"--out {path} cannot be made: {parent} is not a folder with write permission. Make it, or choose another."
        )


def write_page(path: Path, page: str) -> int:
    """Write the page atomically. Returns its size in bytes."""
    content = page.encode("utf-8")
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.absolute().parent)
    work = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        work.replace(path)
    finally:
        work.unlink(missing_ok=True)
    return len(content)
