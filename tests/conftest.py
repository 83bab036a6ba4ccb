"""Strict numbers for every test: float64, no silent dtype promotion, no silent rank promotion."""

import os

# kept programs are tested in test_scale.py, and warnings are errors here
os.environ.setdefault("RELAYDP_COMPILED", "0")

import jax  # noqa: E402

import relaydp  # noqa: E402, F401

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
