"""Attacks: what an eavesdropper makes of the messages. A transcript and public facts go in, gradients come out."""

from relaydp.attack.infer import INFERENCES, infer
from relaydp.attack.score import relative_errors
from relaydp.attack.threat import Inferred, View

__all__ = ["INFERENCES", "Inferred", "View", "infer", "relative_errors"]
