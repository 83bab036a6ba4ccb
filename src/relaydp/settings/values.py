"""What one setting may be: each function takes a value from a file or a flag and returns it, or says what to pass."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import AfterValidator

from relaydp.defaults import ALGORITHM
from relaydp.errors import InputError, choose, short

if TYPE_CHECKING:
    from relaydp.problem import Problem

MECHANISMS = ("gradient", "objective", "published", "none")
OBJECTIVES = ("accuracy", "loss")
TRUSTS = ("nobody", "curator")
VARIANTS = ("memoryless", "carried", "replace", "messages", "objective")
# regularisers by name, with what each needs
REGULARISERS = {
    "none": (),
    "l1": ("l1",),
    "elastic-net": ("l1", "l2"),
    "group-lasso": ("weight", "groups"),
    "box": ("low", "high"),
    "nonnegative": (),
    "l2-ball": ("radius",),
}


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def named(kind: str, names: Callable[[], Iterable[str]] | Iterable[str]) -> AfterValidator:
    """One of `names`; a function of none is called when first needed, since some lists cost an import."""
    return AfterValidator(lambda value: choose(kind, value, names() if callable(names) else names))


def as_loss(value: str) -> str:
    return choose("loss", value.replace("_", "-"), loss_functions())


def loss_functions() -> dict[str, Callable[..., Problem]]:
    from relaydp.problem.build import LOSSES

    return LOSSES


def all_algorithms() -> list[str]:
    from relaydp.algorithm import algorithms

    return ["auto", *algorithms()]


def all_walks() -> tuple[str, ...]:
    from relaydp.graph import WALKS

    return WALKS


def as_epsilon(value: float) -> float:
    from relaydp.privacy.accountant import check_epsilon

    return check_epsilon(value)


def as_delta(value: float) -> float:
    from relaydp.privacy.accountant import check_delta

    return check_delta(value)


def as_limits(value: object) -> dict[int, float]:
    """Agents' own epsilons: a table such as {"2" = 0.5}."""
    try:
        limits = {int(agent): epsilon for agent, epsilon in value.items()} if isinstance(value, dict) else {"": None}
        if all(map(_number, limits.values())):
            return {int(agent): as_epsilon(epsilon) for agent, epsilon in limits.items()}  # type: ignore[arg-type]
    except (ValueError, OverflowError):
        pass  # said below, for every way to be wrong
    raise InputError(
        f'limits={value!r}; needed a table of AGENT = EPSILON such as {{ "2" = 0.5 }}: an agent\'s number from 0, and '
        "a finite number above 0, no more than the budget's."
    )


def as_sizes(text: str) -> list[int]:
    """How many records each agent has: '1500,1200', or '8x1500' for 8 agents with 1500 each, or both mixed.

    >>> as_sizes("2x1500, 300")
    [1500, 1500, 300]
    """
    sizes = []
    for part in text.split(","):
        found = re.fullmatch(r"\s*(?:(\d{1,6})\s*x\s*)?(\d{1,12})\s*", part)
        if found is None:
            raise InputError(f"--sizes {text!r}; needed records per agent such as 1500,1200, or 8x1500.")
        sizes += [int(found[2])] * int(found[1] or 1)
    if min(sizes) < 1:
        raise InputError(f"--sizes {text!r}; needed 1 record or more for each agent.")
    return sizes


def as_source(value: str) -> str:
    from relaydp.data import describe

    if not (is_path("data", value) or Path(value).is_file()):
        describe(value)  # raises, with the nearest name, if there is none such
    return value


def as_kind(value: str) -> str:
    from relaydp.graph.named import NAMED

    if not is_path("graph", value):
        choose("graph", value.partition(":")[0].strip(), NAMED)
    return value


def as_names(value: object) -> object:
    return [value] if isinstance(value, str) else value


def as_list(value: object) -> object:
    return value if isinstance(value, list) else [value]


