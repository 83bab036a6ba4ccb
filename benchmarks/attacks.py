"""How much of a batch one shared gradient gives away: DLG, inverting gradients and GradInversion on real images.

    python benchmarks/attacks.py --images 2 --batch 1 --data mnist          a small run, minutes on a CPU
    python benchmarks/attacks.py --images 16 --output attacks.json          every data set and batch size; wants a GPU

Each trial draws a LeNet of its own, shares the exact gradient of a batch of training images, and scores what the attack
finds. The data sets have two classes and the network ten, so labels repeat in a batch and are restored, not given.
Seconds are those of one attack after compilation.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import relaydp as rd
from relaydp.attack import dlg, gradinversion, inverting
from relaydp.attack.models import LeNet
from relaydp.attack.score import Score, score
from relaydp.attack.shared import Shared

ATTACKS = {"dlg": dlg, "inverting": inverting, "gradinversion": gradinversion}
SHAPES = {"mnist": (28, 28, 1), "fashion": (28, 28, 1), "cifar10": (32, 32, 3)}
CLASSES = 10
RECOGNISABLE = 20.0  # dB


def load_images(name: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    """`count` training images, both classes in turn, as (count, height, width, channels) in [0, 1]; labels 0 and 1."""
    data, (height, width, channels) = rd.load_data(name), SHAPES[name]
    y = np.asarray(data.y)
    halves = [np.flatnonzero(y == label)[: -(-count // 2)] for label in (-1, 1)]
    rows = np.stack(halves, axis=1).ravel()[:count]
    planes = np.asarray(data.X)[rows].reshape(count, channels, height, width)  # CIFAR-10: all red values first
    return planes.transpose(0, 2, 3, 1) / 255.0, (y[rows] > 0).astype(int)


def trials(name: str, images: int, batch: int, dtype: str) -> Iterator[tuple[Shared, np.ndarray, np.ndarray]]:
    """At least `images` images in batches, each with the gradient it shares."""
    model, count = LeNet(), -(-images // batch)
    X, y = load_images(name, count * batch)
    for k in range(count):
        mine = slice(k * batch, (k + 1) * batch)
        drawn = model.init(jax.random.key(k), SHAPES[name], CLASSES)
        params = {part: leaf.astype(dtype) for part, leaf in drawn.items()}
        gradient = model.gradient(params, jnp.asarray(X[mine], dtype), jnp.asarray(y[mine]))
        yield Shared(gradient, params, model, SHAPES[name]), X[mine], y[mine]


def measure(name: str, attack: str, batch: int, asked: argparse.Namespace) -> dict:
    options = {key: value for key in ("steps", "restarts") if (value := getattr(asked, key)) is not None}
    scores: list[Score] = []
    seconds: list[float] = []
    curves = []
    for k, (shared, images, labels) in enumerate(trials(name, asked.images, batch, asked.dtype)):
        began = time.perf_counter()
        found = ATTACKS[attack].reconstruct(shared, jax.random.key(1000 + k), batch=batch, **options)
        seconds.append(time.perf_counter() - began)
        scores.append(score(found, images, labels))
        errors = [float(np.mean((step[scores[-1].order] - images) ** 2)) for step in found.path]
        curves.append({"iterations": found.at.tolist(), "mse": errors})
    psnr, ssim, mse = (np.concatenate([getattr(one, part) for one in scores]) for part in ("psnr", "ssim", "mse"))
    return {
        "data": name,
        "attack": attack,
        "batch": batch,
        "images": len(psnr),
        "steps": curves[0]["iterations"][-1],
        "psnr_median": float(np.median(psnr)),
        "psnr_worst": float(psnr.min()),
        "psnr_best": float(psnr.max()),
        "recognisable": float(np.mean(psnr >= RECOGNISABLE)),
        "ssim_median": float(np.median(ssim)),
        "mse_median": float(np.median(mse)),
        "labels_right": float(np.mean([one.labels for one in scores])),
        "seconds": float(np.median(seconds[1:] or seconds)),
        "first_seconds": seconds[0],
        "curves": curves,
    }


def machine() -> dict:
    return {
        "device": jax.devices()[0].device_kind,
        "platform": jax.default_backend(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "jax": jax.__version__,
        "relaydp": rd.__version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--attack", nargs="+", choices=ATTACKS, default=list(ATTACKS))
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 2, 4, 8])
    parser.add_argument("--images", type=int, default=8, help="images attacked in each row of the table")
    parser.add_argument("--steps", type=int, help="iterations; default: each attack's own")
    parser.add_argument("--restarts", type=int, help="random starts at once; default: each attack's own")
    parser.add_argument("--dtype", choices=["float64", "float32"], default="float64")
    parser.add_argument("--output", type=Path, help="a JSON file for the rows, the curves and the machine")
    asked = parser.parse_args()

    print(
        "| data | attack | batch | PSNR, dB: median (worst to best) | 20 dB or more | SSIM | MSE | labels | seconds |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    rows = []
    for name in asked.data:
        for attack in asked.attack:
            for batch in asked.batch:
                row = measure(name, attack, batch, asked)
                rows.append(row)
                spread = f"{row['psnr_median']:.1f} ({row['psnr_worst']:.1f} to {row['psnr_best']:.1f})"
                quality = f"{row['recognisable']:.0%} | {row['ssim_median']:.3f} | {row['mse_median']:.1e}"
                cost = f"{row['labels_right']:.0%} | {row['seconds']:.1f}"
                print(f"| {name} | {attack} | {batch} | {spread} | {quality} | {cost} |", flush=True)
                if asked.output:  # after every row, so that a run cut short leaves what it has
                    found = {"machine": machine(), "dtype": asked.dtype, "rows": rows}
                    asked.output.write_text(json.dumps(found, indent=1) + "\n")
    print(f"\n{json.dumps(machine())}")


if __name__ == "__main__":
    main()
