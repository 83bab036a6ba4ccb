"""Problems: losses, records split over agents, public bounds, and the minimiser they are measured against."""

from relaydp.problem import partition
from relaydp.problem.agent_records import AgentRecords
from relaydp.problem.bounds import Facts
from relaydp.problem.build import build_again, custom, huber, least_squares, logistic, softmax
from relaydp.problem.facts import public_facts
from relaydp.problem.problem import Problem
from relaydp.problem.reference import Reference, minimise
from relaydp.problem.spec import ProblemSpec

__all__ = [
    "Facts",
    "Problem",
    "ProblemSpec",
    "Reference",
    "AgentRecords",
    "build_again",
    "custom",
    "huber",
    "least_squares",
    "logistic",
    "minimise",
    "partition",
    "public_facts",
    "softmax",
]
