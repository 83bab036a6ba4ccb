"""Attacks: what an eavesdropper makes of messages. Transcript and public facts go in, gradients or records come out.

infer    messages -> gradients          `View` is all that it sees
expose   messages -> records            `About` is what everybody knows of a record
"""

from relaydp.attack.exposure import METHODS, About, Exposure, expose
from relaydp.attack.inference import INFERENCES, infer
from relaydp.attack.score import relative_errors
from relaydp.attack.threat import Inferred, View

__all__ = ["INFERENCES", "METHODS", "About", "Exposure", "Inferred", "View", "expose", "infer", "relative_errors"]
