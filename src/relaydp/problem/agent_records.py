"""AgentRecords: every agent's records in one compact array, and the only code that computes with them.

Agent i's rows are X[start_i : start_i + size_i]. A gradient slices `rows` = max_i size_i rows from start_i on and gives
those past size_i the weight 0, so unequal agents share one compiled program and no padding reaches an answer.

Records are stored compactly where their declared type and ranges allow it (uint8 pixels are bytes; `bounds.storage`)
and become features on use:

    feature = X * scale * shrink          scale: from public ranges; shrink_j: to the record norm

or once, up front, by `dense()`, where the float64 copy fits in memory; X in float64 are features. A gradient is a fused
pass over an agent's records where that pays (`kernels.dispatch`), also for a batch whose runs all ask the same agent;
two sums along rows where an accelerator has them both ways round; and elsewhere two matrix products, for such batches
of a GPU's integer units (`kernels.int8_products`). Which of them is decided by types and sizes, never by values
(docs/privacy.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Float, Int

from relaydp.privacy.mechanism import clip_factor, scaled
from relaydp.privacy.sensitivity import ROUND
from relaydp.problem.coordinates import KEPT, Coordinates, classes_of
from relaydp.problem.kernels import dispatch
from relaydp.problem.kernels.int8_products import Bytes, make_bytes, product
from relaydp.problem.loss import CustomLoss, LinearLoss, Loss


class Gram(NamedTuple):
    """Least squares without its records: grad f_i(x) = H_i x - b_i. What one record did to it can no longer be told,
    so nothing that clips may use it.
    """

    hessian: Float[Array, "agents dim dim"]  # H_i = A_i'A_i / m_i
    moment: Float[Array, "agents dim"]  # b_i = A_i'y_i / m_i


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class AgentRecords:
    X: Array  # (records + padding, features), in its compact dtype
    y: Array  # (records + padding,)
    shrink: Float[Array, " records"]  # per-record factor that brings its norm under the public bound
    norm: Float[Array, " records"]  # of the feature vector after all scaling, the intercept's 1 included
    scale: Float[Array, " features"]
    start: Int[Array, " agents"]
    size: Int[Array, " agents"]
    loss: Loss = field(metadata={"static": True})
    rows: int = field(metadata={"static": True})  # the largest agent's number of records
    intercept: bool = field(metadata={"static": True})
    by_passes: bool = field(default=False, metadata={"static": True})  # gradients are fused passes over the records
    gram: Gram | None = None  # for gradients that are not clipped
    turned: Array | None = None  # (agents, features, rows): every agent's slice of X, features first
    bytes: Bytes | None = None  # the same records for a batch of points and a GPU's integer units
    coordinates: Coordinates | None = None  # of the points that gradients are asked at, and of the gradients

    @property
    def is_dense(self) -> bool:
        """Whether X holds features."""
        return self.X.dtype == jnp.float64

    def dense(self) -> AgentRecords:
        """The same agent_records with features in float64: faster to use, eight times the bytes of pixels."""
        return replace(self, X=self._features(self.X, self.shrink))

    def with_turned(self) -> AgentRecords:
        """The same agent_records with their records twice, the second time features first, for `_reduced_gradient`.

        Only for records with one scale for all features, which `shrink` then includes.
        """
        turned = jax.vmap(lambda start: jax.lax.dynamic_slice_in_dim(self.X, start, self.rows).T)(self.start)
        return replace(self, turned=turned, shrink=self.shrink * self.scale[0], scale=jnp.ones_like(self.scale))

    def with_bytes(self) -> AgentRecords:
        """The same records as bytes, for `_digit_gradients`; under the same conditions as `with_turned`."""
        bytes_ = make_bytes(self.X, self.start, self.rows)
        return replace(self, bytes=bytes_, shrink=self.shrink * self.scale[0], scale=jnp.ones_like(self.scale))

    def moments(self, bound: Float[Array, ""]) -> Float[Array, "agents numbers"]:
        """(1) of `problem.coordinates` without noise: every agent's sum of each class, mean square and shares.

        Formal guarantee: with features of norm `bound` at most, replacing one of agent i's records moves row i by at
        most 2 bound / m_i.
        """
        outputs = self.loss.outputs if isinstance(self.loss, LinearLoss) else 1

        def of_agent(i: Array) -> Array:
            A, y, norm, weight = self._agent(i)
            # with an intercept the norm has its 1, beside which that of short features would be lost
            square = jnp.sum(A * A, axis=1) if self.intercept else norm * norm
            half = jnp.sum(weight * square) / (2.0 * bound)
            code = (y > 0).astype(jnp.int32) if outputs == 1 else y
            told = weight[:, None] * jax.nn.one_hot(code, classes_of(outputs), dtype=A.dtype)
            return jnp.concatenate([(told.T @ A).reshape(-1), half[None], bound * jnp.sum(told, axis=0)])

        return jax.lax.map(of_agent, jnp.arange(self.size.shape[0], dtype=self.size.dtype))

    def squares(
        self, i: Int[Array, ""], label: Float[Array, ""] | None
    ) -> tuple[Float[Array, "dim dim"], Float[Array, " dim"]]:
        """A_i'A_i / m_i and A_i'y_i / m_i, of least squares; each label is cut off to [-label, label].

        Formal guarantee: the theorem of `privacy.statistics`, with R the public bound on a record's norm. With
        label=None nothing is cut off and nothing is guaranteed.
        """
        A, y, _, weight = self._agent(i)
        if self.intercept:
            A = jnp.concatenate([A, jnp.ones((A.shape[0], 1), A.dtype)], axis=1)
        if label is not None:
            y = jnp.clip(y, -label, label)
        weighted = A * weight[:, None]
        return weighted.T @ A, weighted.T @ y

    def in_coordinates(self, coordinates: Coordinates) -> AgentRecords:
        """The same records, whose gradients are asked for and clipped in other coordinates: of loss(P z) at z.

        The coordinates are the same for all agents, or one row for each. Norms are rounded up, so that a clipped
        gradient is not longer than the clip: each is a root of a difference of sums with a term per feature, and not
        below k times the record's own.
        """
        shared = coordinates.direction.ndim == 1
        u = coordinates.direction if shared else None

        def fill(i: Array, along: Array) -> Array:
            A, *_ = self._agent(i)
            mine = coordinates.direction[i] if u is None else u
            part = A @ mine[: A.shape[1]] + (mine[-1] if self.intercept else 0.0)
            return jax.lax.dynamic_update_slice_in_dim(along, part, self.start[i], 0)  # the next agent's are next

        along = jax.lax.fori_loop(0, self.size.shape[0], fill, jnp.zeros_like(self.norm))
        length = coordinates.length if shared else self._of_owner(coordinates.length)
        squares = self.norm * self.norm
        left = jnp.maximum(squares - (1.0 - KEPT**2) * along * along, KEPT**2 * squares)
        up = 1.0 + (8.0 * self.X.shape[1] + 200.0) * ROUND / KEPT**2
        return self.with_norm(up * length * jnp.sqrt(left), coordinates)

    def with_norm(self, norm: Float[Array, " records"], coordinates: Coordinates) -> AgentRecords:
        """`in_coordinates`, where the norms are known."""
        # the products of bytes count on norms in the records' own coordinates
        return replace(self, norm=norm, coordinates=coordinates, bytes=None)

    def _of_owner(self, values: Float[Array, " agents"]) -> Float[Array, " records"]:
        """Each record's agent's value; padding has the last agent's."""
        rows = jnp.arange(self.norm.shape[0], dtype=self.start.dtype)
        return values[jnp.searchsorted(self.start, rows, side="right") - 1]

    def _features(self, X: Array, shrink: Array) -> Array:
        if self.is_dense:
            return X
        return X.astype(self.scale.dtype) * self.scale[None, :] * shrink[:, None]

    def _slices(self, i: Int[Array, ""]) -> tuple[Array, Array, Array, Array, Array]:
        """Agent i's records as stored, labels, norms, shrinking, and weights: 1/m_i for its own rows, 0 for others."""

        def take(column: Array) -> Array:
            return jax.lax.dynamic_slice_in_dim(column, self.start[i], self.rows)

        size = self.size[i]
        own = jnp.arange(self.rows, dtype=size.dtype) < size
        weight = jnp.where(own, 1.0 / size.astype(self.scale.dtype), 0.0)
        return take(self.X), take(self.y), take(self.norm), take(self.shrink), weight

    def _agent(self, i: Int[Array, ""]) -> tuple[Array, Array, Array, Array]:
        """Agent i's features, labels, norms, and weights."""
        X, y, norm, shrink, weight = self._slices(i)
        return self._features(X, shrink), y, norm, weight

    def gradient(
        self, i: Int[Array, ""], x: Float[Array, " dim"], clip: Float[Array, ""] | None
    ) -> Float[Array, " dim"]:
        """(1/m_i) sum_j clip_c(grad loss_ij(x)): agent i's mean gradient, each record's clipped to norm `clip`.

        Formal guarantee: replacing one of agent i's records moves the result by at most 2 clip / m_i.
        With clip=None nothing is clipped and nothing is guaranteed.
        """
        if self.coordinates is not None:
            own = replace(self, coordinates=None)
            return self.coordinates(own.gradient(i, self.coordinates(x), clip))
        if clip is None and self.gram is not None:
            return self.gram.hessian[i] @ x - self.gram.moment[i]
        if self.by_passes:
            return _fused_gradient(self, i, x, clip)
        if self.turned is not None:
            return self._reduced_gradient(i, x, clip)
        if self.bytes is not None:
            return _shared_gradient(self, i, x, clip)
        return self.plain_gradient(i, x, clip)

    def plain_gradient(
        self, i: Int[Array, ""], x: Float[Array, " dim"], clip: Float[Array, ""] | None
    ) -> Float[Array, " dim"]:
        """`gradient` by XLA alone: matrix products, on any device, and for a batch of points the best there is."""
        A, y, norm, weight = self._agent(i)
        return _mean_gradient(self.loss, self.intercept, x, A, y, norm, weight, clip)

    def _reduced_gradient(
        self, i: Int[Array, ""], x: Float[Array, " dim"], clip: Float[Array, ""] | None
    ) -> Float[Array, " dim"]:
        """`gradient` as two sums along rows, of X and of `turned`.

        On an accelerator XLA makes each a single kernel that reads records in their compact dtype, where a matrix
        product would want them in float64 first.
        """
        X, y, norm, shrink, weight = self._slices(i)
        assert isinstance(self.loss, LinearLoss) and self.turned is not None
        q = X.shape[1]
        z = shrink * jnp.sum(X.astype(x.dtype) * x[None, :q], axis=1)
        z = z + x[q] if self.intercept else z
        slope = self.loss.slopes(z[:, None], y)[:, 0]
        if clip is not None:
            weight = clipped_weight(weight, norm, jnp.abs(slope), clip)
        pull = scaled(weight, slope)
        grad = jnp.sum(self.turned[i].astype(x.dtype) * (pull * shrink)[None, :], axis=1)
        return jnp.append(grad, jnp.sum(pull)) if self.intercept else grad

    def _digit_gradients(
        self, i: Int[Array, ""], xs: Float[Array, "runs dim"], clip: Float[Array, ""] | None
    ) -> Float[Array, "runs dim"]:
        """`gradient` of one agent at many points, as two products of bytes (`digits`)."""
        assert isinstance(self.loss, LinearLoss) and self.bytes is not None
        X, y, norm, shrink, weight = self._slices(i)
        q, loss = X.shape[1], self.loss
        z = shrink[None, :] * product(xs[:, :q], self.bytes.by_record[i])[:, : self.rows]
        z = z + xs[:, q:] if self.intercept else z
        slope = jax.vmap(lambda row: loss.slopes(row[:, None], y)[:, 0])(z)
        weight, most = weight[None, :], None
        if clip is not None:
            weight = clipped_weight(weight, norm[None, :], jnp.abs(slope), clip)
            # A record of bytes that is not 0 has a norm of 1 at least before it is scaled: no pull below is longer
            # than c/m. Twice that is for rounding; and the same for all, so that nobody decides on others' digits.
            most = 2.0 * clip / self.size[i].astype(slope.dtype)
        pull = scaled(weight, slope)
        grad = product(pull * shrink[None, :], self.bytes.by_feature[i], most)[:, :q]
        return jnp.concatenate([grad, jnp.sum(pull, axis=1, keepdims=True)], axis=1) if self.intercept else grad

    def gradients(self, xs: Float[Array, "agents dim"], clip: Float[Array, ""] | None) -> Float[Array, "agents dim"]:
        """Every agent's `gradient` at its own point."""
        if self.coordinates is not None:
            change = jax.vmap(Coordinates.__call__, (None if self.coordinates.direction.ndim == 1 else 0, 0))
            own = replace(self, coordinates=None)
            return change(self.coordinates, own.gradients(change(self.coordinates, xs), clip))
        if clip is None and self.gram is not None:
            return jnp.einsum("ijk,ik->ij", self.gram.hessian, xs) - self.gram.moment
        if self.by_passes:
            return _fused_gradients(self, xs, clip)
        return self.plain_gradients(xs, clip)

    def plain_gradients(
        self, xs: Float[Array, "agents dim"], clip: Float[Array, ""] | None
    ) -> Float[Array, "agents dim"]:
        """`gradients` by XLA alone, in one pass: matrix work for all agents together."""
        agents = self.size.shape[0]

        def each(column: Array) -> Array:
            if column.shape[0] == agents * self.rows:  # agents of equal size lie one after the other: no copy
                return column.reshape(agents, self.rows, *column.shape[1:])
            rows = self.start[:, None] + jnp.arange(self.rows, dtype=self.start.dtype)[None, :]
            return column[rows]

        own = jnp.arange(self.rows, dtype=self.size.dtype)[None, :] < self.size[:, None]
        weight = jnp.where(own, 1.0 / self.size.astype(self.scale.dtype)[:, None], 0.0)

        def one(x: Array, X: Array, y: Array, shrink: Array, norm: Array, weight: Array) -> Array:
            A = self._features(X, shrink)
            return _mean_gradient(self.loss, self.intercept, x, A, y, norm, weight, clip)

        return jax.vmap(one)(xs, each(self.X), each(self.y), each(self.shrink), each(self.norm), weight)

    def value(self, i: Int[Array, ""], x: Float[Array, " dim"]) -> Float[Array, ""]:
        """(1/m_i) sum_j loss_ij(x)."""
        A, y, _, weight = self._agent(i)
        return _weighted_sum(weight, record_losses(self.loss, self.intercept, x, A, y))

    def mean_value(self, x: Float[Array, " dim"]) -> Float[Array, ""]:
        """(1/n) sum_i (1/m_i) sum_j loss_ij(x), in one pass over all records."""
        losses = record_losses(self.loss, self.intercept, x, self._features(self.X, self.shrink), self.y)
        return _weighted_sum(self.record_weights(), losses)

    def mean_values(self, xs: Float[Array, "points dim"]) -> Float[Array, " points"]:
        """`mean_value` at each row of xs: points share their passes over the records."""
        return dispatch.values(self, xs) if self.by_passes else jax.vmap(self.mean_value)(xs)

    def mean_gradient(self, x: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """The gradient of `mean_value`, unclipped."""
        A = self._features(self.X, self.shrink)
        weights = self.record_weights()
        return _mean_gradient(self.loss, self.intercept, x, A, self.y, self.norm, weights, None)

    def record_weights(self) -> Float[Array, " records"]:
        """1/(n m_i) for agent i's records, 0 for padding."""
        agents = self.size.shape[0]
        total = self.X.shape[0]
        owner = jnp.searchsorted(self.start, jnp.arange(total, dtype=self.start.dtype), side="right") - 1
        real = jnp.arange(total, dtype=self.start.dtype) < self.start[-1] + self.size[-1]
        share = 1.0 / (agents * self.size.astype(self.scale.dtype))
        return jnp.where(real, share[owner], 0.0)


@custom_vmap
def _fused_gradient(agent_records: AgentRecords, i: Array, x: Array, clip: Array | None) -> Array:
    return dispatch.gradient(agent_records, i, x, clip)


@custom_vmap
def _fused_gradients(agent_records: AgentRecords, xs: Array, clip: Array | None) -> Array:
    agents = jnp.arange(agent_records.size.shape[0], dtype=jnp.int32)
    return jax.lax.map(lambda asked: dispatch.gradient(agent_records, asked[0], asked[1], clip), (agents, xs))


@custom_vmap
def _shared_gradient(agent_records: AgentRecords, i: Array, x: Array, clip: Array | None) -> Array:
    return agent_records.plain_gradient(i, x, clip)


# A batch shares each read of the records: in one fused pass, where all ask the same agent, and else in products.


@_fused_gradient.def_vmap
def _at_many(
    size: int, batched: tuple, agent_records: AgentRecords, i: Array, x: Array, clip: Array | None
) -> tuple[Array, bool]:
    if _only(batched, 2) and size >= dispatch.FEW and dispatch.serves(agent_records, size):
        return dispatch.gradient(agent_records, i, x, clip), True
    return _batch(AgentRecords.plain_gradient, size, batched, (agent_records, i, x, clip))


@_fused_gradients.def_vmap
def _all_at_many(
    size: int, batched: tuple, agent_records: AgentRecords, xs: Array, clip: Array | None
) -> tuple[Array, bool]:
    if _only(batched, 1) and size >= dispatch.FEW and dispatch.serves(agent_records, size):
        each = jnp.swapaxes(xs, 0, 1)
        agents = jnp.arange(agent_records.size.shape[0], dtype=jnp.int32)
        found = jax.lax.map(lambda asked: dispatch.gradient(agent_records, asked[0], asked[1], clip), (agents, each))
        return jnp.swapaxes(found, 0, 1), True
    return _batch(AgentRecords.plain_gradients, size, batched, (agent_records, xs, clip))


def _only(batched: tuple, number: int) -> bool:
    """Whether of all arguments this one alone differs between the runs of a batch."""
    return [k for k, own in enumerate(batched) if any(jax.tree.leaves(own))] == [number]


def _batch(function: Callable[..., Array], size: int, batched: tuple, asked: tuple) -> tuple[Array, bool]:
    axes = jax.tree.map(lambda has_axis: 0 if has_axis else None, tuple(batched))
    return jax.vmap(function, in_axes=axes, axis_size=size)(*asked), True


@_shared_gradient.def_vmap
def _by_digits(
    size: int, batched: tuple, agent_records: AgentRecords, i: Array, x: Array, clip: Array | None
) -> tuple[Array, bool]:
    if _only(batched, 2):
        return agent_records._digit_gradients(i, x, clip), True
    return _batch(AgentRecords.plain_gradient, size, batched, (agent_records, i, x, clip))


def _weighted_sum(weight: Array, losses: Array) -> Float[Array, ""]:
    """Padding may have no loss at all (0/0): its rows are taken out, not multiplied by 0."""
    return jnp.sum(jnp.where(weight > 0.0, weight * losses, 0.0))


def clipped_weight(weight: Array, norm: Array, slope: Array, clip: Array) -> Array:
    """Weights that clip gradients a_j s_j' with ||a_j|| = norm and ||s_j|| = slope.

    0 for a record of zeros: its gradient is 0, but its slope as large as its label, and not for others' digits to bear.
    """
    return jnp.where(norm > 0.0, weight * clip_factor(norm * slope, clip), 0.0)


def scores(loss: LinearLoss, intercept: bool, x: Array, A: Array) -> Float[Array, "records outputs"]:
    """z = a'W (+ intercept) for every row of A; x is W, row by row, the intercepts last."""
    W = x.reshape(-1, loss.outputs)
    return A @ W[:-1] + W[-1][None, :] if intercept else A @ W


def record_losses(loss: Loss, intercept: bool, x: Array, A: Array, y: Array) -> Float[Array, " records"]:
    if isinstance(loss, CustomLoss):
        return jax.vmap(loss.fn, in_axes=(None, 0, 0))(x, A, y)
    return loss.values(scores(loss, intercept, x, A), y)


def _mean_gradient(
    loss: Loss, intercept: bool, x: Array, A: Array, y: Array, norm: Array, weight: Array, clip: Array | None
) -> Array:
    if isinstance(loss, CustomLoss):
        each = jax.vmap(jax.grad(loss.fn), in_axes=(None, 0, 0))(x, A, y)
        if clip is not None:
            weight = weight * clip_factor(jnp.sqrt(jnp.sum(each * each, axis=1)), clip)
        return jnp.sum(scaled(weight[:, None], each), axis=0)  # padding may have no gradient at all (0/0)
    slope = loss.slopes(scores(loss, intercept, x, A), y)
    if clip is not None:
        # ||a_j s_j'|| = ||a_j|| ||s_j||: the closed form for linear models
        weight = clipped_weight(weight, norm, jnp.sqrt(jnp.sum(slope * slope, axis=1)), clip)
    pull = scaled(weight[:, None], slope)
    grad = (pull.T @ A).T  # not A.T @ pull: on a CPU XLA reads A across for that, up to four times slower
    if intercept:
        grad = jnp.concatenate([grad, jnp.sum(pull, axis=0)[None, :]])
    return grad.reshape(-1)
