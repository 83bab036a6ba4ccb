"""Reconstruction: what one shared gradient gives away, by algebra and by search; and the scorer that says how much."""

import dataclasses
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import relaydp as rd
from relaydp.attack import closed_form, dlg, gradinversion, inverting, score
from relaydp.attack.models import LeNet, Linear
from relaydp.attack.shared import Reconstruction, Shared, restore_labels
from relaydp.errors import InputError

KEY = jax.random.key(0)
ATTACKS = {"closed_form": closed_form, "dlg": dlg, "inverting": inverting, "gradinversion": gradinversion}


def digits(*numbers):
    """The first training image of each number, (8, 8, 1) in [0, 1], and the labels."""
    data = rd.load_data("digits")
    y = np.asarray(data.y)
    rows = []
    for number in numbers:
        rows.append(np.flatnonzero(y == number)[rows.count(number)])
    return np.asarray(data.X)[rows].reshape(-1, 8, 8, 1) / 16.0, y[rows].astype(int)


def share(model, images, labels, *, seed=7, classes=10, low=0.0, high=1.0, params=None):
    params = model.init(jax.random.key(seed), images.shape[1:], classes) if params is None else params
    gradient = model.gradient(params, jnp.asarray(images), jnp.asarray(labels))
    return Shared(gradient, params, model, images.shape[1:], low, high)


@pytest.fixture(scope="module")
def six():
    """One digit through the network, with 10 classes."""
    images, labels = digits(6)
    return share(LeNet(), images, labels), images, labels


# -- the truth stays out


def test_what_an_attack_is_given_has_no_place_for_the_truth():
    assert [f.name for f in dataclasses.fields(Shared)] == ["gradient", "params", "model", "shape", "low", "high"]
    common = {"shared", "key", "batch", "steps", "restarts", "progress"}
    settings = {"labels", "record_norm", "stepsize", "variation", "norm", "group", "signed"}
    for attack in ATTACKS.values():
        names = set(inspect.signature(attack.reconstruct).parameters)
        assert common <= names <= common | settings
        # what an attacker may know beside the gradient is optional, and numbers: never an image
        assert "score" not in vars(attack)


def test_an_attack_sees_two_batches_of_equal_gradient_as_one():
    """Only the gradient counts: with weights 0, two logistic records a and -a of opposite label share theirs."""
    model, params = Linear("logistic", intercept=False), {"W": jnp.zeros((64, 1))}
    images, _ = digits(3)
    one = share(model, images, np.array([1]), params=params, low=-1.0)
    other = share(model, -images, np.array([-1]), params=params, low=-1.0)
    a, b = closed_form.reconstruct(one), closed_form.reconstruct(other)
    assert np.array_equal(a.images, b.images) and "2 multiples" in a.note


# -- models


@pytest.mark.sample(2)
@pytest.mark.parametrize("loss", ["least-squares", "logistic", "softmax"])
def test_linear_models_are_those_relaydp_trains(loss):
    """The attacked model's gradient is the problem's own, at the same vector."""
    data = rd.load_data("breast-cancer")
    X = (np.asarray(data.X) - data.X.min(0)) / np.ptp(data.X, axis=0)
    build = {"least-squares": rd.least_squares, "logistic": rd.logistic, "softmax": rd.softmax}[loss]
    problem = build(rd.Records(X[:40], data.y[:40]), agents=1, intercept=True)
    vector = jax.random.normal(KEY, (problem.dim,))
    theirs = problem.agent_records.gradient(jnp.array(0), vector, None)
    model, outputs = Linear(loss), problem.loss.outputs
    labels = jnp.asarray(problem.encode_labels(np.asarray(data.y[:40])))
    ours = model.gradient(model.from_vector(vector, outputs), jnp.asarray(X[:40]), labels)
    assert np.allclose(np.concatenate([ours["W"].ravel(), ours["b"]]), theirs, atol=1e-14)