def as_agents(value: object) -> int | str | list[int]:
    """A count, sizes (a list, or '120,80,256'), or a column's name."""
    if isinstance(value, str) and re.fullmatch(r"\s*\d{1,9}\s*(,\s*\d{1,9}\s*)*", value):
        sizes = [int(word) for word in value.split(",")]
        value = sizes if len(sizes) > 1 else sizes[0]
    # "-1", "2.5" or "4,-4" is a slip, and not a column's name
    if isinstance(value, str) and not re.fullmatch(r"\s*[-+]?[\d.]*\s*(,\s*[-+]?[\d.]*\s*)*", value):
        return value.strip()
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    if isinstance(value, list) and len(value) >= 2 and all(type(size) is int and size >= 0 for size in value):
        return value
    raise InputError(
        f"agents={value!r}; needed a count of 1 or more (8), sizes in row order (120,80,256), or the name of "
        "the column that says whose a record is."
    )


def as_labels(text: str) -> list[int] | list[float] | list[bool] | list[str]:
    """Labels as files have them: numbers where all are, truth values where all are, else texts.

    >>> as_labels("0, 1"), as_labels("no,yes"), as_labels("True,False"), as_labels("0.5,1")
    ([0, 1], ['no', 'yes'], [True, False], [0.5, 1.0])
    """
    words = [word.strip() for word in text.split(",")]
    if all(re.fullmatch(r"[-+]?\d{1,18}", word) for word in words):
        return [int(word) for word in words]
    if all(re.fullmatch(r"[-+]?(\d{1,15}\.?\d*|\.\d+)([eE][-+]?\d{1,3})?", word) for word in words):
        return [float(word) for word in words]
    if {word.lower() for word in words} == {"true", "false"}:
        return [word.lower() == "true" for word in words]
    return words


def as_classes(value: object) -> list[Any]:
    """Every label there may be: 'no,yes', or a list of numbers, of truth values or of texts."""
    labels: list[Any] = as_labels(value) if isinstance(value, str) else value if isinstance(value, list) else []
    kinds = (_number, lambda label: isinstance(label, bool), lambda label: isinstance(label, str) and label != "")
    alike = any(all(map(kind, labels)) for kind in kinds)
    if len(labels) < 2 or not alike or len(set(labels)) != len(labels):
        raise InputError(
            f"classes={short(value)}; needed every label there may be, two or more, none of them twice: "
            'such as 0,1 or no,yes; in a file [0, 1] or ["no", "yes"].'
        )
    return labels


def as_ranges(value: object) -> str | tuple[Any, Any]:
    """'fit', 'fit-public', 'low,high', or [low, high] with numbers or lists of them."""
    if isinstance(value, str) and "," in value:
        try:
            value = [float(word) for word in value.split(",")]
        except ValueError:
            raise InputError(f"ranges={value!r}; needed low,high such as 0,255, fit, or fit-public.") from None
        if len(value) != 2:
            raise InputError(
                f"ranges has {len(value)} numbers; needed two, low,high such as 0,255, for all features. A range for "
                "each feature goes into a TOML file: ranges = [[low, ...], [high, ...]]."
            )
    if isinstance(value, str):
        return choose("way to get ranges (or low,high such as 0,255)", value, ("fit", "fit-public"))
    from relaydp.problem.spec import ranges_by_end

    return ranges_by_end(value)


def as_one_hot(value: object) -> list[Any]:
    """Groups of columns: each the first part of their names, or a list of names or positions."""
    groups = [value] if isinstance(value, str) else value
    if isinstance(groups, list) and groups:
        lists = [group for group in groups if not isinstance(group, str)]
        if all(isinstance(group, list) and group and all(type(c) in (str, int) for c in group) for group in lists):
            return groups
    raise InputError(
        f"one_hot={value!r}; needed groups of columns such as ['job', ['north', 'south']]: the first part of "
        "their names, or a list of names or positions."
    )


