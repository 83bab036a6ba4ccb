"""The consortium file as text: each table with a comment on its purpose.

A small writer for this file only: floats by repr, so that they read back to the last bit; texts as JSON writes them,
which TOML reads; one row of numbers per line.
"""

from __future__ import annotations

import json
from typing import Any

from relaydp.network.consortium.agreement import Consortium

INDENT = "  "
COMMENTS = {
    "": """\
The agreement of the parties of this consortium. Every party has this file; its identity (`relaydp consortium check`)
is a hash of all settings below. Comments, blank lines and the order of keys do not change it; anything else does.
Nothing in this file is secret, and no number in it may be learnt from a record.""",
    "problem": """\
What is minimised. Features are the columns named here, in this order; other columns of a party's file are ignored.
`classes` lists every label there may be. `ranges` and `record_norm` are PUBLIC bounds: each record is clipped to the
ranges and scaled down to the norm. `l1` and `l2` are the weights of the 1-norm and the ridge. May be added: `clip`, a
bound on one record's gradient. Least-squares has `label_bound`, on its labels; huber has `threshold`, where it turns
into a line.""",
    "privacy": """\
The guarantee for every record of every party, over the whole run: (epsilon, delta)-differential privacy, even if all
other parties and an eavesdropper on every link combine what they know.""",
    "run": """\
The algorithm, and the party that starts. A relay's baton follows `walk` (tour, cyclic, random or nonbacktracking),
drawn from `walk_seed`, which is public; it ends after `patience` successive hops at which no party could act.""",
    "network": "The connections between parties. Batons and messages follow these edges only.",
    "parties": """\
One table per party, in a fixed order. `records` is public. Its agent listens on `address` and proves its
identity with the key of `certificate`; compare fingerprints by another way than this file.""",
    "plan": """\
The plan, computed from the tables above by `relaydp consortium plan` before any record was read: how often each party
acts, how far replacing one of its records can move a release (`sensitivity`: 2 clip / records, with rounding), and the
noise of each of its releases (`scales`: one row per activation, one number per party, in the order of the parties).""",
    "plan.steps": "The algorithm's steps; a list has one number per party.",
}


def to_toml(consortium: Consortium) -> str:
    """The file's text. Reading it gives a consortium with the same identity."""
    tables = consortium.tables()
    plan = tables.pop("plan", None)
    lines = [*_comment(""), *_pairs({"version": tables.pop("version"), "name": tables.pop("name")})]
    for name, table in tables.items():
        lines += ["", *_comment(name)]
        if name == "parties":
            for party in table:
                lines += ["[[parties]]", *_pairs(party), ""]
            lines.pop()
        else:
            lines += [f"[{name}]", *_pairs(table)]
    if plan is not None:
        steps = plan.pop("steps")
        lines += ["", *_comment("plan"), "[plan]", *_pairs(plan)]
        lines += ["", *_comment("plan.steps"), "[plan.steps]", *_pairs(steps)]
    return "\n".join(lines) + "\n"


def _comment(table: str) -> list[str]:
    return [f"# {line}" for line in COMMENTS[table].splitlines()]


def _pairs(table: dict[str, Any]) -> list[str]:
    return [f"{_key(key)} = {_value(value)}" for key, value in table.items()]


def _key(key: str) -> str:
    return key if key.replace("_", "a").isascii() and key.replace("_", "a").isalnum() else _text(key)


def _text(text: str) -> str:
    # JSON does not escape DEL, and TOML does not allow it unescaped
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and value.startswith("-----BEGIN"):
        return f"'''\n{value}'''"  # a certificate, which has no quotes in it
    if isinstance(value, str):
        return _text(value)
    if not isinstance(value, list):
        return repr(value)
    if value and isinstance(value[0], list):
        return "[\n" + "".join(f"{INDENT}{_value(row)},\n" for row in value) + "]"
    return f"[{', '.join(map(_value, value))}]"
