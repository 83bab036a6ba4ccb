"""The only way in which anything computed from private records leaves an agent.

    g~ = (1/m) sum_j clip_c(grad loss_j) + N(0, scale^2 I)

`clip_factor` bounds the effect of one record on the sum; `release` adds the noise. Everything computed from g~ and
public values afterwards is post-processing and costs nothing more.
"""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

import relaydp._jax  # noqa: F401 (JAX's settings)
from relaydp.errors import PrivacyError

FAR = 1e200  # larger norms count as infinite: c/norm would lose digits near 0, and with them the bound c


def release(value: jax.Array, scale: ArrayLike, key: jax.Array) -> jax.Array:
    """value + N(0, scale^2 I): `value` with noise, which may be published.

    At scale 0 it is `value` to the last bit, for runs without privacy. The answer is the
    same jitted or not.

    Formal guarantee. Let neighbouring data sets differ in one record of one agent (replaced, so their sizes
    agree), and let `value` move by at most `sensitivity` in the Euclidean norm between any two. With scale
    above 0 the result is rho-zCDP, rho = sensitivity^2/(2 scale^2), and sqrt(2 rho)-GDP, provided that

      - `scale` and the sensitivity do not depend on the records (they may depend on earlier releases);
      - `key` is secret, and used for nothing else: the same key twice gives the same noise, which cancels;
      - the records reach the outside in no other way.

    The statement is about real numbers. Float64 draws have an error of about 1e-15 (1e-10 beyond 5 deviations) and end
    at 8.3; they do not protect against an opponent who studies an output's last bits (Mironov 2012).

    >>> key = jax.random.key(0)
    >>> with jax.enable_x64(True):
    ...     print(release(jnp.ones(3), 0.0, key))
    [1. 1. 1.]
    """
    if key is None:
        raise PrivacyError("key=None; it must be a fresh JAX key for each release. Split one from the run's key.")
    if value.dtype != jnp.float64:
        raise PrivacyError(
            f"value has type {value.dtype}; it must be float64, where noise has enough bits to hide a value. "
            'Call jax.config.update("jax_enable_x64", True) before making arrays.'
        )
    spread = jnp.asarray(scale, value.dtype)
    # The barrier keeps the compiler from merging `spread` into the draw's constants, and the first `where`
    # from fusing product and sum: on a CPU a jitted run then equals an unjitted one to the last bit.
    noise = jax.lax.optimization_barrier(jax.random.normal(key, value.shape, value.dtype)) * spread
    noisy = value + jnp.where(noise == 0, 0.0, noise)
    # "== 0" and not "> 0": a NaN scale then makes the answer NaN instead of publishing `value`.
    return jnp.where(spread == 0, value, noisy)


def perturbation(shape: tuple[int, ...], scale: ArrayLike, key: jax.Array) -> jax.Array:
    """Noise with density proportional to exp(-|e| / scale) along the last axis, for `privacy.objective`.

    Its length is Gamma(q, scale), its direction uniform. Both are float64, and the proof is about real numbers, so only
    simulations use it.

    >>> with jax.enable_x64(True):
    ...     e = perturbation((20_000, 3), 2.0, jax.random.key(0))
    ...     print(round(float(jnp.mean(jnp.linalg.norm(e, axis=1)))))
    6
    """
    if key is None:
        raise PrivacyError(
            "key=None for noise in the objective, which only simulations have; it must be a JAX key. Pass a seed, or "
            "use an algorithm with noise on gradients."
        )
    towards, far = jax.random.split(key)
    direction = jax.random.normal(towards, shape, jnp.float64)
    direction = direction / jnp.linalg.norm(direction, axis=-1, keepdims=True)
    length = jax.random.gamma(far, float(shape[-1]), shape[:-1], jnp.float64) * jnp.asarray(scale, jnp.float64)
    return direction * length[..., None]


def clip_factor(norms: jax.Array, bound: ArrayLike) -> jax.Array:
    """The factor by which each record's gradient is scaled so that its norm is at most `bound`: min(1, bound/norm).

    It is 1 where the norm is 0, without a NaN there or in the derivative; 0 where the norm is infinite (`FAR`) or NaN.

    Formal guarantee. Gradients multiplied by it have norm at most `bound` (to one rounding), so replacing one
    of m records moves their mean by at most 2 bound / m: the sensitivity to charge. Conditions: `bound` and m
    are public, and `norms` are the Euclidean norms of the gradients that are multiplied. A gradient with factor 0 must
    be left out, since 0 times NaN is NaN: see `scaled`.

    >>> print(clip_factor(jnp.array([0.0, 1.0, 4.0, jnp.inf, jnp.nan]), 2.0))
    [1.  1.  0.5 0.  0. ]
    """
    limit = jnp.asarray(bound, norms.dtype)
    long = (norms < FAR) & (norms > limit)
    # Divide by 1 where nothing is clipped: `where` evaluates both sides, and 0/0 would make the derivative NaN.
    return jnp.where(norms <= limit, 1, jnp.where(long, limit / jnp.where(long, norms, 1), 0))


def scaled(weight: jax.Array, values: jax.Array) -> jax.Array:
    """weight * values, and 0 where the weight is 0, whatever the value.

    Otherwise one record whose gradient overflows would turn its agent's release into NaN, with or without noise.
    """
    return weight * jnp.where(weight > 0.0, values, 0.0)