def as_steps(value: object, algorithm: str = ALGORITHM) -> str | dict[str, Any]:
    """'tuned', 'paper', or numbers by the algorithm's own names: 'alpha=1,beta=0.05,gamma=0.1', or a table of them.

    >>> as_steps("stepsize=0.1,mixing=0.5", "nids")
    {'stepsize': 0.1, 'mixing': 0.5}
    >>> as_steps("stepsize=0.1", "auto")  # relay-gradient's; numbers by other names are recal's
    {'stepsize': 0.1}
    """
    from relaydp.algorithm import algorithm_of_steps, find_algorithm

    if algorithm == "auto":
        words = value.split(",") if isinstance(value, str) else value if isinstance(value, dict) else []
        algorithm = algorithm_of_steps(str(word).partition("=")[0].strip() for word in words)
    menu = find_algorithm(algorithm).menu
    names, optional = menu.names, menu.steps._field_defaults
    form = ",".join(f"{name}=.." for name in names)
    if isinstance(value, str) and "=" not in value:
        return choose(f"steps (or {form})", value.strip(), ("tuned", "paper"))
    given: dict[str, Any] = {}
    if isinstance(value, str):
        for part in value.split(","):
            name, _, number = part.partition("=")
            if name.strip() in given:
                raise InputError(f"steps={value!r} give {name.strip()} twice; give it once.")
            try:
                given[name.strip()] = float(number)
            except ValueError:
                raise InputError(
                    f"steps={value!r}: {part.strip()!r} is not name=number; needed {form} with a number each."
                ) from None
    elif isinstance(value, dict):
        given = value
    else:
        raise InputError(f"steps={value!r}; needed 'tuned', 'paper', or a table of {', '.join(names)}.")
    for name, part in given.items():
        choose(f"step of {algorithm}", name, names)
        several = name in menu.per_agent and isinstance(part, list) and part and all(map(_number, part))
        if not (_number(part) or several):
            each = ", or a list with one number per agent" if name in menu.per_agent else ""
            raise InputError(f"step {name}={part!r}; needed a number{each}.")
    lacking = [name for name in names if name not in given and name not in optional]
    if lacking:
        raise InputError(
            f"steps={value!r} lack {', '.join(lacking)}; {algorithm} needs "
            f"{', '.join(name for name in names if name not in optional)}, or steps='tuned'."
        )
    return given


def as_regulariser(value: object) -> dict[str, Any]:
    """A table with a kind and what that kind needs."""
    if not isinstance(value, dict) or "kind" not in value:
        raise InputError(
            f'regulariser={value!r}; needed a table with a kind, such as {{kind = "elastic-net", l1 = 0.01, '
            f"l2 = 0.1}}. Kinds: {', '.join(REGULARISERS)}."
        )
    kind = choose("regulariser", value["kind"], REGULARISERS)
    needs = REGULARISERS[kind]
    for name, part in value.items():
        choose(f"key of regulariser {kind!r}", name, ("kind", *needs))
        whole = isinstance(part, list) and all(type(group) is int for group in part)
        if name != "kind" and not (whole if name == "groups" else _number(part)):
            wanted = "a list of whole numbers, a group for each coefficient" if name == "groups" else "a number"
            raise InputError(f"regulariser.{name}={part!r}; needed {wanted}.")
    lacking = [name for name in needs if name not in value]
    if lacking:
        raise InputError(f"regulariser {kind!r} lacks {', '.join(lacking)}; needed {', '.join(needs)}.")
    return value


def as_edges(value: object) -> list[tuple[int, int]]:
    pairs = value if isinstance(value, list) else []
    good = all(isinstance(pair, list) and len(pair) == 2 and all(type(end) is int for end in pair) for pair in pairs)
    if not pairs or not good or not all(0 <= end < 2**31 for pair in pairs for end in pair):
        raise InputError("edges must be pairs of agents numbered from 0, such as [[0, 1], [1, 2]].")
    return [(pair[0], pair[1]) for pair in pairs]


def is_path(section: str, value: str) -> bool:
    if section == "graph":
        from relaydp.graph.files import READERS

        return Path(value).suffix.lower() in READERS
    from relaydp.data.formats import file_kind

    return "/" in value or file_kind(Path(value)) is not None
