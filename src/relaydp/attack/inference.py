"""infer: every gradient that a run's messages reveal, for any algorithm."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from relaydp.algorithm import find_algorithm
from relaydp.attack import admm, consensus, recal, relay_gradient, sufficient_statistics, walkman
from relaydp.attack.threat import Guess, Inferred, Known, Sent, View
from relaydp.errors import InputError, choose
from relaydp.graph import network_of

Inference = Callable[[Known, Sent], Guess]
INFERENCES: dict[str, Inference] = {
    "recal": recal.through_u,
    "afbs": recal.afbs,
    "pg-extra": consensus.pg_extra,
    "nids": consensus.nids,
    "dgd": consensus.dgd,
    "gradient-tracking": consensus.gradient_tracking,
    "pg-admm": admm.pg_admm,
    "ic-admm": admm.ic_admm,
    "huang-ring": admm.huang_ring,
    "huang-star": admm.huang_star,
    "d-admm": admm.d_admm,
    "m-admm": admm.m_admm,
    "r-admm": admm.r_admm,
    "mr-admm": admm.r_admm,
    "rw-admm": admm.rw_admm,
    "rw-admm-linearised": admm.rw_admm_linearised,
    "tripd-dist": admm.tripd,
    "walkman": walkman.walkman,
    "walkman-gradient": walkman.walkman_gradient,
    "i-admm": walkman.walkman,
    "relay-gradient": relay_gradient.relay_gradient,
    "sufficient-statistics": sufficient_statistics.sufficient_statistics,
}
CHANNELS = {"u": recal.through_u, "x": recal.through_x}


def inference_for(algorithm: str, noisy: bool, channel: str | None = None) -> Inference:
    """The function that reads an algorithm's messages. RECAL has two: noise is on u, so a noisy run is read through x.

    Pure functions of (Known, payload arrays): they can be compiled with jit, and mapped over the messages of many runs.
    """
    if algorithm not in INFERENCES:
        find_algorithm(algorithm)  # raises first for an unknown name
        raise InputError(f"there is no inference for {algorithm!r}; use one of: {', '.join(sorted(INFERENCES))}.")
    if channel is not None and algorithm != "recal":
        raise InputError(
            f"channel={channel!r} is for recal, whose baton has two channels, and the algorithm is {algorithm}. Leave "
            "it out."
        )
    if algorithm == "recal":
        return CHANNELS[choose("channel", channel or ("x" if noisy else "u"), CHANNELS)]
    return INFERENCES[algorithm]


def read_messages(known: Known, sent: Sent, inference: Inference) -> Guess:
    """An inference without the ridge's gradient: the remainder is the loss part that the oracle released."""
    guess = inference(known, sent)
    return guess._replace(gradient=guess.gradient - known.penalty.ridge(guess.point))


def infer(view: View, channel: str | None = None) -> Inferred:
    """Compute every gradient that the messages of a run reveal, by the algorithm's own equations.

    Args:
        view: What the eavesdropper sees and knows.
        channel: For RECAL only: which part of the baton (u, x) is read, "u" (the paper's supplement A) or "x" (see
            docs/privacy.md). Default: "x" if u is noisy, else "u".

    Returns:
        An Inferred, with one row per activation.

    Raises:
        InputError: The algorithm's messages cannot be read (a lazy walk, rounds that some agents skipped, a transcript
            that was cut), or a channel was given for another algorithm than RECAL.

    Example:
        >>> import relaydp as rd
        >>> from relaydp.attack import View, infer
        >>> problem = rd.logistic(rd.load_data("breast-cancer"), agents=4, l2=1e-2)
        >>> found = infer(View.of(rd.solve(problem, rd.ring(4), walk="cyclic", activations=5)))
        >>> len(found), bool(found.exact.all())
        (20, True)
    """
    inference = inference_for(view.algorithm, view.noisy, channel)
    known, sent = unpack(view)
    guess = jax.tree.map(np.asarray, jax.jit(partial(read_messages, known, inference=inference))(sent))
    t = np.zeros(len(guess.agent), np.int64)
    before = 0 if view.coordinates is None else 1  # a release that was no gradient
    for i in range(view.agents):
        mine = guess.agent == i
        t[mine] = np.arange(1, mine.sum() + 1) + before
    if view.coordinates is not None:
        change = view.coordinates
        guess = guess._replace(
            point=np.asarray(jax.vmap(change)(guess.point)), gradient=np.asarray(jax.vmap(change.undo)(guess.gradient))
        )
    return Inferred(guess.agent, t, *guess[2:])


