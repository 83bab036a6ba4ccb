"""I-ADMM: Walkman's exact form, round a fixed order instead of a random walk.

The token t = mean_i( y_i - z_i / beta ) goes from agent to agent, each in its turn, and the holder i does

    (1)  x    = t
    (2)  y_i+ = prox_{f_i/beta}( x + z_i/beta )
    (3)  z_i+ = z_i + beta (x - y_i+)
    (4)  t+   = t + ( 2 y_i+ - y_i - x ) / n

which is walkman.py with r = 0; a nonsmooth r is not in the paper. What leaves agent i is the new t, once, to the next
agent of the order. It needs a closed walk: "cyclic" where the graph has a Hamiltonian cycle, "tour" otherwise.
Source: Ye, Chen, Xiao and Poor 2020, Privacy-preserving incremental ADMM for decentralized consensus optimization.
"""

from __future__ import annotations

from dataclasses import replace

from relaydp.algorithm.walkman import WALKMAN

I_ADMM = replace(
    WALKMAN,
    name="i-admm",
    title="I-ADMM (incremental)",
    walks=("cyclic", "tour"),
    takes_r=False,
    instead="walkman-gradient",  # takes r, and has a gradient to privatise
)
