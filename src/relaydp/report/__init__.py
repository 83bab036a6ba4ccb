"""Tables and figures made from results."""

from relaydp.report.figures import Curve, draw_comparison, draw_demo, draw_plan
from relaydp.report.gallery import draw_attack, draw_search

__all__ = ["Curve", "draw_attack", "draw_comparison", "draw_demo", "draw_plan", "draw_search"]