def test_the_network_is_three_convolutions_and_a_dense_layer():
    """Against XLA's own convolution: the patches are an equal way to write it."""
    model, images = LeNet(), jax.random.uniform(KEY, (2, 9, 14, 3))
    params = model.init(KEY, (9, 14, 3), 5)

    @jax.jit
    def convolved(params, h):
        for layer, stride in ((1, 2), (2, 2), (3, 1)):
            # the rows of W run over columns, then rows, then channels of a window
            kernel = params[f"W{layer}"].reshape(5, 5, h.shape[3], 12).transpose(1, 0, 2, 3)
            axes = ("NHWC", "HWIO", "NHWC")
            h = jax.lax.conv_general_dilated(h, kernel, (stride, stride), ((2, 2), (2, 2)), dimension_numbers=axes)
            h = jax.nn.sigmoid(h + params[f"b{layer}"].reshape(1, 1, 1, 12))
        return h.reshape(2, -1) @ params["W"] + params["b"][None]

    assert np.allclose(jax.jit(model.logits)(params, images), convolved(params, images), atol=1e-12)
    assert all(float(jnp.abs(leaf).max()) < 0.5 for leaf in params.values())


def test_relaxed_labels_include_the_hard_ones():
    for model, labels in (
        (Linear("softmax"), [2, 0]),
        (Linear("logistic"), [-1, 1]),
        (Linear("least-squares"), [0.5, 3]),
    ):
        images, _ = digits(1, 2)
        shared = share(model, images, np.array(labels), classes=3)
        scores = model.logits(shared.params, jnp.asarray(images))
        relaxed = model.encoded(jnp.array(labels), scores)
        again = model.gradient(shared.params, jnp.asarray(images), relaxed)
        assert score.gradient_error(again, shared.gradient) < 1e-15
        assert np.array_equal(model.hardened(relaxed), labels)


# -- closed forms


@pytest.mark.sample(6)
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(
    ("loss", "label"),
    [("least-squares", 1.0), ("least-squares", -1.0), ("logistic", 1)]
    + [("logistic", -1), ("softmax", 4), ("softmax", 0)],
)
def test_one_record_of_a_linear_model_is_solved_for(loss, label, intercept):
    images, _ = digits(5)
    for seed in range(5):
        shared = share(Linear(loss, intercept), images, np.array([label]), seed=seed)
        found = closed_form.reconstruct(shared)
        result = score.score(found, images, np.array([label]))
        assert result.mse[0] < 1e-18, found.note
        assert found.labels[0] == pytest.approx(label)


def test_two_roots_within_the_bounds_are_said_and_the_public_norm_picks():
    """v / (1 + e^v) takes each value below 0.278 twice: a dim record and a bright one share a gradient."""
    model, a = Linear("logistic", intercept=False), np.full((1, 4), 0.5)
    for score_of_a in (0.5, 1.5):  # below and above the turning point 1.278
        shared = share(model, a, np.array([1]), params={"W": jnp.full((4, 1), score_of_a / 2.0)}, high=4.0)
        assert "2 multiples" in closed_form.reconstruct(shared).note
        assert np.allclose(closed_form.reconstruct(shared, record_norm=1.0).images, a)


def test_noise_blurs_the_closed_form_and_no_more():
    images, labels = digits(8)
    shared = share(Linear("softmax"), images, labels)
    noise = {k: 1e-4 * jax.random.normal(KEY, v.shape) for k, v in shared.gradient.items()}
    noisy = dataclasses.replace(shared, gradient={k: v + noise[k] for k, v in shared.gradient.items()})
    error = score.mse(closed_form.reconstruct(noisy).images, images)
    assert 1e-10 < error < 1e-6


@pytest.mark.parametrize("model", [Linear("softmax"), Linear("logistic"), Linear("logistic", False)], ids=str)
def test_a_batch_is_not_identified_and_the_note_says_so(model):
    images, _ = digits(0, 1, 2)
    labels = np.array([0, 1, 2]) if model.loss == "softmax" else np.array([-1, 1, 1])
    found = closed_form.reconstruct(share(model, images, labels), batch=3)
    assert found.images.shape == images.shape and "weighted mean" in found.note


