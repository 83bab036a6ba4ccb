"""Read exact gradients off the batons of the published mechanism, whatever its noise; and fail on the sound one.

Seen: sender, u and x of every hop, the steps, n. Not seen: records, y_i, l_i, noise.
"""

import numpy as np

import relaydp as rd

draw = np.random.default_rng(0)
X = draw.normal(size=(400, 5))
X /= np.linalg.norm(X, axis=1, keepdims=True)
data = rd.Records(X, np.sign(X @ draw.normal(size=5)))
problem = rd.logistic(data, agents=8, l2=0.1, record_norm=1.0, classes=[-1, 1])


def true_gradient(i, y):
    A, b = X[50 * i : 50 * i + 50], data.y[50 * i : 50 * i + 50]
    return -A.T @ (b * 0.5 * (1 - np.tanh(0.5 * b * (A @ y)))) / 50 + 0.1 * y


def attack(result):
    """grad f_i(y_i) = (y_i(t) - y_i(t+1))/alpha + l_half(t), with y_i from line (2) of RECAL solved for it (r = 0)."""
    alpha, beta, gamma = (np.asarray(part) for part in result.steps)
    u, x, price, last, errors = np.zeros(5), np.zeros(5), np.zeros((8, 5)), {}, []
    for i, new_u, new_x in zip(result.transcript.sender, result.transcript.u, result.transcript.x, strict=True):
        y = x + ((new_x - x) / gamma + u) / beta
        if i in last:
            old_y, old_half, old_new_x = last[i]
            price[i] += beta * (old_new_x - y)
            guess = 8 * ((old_y - y) / alpha[i] + old_half)
            truth = true_gradient(i, old_y)
            errors.append(np.linalg.norm(guess - truth) / np.linalg.norm(truth))
        last[i] = (y, price[i] + beta * (x - y), new_x)
        u, x = new_u, new_x
    return np.median(errors)


for noise in (0.0, 1.0, 1000.0):
    run = rd.solve(
        problem, rd.ring(8), mechanism="published", noise=noise, variant="carried", activations=50, steps="paper"
    )
    print(f"published, s_1 = {noise:6g}: median relative error of the inferred gradients {attack(run):.1e}")
budget = rd.Budget(epsilon=1.0, delta=1e-5)
run = rd.solve(problem, rd.ring(8), "recal", budget=budget, activations=50, walk="cyclic")
print(f"sound, epsilon = {run.epsilon:.3g}: median relative error of the inferred gradients {attack(run):.1e}")
