"""Strict numbers for every test: float64, no silent dtype promotion, no silent rank promotion."""

import jax

import relaydp  # noqa: F401

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
