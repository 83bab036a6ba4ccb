"""Make src/relaydp/data/embedded/fashion-small.npz from the published Fashion-MNIST files.

    python scripts/make_fashion_small.py           writes the file; the same bytes each time
    python scripts/make_fashion_small.py --check   compares the shipped file with a fresh one, writes nothing

T-shirts (class 0, label -1) and trousers (class 1, label +1), in the original order; each pixel is
the mean of a 2 x 2 square, rounded (halves to even). The originals come from $RELAYDP_DATA, the cache or
their URL.

Sizes tried, in bytes: deflate 1,763,255; bzip2 1,599,954; LZMA row by row 1,513,900; LZMA column by column
1,328,508. So the images are stored column by column in a zip with LZMA, which numpy.load reads as it is.
"""

import argparse
import io
import sys
import zipfile

import numpy as np

from relaydp.data import loaders

TRAIN, SIDE = 12_000, 14


def pooled(X: np.ndarray) -> np.ndarray:
    """28 x 28 pixels to 14 x 14: (records, 784) to (records, row, column)."""
    squares = X.reshape(len(X), SIDE, 2, SIDE, 2)
    return np.rint(squares.mean(axis=(2, 4))).astype(np.uint8)


def arrays() -> dict[str, np.ndarray]:
    """What the file holds: training records first, then the test part."""
    X, y, X_test, y_test = loaders.fashion()
    images = np.concatenate([pooled(X), pooled(X_test)])
    return {
        "images_by_column": np.ascontiguousarray(images.swapaxes(1, 2)),
        "y": np.concatenate([y, y_test]),
        "train": np.array(TRAIN),
    }


def packed(contents: dict[str, np.ndarray]) -> bytes:
    """An .npz that depends on nothing but its arrays: a fixed date, order and set of attributes."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, array in contents.items():
            member = io.BytesIO()
            np.save(member, array, allow_pickle=False)
            info = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            info.create_system = 3  # the same on every system
            archive.writestr(info, member.getvalue(), compress_type=zipfile.ZIP_LZMA)
    return out.getvalue()


def check(fresh: dict[str, np.ndarray]) -> str:
    """'' when the shipped file holds these arrays, else what differs."""
    with np.load(loaders.FASHION_SMALL, allow_pickle=False) as shipped:
        if set(shipped.files) != set(fresh):
            return f"it holds {sorted(shipped.files)}, a fresh one {sorted(fresh)}"
        differing = [name for name, array in fresh.items() if not np.array_equal(shipped[name], array)]
    return f"{', '.join(differing)} differ" if differing else ""


def main() -> int:
    parser = argparse.ArgumentParser(description="Make the small embedded data set.")
    parser.add_argument("--check", action="store_true", help="compare the shipped file with a fresh one")
    fresh = arrays()
    data = packed(fresh)
    if not parser.parse_args().check:
        loaders.FASHION_SMALL.write_bytes(data)
        print(f"wrote {loaders.FASHION_SMALL.name}, {len(data):,} bytes")
        return 0
    if wrong := check(fresh):
        print(f"{loaders.FASHION_SMALL.name} is not what this script makes: {wrong}. Run it without --check.")
        return 1
    same = data == loaders.FASHION_SMALL.read_bytes()
    print("same bytes" if same else "same arrays; only the compression differs, as it may with another liblzma")
    return 0


if __name__ == "__main__":
    sys.exit(main())
