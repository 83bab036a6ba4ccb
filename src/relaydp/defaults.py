"""What is used where nothing is given: one value for one thing, in functions, estimators, TOML files and commands.

Every signature, settings table and help text takes its default from here. Features are scaled from public bounds alike
everywhere (`problem.bounds`). What differs, each for a reason:

intercept     the estimators fit one, as users of scikit-learn expect; the functions (`rd.logistic`, `relaydp run`) fit
              none, because the catalogue's data sets need none
record_norm   "typical" for a private fit of an estimator, and for commands and TOML files with a budget and `ranges`:
              tables often have many columns that are mostly 0. None for the functions (`rd.logistic`), so that what
              they minimise is what was asked for
trust         the estimators have all records in one process and publish a model: "curator". Functions and commands
              stand for a consortium: "nobody"
algorithm     "recal" for `consortium new`, `rehearsal` and `solve_apart`, since relay-gradient does not run between
              parties yet, and for `audit`, which also tests the published mechanism; relay-gradient does not have it
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
