"""Tables and figures made from results."""

from relaydp.report.figures import Curve, draw_comparison, draw_demo

__all__ = ["Curve", "draw_comparison", "draw_demo"]
