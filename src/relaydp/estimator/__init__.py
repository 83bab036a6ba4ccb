"""scikit-learn estimators over a simulated consortium; `PrivacyAccount`, which fits share, is at home in `privacy`."""

from relaydp.estimator.linear import RelayLinearRegression
from relaydp.estimator.logistic import RelayLogisticRegression
from relaydp.privacy import Charge, PrivacyAccount

__all__ = ["Charge", "PrivacyAccount", "RelayLinearRegression", "RelayLogisticRegression"]
