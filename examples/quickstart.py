"""Train a private model over four sites on the breast-cancer data, and see what it cost."""

import relaydp as rd

# The catalogue's data sets bring public ranges for their features; record_norm bounds a whole record.
problem = rd.logistic(rd.load_data("breast-cancer"), agents=4, record_norm=2.0)
budget = rd.Budget(epsilon=2.0, delta=1e-4)

together = rd.solve(problem, rd.ring(4), budget=budget)
alone = rd.solve_alone(problem, budget)

print(f"together  accuracy {together.accuracy:.3f}  epsilon {together.epsilon:.2f}  PLF {together.plf}")
print(f"alone     accuracy {alone.accuracy.mean():.3f}  epsilon {alone.epsilon:.2f}  PLF {alone.plf}")
print(together.guarantee)
assert together.ledger is not None  # every private run has one
for agent in range(4):
    print(f"agent {agent} made {len(together.ledger.events(agent))} releases, rho {together.ledger.spent(agent):.4f}")
