"""Fit diffprivlib's private logistic regression to records given as a file; print the coefficients it finds.

Not imported by relaydp: it runs in an environment and process of its own, for diffprivlib needs an older scikit-learn,

    python3 -m venv peer && peer/bin/pip install diffprivlib==0.6.6 scikit-learn==1.6.1 scipy==1.15.3 numpy==2.2.6
    peer/bin/python benchmarks/diffprivlib_run.py problem.npz

where problem.npz has X (records, features) with rows of norm 1 at most, y (records,) of -1 and +1, l2, epsilon, seeds.

What it does is objective perturbation (Chaudhuri, Monteleoni and Sarwate 2011, arXiv 0912.0071): minimise

    (1/m) sum_j log(1 + exp(-b_j a_j'x)) + l2/2 ||x||^2 + (1/m) z'x       ||z|| ~ Gamma(dim, 2/epsilon'), any direction

exactly, with epsilon' = epsilon - 2 ln(1 + 1/(4 m l2)); where that is not positive, with more ridge and epsilon/2. Pure
epsilon-DP (delta = 0) for one record replaced.
"""

import json
import platform
import sys
import time
from importlib import metadata

import numpy as np
from diffprivlib.models import LogisticRegression  # type: ignore[import-not-found]

TOLERANCE, ITERATIONS = 1e-10, 10_000  # the guarantee is about the exact minimiser: stop at rounding, not at 1e-4


def main(path):
    given = np.load(path)
    X, y, l2, epsilon = given["X"], given["y"], float(given["l2"]), float(given["epsilon"])
    began = time.perf_counter()
    found = []
    for seed in given["seeds"]:
        model = LogisticRegression(
            epsilon=epsilon,
            data_norm=1.0,
            C=1.0 / (len(X) * l2),  # scikit-learn weighs the losses: C sum_j loss_j + 1/2 ||x||^2
            fit_intercept=False,
            tol=TOLERANCE,
            max_iter=ITERATIONS,
            random_state=int(seed),
        )
        found.append(model.fit(X, y).coef_[0].tolist())
    names = ("diffprivlib", "scikit-learn", "scipy", "numpy")
    versions = {"python": platform.python_version(), **{name: metadata.version(name) for name in names}}
    print(json.dumps({"x": found, "seconds": time.perf_counter() - began, "versions": versions}))


if __name__ == "__main__":
    main(sys.argv[1])