def test_a_zero_gradient_tells_nothing():
    images, _ = digits(0)
    shared = share(Linear("least-squares", False), images, np.array([0.0]), params={"W": jnp.zeros((64, 1))})
    assert "reveals nothing" in closed_form.reconstruct(shared).note


# -- searches through the network


def test_dlg_finds_the_image_and_its_label(six):
    shared, images, labels = six
    calls = []
    found = dlg.reconstruct(shared, KEY, steps=150, restarts=2, progress=lambda *done: calls.append(done))
    result = score.score(found, images, labels)
    assert result.mse[0] < 1e-8 and result.labels == 1.0
    assert found.losses.shape == (2, 150) and np.all(np.diff(found.losses, axis=1) <= 0.0)
    assert calls[-1] == (150, 150) and list(found.at) == [0, *(done for done, _ in calls)]
    errors = [score.mse(step, images) for step in found.path]
    assert errors[0] > 1e-2 > errors[-1] and np.array_equal(found.path[-1], found.images)


def test_dlg_fails_on_a_gradient_buried_in_noise(six):
    shared, images, _ = six
    size = max(float(jnp.abs(leaf).max()) for leaf in shared.gradient.values())
    gradient = {k: v + size * jax.random.normal(KEY, v.shape) for k, v in shared.gradient.items()}
    found = dlg.reconstruct(dataclasses.replace(shared, gradient=gradient), KEY, steps=150, restarts=2)
    assert score.psnr(found.images, images) < 12.0


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("attack", "mark"), [(inverting, 30.0), (gradinversion, 30.0)], ids=["inverting", "gradinversion"]
)
def test_searches_by_adam_come_near(six, attack, mark):
    """The start, noise round mid-grey, is at 6 dB."""
    shared, images, labels = six
    found = attack.reconstruct(shared, KEY, steps=1000, restarts=2)
    result = score.score(found, images, labels)
    assert score.psnr(found.path[0], images) < 8.0
    assert result.psnr[0] > mark and result.labels == 1.0
    assert found.images.min() >= 0.0 and found.images.max() <= 1.0


@pytest.mark.parametrize(("intercept", "labels"), [(True, None), (False, [-1])])
def test_dlg_finds_a_record_that_is_no_image(intercept, labels):
    """Without an intercept the scale is free while the label is: the attacker needs to know it."""
    record = np.random.default_rng(4).uniform(size=(1, 22))
    shared = share(Linear("logistic", intercept), record, np.array([-1]))
    found = dlg.reconstruct(shared, KEY, steps=200, restarts=2, labels=labels)
    assert score.mse(found.images, record) < 1e-12 and found.labels == [-1]


@pytest.mark.sample(2)
@pytest.mark.parametrize("attack", [dlg, inverting, gradinversion], ids=["dlg", "inverting", "gradinversion"])
def test_every_search_gives_a_linear_models_image_back(attack):
    """The gradient of a linear model points the same way however bright the image: the direction is not enough."""
    images, _ = digits(6)
    shared = share(Linear("logistic", True), images, np.array([1]))
    found = attack.reconstruct(shared, KEY, steps=600, restarts=2)
    assert score.ssim(found.images[0], images[0]) > 0.95


def test_the_best_fitting_restart_wins_and_a_diverged_one_never():
    from relaydp.attack.shared import finish

    images = jnp.arange(3.0).reshape(3, 1, 1)
    shared = Shared({}, {}, Linear("softmax"), (1,), 0.0, 5.0)
    found = finish(
        shared, jnp.array([0.3, jnp.nan, 0.1]), jnp.arange(3)[:, None], jnp.zeros((3, 1)), np.array([0]), [images]
    )
    assert found.restart == 2 and found.images.item() == 2.0 and found.labels == [2]


def test_one_key_is_one_search():
    shared = share(Linear("softmax"), *digits(2))
    a, b, c = (inverting.reconstruct(shared, jax.random.key(k), steps=20, restarts=2) for k in (0, 0, 1))
    assert np.array_equal(a.images, b.images) and np.array_equal(a.losses, b.losses)
    assert not np.array_equal(a.images, c.images)


