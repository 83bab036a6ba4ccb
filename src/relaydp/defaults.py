"""What is used where nothing is given: one value for one thing, in functions, estimators, TOML files and commands.

Every signature, settings table and help text takes its default from here. Two things differ between the functions
(`rd.logistic` and `relaydp run`) and the estimators. The functions fit no intercept, because the catalogue's data sets
need none; the estimators do, because users of scikit-learn expect `fit_intercept=True`. With an intercept the centre of
a range can be 0, so that estimators scale features from `bounds` to [-1, 1]; the functions scale them from `ranges` to
[0, 1], where a pixel that is 0 stays 0.
"""

DATA = "fashion-small"  # needs no download
AGENTS = 8
GRAPH = "ring"
ALGORITHM = "auto"  # by the loss and the budget: `planning.planner.resolve_algorithm`
WALK = "tour"  # possible on every connected graph, and each lap visits every agent
STEPS = "tuned"
START = 0  # the agent that holds the baton first
DELTA = 1e-5
L1 = 0.0
L2 = 0.0  # noise already limits what a private run can fit; a ridge costs accuracy on top of it
INTERCEPT = False
FIT_INTERCEPT = True  # of the estimators
THRESHOLD = 1.0  # of the Huber loss
