"""Attacks: what an eavesdropper can compute from messages. The input is a transcript and public facts, the output
gradients or records.

`infer` computes gradients from messages; a `View` is its whole input. `expose` computes records from messages; an
`About` has the public facts about a record.
"""

from relaydp.attack.exposure import METHODS, About, Exposure, expose
from relaydp.attack.inference import INFERENCES, infer
from relaydp.attack.score import relative_errors
from relaydp.attack.threat import Inferred, View

__all__ = ["INFERENCES", "METHODS", "About", "Exposure", "Inferred", "View", "expose", "infer", "relative_errors"]