# -- labels


@pytest.mark.sample(5)
@pytest.mark.parametrize("model", [LeNet(), Linear("softmax"), Linear("softmax", False)], ids=str)
@pytest.mark.parametrize("numbers", [(6,), (0, 9), (1, 3, 4, 8)])
def test_distinct_labels_are_restored_exactly(model, numbers):
    images, labels = digits(*numbers)
    found = restore_labels(share(model, images, labels), len(labels), KEY)
    assert np.array_equal(found, np.sort(labels))


def test_labels_of_records_that_may_be_negative():
    """The sign of a column tells nothing then; the intercept's gradient still does."""
    for seed in range(10):
        records = 3.0 * np.random.default_rng(seed).normal(size=(1, 6))
        for loss, label in (("softmax", seed % 4), ("logistic", 1 - 2 * (seed % 2))):
            shared = share(Linear(loss), records, np.array([label]), seed=seed, classes=4, low=-9.0, high=9.0)
            assert restore_labels(shared, 1, KEY).tolist() == [label]


@pytest.mark.parametrize("numbers", [(3, 3), (1, 1, 1, 7), (0, 2, 2, 2)])
def test_repeated_labels_are_counted(numbers):
    images, labels = digits(*numbers)
    assert np.array_equal(restore_labels(share(LeNet(), images, labels), len(labels), KEY), np.sort(labels))


def test_labels_that_a_gradient_does_not_tell_are_asked_for():
    images, _ = digits(1)
    for model in (Linear("least-squares"), Linear("logistic", False)):
        with pytest.raises(InputError, match="Pass labels="):
            inverting.reconstruct(share(model, images, np.array([1])), KEY, steps=5)


# -- what is refused


def test_mistakes_are_met_before_anything_runs(six):
    shared, _, _ = six
    for options, text in (({"batch": 0}, "batch=0"), ({"labels": [1, 2]}, "one per record"), ({"steps": 0}, "steps=0")):
        with pytest.raises(InputError, match=text):
            dlg.reconstruct(shared, KEY, **options)
    with pytest.raises(InputError, match="from_vector"):
        dlg.reconstruct(dataclasses.replace(shared, gradient={"W": jnp.zeros(3)}), KEY)
    with pytest.raises(InputError, match="finite"):
        broken = {**shared.gradient, "b": jnp.full(10, jnp.nan)}
        dlg.reconstruct(dataclasses.replace(shared, gradient=broken), KEY)
    with pytest.raises(InputError, match="low must be less than high"):
        dlg.reconstruct(dataclasses.replace(shared, low=1.0), KEY)
    with pytest.raises(InputError, match="Linear"):
        closed_form.reconstruct(shared)
    with pytest.raises(InputError, match="height, width, channels"):
        LeNet().init(KEY, (64,), 10)


# -- the scorer


def photo(seed, side=20, channels=3):
    return np.random.default_rng(seed).uniform(size=(side, side, channels))


def test_equal_images_score_best():
    a = photo(0)
    assert score.mse(a, a) == 0.0 and score.psnr(a, a) == np.inf and score.ssim(a, a) == pytest.approx(1.0)
    assert score.ssim(np.ones((12, 12, 1)), np.ones((12, 12, 1))) == pytest.approx(1.0)


def test_scores_do_not_depend_on_which_image_comes_first():
    a, b = photo(0), photo(1)
    for measure in (score.mse, score.psnr, score.ssim):
        assert measure(a, b) == measure(b, a)


def test_scores_are_in_units_of_the_range():
    a, b = photo(0), photo(1)
    for measure in (score.psnr, score.ssim):
        assert measure(255 * a, 255 * b, 0.0, 255.0) == pytest.approx(measure(a, b))
    assert score.psnr(np.zeros(3), np.full(3, 0.1)) == pytest.approx(20.0)


