"""The numbers of the paper, as printed: tables "Comparisons of various differentially private algorithms".

Seconds are those of MATLAB R2022a on a 2.5 GHz Core i5-12500H; RE is ||x - x*|| / ||x0 - x*||.
"""

from __future__ import annotations

from typing import NamedTuple


class Printed(NamedTuple):
    """One row: communication, then (seconds, relative error) on ijcnn1, MNIST, Fashion-MNIST and CIFAR-10."""

    communication: int
    ijcnn1: tuple[float, float]
    mnist: tuple[float, float]
    fashion: tuple[float, float]
    cifar10: tuple[float, float]


# the keys are the rows of `relaydp.paper.tables.ROWS`
LINEAR = {
    "huang, l1": Printed(6400, (59.4, 6.1e-8), (158.3, 1.9e-6), (140.0, 2.9e-8), (1.0e4, 1.2e-9)),
    "nids, l1": Printed(4800, (12.0, 1.5e-7), (29.8, 1.2e-3), (26.4, 2.9e-6), (1835, 5.8e-9)),
    "extra, l1": Printed(9600, (11.2, 3.0e-8), (25.5, 9.6e-5), (23.6, 8.6e-7), (1838, 1.2e-6)),
    "admm, l1": Printed(9600, (11.7, 2.4e-8), (25.2, 1.6e-5), (22.1, 1.1e-7), (1984, 2.3e-8)),
    "rwadmm, l1": Printed(9600, (18.8, 6.9e-9), (41.8, 2.4e-6), (40.9, 2.2e-10), (3746, 1.8e-10)),
    "recal, l1": Printed(2400, (10.3, 5.8e-15), (26.2, 4.7e-15), (24.4, 6.8e-15), (1904, 1.0e-15)),
    "mradmm, decaying": Printed(128000, (1098, 5.6e-10), (3075, 2.1e-7), (2987, 4.2e-10), (3.6e5, 7.5e-11)),
    "mradmm": Printed(19200, (392, 1.8e-10), (1237, 3.8e-9), (1316, 3.6e-11), (1.7e5, 1.3e-11)),
    "recal": Printed(2400, (5.3, 7.4e-15), (23.4, 6.0e-15), (24.8, 9.0e-16), (1710, 8.9e-16)),
}
LOGISTIC = {
    "huang, l1": Printed(6400, (67.2, 6.7e-8), (173.6, 8.5e-5), (93.4, 2.9e-8), (8134, 1.7e-8)),
    "nids, l1": Printed(4800, (13.4, 1.1e-7), (16.8, 1.1e-4), (17.3, 3.0e-9), (1328, 8.5e-9)),
    "extra, l1": Printed(9600, (12.3, 4.2e-6), (13.9, 8.1e-5), (18.9, 9.2e-8), (1413, 3.8e-8)),
    "admm, l1": Printed(9600, (11.7, 2.4e-8), (14.3, 5.6e-6), (18.2, 8.6e-8), (1582, 1.1e-8)),
    "rwadmm, l1": Printed(9600, (24.1, 1.2e-9), (18.9, 8.3e-6), (26.7, 1.9e-12), (3011, 1.0e-10)),
    "recal, l1": Printed(2400, (11.8, 5.8e-15), (12.6, 4.0e-15), (18.6, 1.4e-15), (1375, 4.8e-16)),
    "mradmm, decaying": Printed(128000, (1376, 7.3e-9), (2513, 4.4e-7), (2360, 3.4e-11), (2.8e5, 3.3e-11)),
    "mradmm": Printed(19200, (392, 1.8e-10), (988, 2.3e-9), (1000, 5.8e-12), (1.2e5, 9.4e-12)),
    "recal": Printed(2400, (6.1, 8.2e-15), (10.9, 4.8e-15), (20.2, 4.6e-16), (985, 2.6e-15)),
}
TABLES = {"linear": LINEAR, "logistic": LOGISTIC}

# "Computation, Communication and PLF Complexity of Related Algorithms": the powers of n that multiply ln 1/epsilon
COMPLETE = {
    "admm": {"computation": 0, "plf": 0, "communication": 2},
    "extra": {"computation": 0, "plf": 0, "communication": 2},
    "nids": {"computation": 0, "plf": 0, "communication": 2},
    "rwadmm": {"computation": 2, "plf": 2, "communication": 3},
    "recal": {"computation": 1, "plf": 0, "communication": 1},
}
CIRCULAR = {
    "admm": {"computation": 2, "plf": 2, "communication": 3},
    "extra": {"computation": 2, "plf": 2, "communication": 3},
    "nids": {"computation": 2, "plf": 2, "communication": 3},
    "rwadmm": {"computation": 3, "plf": 2, "communication": 3},
    "recal": {"computation": 1, "plf": 0, "communication": 1},
}
# with chi = 1 - sigma_m(P) and m edges
GENERAL = {
    "admm": {"computation": "1/chi", "plf": "1/chi", "communication": "m/chi"},
    "extra": {"computation": "1/chi", "plf": "1/chi", "communication": "m/chi"},
    "nids": {"computation": "1/chi", "plf": "1/chi", "communication": "m/chi"},
    "rwadmm": {"computation": "m/chi", "plf": "m^2/(n^2 chi)", "communication": "m^2/(n chi)"},
    "recal": {"computation": "n", "plf": "1", "communication": "n"},
}