# -- from a transcript's rows to the arrays that were sent


def unpack(view: View) -> tuple[Known, Sent]:
    """The messages hop by hop, or round by round, and the public facts."""
    method = find_algorithm(view.algorithm)
    links = method.links
    if links == "hop":
        holder, acts, sent = _relay(view)
    elif links == "pushes":
        holder, acts, sent = _pushes(view)
    else:
        holder, acts, sent = _rounds(view, links)
    known = Known(
        agents=view.agents,
        steps=_steps(view),
        x0=_start(view),
        penalty=view.penalty,
        network=network_of(view.graph, method.needs),
        holder=holder,
        acts=acts,
        noisy=view.noisy,
    )
    return known, {name: jnp.asarray(part) for name, part in sent.items()}


def _steps(view: View) -> Any:
    steps = type(view.steps)(*(jnp.asarray(part) for part in view.steps))
    return steps if view.coordinates is None else steps._replace(stepsize=steps.stepsize * view.coordinates.pace)


def _start(view: View) -> jax.Array:
    """Where the laps of gradients started: public, in the coordinates of what was sent."""
    x0, change = jnp.asarray(view.x0, jnp.float64), view.coordinates
    if change is None:
        return x0
    return change.undo(x0 if bool((x0 != 0.0).any()) else change.start / view.steps.stretch)


def _relay(view: View) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """A holder that only relays passes the same bits on; this shows who acted."""
    if view.walk == "lazy":
        raise InputError(
            "on a lazy walk the holder may act several times before it sends, and one message cannot separate its "
            "gradients. Attack a run with another walk."
        )
    sent, x0 = dict(view.laps.payload), np.asarray(_start(view))
    changed = np.zeros(len(view.laps), bool)
    for name, part in sent.items():
        start = np.zeros(part.shape[1]) if name in ("u", "total") else x0
        changed |= (part != np.concatenate([start[None], part[:-1]])).any(axis=1)
    return np.asarray(view.laps.sender), changed, sent


def _pushes(view: View) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """One group of messages per activation: the holder's neighbours in order, filled up to the largest degree."""
    sender, degree = np.asarray(view.transcript.sender), view.graph.degree
    firsts, at = [], 0
    while at < len(sender):
        firsts.append(at)
        at += int(degree[sender[at]])
    holder = sender[firsts]
    slots = np.arange(int(degree.max()))[None, :]
    rows = np.where(slots < degree[holder][:, None], np.asarray(firsts)[:, None] + slots, 0)
    sent = {name: part[rows] for name, part in view.transcript.payload.items()}
    return holder, np.ones(len(holder), bool), sent


def _rounds(view: View, links: str) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Equal rounds, the agents in order: one row per agent (to a coordinator), or one per link."""
    graph, rows = view.graph, len(view.transcript)
    each = view.agents if links == "star" else int(graph.degree.sum())
    probability = np.asarray(getattr(view.steps, "probability", 1.0))
    if rows % each or (probability < 1.0).any():
        raise InputError(
            f"{rows} messages are not a whole number of rounds of {each}: if agents skip rounds, or a transcript is "
            "cut, it is unknown where a round ends. Attack a complete run in which all agents act in every round."
        )
    if links == "slots":
        slots = np.arange(int(graph.degree.max()))[None, :]
        at = np.where(slots < graph.degree[:, None], graph.first[:-1, None] + slots, 0)
    else:
        at = np.arange(view.agents) if links == "star" else graph.first[:-1]
    sent = {name: part.reshape(-1, each, part.shape[-1])[:, at] for name, part in view.transcript.payload.items()}
    count = rows // each
    return np.zeros(count, np.int32), np.ones((count, view.agents), bool), sent