def test_ssim_is_the_formula_window_by_window():
    """By the definition: each 11 x 11 window's weighted means, variances and covariance, nothing separable."""
    a, b = photo(2, 13, 2), 0.7 * photo(2, 13, 2) + 0.3 * photo(3, 13, 2)
    ticks = np.arange(11) - 5
    window = np.exp(-(ticks[:, None] ** 2 + ticks[None, :] ** 2) / (2 * 1.5**2))
    window /= window.sum()
    values = []
    for channel in range(2):
        for i in range(3):
            for j in range(3):
                x, y = a[i : i + 11, j : j + 11, channel], b[i : i + 11, j : j + 11, channel]
                mx, my = (window * x).sum(), (window * y).sum()
                vx, vy = (window * (x - mx) ** 2).sum(), (window * (y - my) ** 2).sum()
                cov = (window * (x - mx) * (y - my)).sum()
                values.append((2 * mx * my + 1e-4) * (2 * cov + 9e-4) / ((mx**2 + my**2 + 1e-4) * (vx + vy + 9e-4)))
    assert score.ssim(a, b) == pytest.approx(np.mean(values), rel=1e-12)


def test_a_batch_is_scored_in_any_order():
    truth = np.stack([photo(seed, 12, 1) for seed in range(5)])
    labels = np.arange(5)
    near = truth + 0.01 * np.random.default_rng(9).normal(size=truth.shape)
    results = []
    for order in (np.arange(5), np.array([3, 0, 4, 1, 2])):
        images = near[order]
        found = Reconstruction(images, labels[order], np.zeros((1, 1)), 0, np.array([0]), images[None])
        results.append(score.score(found, truth, labels))
        assert np.array_equal(order[results[-1].order], np.arange(5)) and results[-1].labels == 1.0
    assert np.array_equal(results[0].psnr, results[1].psnr) and np.array_equal(results[0].ssim, results[1].ssim)


def test_gradient_error():
    truth = {"W": np.array([3.0, 0.0]), "b": np.array([4.0])}
    assert score.gradient_error(truth, truth) == 0.0
    assert score.gradient_error({"W": np.zeros(2), "b": np.zeros(1)}, truth) == 1.0


def test_membership_advantage():
    draw = np.random.default_rng(0)
    same = draw.normal(size=4000)
    assert score.membership_advantage(same + 10.0, draw.normal(size=100)) == 1.0
    assert score.membership_advantage(same, same) == 0.0
    # two unit normals a distance m apart: 2 Phi(m/2) - 1 = 0.3829 at m = 1
    assert score.membership_advantage(same + 1.0, draw.normal(size=4000)) == pytest.approx(0.3829, abs=0.03)


def test_shapes_that_differ_are_told():
    with pytest.raises(InputError, match="same shape"):
        score.mse(np.zeros(2), np.zeros(3))
    with pytest.raises(InputError, match="height, width, channels"):
        score.ssim(np.zeros((4, 4)), np.zeros((4, 4)))


# -- larger


@pytest.mark.slow
@pytest.mark.parametrize(
    ("attack", "mark"),
    [(dlg, 30.0), (inverting, 20.0), (gradinversion, 20.0)],
    ids=["dlg", "inverting", "gradinversion"],
)
def test_a_colour_photograph_is_recovered(attack, mark):
    """One CIFAR-10 image of 32 x 32 x 3 through the network: recognisable from 20 dB on."""
    data = rd.load_data("cifar10")
    images = np.asarray(data.X[5:6]).reshape(1, 3, 32, 32).transpose(0, 2, 3, 1) / 255.0
    labels = (np.asarray(data.y[5:6]).astype(int) + 1) // 2
    found = attack.reconstruct(share(LeNet(), images, labels), KEY, restarts=2)
    result = score.score(found, images, labels)
    assert result.psnr[0] > mark and result.labels == 1.0


@pytest.mark.slow
def test_dlg_separates_a_batch_of_two():
    images, labels = digits(2, 7)
    found = dlg.reconstruct(share(LeNet(), images, labels), KEY, batch=2, steps=1000, restarts=8)
    result = score.score(found, images, labels)
    assert result.mse.max() < 1e-3 and result.labels == 1.0
