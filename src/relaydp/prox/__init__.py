"""Regularisers and their proximal operators."""

from relaydp.prox.regulariser import (
    Regulariser,
    box,
    custom,
    elastic_net,
    from_spec,
    group_lasso,
    l1,
    l2_ball,
    none,
    nonnegative,
)

__all__ = [
    "Regulariser",
    "box",
    "custom",
    "elastic_net",
    "from_spec",
    "group_lasso",
    "l1",
    "l2_ball",
    "none",
    "nonnegative",
]
