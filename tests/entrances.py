"""The ways into a private run, for laws about what they refuse: each takes a problem of three agents."""

import pytest
from typer.testing import CliRunner

import relaydp as rd
from relaydp.cli.main import app

BUDGET = rd.Budget(2.0, 1e-4)
PRIVATE = ["--epsilon", 2, "--delta", 1e-4]  # the same on the command line


def solve(made, **options):
    return rd.solve(made, rd.ring(3), budget=BUDGET, activations=2, walk="cyclic", steps="paper", **options)


def alone(made, **options):
    return rd.solve_alone(made, BUDGET, activations=2, **options)


def planned(made, **options):
    return rd.plan(made, rd.ring(3), BUDGET, activations=2, walk="cyclic", steps="paper", **options)


def call(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args], prog_name="relaydp")


ENTRANCES = pytest.mark.parametrize("entrance", [solve, alone, planned], ids=["solve", "solve_alone", "plan"])
