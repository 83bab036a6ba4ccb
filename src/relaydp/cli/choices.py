"""The closed lists that a shell completes. Written down once more, because the real ones cost an import of JAX.

A test holds each equal to the list it stands for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

NAMED_ALGORITHMS = (
    "afbs d-admm dgd gradient-tracking huang-ring huang-star i-admm ic-admm m-admm mr-admm nids pg-admm pg-extra "
    "r-admm recal relay-gradient rw-admm rw-admm-linearised sufficient-statistics tripd-dist walkman walkman-gradient"
).split()
ALGORITHMS = [
    "auto",
    *NAMED_ALGORITHMS,
]  # of a run, which may leave the choice to the planner; an audit is of one method
NETWORK_ALGORITHMS = "dgd huang-ring ic-admm nids pg-admm pg-extra recal walkman-gradient".split()
GRAPHS = "ring path star complete grid torus hypercube erdos-renyi watts-strogatz random-regular".split()
PLAIN_GRAPHS = "ring path star complete".split()
WALKS = "random lazy nonbacktracking cyclic tour".split()
LOSSES = "logistic least-squares softmax huber".split()
MECHANISMS = "gradient objective published none".split()
VARIANTS = "memoryless carried replace messages objective".split()
RANGES = "fit fit-public".split()
STEPS = "tuned paper".split()
PLACES = "local ray".split()
DATA_SETS = "fashion-small breast-cancer digits ijcnn1 mnist fashion cifar10".split()
CANARIES = "worst mislabelled stranger turned long".split()
METHODS = "closed-form pooled dlg inverting gradinversion".split()
EXPERIMENTS = (
    "plf complexity budgets-linear methods-linear table-linear budgets-logistic methods-logistic table-logistic attacks"
).split()
PAPER_DATA = "ijcnn1 mnist fashion cifar10".split()


def among(names: Iterable[str], commas: bool = False) -> Callable[[str], list[str]]:
    """What a shell offers for a word begun; with `commas`, for the last of several names.

    >>> among(["ring", "path", "random"])("r")
    ['ring', 'random']
    >>> among(["ring", "path"], commas=True)("ring,p")
    ['ring,path']
    """
    known = list(names)

    def offer(incomplete: str) -> list[str]:
        head, comma, last = incomplete.rpartition(",") if commas else ("", "", incomplete)
        taken = head.split(",") if commas else []
        return [f"{head}{comma}{name}" for name in known if name.startswith(last) and name not in taken]

    return offer
