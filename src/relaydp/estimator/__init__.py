"""scikit-learn estimators over a simulated consortium, and an account that several fits share."""

from relaydp.estimator.account import Charge, PrivacyAccount
from relaydp.estimator.linear import RelayLinearRegression
from relaydp.estimator.logistic import RelayLogisticRegression

__all__ = ["Charge", "PrivacyAccount", "RelayLinearRegression", "RelayLogisticRegression"]
