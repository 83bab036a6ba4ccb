"""Fit diffprivlib's private models to records given as a file; print the coefficients, or how well they predict.

Not imported by relaydp: it runs in an environment and process of its own, for diffprivlib needs an older scikit-learn,

    python3 -m venv peer && peer/bin/pip install diffprivlib==0.6.6 scikit-learn==1.6.1 scipy==1.15.3 numpy==2.2.6
    peer/bin/python benchmarks/diffprivlib_run.py problem.npz

where problem.npz has X (records, features) with rows of norm 1 at most, y (records,) of -1 and +1, l2, epsilon, seeds.

Its logistic regression is objective perturbation (Chaudhuri, Monteleoni and Sarwate 2011, arXiv 0912.0071): minimise

    (1/m) sum_j log(1 + exp(-b_j a_j'x)) + l2/2 ||x||^2 + (1/m) z'x       ||z|| ~ Gamma(dim, 2/epsilon'), any direction

exactly, with epsilon' = epsilon - 2 ln(1 + 1/(4 m l2)); where that is not positive, with more ridge and epsilon/2. Pure
epsilon-DP (delta = 0) for one record replaced.

With `kind`, "logistic" or "linear", and X_test and y_test, the models are as diffprivlib makes them where its user sets
nothing but the bounds, and what is printed is one score a seed on the test records: accuracy, or R^2. l2 is not read
then: logistic regression has C = 1 and an intercept, and with several classes one model a class, each for its part of
epsilon. Linear regression perturbs the sums of products (Zhang, Zhang, Xiao, Yang and Winslett 2012, arXiv 1208.0219);
features and labels lie in [-1, 1].
"""

import json
import platform
import sys
import time
from importlib import metadata

import numpy as np
from diffprivlib.models import LinearRegression, LogisticRegression  # type: ignore[import-not-found]

TOLERANCE, ITERATIONS = 1e-10, 10_000  # the guarantee is about the exact minimiser: stop at rounding, not at 1e-4


def main(path):
    given = np.load(path)
    began = time.perf_counter()
    found = scores(given) if "kind" in given else coefficients(given)
    names = ("diffprivlib", "scikit-learn", "scipy", "numpy")
    versions = {"python": platform.python_version(), **{name: metadata.version(name) for name in names}}
    print(json.dumps({**found, "seconds": time.perf_counter() - began, "versions": versions}))


def coefficients(given):
    X, y, l2, epsilon = given["X"], given["y"], float(given["l2"]), float(given["epsilon"])
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
    return {"x": found}


def scores(given):
    epsilon, found = float(given["epsilon"]), []
    for seed in given["seeds"]:
        if given["kind"] == "linear":
            model = LinearRegression(
                epsilon=epsilon, bounds_X=(-1.0, 1.0), bounds_y=(-1.0, 1.0), random_state=int(seed)
            )
        else:  # exactly minimised, as above
            model = LogisticRegression(
                epsilon=epsilon, data_norm=1.0, tol=TOLERANCE, max_iter=ITERATIONS, random_state=int(seed)
            )
        found.append(float(model.fit(given["X"], given["y"]).score(given["X_test"], given["y_test"])))
    return {"scores": found}


if __name__ == "__main__":
    main(sys.argv[1])
