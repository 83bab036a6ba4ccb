"""A private classifier over four hospitals with scikit-learn: a pipeline, cross-validation on an account, the cost."""

import numpy as np
import sklearn
from sklearn.model_selection import KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from relaydp.estimator import PrivacyAccount, RelayLogisticRegression

# Invented patients: age, systolic pressure, nights in hospital. Whether they come back depends on all three.
rng = np.random.default_rng(0)
hospital = rng.choice(["east", "north", "south", "west"], size=4000)
X = np.column_stack([rng.integers(18, 96, 4000), rng.normal(125, 15, 4000), rng.integers(0, 31, 4000)])
risk = 0.05 * (X[:, 0] - 57) + 0.03 * (X[:, 1] - 125) + 0.15 * (X[:, 2] - 15)
y = np.where(risk + rng.logistic(size=4000) > 0, "returns", "stays")

# What the forms allow, known without looking at anybody: these bounds and classes are public.
bounds = ([18, 60, 0], [96, 220, 30])
classes = ["returns", "stays"]
account = PrivacyAccount(epsilon=3.0, delta=1e-5)
model = RelayLogisticRegression(epsilon=1.0, bounds=bounds, classes=classes, account=account)

with sklearn.config_context(enable_metadata_routing=True):
    line = make_pipeline(FunctionTransformer(), model.set_fit_request(sites=True))
    scores = cross_val_score(line, X, y, cv=KFold(4), params={"sites": hospital})
    print(f"accuracy of {len(scores)} folds   {scores.mean():.3f} (measured without noise: not for publication)")
    print(f"spent on them         epsilon {account.spent:.3f}; left for one more fit: {account.left:.3f}")
    line.fit(X, y, sites=hospital)  # fits `model`, its last step

print(f"the model             epsilon {model.epsilon_:.3f}, {model.n_iter_} activations of {', '.join(model.sites_)}")
print(f"all five fits         epsilon {account.spent:.3f} of {account.budget.epsilon:g}")
print(model.privacy_certificate_["promise"])
