"""RelayLogisticRegression: classes from records that several sites hold."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit, log_expit, log_softmax, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from relaydp import defaults, problem
from relaydp.errors import InputError, PrivacyError, short
from relaydp.estimator.base import RelayEstimator


class RelayLogisticRegression(ClassifierMixin, RelayEstimator):
    """Logistic regression over several sites, private for every record: a scikit-learn classifier.

    There are two classes or more.

    It runs all sites in this process, which has their records. Features are scaled from `bounds` into [-1, 1]: where 0
    lies between the bounds it stays 0, elsewhere the middle becomes 0. What is minimised is the mean over sites of each
    site's mean loss, plus (l2/2) ||w||^2 + l1 ||w||_1 on scaled features: for sites of equal size and l1=0 that is
    sklearn.linear_model.LogisticRegression with C = 1 / (l2 * number of records) on the scaled features. The attributes
    are set by `fit`, and none of them holds a record.

    Args:
        epsilon: How much one fit may leak of any record. math.inf, and nothing else, fits without privacy. Default: 1.
        delta: The chance that the promise fails; well below 1/(number of records). Default: 1e-5.
        graph: Who passes the baton to whom: a name as in `relaydp run --graph`, a relaydp.Graph, or a list of edges.
            Default: "ring".
        agents: How many equal shares, in row order, where `fit` is told no sites. Default: 8.
        bounds: PUBLIC (low, high) of the features, two numbers or two lists with one number per feature; values outside
            are clipped. Needed for privacy: bounds taken from the records would give them away. Default: None.
        classes: PUBLIC list of the labels there can be. Needed for a private fit: one record could add a class to those
            in y. Simulations and fits without privacy take those in y where none are given. Default: None.
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
            "auto": "relay-gradient" for a fit with a budget on a walk with laps; with trust="nobody" only where l1=0
            and l2 is small beside the noise; else "recal".
        walk: How the baton travels. Default: "tour", which visits everybody in turn.
        activations: How often each site acts. Default: chosen from public facts, 300 without privacy.
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
        coef_: Coefficients in the units of X, for records within the bounds.
        intercept_: Intercepts in the same units.
        classes_: The classes, in sorted order.
        sites_: The sites' names, in the order of the agents.
        epsilon_: What was spent; inf for a simulation, or without privacy.
        epsilon_planned_: What a private fit costs.
        n_iter_: Activations of a site.
        privacy_certificate_: What is promised, to whom, on what grounds, as a dict.
        ledger_: The Ledger of all releases; None without privacy.
        result_: The Result, without seeds and without checksums of the records.
        n_features_in_: The number of features.

    Raises:
        PrivacyError: By `fit`, if epsilon is not above 0, a fit with a budget has no `bounds`, a private one no
            `classes`, an account comes with epsilon=math.inf or with a `random_state` or would be overspent, or delta
            is 1/m or more for a site with m records.
        InputError: By `fit`, if an argument, the sites or the classes cannot be used, or the fit diverged.

    Example:
        >>> import numpy as np
        >>> import relaydp as rd
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(0, 10, size=(2000, 2))
        >>> y = np.where(X[:, 0] + X[:, 1] > 10, "high", "low")
        >>> model = rd.RelayLogisticRegression(epsilon=1.0, bounds=(0, 10), classes=["high", "low"]).fit(X, y)
        >>> round(model.epsilon_, 6), model.predict([[9.9, 9.9], [0.1, 0.1]]).tolist()
        (1.0, ['high', 'low'])
    """

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = defaults.DELTA,
        graph: Any = defaults.GRAPH,
        agents: int = defaults.AGENTS,
        bounds: Any = None,
        classes: Any = None,
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
        self.classes = classes
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

    def fit(self, X: Any, y: Any, sites: Any = None) -> RelayLogisticRegression:
        """Train on records X with labels y.

        The account, if there is one, is charged before a record is used.

        Args:
            X: The records, (records, features).
            y: The labels, a label per record.
            sites: Whose each record is: a name or a number per record. Agents are the sites in sorted order. Default:
                None, `agents` equal shares in row order.

        Returns:
            The estimator itself.

        Raises:
            PrivacyError: The fit would not be private as asked; see the class.
            InputError: An argument, the sites or the labels cannot be used, or the fit diverged.
            ValueError: By scikit-learn, if X or y cannot be used.
        """
        budget = self._budget()
        if budget is not None and self.random_state is None and self.classes is None:
            raise PrivacyError(
                "classes=None with a finite epsilon; a private fit needs classes=[...], every label there can be, "
                "known without the records: one record could add a class to those in y. Pass random_state=0, say, for "
                "a simulation without a promise, or epsilon=math.inf to fit without privacy."
            )
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)
        check_classification_targets(y)
        found, codes = np.unique(y, return_inverse=True)
        classes = found if self.classes is None else _public_classes(self.classes)
        place = {label: code for code, label in enumerate(classes.tolist())}
        odd = [label for label in found.tolist() if label not in place]
        if odd:
            raise InputError(
                f"label {odd[0]!r} is none of classes={short(classes.tolist())}; list every class there is."
            )
        if len(classes) < 2:
            raise InputError(
                f"y holds one class, {found.tolist()[0]!r}; needed two or more. Pass classes= with all there can be."
            )
        labels = np.array([place[label] for label in found.tolist()])[codes]
        build = problem.logistic if len(classes) == 2 else problem.softmax
        self.classes_ = classes
        self._relay(X, labels, sites, budget, build, classes=range(len(classes)))
        self.coef_, self.intercept_ = self._weights()
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Scores: (records,) for two classes, above 0 for the second; (records, classes) for more."""
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> np.ndarray:
        """The likeliest class of each record. Values outside the bounds are clipped, as they were in training."""
        scores = self._scores(X)
        codes = (scores[:, 0] > 0).astype(int) if scores.shape[1] == 1 else scores.argmax(axis=1)
        return self.classes_[codes]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Each class's probability, (records, classes), in the order of classes_."""
        scores = self._scores(X)
        return np.hstack([expit(-scores), expit(scores)]) if scores.shape[1] == 1 else softmax(scores, axis=1)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithms of `predict_proba`, without underflow."""
        scores = self._scores(X)
        if scores.shape[1] == 1:
            return np.hstack([log_expit(-scores), log_expit(scores)])
        return log_softmax(scores, axis=1)


def _public_classes(given: Any) -> np.ndarray:
    """The classes in sorted order, if they are some."""
    listed = [] if isinstance(given, str) or not np.iterable(given) else list(given)
    try:
        classes = np.unique(np.asarray(listed))
    except TypeError:  # texts and numbers, say
        classes = np.empty(0)
    if len(classes) < 2 or len(classes) != len(listed) or {type(v) for v in listed} >= {str, int}:
        raise InputError(
            f"classes={short(given)}; it must be a list of two or more different labels, all texts or all numbers."
        )
    return classes
