"""What both estimators share: whose each record is, what may be spent, one call of `solve`, and what is kept of it.

A fitted estimator is something to publish, so it keeps what the guarantee covers and public facts, and nothing else:
no record, no checksum of the records (it would confirm a guess at the last unknown one), no noise and no seed.

A fit with a finite epsilon and random_state=None is private: its noise is drawn from the operating system and kept
nowhere. With a `random_state` it is a simulation: scikit-learn's way to repeat a fit is to let its noise be known.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from relaydp.algorithm import find_algorithm
from relaydp.algorithm.relay_gradient import RELAY_GRADIENT
from relaydp.data import Records
from relaydp.engine import solve
from relaydp.errors import InputError, PrivacyError, short
from relaydp.estimator.scaling import ends_of
from relaydp.graph import Graph, from_edges, graph_named
from relaydp.oracle.randomness import SEED_BITS, check_seed
from relaydp.planning.planner import AUTO
from relaydp.privacy import Budget, PrivacyAccount
from relaydp.privacy.account import Overspent
from relaydp.privacy.trust import CURATOR, NOBODY
from relaydp.problem import Problem
from relaydp.problem.bounds import TYPICAL, Scale, as_groups, scale_records
from relaydp.problem.loss import CustomLoss
from relaydp.result import Result

SITE = "site"


class RelayEstimator(BaseEstimator):
    """Simulates a consortium in this process. Subclasses say what the labels are and which loss they have."""

    # the parameters that every estimator has; each subclass's __init__ sets them
    epsilon: Any
    delta: Any
    graph: Any
    agents: Any
    bounds: Any
    record_norm: Any
    one_hot: Any
    clip: Any
    l1: Any
    l2: Any
    fit_intercept: Any
    algorithm: Any
    walk: Any
    activations: Any
    trust: Any
    collusion: Any
    quorum: Any
    account: Any
    random_state: Any
    # what `fit` leaves for `predict`
    n_features_in_: int
    _scale: Scale | None
    _norm: float | None
    _outputs: int

    def _budget(self) -> Budget | None:
        """What one fit may cost; None for epsilon=inf and nothing else. Looks at no record."""
        epsilon, account = self.epsilon, self.account
        if isinstance(epsilon, bool | np.bool_) or not isinstance(epsilon, Real) or not float(epsilon) > 0:
            raise PrivacyError(
                f"epsilon={epsilon!r}; it must be a number above 0: 0.1 is strong, 1 usual, 10 weak. Pass "
                "epsilon=math.inf to fit without privacy."
            )
        if account is not None and not isinstance(account, PrivacyAccount):
            raise PrivacyError(f"account={short(account)}; it must be a relaydp.PrivacyAccount, or None.")
        if float(epsilon) == math.inf:
            if account is not None:
                raise PrivacyError(
                    "epsilon=inf was given with an account: a fit without privacy costs more than any budget. Pass a "
                    "finite epsilon, or account=None."
                )
            return None
        if account is not None and self.random_state is not None:
            raise PrivacyError(
                f"random_state={short(self.random_state)} was given with an account; with one it must be None. "
                "Noise from a seed can be known, so that such a fit is a simulation, which promises nothing and is not "
                "charged. Leave random_state out, or pass account=None."
            )
        if self.bounds is None:
            raise PrivacyError(
                "bounds=None with a finite epsilon; a private fit needs bounds=(low, high), two numbers or two lists "
                "with one number per feature, that are known without the records: what a sensor can show, what a form "
                "allows. Noise is measured by them, and bounds taken from the records would give their extremes away. "
                "Pass epsilon=math.inf to fit without privacy."
            )
        return Budget(float(epsilon), self.delta)

    def _relay(
        self,
        X: np.ndarray,
        labels: np.ndarray,
        sites: Any,
        budget: Budget | None,
        build: Callable[..., Problem],
        **options: Any,
    ) -> None:
        """Scale, split over the sites, charge the account, and solve. X and labels have been validated."""
        bounds = None if self.bounds is None else ends_of("bounds", self.bounds, X.shape[1])
        if bounds is not None:
            X = np.clip(X, *bounds)  # Records takes no value as large as a bound may cut off
        norm = self.record_norm
        if norm is None and self.one_hot is None and bounds is not None and budget is not None:
            norm = TYPICAL  # noise pays for the norm; without noise nothing need be shrunk
        codes, names = self._sites(sites, len(X))
        whom = self._trust(budget)
        problem = build(
            Records(X, labels, groups={SITE: codes}, name="X"),
            agents=SITE,
            l2=self.l2,
            l1=self.l1,
            intercept=bool(self.fit_intercept),
            record_norm=norm,
            ranges=bounds,
            one_hot=self._groups(X.shape[1]),
            clip=self.clip,
            **options,
        )
        graph = self._graph(len(names))
        try:
            result = solve(
                problem,
                graph,
                self.algorithm,
                budget=budget,
                activations=self.activations,
                walk=self.walk,
                seed=_seed(self.random_state),
                account=self.account,
                **whom,
                transcript=False,
                trace=False,
                reference=False,
                progress=False,
            )
        except Overspent as error:
            raise Overspent(f"{error} Every fold of a cross-validation is a fit: fewer folds cost less.") from None
        if result.status == "interrupted":  # `solve` keeps the model of the moment; a search over models should end
            raise KeyboardInterrupt
        if result.status != "finished":
            raise InputError(f"the fit {result.status}. {result.message}")
        assert not isinstance(problem.loss, CustomLoss)
        self._scale, self._norm, self._outputs = problem.scale, problem.record_norm, problem.loss.outputs
        self.sites_ = names
        self.result_ = _publishable(result)
        self.ledger_ = result.ledger
        self.privacy_certificate_ = result.certificate()
        self.epsilon_ = result.epsilon  # inf for a simulation
        self.epsilon_planned_ = result.epsilon_planned
        self.n_iter_ = result.plf

    def _trust(self, budget: Budget | None) -> dict[str, Any]:
        """Whom a private fit is against, as `solve` takes it: whoever reads what is published, where nothing else is
        said. This process has all records, so that noise against sites which collude protects nobody from it."""
        asked = {"trust": self.trust, "collusion": self.collusion, "quorum": self.quorum}
        given = {name: value for name, value in asked.items() if value is not None}
        if budget is None:
            if given:
                name, value = next(iter(given.items()))
                raise PrivacyError(
                    f"{name}={short(value)} with epsilon=inf; it says whom a budget is against. Pass a finite epsilon, "
                    "or leave it out."
                )
            return {}
        if given:
            return given
        method = RELAY_GRADIENT if self.algorithm == AUTO else find_algorithm(self.algorithm)
        able = method.takes_sums and (method.walks is None or self.walk in method.walks)
        return {"trust": CURATOR if able else NOBODY}

    def _groups(self, features: int) -> list[list[int]] | None:
        """The declared groups as positions: names are those of the frame that `fit` got."""
        if self.one_hot is None:
            return None
        names = getattr(self, "feature_names_in_", None)
        found = as_groups(self.one_hot, features, None if names is None else [str(name) for name in names])
        return [list(group) for group in found]

    def _sites(self, sites: Any, records: int) -> tuple[np.ndarray, np.ndarray]:
        """Each record's agent, and the agents' names in order."""
        if sites is None:
            if isinstance(self.agents, bool) or not isinstance(self.agents, Integral) or self.agents < 1:
                raise InputError(f"agents={self.agents!r}; it must be a whole number, 1 or more. Or pass sites=.")
            names = np.arange(min(int(self.agents), records))
            return np.sort(np.arange(records) % len(names)), names
        try:
            column = column_or_1d(np.asarray(sites))
            if len(column) != records:
                raise InputError(f"sites has {len(column)} entries for {records} records; it must have one per record.")
            if any(bool(site is None or site != site) for site in column.tolist()):
                raise InputError("sites names no site for some record; needed a name or a number for each of them.")
            names, codes = np.unique(column, return_inverse=True)
        except TypeError as error:  # names that do not sort, pandas.NA
            raise InputError(
                f"sites cannot be sorted ({error}); needed all names or all numbers, none missing."
            ) from None
        if len(names) < 2:
            raise InputError(
                f"every record is of site {names.tolist()[0]!r}; a relay needs two sites or more. Leave sites out to "
                "simulate some, or use relaydp.solve_alone."
            )
        return codes, names

    def _graph(self, agents: int) -> Graph:
        graph = self.graph
        if isinstance(graph, str):
            return graph_named(graph, agents)
        if not isinstance(graph, Graph):
            try:
                graph = from_edges(graph, agents)
            except TypeError:
                raise InputError(
                    f"graph={short(graph)}; it must be a name such as 'ring' or 'grid:2x4', a relaydp.Graph, or a "
                    "list of edges such as [(0, 1), (1, 2)]."
                ) from None
        if graph.agents != agents:
            raise InputError(
                f"graph {graph.name} has {graph.agents} agents and there are {agents} sites; needed as many of one as "
                "of the other. Pass a name such as 'ring', which fits any number."
            )
        return graph

    def _parts(self) -> tuple[np.ndarray, np.ndarray]:
        """The model as slopes (features, outputs) and intercepts (outputs,), which are 0 where it has none."""
        W, features = self.result_.x.reshape(-1, self._outputs), self.n_features_in_
        return W[:features], W[features] if len(W) > features else np.zeros(self._outputs)

    def _weights(self) -> tuple[np.ndarray, np.ndarray]:
        """Coefficients (outputs, features) and intercepts (outputs,) for features as they were before scaling."""
        slopes, free = self._parts()
        if self._scale is None:
            return slopes.T, free
        coefficients = (slopes / self._scale.half[:, None]).T
        return coefficients, free - coefficients @ self._scale.centre

    def _scores(self, X: Any) -> np.ndarray:
        """The model's scores (records, outputs) for X, clipped and scaled as the training records were."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        scaled = scale_records(X, self._scale, self._norm)
        slopes, free = self._parts()
        return (scaled.X * scaled.scale * scaled.shrink[:, None]) @ slopes + free


def _publishable(result: Result) -> Result:
    """The result without the records' checksums and without any seed, the public walk's included."""
    problem = {key: part for key, part in result.config["problem"].items() if not key.endswith("_sha256")}
    asked = {key: part for key, part in result.config["solve"].items() if key not in ("seed", "walk_seed")}
    return replace(result, config={**result.config, "problem": problem, "solve": asked})


def _seed(random_state: Any) -> int | None:
    """A simulation's seed, as given or drawn from a generator; None for secret noise."""
    if random_state is None:
        return None
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**SEED_BITS, dtype=np.uint64))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**SEED_BITS, dtype=np.uint64))
    check_seed(random_state)
    return int(random_state)
