"""Names in prose exist: in docstrings and comments of the package, and in CONTRIBUTING's table of questions."""

import ast
import io
import re
import tokenize
from functools import cache
from pathlib import Path

import pytest

import relaydp as rd

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "relaydp"
FILES = sorted(SOURCE.rglob("*.py"))
DEFINES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def names_in(body):
    """What these statements define or import, those under `if` and `try` included."""
    found = set()
    for node in body:
        if isinstance(node, DEFINES):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}
        elif isinstance(node, ast.If | ast.Try):
            found |= names_in(node.body) | names_in(node.orelse)
    return found


@cache
def parsed(path):
    return ast.parse(path.read_text())


@cache
def top_of(path):
    return names_in(parsed(path).body)


@cache
def members(path):
    """class -> its methods, fields, and what its methods set on self."""
    found = {}
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ClassDef):
            mine = names_in(node.body)
            mine |= {
                each.attr
                for each in ast.walk(node)
                if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store)
            }
            found.setdefault(node.name, set()).update(mine)
    return found


def has(path, words):
    """Whether `words`, such as ("Problem", "gradient_bound"), lead to something that this file defines."""
    if len(words) == 1:
        return words[0] in top_of(path)
    return len(words) == 2 and words[1] in members(path).get(words[0], ())


def modules_called(name):
    """Files and packages of ours with this name, wherever they are."""
    return [path for path in FILES if path.stem == name] + [path.parent for path in FILES if path.parent.name == name]


def leads_somewhere(place, words):
    """Whether the words lead from a file or a package to a module, or to a name that is defined there."""
    if place.is_dir():
        if words and (place / words[0]).is_dir():
            return leads_somewhere(place / words[0], words[1:])
        if words and (place / f"{words[0]}.py").exists():
            return leads_somewhere(place / f"{words[0]}.py", words[1:])
        place = place / "__init__.py"
    return not words or has(place, words)


def is_known(text, here):
    """Whether a dotted name or a file name exists; None if it is not ours to say, as for `jax.random.key`."""
    if text.endswith(".py"):
        return any((folder / text).is_file() for folder in (here.parent, SOURCE, SOURCE.parent, ROOT))
    first, *rest = text.split(".")
    if first in ("relaydp", "rd"):
        return rest[0] in rd.__all__ and len(rest) == 1 or leads_somewhere(SOURCE, rest)
    owners = [found[first] for found in map(members, FILES) if first in found]
    if owners:
        return any(rest[0] in found for found in owners)
    places = modules_called(first)
    if not places:
        return None
    # an object may be called as the module that makes it: `problem.scale` is a field of Problem
    fields = any(rest[0] in members(path).get(first.capitalize(), ()) for path in FILES)
    return fields or any(leads_somewhere(place, rest) for place in places)


def prose(path):
    """Docstrings and comments of a file, each with its line."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield getattr(node, "lineno", 1), ast.get_docstring(node) or ""
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


DOTTED = re.compile(r"`([\w/]+(?:\.\w+)+)(?:\([^`]*\))?`")


def test_names_of_modules_and_files_in_docstrings_and_comments_exist():
    said = [(path, line, text) for path in FILES for line, words in prose(path) for text in DOTTED.findall(words)]
    assert sum(is_known(text, path) is not None for path, _, text in said) > 80
    gone = [f"{path.relative_to(SOURCE)}, line {n}: {text}" for path, n, text in said if is_known(text, path) is False]
    assert gone == []


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("planning.forecast", True),
        ("forecast.look_ahead", True),
        ("relaydp.solve", True),
        ("relaydp.privacy.mechanism", True),
        ("Problem.gradient_bound", True),
        ("problem.scale", True),
        ("privacy/mechanism.py", True),
        ("jax.random.key", None),
        ("planning.outlook", False),
        ("forecast.outlook", False),
        ("relaydp.solver", False),
        ("relaydp.engine.price", False),
        ("Problem.outlook", False),
        ("engine/price.py", False),
    ],
)
def test_names_that_are_gone_are_found(text, known):
    assert is_known(text, SOURCE / "arrays.py") is known


# -- CONTRIBUTING


def questions():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    table = text.split("| question | file |\n|---|---|\n")[1].split("\n\n")[0]
    return [tuple(cell.strip() for cell in row.strip("|").split("|")) for row in table.splitlines()]


@pytest.mark.parametrize(("question", "answer"), questions(), ids=[question for question, _ in questions()])
def test_what_contributing_says_is_in_a_file_is_there(question, answer):
    """Each back-ticked name of an answer is defined, or written, in one of the files that the answer names."""
    ticked = re.findall(r"`([^`]+)`", answer)
    paths = [text for text in ticked if text.endswith((".py", "/"))]
    places = [folder / text for text in paths for folder in (SOURCE, ROOT) if (folder / text).exists()]
    assert paths and len(places) == len(paths), f"{question}: of {paths} there are {places}"
    files = [file for place in places for file in ([place] if place.is_file() else sorted(place.rglob("*.py")))]
    for name in set(ticked) - set(paths):
        words = name.split(".")
        here = any(has(file, words) for file in files) or (len(words) > 1 and is_known(name, SOURCE / "__init__.py"))
        bare = len(words) == 1 and any(name in found for file in files for found in members(file).values())
        written = name.endswith(".json") and any(name in file.read_text() for file in files)
        assert here or bare or written, f"{question} {name} is in none of {paths}"
