"""RelayLinearRegression: numbers from records that several sites hold."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import validate_data

from relaydp import defaults, problem
from relaydp.errors import PrivacyError
from relaydp.estimator.base import RelayEstimator
from relaydp.estimator.scaling import target_scale


class RelayLinearRegression(RegressorMixin, RelayEstimator):
    """Ridge regression over several sites, private for every record, as a scikit-learn regressor.

    It runs all sites in this process, which has their records. Features and targets are scaled from their bounds into
    [-1, 1]; a feature's 0 stays 0 where it lies between the bounds, and elsewhere their middle becomes 0. What is
    minimised is the mean over sites of each site's mean of (prediction - target)^2 / 2, plus (l2/2) ||w||^2 + l1
    ||w||_1, on scaled features and targets: for sites of equal size and l1=0 that is sklearn.linear_model.Ridge with
    alpha = l2 * number of records on the scaled features. The attributes are set by `fit`, and none of them holds a
    record.

    Args:
        epsilon: How much one fit may leak of any record. math.inf, and nothing else, fits without privacy. Default: 1.
        delta: The chance that the promise fails; well below 1/(number of records). Default: 1e-5.
        graph: Who passes the baton to whom: a name as in `relaydp run --graph`, a relaydp.Graph, or a list of edges.
            Default: "ring".
        agents: How many equal shares, in row order, where `fit` is told no sites. Default: 8.
        bounds: PUBLIC (low, high) of the features, two numbers or two lists with one number per feature; values outside
            are clipped. Needed for privacy: bounds taken from the records would give them away. Default: None.
        target_bound: PUBLIC (low, high) of y; targets outside are clipped. Needed for privacy, as `bounds` is. Default:
            None.
        record_norm: PUBLIC bound on a record's norm after scaling; longer records are shrunk to it. Default: "typical",
            a guess from `bounds` (`relaydp.problem.bounds.typical_norm`); with `one_hot` what that allows; without
            privacy none.
        one_hot: PUBLIC groups of columns of which a record has one at most that is not 0: lists of names or positions,
            or texts ("job": all columns called job_...). With a columns outside and b groups, records are shrunk to
            the norm sqrt(a + b). Default: None, no groups.
        clip: Bound on the norm of one record's gradient. Default: chosen by the plan, at most what the bounds allow.
        l1: Weight of the 1-norm, on coefficients of scaled features. Default: 0.
        l2: Weight of the ridge, on coefficients of scaled features. Default: 0.
        fit_intercept: Whether to add a constant, which nothing penalises. Default: True.
        algorithm: A name from `relaydp.algorithms()`; one that minimises exactly is for simulations alone. Default:
            "auto": for a fit with a budget "relay-gradient"; with trust="nobody" "sufficient-statistics" where there
            are many records, and else "recal".
        walk: How the baton travels. Default: "tour", which visits everybody in turn.
        activations: How often each site acts. Default: chosen from public facts, 300 without privacy; once where
            statistics are released.
        trust: Whom a private fit is against. "curator": whoever reads what is published, the model and all that led to
            it. "nobody": all other sites, too, as in a consortium whose members trust nobody; that takes more noise.
            Default: "curator" where nothing is said of `collusion`, since this process has all records; "nobody" for
            an algorithm or a walk that has no sums of laps.
        collusion: Instead of trust, to simulate a consortium: the most sites that collude. Default: None.
        quorum: With collusion: the fewest sites in a lap. Default: all of them.
        account: A PrivacyAccount that this fit is charged to. Default: None.
        random_state: None (the default), for a private fit: its noise is secret and kept nowhere. An int, a RandomState
            or a Generator makes the fit a simulation, which can be repeated bit for bit and promises nothing: whoever
            knows the seed knows the noise.

    Attributes:
        coef_: Coefficients in the units of X and y, for records within the bounds.
        intercept_: The intercept in the same units.
        sites_: The sites' names, in the order of the agents.
        epsilon_: What was spent; inf for a simulation, or without privacy.
        epsilon_planned_: What a private fit costs.
        n_iter_: Activations of a site.
        privacy_certificate_: What is promised, to whom, on what grounds, as a dict.
        ledger_: The Ledger of all releases; None without privacy.
        result_: The Result, without seeds and without checksums of the records.
        n_features_in_: The number of features.

    Raises:
        PrivacyError: By `fit`, if epsilon is not above 0, it is finite and there are no `bounds` or no `target_bound`,
            an account comes with epsilon=math.inf or with a `random_state` or would be overspent, or delta is 1/m or
            more for a site with m records.
        InputError: By `fit`, if an argument or the sites cannot be used, or the fit diverged.

    Example:
        >>> import numpy as np
        >>> import relaydp as rd
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(0, 10, size=(4000, 2))
        >>> y = 3.0 * X[:, 0] + rng.normal(size=4000)
        >>> model = rd.RelayLinearRegression(epsilon=2.0, bounds=(0, 10), target_bound=(0, 30)).fit(X, y)
        >>> round(model.epsilon_, 6), bool(model.score(X, y) > 0.8)
        (2.0, True)
    """

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = defaults.DELTA,
        graph: Any = defaults.GRAPH,
        agents: int = defaults.AGENTS,
        bounds: Any = None,
        target_bound: Any = None,
        record_norm: float | str | None = None,
        one_hot: Any = None,
        clip: float | None = None,
        l1: float = defaults.L1,
        l2: float = defaults.L2,
        fit_intercept: bool = defaults.FIT_INTERCEPT,
        algorithm: str = defaults.ALGORITHM,
        walk: str = defaults.WALK,
        activations: int | None = None,
        trust: str | None = None,
        collusion: int | None = None,
        quorum: int | None = None,
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
        self.one_hot = one_hot
        self.clip = clip
        self.l1 = l1
        self.l2 = l2
        self.fit_intercept = fit_intercept
        self.algorithm = algorithm
        self.walk = walk
        self.activations = activations
        self.trust = trust
        self.collusion = collusion
        self.quorum = quorum
        self.account = account
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sites: Any = None) -> RelayLinearRegression:
        """Train on records X with targets y.

        The account, if there is one, is charged before a record is used.

        Args:
            X: The records, (records, features).
            y: The targets, a number per record.
            sites: Whose each record is: a name or a number per record. Agents are the sites in sorted order. Default:
                None, `agents` equal shares in row order.

        Returns:
            The estimator itself.

        Raises:
            PrivacyError: The fit would not be private as asked; see the class.
            InputError: An argument, the sites or the targets cannot be used, or the fit diverged.
            ValueError: By scikit-learn, if X or y cannot be used.
        """
        budget = self._budget()
        if budget is not None and self.target_bound is None:
            raise PrivacyError(
                "target_bound=None with a finite epsilon; a private fit needs target_bound=(low, high), two numbers "
                "known without the records. Noise is measured by it, and bounds taken from the targets would give "
                "their extremes away. Pass epsilon=math.inf to fit without privacy."
            )
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True, ensure_min_samples=2)
        y = y.astype(np.float64)
        scale = target_scale(self.target_bound, self.fit_intercept)
        targets, bound = (y, None) if scale is None else (scale(y), 1.0)
        self._relay(X, targets, sites, budget, problem.least_squares, label_bound=bound)
        self._target = (0.0, 1.0) if scale is None else (float(scale.centre[0]), float(scale.half[0]))
        centre, half = self._target
        coefficients, intercept = self._weights()
        self.coef_ = coefficients[0] * half
        self.intercept_ = float(intercept[0] * half + centre)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The expected target of each record. Values of X outside the bounds are clipped, as they were in training."""
        centre, half = self._target
        return self._scores(X)[:, 0] * half + centre
