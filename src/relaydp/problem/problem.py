"""Problem: what the agents minimise together, and the public facts a private run may use.

    F(x) = (1/n) sum_i (1/m_i) sum_j loss_ij(x)  +  (l2/2) ||x||^2  +  r(x)

The ridge belongs to the f_i, r has a prox. An intercept is penalised by neither.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Concatenate, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from relaydp.arrays import placed
from relaydp.data import Records
from relaydp.errors import InputError, PrivacyError
from relaydp.problem.agent_records import AgentRecords, Gram, scores
from relaydp.problem.bounds import Facts, Scale, Scaling, scale_records
from relaydp.problem.curvature import features_by_agent, largest_curvatures
from relaydp.problem.kernels import dispatch, int8_products
from relaydp.problem.loss import CLASSIFIERS, LEAST_SQUARES, CustomLoss, Loss
from relaydp.problem.partition import Split
from relaydp.prox import Regulariser

LITTLE = 10**6  # numbers in all records: to read them once more takes less time than anything compiled for it
POINTS_A_PASS = 32  # models whose objective is computed in one matrix product with the records
SCORED = 1024  # held-out records at a time: their scores at a trace's points stay in cache
DENSE_BYTES = (
    2**31
)  # agent_records whose float64 features fit in 2 GiB are expanded once instead of at every matrix product
PRODUCT_SPEED = 8  # multiplications a matrix product does while a gradient reads one value of the records


Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Terms:
    """The data-free part of F: ridge and r. A pytree, so that new weights reuse compiled code."""

    regulariser: Regulariser
    l2: float
    free: int = field(metadata={"static": True})  # trailing coefficients that nothing penalises: the intercepts

    def _split(self, x: Array) -> tuple[Array, Array]:
        at = x.shape[0] - self.free
        return x[:at], x[at:]

    def prox(self, v: Float[Array, " dim"], t: Any) -> Float[Array, " dim"]:
        """prox_{t r}(v)."""
        kept, free = self._split(v)
        return jnp.concatenate([self.regulariser.prox(kept, t), free])

    def ridge_gradient(self, x: Float[Array, " dim"]) -> Float[Array, " dim"]:
        kept, free = self._split(x)
        return jnp.concatenate([self.l2 * kept, jnp.zeros_like(free)])

    def smooth_gradient(self, x: Float[Array, " dim"], agent_records: AgentRecords) -> Float[Array, " dim"]:
        return agent_records.mean_gradient(x) + self.ridge_gradient(x)

    def objectives(self, xs: Float[Array, "points dim"], agent_records: AgentRecords) -> Float[Array, " points"]:
        """F at each row of xs."""

        def add(mean: Array, x: Array) -> Array:
            kept, _ = self._split(x)
            return mean + 0.5 * self.l2 * jnp.sum(kept * kept) + self.regulariser.value(kept)

        return jax.vmap(add)(agent_records.mean_values(xs), xs)


@jax.jit
def _objectives(terms: Terms, agent_records: AgentRecords, xs: Float[Array, "points dim"]) -> Float[Array, " points"]:
    """F at each row of xs: a few points share one pass over the records, however many there are."""
    if agent_records.by_passes:
        return terms.objectives(xs, agent_records)
    return jax.lax.map(lambda x: terms.objectives(x[None], agent_records)[0], xs, batch_size=POINTS_A_PASS)


_shares_right = jax.jit(dispatch.shares_right)


@dataclass(frozen=True, eq=False)
class Problem:
    """What the agents minimise together: a loss, weights, and records split over agents. Immutable.

        F(x) = (1/n) sum_i (1/m_i) sum_j loss_ij(x)  +  (l2/2) ||x||^2  +  r(x)

    Make one by `logistic`, `softmax`, `least_squares`, `huber` or `custom`, whose arguments say what can be chosen;
    they check what they are given, and this class does not.

    Args:
        data: The Records.
        loss: The loss of one record.
        split: Which agent holds which record.
        regulariser: r, known by its prox.
        l2: Weight of the ridge.
        intercept: Whether there is a constant feature, which nothing penalises.
        record_norm: PUBLIC bound on the norm of a record's features; None for what the scale allows.
        scale: How features are scaled, from PUBLIC ranges: `problem.scale(X)` does it. None without ranges.
        fitted: Whether the ranges were found in the records, which rules out private runs.
        clip: Bound on the norm of one record's gradient, if the user gave one.
        smoothness: PUBLIC bound on the curvature of a custom loss.
        label_bound: PUBLIC bound on the size of the labels.
        classes: The labels there may be, in sorted order; None where labels are numbers.
        found: Whether the classes were found in the records, which rules out private runs.
        dealt: Whether a function that may look at the records split them, which rules out private runs.
        spec: What a saved result needs to make the problem again.
        kernels: Whether to compile fused passes over the records. Default: True.

    Raises:
        InputError: By `predict`, `objective` and other methods, if what they are given does not fit the problem.
        PrivacyError: By `public_facts`, if a public bound is missing that a private run needs.

    Example:
        >>> import relaydp as rd
        >>> problem = rd.logistic(rd.load_data("breast-cancer"), agents=4, l2=1e-2)
        >>> problem.agents, problem.dim, problem.public_facts().clip <= 30**0.5
        (4, 30, True)
    """

    data: Records
    loss: Loss
    split: Split
    regulariser: Regulariser
    l2: float
    intercept: bool
    record_norm: float | None
    scale: Scale | None  # from public ranges
    fitted: bool  # ranges were fitted to records not declared public
    clip: float | None
    smoothness: float | None  # public L of a custom loss
    label_bound: float | None
    classes: np.ndarray | None
    found: bool  # the classes were found in the records, not declared
    dealt: bool  # who holds what was decided by a function that may look at the records
    spec: dict[str, Any]
    kernels: bool = True  # whether to compile fused passes: seconds, once, that a few short runs do not repay
    # what `remembered` has computed; `replace` makes a problem without it
    _known: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False)

    # -- what is computed once

    def remembered(
        self,
        compute: Callable[Concatenate[Problem, Arguments], Answer],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Answer:
        """`compute(problem, *args)`, computed once for this problem and kept as long as it.

        For what other packages work out about a problem, such as its minimiser. `compute` is a function of a module,
        since a new function each time would be computed anew each time. Two threads may both compute it; they get
        the same object.

        >>> import relaydp as rd
        >>> def count_records(problem):
        ...     print("counting")
        ...     return int(problem.split.sizes.sum())
        >>> problem = rd.logistic("breast-cancer", agents=2)
        >>> problem.remembered(count_records), problem.remembered(count_records)
        counting
        (456, 456)
        """
        key = (compute, args, *kwargs.items())
        if key not in self._known:
            self._known.setdefault(key, compute(self, *args, **kwargs))
        return self._known[key]

    def with_agent_records(self, agent_records: AgentRecords) -> Problem:
        """The same problem, of which nothing is known yet but its records as `agent_records` has them."""
        return self._told(_laid_out, agent_records)

    def with_measured_smoothness(self, smoothness: np.ndarray) -> Problem:
        """The same problem, of which nothing is known yet but each agent's L_i, measured where its records are."""
        return self._told(_smoothness_of_records, smoothness)

    def _told(self, compute: Callable[[Problem], Answer], answer: Answer) -> Problem:
        made = replace(self)
        made._known[(compute, ())] = answer
        return made

    # -- sizes

    @property
    def agents(self) -> int:
        return len(self.split.sizes)

    @property
    def dim(self) -> int:
        if isinstance(self.loss, CustomLoss):
            return self.loss.dim
        return (self.data.features + self.intercept) * self.loss.outputs

    @cached_property
    def terms(self) -> Terms:
        free = self.loss.outputs if self.intercept and not isinstance(self.loss, CustomLoss) else 0
        return Terms(self.regulariser, self.l2, free)

    @property
    def ranges(self) -> tuple[np.ndarray, np.ndarray] | None:
        """(low, high) of every feature; None without."""
        return None if self.scale is None else (self.scale.low, self.scale.high)

    # -- the records, compact and checked

    @cached_property
    def _scaled(self) -> Scaling:
        return scale_records(self.data.X, self.scale, self.record_norm)

    def encode_labels(self, y: np.ndarray) -> np.ndarray:
        """Labels as the loss wants them: -1/+1, class numbers, or plain numbers."""
        if self.classes is None:
            return np.asarray(y, dtype=np.float64)
        codes = np.searchsorted(self.classes, y)
        codes = np.minimum(codes, len(self.classes) - 1)
        if (self.classes[codes] != y).any():
            odd = np.asarray(y)[self.classes[codes] != y][0]
            raise InputError(
                f"label {odd!r} is not one of the classes {self.classes.tolist()}. Use the classes that the problem "
                "was made with."
            )
        return codes.astype(np.int32) if self.loss.labels == "classes" else 2.0 * codes - 1.0

    @property
    def agent_records(self) -> AgentRecords:
        """Every agent's records as one pytree of arrays, in the dtype that their type and ranges call for."""
        return self.remembered(_laid_out)

    def _lay_out(self, scaled: Scaling, labels: np.ndarray, order: np.ndarray, sizes: np.ndarray) -> AgentRecords:
        start = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        rows = int(sizes.max())
        padding = int((start + rows).max() - sizes.sum())

        def column(values: np.ndarray) -> Array:
            ordered = values[order]
            blank = np.zeros((padding, *values.shape[1:]), values.dtype)
            return jax.device_put(np.concatenate([ordered, blank]) if padding else ordered)  # its own: `placed` copies

        norm = np.sqrt(scaled.norm**2 + 1.0) if self.intercept else scaled.norm
        return AgentRecords(
            X=column(scaled.X),
            y=column(labels),
            shrink=column(scaled.shrink),
            norm=column(norm),
            scale=placed(scaled.scale),
            start=placed(start, np.int32),
            size=placed(sizes, np.int32),
            loss=self.loss,
            rows=rows,
            intercept=self.intercept,
        )

    @cached_property
    def working_records(self) -> AgentRecords:
        """The agent_records for matrix products: expanded to float64 features where that fits in memory."""
        if self.agent_records.is_dense or self.agent_records.X.size * 8 > DENSE_BYTES:
            return self.agent_records
        return jax.jit(AgentRecords.dense)(self.agent_records)

    @property
    def _suits_an_accelerator(self) -> bool:
        """Whether compact records are all on one scale, as pixels are, and may be kept both ways round."""
        agent_records, scale = self.agent_records, self._scaled.scale
        suits = agent_records.loss.name in dispatch.SLOPES and agent_records.X.dtype.itemsize < 8
        fits = (
            self.agents * agent_records.rows <= 2 * agent_records.X.shape[0] and agent_records.X.size * 8 <= DENSE_BYTES
        )
        return suits and fits and bool((scale == scale[0]).all())

    @cached_property
    def _turned_records(self) -> AgentRecords | None:
        """For one run at a time on an accelerator: compact records, both ways round. None where that does not pay."""
        if jax.default_backend() == "cpu" or not self._suits_an_accelerator:
            return None
        return jax.jit(AgentRecords.with_turned)(self.agent_records)

    @cached_property
    def _byte_records(self) -> AgentRecords | None:
        """For a batch along one route on a GPU: byte records for its integer units. None where that does not pay."""
        agent_records = self.agent_records
        short = max(agent_records.X.shape[1], agent_records.rows) <= int8_products.LONGEST
        if (
            jax.default_backend() != "gpu"
            or agent_records.X.dtype != np.uint8
            or not (short and self._suits_an_accelerator)
        ):
            return None
        return jax.jit(AgentRecords.with_bytes)(agent_records)

    def records_for(
        self,
        activations: int,
        clipped: bool,
        batched: bool = False,
        shared: int = 1,
        rounds: bool = False,
        sizes: np.ndarray | None = None,
    ) -> AgentRecords:
        """The records for a run in which every agent acts so many times: compact where a fused pass reads them one run
        at a time, and with the Gram form where that saves reading more than it takes to make.

        `batched` runs share each read of the records; `shared` of them ask the same agent at a time, or in `rounds`
        all agents. `sizes` are all agents' where this problem has one agent's records only: what is decided by them is
        then decided as in a simulation of all.
        """
        sizes = self.split.sizes if sizes is None else sizes
        numbers = int(sizes.sum()) * self.data.features
        at_many = batched and self.kernels and dispatch.pays_at_many(shared, numbers, self.data.features)
        if at_many and dispatch.serves(self.agent_records, shared):
            agent_records = replace(self.agent_records, by_passes=True)
        elif batched:
            agent_records = (
                self._byte_records if shared >= int8_products.RUNS and not rounds else None
            ) or self.working_records
        elif self.kernels and (not rounds or dispatch.pays(numbers)) and dispatch.serves(self.agent_records):
            agent_records = replace(self.agent_records, by_passes=True)
        else:
            agent_records = (None if rounds else self._turned_records) or self.working_records
        m, q = sizes.mean(), self.dim
        saves = self.loss is LEAST_SQUARES and activations * (m - q) > m * q / PRODUCT_SPEED
        return replace(agent_records, gram=self.gram) if saves and not clipped else agent_records

    @cached_property
    def gram(self) -> Gram:
        """Of least squares: A_i'A_i / m_i and A_i'y / m_i, with the intercept's column of ones."""
        agent_records = self.agent_records
        hessian = np.empty((self.agents, self.dim, self.dim))
        moment = np.empty((self.agents, self.dim))
        labels, start = np.asarray(agent_records.y), np.asarray(agent_records.start)
        for i, A in enumerate(features_by_agent(agent_records)):
            y = labels[start[i] : start[i] + len(A)]
            hessian[i], moment[i] = A.T @ A / len(A), A.T @ y / len(A)
        return Gram(placed(hessian), placed(moment))

    # -- what a private run may know

    def check_declared(self, prior: object = None) -> None:
        """Refuse what only the records say, where one of them could change it: classes and the number of features,
        which decide the dimension, the encoding and the program; who holds what, where one label may move others; and a
        prior of these very records, which decides the plan.
        """
        if self.data.width_found:
            raise PrivacyError(
                "the number of features is the largest index found in the records, and a private run may not look "
                "there: one record could have a larger one. Pass features=N, known without the records, where they are "
                "loaded (--features N on the command line, features = N in [data] of a TOML file); or pass seed=, for "
                "a simulation without a promise."
            )
        if self.found:
            raise PrivacyError(
                "the classes were found in the records, and a private run may not look there: one record could add "
                "one. Pass classes=[...] with every label there may be, known without the records, where the problem "
                "is made (--classes a,b on the command line, classes = [...] in [problem] of a TOML file); or pass "
                "seed=, for a simulation without a promise."
            )
        if self.dealt:
            raise PrivacyError(
                "agents= is a function that may look at the records (partition.dirichlet looks at the labels), and a "
                "private run may not: one record could move others from agent to agent. Pass what is known without "
                "the records: agents=COUNT, a list of sizes with the records in that order, or the name of a group "
                "column; or pass seed=, for a simulation without a promise."
            )
        if isinstance(prior, Problem) and self.data.same_as(prior.data):
            raise PrivacyError(
                f"the prior must be public records; these are the private ones ({self.data.name}), and the plan would "
                "reveal something about them. Pass a prior= of other, public records, or no prior; or pass seed=, for "
                "a simulation without a promise."
            )

    def features_bound(self) -> float | None:
        """The largest norm of a record's features that the public bounds allow; None where they do not bound it."""
        if self.record_norm is not None:
            return self.record_norm
        return None if self.scale is None else math.sqrt(self.data.features)  # every feature lies in [-1, 1]

    def _bounded_norm(self) -> float | None:
        """B: the same with the intercept's 1 included."""
        bound = self.features_bound()
        # not hypot, whose last digit is the library's own: what is agreed on is the same number on every machine
        return math.sqrt(bound * bound + 1.0) if bound is not None and self.intercept else bound

    def gradient_bound(self) -> float | None:
        """c: what a record's gradient is clipped to; `clip=` if given, else the most that the bounds allow."""
        return self.largest_gradient() if self.clip is None else self.clip

    def largest_gradient(self) -> float | None:
        """G: the most that a record's gradient can be by the public bounds; None where they do not bound it."""
        bound = self._bounded_norm()
        if bound is None or isinstance(self.loss, CustomLoss):
            return None
        if math.isfinite(self.loss.slope):
            return self.loss.slope * bound
        return self.label_bound * bound if self.label_bound is not None else None

    def public_facts(self) -> Facts:
        """The facts a private run decides by, from public bounds alone; refuses where one is missing."""
        if self.fitted:
            raise PrivacyError(
                "ranges='fit' looked at the records, and a private run may not. Pass ranges=(low, high) known without "
                "them (pixels: (0, 255)), or ranges='fit-public' if these records are public."
            )
        bound = self._bounded_norm()
        if isinstance(self.loss, CustomLoss):
            if self.smoothness is None:
                raise PrivacyError(
                    "a private run of a custom loss needs a public smoothness constant: pass smoothness= (the largest "
                    "curvature of one record's loss, known without the records)."
                )
            curvature = self.smoothness
        elif bound is None:
            raise PrivacyError(
                "a private run needs a public bound on the records, and this problem has none. Pass record_norm= (the "
                "largest norm a record may have; longer ones are shrunk to it) or ranges=(low, high) for the features."
            )
        else:
            curvature = self.loss.curvature * bound**2
        clip = self.gradient_bound()
        if clip is None:
            raise PrivacyError(
                f"the {self.loss.name} loss has no bounded gradient, and a private run needs one. Pass clip= (the "
                "largest norm of one record's gradient; larger ones are clipped) or label_bound= (the largest |label|)."
            )
        return self._facts(np.full(self.agents, curvature + self.l2), clip, public=True)

    def objective_bounds(self) -> tuple[float, float, float]:
        """(G, K, modulus) that objective perturbation rests on: |grad loss_j| <= G, |loss_j''| <= K, and the ridge
        where it reaches every coefficient. Refuses a problem that its proof does not cover.
        """
        facts = self.public_facts()
        bound = self._bounded_norm()
        smooth = not isinstance(self.loss, CustomLoss) and self.loss.name == "logistic"
        if not smooth or bound is None or self.regulariser.kind != "none":
            what = f"r = {self.regulariser.kind}" if smooth else f"the {self.loss.name} loss"
            raise PrivacyError(
                f"objective perturbation is proved for the logistic loss without a nonsmooth r; here is {what}."
            )
        assert not isinstance(self.loss, CustomLoss)
        modulus = 0.0 if self.intercept else facts.modulus
        return self.loss.slope * bound, self.loss.curvature * bound**2, modulus

    def measured_facts(self) -> Facts:
        """The same facts with L_i measured on the records: for runs that promise nothing."""
        clip = self.gradient_bound()
        return self._facts(self.remembered(_smoothness_of_records), math.inf if clip is None else clip, public=False)

    def _facts(self, smoothness: np.ndarray, clip: float, public: bool) -> Facts:
        return Facts(
            agents=self.agents,
            sizes=self.split.sizes,
            dim=self.dim,
            smoothness=smoothness,
            modulus=self.l2,
            clip=clip,
            public=public,
            bound=self.largest_gradient(),
            clip_given=self.clip is not None,
            classifies=self.loss.name in CLASSIFIERS,
            squares=self._squares(),
        )

    def _squares(self) -> tuple[float, float] | None:
        """(R, Y): what one record's part in A'A and A'y can be, by public bounds; None where they do not bound it."""
        bound = self._bounded_norm()
        if self.loss is not LEAST_SQUARES or bound is None or self.label_bound is None:
            return None
        return bound, self.label_bound

    def with_ridge(self, largest: np.ndarray) -> np.ndarray:
        """L_i of bounds on lambda_max(A_i'A_i / m_i); from above, as they are: the sum is rounded, too."""
        assert not isinstance(self.loss, CustomLoss)
        return (self.loss.curvature * largest + self.l2) * (1.0 + 2.0 * np.finfo(np.float64).eps)

    # -- values

    def objectives(self, xs: Any) -> np.ndarray:
        """F at each row of xs (points, dim)."""
        count = len(xs)
        if self.data.X.size <= LITTLE:  # filled up: a program for every number of points would take longer
            xs = np.concatenate([xs, np.zeros((-count % (POINTS_A_PASS // 2), self.dim))])
        passes = self.kernels and dispatch.measures(self.agent_records, len(xs), self.data.X.size)
        agent_records = replace(self.agent_records, by_passes=True) if passes else self.working_records
        return np.asarray(_objectives(self.terms, agent_records, placed(xs, np.float64)))[:count]

    def objective(self, x: Any) -> float:
        """F(x)."""
        return float(self.objectives(np.asarray(x)[None])[0])

    # -- predictions

    def _features(self, data: Records) -> np.ndarray:
        scaled = scale_records(data.X, self.scale, self.record_norm)
        return scaled.X.astype(np.float64) * scaled.scale * scaled.shrink[:, None]

    @property
    def held_out(self) -> Records:
        """What accuracy is measured on: the test records, or the training ones without any."""
        return self.data if self.data.test is None else self.data.test

    @cached_property
    def _held_out(self) -> tuple[np.ndarray, np.ndarray]:
        return self._features(self.held_out), self.encode_labels(self.held_out.y)

    @cached_property
    def _held_out_records(self) -> AgentRecords:
        """As if one agent had them."""
        data = self.held_out
        scaled = scale_records(data.X, self.scale, self.record_norm)
        return self._lay_out(scaled, self.encode_labels(data.y), np.arange(len(data)), np.array([len(data)]))

    @property
    def classifies(self) -> bool:
        """Whether accuracy means something: classes, or numbers of records that declare the classes -1 and +1."""
        if isinstance(self.loss, CustomLoss):
            return False
        return self.classes is not None or set(self.data.classes or ()) == {-1, 1}

    def predict(self, x: Any, X: Any) -> np.ndarray:
        """Labels (classification) or numbers (regression) for new records, scaled as the training ones were.

        Args:
            x: The model, `dim` coefficients: a result's x.
            X: The new records, (records, features), in the units of the training records.

        Returns:
            A label or a number for each record.

        Raises:
            InputError: x or X has another length than this problem, or the loss is a custom one.

        Example:
            >>> import relaydp as rd
            >>> data = rd.load_data("breast-cancer")
            >>> problem = rd.logistic(data, agents=4, l2=1e-2)
            >>> problem.predict(rd.minimise(problem).x, data.X[:2]).tolist()
            [-1, -1]
        """
        if isinstance(self.loss, CustomLoss):
            raise InputError("relaydp does not know what a custom loss predicts; use the coefficients result.x.")
        rows = Records(X, np.zeros(len(X)))
        if rows.features != self.data.features:
            raise InputError(f"X has {rows.features} features; it must have {self.data.features}, as the records have.")
        if np.shape(x) != (self.dim,):
            raise InputError(f"x has shape {np.shape(x)}; needed ({self.dim},), the coefficients of this problem.")
        A = placed(self._features(rows))
        z = np.asarray(scores(self.loss, self.intercept, placed(x, np.float64), A))
        if self.classes is None:
            return z[:, 0]
        codes = z.argmax(axis=1) if self.loss.labels == "classes" else (z[:, 0] > 0).astype(int)
        return self.classes[codes]

    def accuracies(self, xs: np.ndarray) -> np.ndarray:
        """Share of held-out labels predicted right, for each row of xs (points, dim)."""
        assert not isinstance(self.loss, CustomLoss)
        numbers = self.held_out.X.size
        pays = self.kernels and dispatch.pays_at_many(len(xs), numbers, self.dim)
        if pays and dispatch.measures(self._held_out_records, len(xs), numbers):
            filled = np.concatenate([xs, np.zeros((-len(xs) % 16, self.dim))])  # so that few sizes compile
            return np.asarray(_shares_right(self._held_out_records, filled))[: len(xs)]
        A, y = self._held_out
        outputs = self.loss.outputs
        W = np.asarray(xs).reshape(len(xs), -1, outputs)
        coefficients = W[:, : A.shape[1]].transpose(1, 0, 2).reshape(A.shape[1], -1)
        right = np.zeros(len(xs), int)
        for at in range(0, len(A), SCORED):
            part = slice(at, at + SCORED)
            z = (A[part] @ coefficients).reshape(-1, len(xs), outputs)
            if self.intercept:
                z = z + W[None, :, -1]
            if self.loss.labels == "classes":
                right += np.count_nonzero(z.argmax(axis=2) == y[part, None], axis=0)
            else:  # a label that is neither -1 nor +1 is never right
                side, signed = y[part] > 0, np.abs(y[part]) == 1.0
                right += np.count_nonzero(((z[:, :, 0] > 0) == side[:, None]) & signed[:, None], axis=0)
        return right / len(A)

    def accuracy(self, x: Any) -> float:
        """Share of held-out labels that x predicts right."""
        return float(self.accuracies(np.asarray(x)[None])[0])

    # -- parts

    def alone(self, agent: int) -> Problem:
        """The problem agent `agent` would solve with its own records only: what it has without the others."""
        order, sizes, names = self.split
        if not 0 <= agent < len(sizes):
            raise InputError(f"agent {agent} does not exist; the agents are numbered 0 to {len(sizes) - 1}.")
        first = int(sizes[:agent].sum())
        mine = Split(order[first : first + sizes[agent]], sizes[agent : agent + 1], names[agent : agent + 1])
        return replace(self, split=mine, spec={**self.spec, "alone": agent})

    def __repr__(self) -> str:
        return (
            f"Problem({self.loss.name}, {self.data.name}, agents={self.agents}, "
            f"records={int(self.split.sizes.sum())}, dim={self.dim}, l2={self.l2}, r={self.regulariser.kind})"
        )


def _laid_out(problem: Problem) -> AgentRecords:
    order, sizes, _ = problem.split
    return problem._lay_out(problem._scaled, problem.encode_labels(problem.data.y), order, sizes)


def _smoothness_of_records(problem: Problem) -> np.ndarray:
    """L_i: curvature * lambda_max(A_i'A_i / m_i) + l2, or the bound given for a custom loss."""
    if isinstance(problem.loss, CustomLoss):
        if problem.smoothness is None:
            raise InputError("a custom loss needs smoothness= (the largest curvature of one record's loss).")
        return np.full(problem.agents, problem.smoothness + problem.l2)
    return problem.with_ridge(largest_curvatures(problem.working_records))
