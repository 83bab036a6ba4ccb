"""RelayLinearRegression: numbers from records that several sites hold."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import validate_data

from relaydp import problem
from relaydp.errors import PrivacyError
from relaydp.estimator.base import RelayEstimator
from relaydp.estimator.scaling import scale_for


class RelayLinearRegression(RegressorMixin, RelayEstimator):
    """Ridge regression over several sites, private for every record.

        target_bound  PUBLIC (low, high) of y; targets outside are clipped. Needed for privacy, as `bounds` is

    All other parameters are those of RelayLogisticRegression.

    Features and targets are scaled from their bounds to [-1, 1]. What is minimised is the mean over sites of each
    site's mean of (prediction - target)^2 / 2, plus (l2/2) ||w||^2 + l1 ||w||_1, on scaled features and targets: for
    sites of equal size and l1=0 that is sklearn.linear_model.Ridge with alpha = l2 * number of records on the scaled
    features.

    After `fit`: coef_ and intercept_ (in the units of X and y, for records within the bounds), sites_, epsilon_ (what
    was spent; inf for a simulation, or without privacy), epsilon_planned_ (what a private fit costs), n_iter_
    (activations of a site), privacy_certificate_, ledger_ (None without privacy), result_. None of them holds a record.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 10, size=(4000, 2))
    >>> y = 3.0 * X[:, 0] + rng.normal(size=4000)
    >>> model = RelayLinearRegression(epsilon=2.0, bounds=(0, 10), target_bound=(0, 30)).fit(X, y)
    >>> round(model.epsilon_, 6), bool(model.score(X, y) > 0.8)
    (2.0, True)
    """

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        graph: Any = "ring",
        agents: int = 8,
        bounds: Any = None,
        target_bound: Any = None,
        record_norm: float | None = None,
        clip: float | None = None,
        l1: float = 0.0,
        l2: float = 1e-2,
        fit_intercept: bool = True,
        algorithm: str = "recal",
        walk: str = "tour",
        activations: int | None = None,
        account: Any = None,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.graph = graph
        self.agents = agents
        self.bounds = bounds
        self.target_bound = target_bound
        self.record_norm = record_norm
        self.clip = clip
        self.l1 = l1
        self.l2 = l2
        self.fit_intercept = fit_intercept
        self.algorithm = algorithm
        self.walk = walk
        self.activations = activations
        self.account = account
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sites: Any = None) -> RelayLinearRegression:
        """Train on records X (records, features) with targets y; `sites` says whose each record is.

        Agents are the sites in sorted order. The account, if there is one, is charged before a record is used.
        """
        budget = self._budget()
        if budget is not None and self.target_bound is None:
            raise PrivacyError(
                "target_bound=None arrived with a finite epsilon; needed target_bound=(low, high), two numbers known "
                "without the records. Noise is measured by it, and bounds taken from the targets would give their "
                "extremes away. Pass epsilon=math.inf to fit without privacy."
            )
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True, ensure_min_samples=2)
        target = scale_for("target_bound", self.target_bound, 1, self.fit_intercept)
        bound = 1.0 if target.bounded else None
        self._relay(X, target(y.astype(np.float64)), sites, budget, problem.least_squares, label_bound=bound)
        self._target = target
        coefficients, intercept = self._weights()
        self.coef_ = coefficients[0] * target.half[0]
        self.intercept_ = float(intercept[0] * target.half[0] + target.centre[0])
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The expected target of each record. Values of X outside the bounds are clipped, as they were in training."""
        scores = self._scores(X)[:, 0]
        return scores * self._target.half[0] + self._target.centre[0]
