"""Train over a CSV of your own with a budget: columns, sites, public ranges and classes, plan, run, check, predict.

The file is made here, with invented visits; put your own path and column names in its place.
"""

import csv
import random
import tempfile
from pathlib import Path

import relaydp as rd

FEATURES = {"age": (18, 100), "systolic": (80, 220), "nights": (0, 30)}  # public ranges, from general knowledge


def make_visits(file: Path) -> None:
    draw = random.Random(7)
    with file.open("w", newline="") as out:
        rows = csv.writer(out)
        rows.writerow(["visit", "hospital", *FEATURES, "readmitted"])
        for visit in range(1200):
            age, nights = draw.randint(18, 95), min(30, int(draw.expovariate(1 / 4)))
            systolic = round(draw.gauss(120 + 0.3 * (age - 50), 15))
            ill = draw.gauss(0.06 * (age - 60) + 0.3 * (nights - 4), 1) > 0
            rows.writerow([visit, draw.choice(["north", "south", "east"]), age, systolic, nights, int(ill)])


with tempfile.TemporaryDirectory() as folder:
    make_visits(Path(folder, "visits.csv"))
    data = rd.load_data(Path(folder, "visits.csv"), label="readmitted", groups="hospital", drop="visit")
    low, high = zip(*FEATURES.values(), strict=True)
    problem = rd.logistic(data, agents="hospital", intercept=True, ranges=(low, high), classes=[0, 1])
    print(f"{problem.agents} hospitals with {problem.split.sizes.tolist()} visits, {problem.dim} coefficients")

    # What will a budget buy? No record is used to answer that.
    budget, graph = rd.Budget(epsilon=1.0, delta=1e-5), rd.ring(problem.agents)
    plan = rd.plan(problem, graph, budget)
    print(f"planned: {plan.activations} activations each; expect {plan.expected} of the gain without privacy")

    # Only now is the budget spent. The folder holds the model, the ledger and the certificate, and no record.
    saved = rd.solve(problem, graph, budget=budget).save(Path(folder, "first"))
    result = rd.load_result(saved)
    assert result.ledger is not None
    found = rd.privacy.verify(result.ledger.to_json(), budget.delta)
    print(f"epsilon {result.epsilon:.3f}; dp-accounting agrees: {not found.reasons}")

    patients = [[34, 118, 1], [88, 155, 9]]
    print(f"readmitted? {problem.predict(result.x, patients).tolist()}")
