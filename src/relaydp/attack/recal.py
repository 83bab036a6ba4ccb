"""RECAL's gradients from either of the baton's two vectors, and AFBS's from the agents' messages.

Both start from what is public, y_i = x0 and l_i = 0, and follow the agent from one activation to the next:

    (1)  l_half = l_i + beta (x - y_i)
    (2)  x+     = prox_{gamma r}( x - gamma (u + l_half - l_i) )
    (3)  y_i+   = y_i - alpha_i ( grad f_i(y_i)/n - l_half )
    (4)  l_i+   = l_i + beta (x+ - y_i+)
    (5)  u+     = u + l_i+ - l_i

`through_u` (the paper's supplement A) has l_i+ - l_i from (5), y_i+ from (4) and the gradient from (3), immediately;
noise on u makes it inexact. `through_x` inverts the prox of (2), has y_i without using u+, and the gradient from (3) at
the agent's next activation; noise on u was received together with u, so it cancels whatever its size.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from relaydp.attack.threat import Guess, Known, Sent, by_round, by_visit


def through_u(known: Known, sent: Sent) -> Guess:
    """Every activation's gradient, point and price; exact unless u carries noise."""
    alpha, beta, _ = known.steps
    zero = jnp.zeros_like(known.x0)
    u, new_u = known.visits(sent["u"], zero)
    x, new_x = known.visits(sent["x"], known.x0)

    def visit(carry: Any, row: Any) -> tuple[Any, Any]:
        y, price = carry
        i, u, new_u, x, new_x = row
        half = price[i] + beta * (x - y[i])  # (1)
        change = new_u - u  # (5), l_i+ - l_i
        new_y = new_x - change / beta  # (4)
        gradient = known.agents * ((y[i] - new_y) / alpha[i] + half)  # (3)
        return (y.at[i].set(new_y), price.at[i].add(change)), (y[i], gradient, price[i])

    start = (known.everyone(), jnp.zeros_like(known.everyone()))
    _, (y, gradient, price) = jax.lax.scan(visit, start, (known.who, u, new_u, x, new_x))
    return by_visit(known, y, gradient, known.trusted(jnp.ones_like(y, bool)), price)


def through_x(known: Known, sent: Sent) -> Guess:
    """Every activation's point and price, and its gradient where the agent acts again; exact whatever the noise on u.

    A coordinate at a kink of r hides y_i at that activation, and with it all later prices of that coordinate.
    The last activation of each agent has no gradient yet: its row is marked as unread.
    """
    alpha, beta, gamma = known.steps
    u, _ = known.visits(sent["u"], jnp.zeros_like(known.x0))
    x, new_x = known.visits(sent["x"], known.x0)
    later, first = _neighbours_in_time(known.who)
    slope, smooth = known.penalty.slope(new_x)
    undone = new_x + gamma * slope
    y = x + ((undone - x) / gamma + u) / beta  # (2)
    y = jnp.where(first[:, None], known.x0[None, :], y)
    seen = smooth | first[:, None]

    def visit(carry: Any, row: Any) -> tuple[Any, Any]:
        price, sure, reached = carry  # l_i before (4) of the last activation, whether it is exact, and x+ of then
        i, first, y, seen, new_x = row
        mine = jnp.where(first, price[i], price[i] + beta * (reached[i] - y))  # (4)
        certain = jnp.where(first, sure[i], sure[i] & seen)
        return (price.at[i].set(mine), sure.at[i].set(certain), reached.at[i].set(new_x)), (mine, certain)

    everyone = known.everyone()
    start = (jnp.zeros_like(everyone), jnp.ones_like(everyone, bool), everyone)
    _, (price, sure) = jax.lax.scan(visit, start, (known.who, first, y, seen, new_x))
    half = price + beta * (x - y)  # (1)
    again = later >= 0
    gradient = known.agents * ((y - y[later]) / alpha[known.who][:, None] + half)  # (3)
    exact = again[:, None] & seen & sure & seen[later]
    gradient = jnp.where(again[:, None], gradient, 0.0)
    return Guess(known.hops, known.who, again, y, gradient, exact, seen, price)


def _neighbours_in_time(who: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each activation: which one is the same agent's next (-1: none), and whether it is its first."""
    later, first, last_of = np.full(len(who), -1), np.zeros(len(who), bool), {}
    for k, i in enumerate(who.tolist()):
        if i in last_of:
            later[last_of[i]] = k
        else:
            first[k] = True
        last_of[i] = k
    return later, first


def afbs(known: Known, sent: Sent) -> Guess:
    """All but the last round of AFBS, from the l_half_i that go to the coordinator.

    The coordinator's x follows from them by (2), with their sum for u + l_half - l_i. (1) of the next round and (4) say
    that l_half_i+ = l_i + 2 beta (x+ - y_i+), which contains y_i+ and l_i+ = (l_i + l_half_i+)/2.
    """
    alpha, beta, gamma = known.steps
    halves = sent["half"]

    def round_(carry: Any, row: Any) -> tuple[Any, Any]:
        y, price, x = carry
        half, next_half = row
        new_x = known.penalty.prox(x - gamma * jnp.sum(half, axis=0), gamma)  # (2)
        new_y = new_x[None, :] - (next_half - price) / (2.0 * beta)
        gradient = known.agents * ((y - new_y) / alpha[:, None] + half)  # (3)
        return (new_y, (price + next_half) / 2.0, new_x), (y, gradient, price)

    start = (known.everyone(), jnp.zeros_like(known.everyone()), known.x0)
    _, (y, gradient, price) = jax.lax.scan(round_, start, (halves[:-1], halves[1:]))
    return by_round(known, y, gradient, known.trusted(jnp.ones_like(y, bool)), price)
