"""The paper's data sets as their authors published them: found on disk, or downloaded once and checked.

    1.  $RELAYDP_DATA/<path>   your own copy; read, never changed
    2.  <cache>/<path>         downloaded earlier
    3.  the authors' URL       downloaded under a temporary name, checked, then moved to <cache>/<path>

A file counts only if its sha256, or the sha256 of what is inside it, is the one written here.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import os
import tarfile
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from relaydp.errors import InputError

VARIABLE = "RELAYDP_DATA"
CIFAR_RECORD = 3073  # 1 label byte, then 3 x 32 x 32 pixel bytes
CAT, DOG = 3, 5
LIBSVM_PAGE = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/"
CIFAR_ARCHIVE = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
CIFAR_ARCHIVE_SHA256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"  # md5 c32a1d4a...


def records_digest(path: Path) -> str:
    """sha256 of an ijcnn1 file's records: the same however its text was compressed or its labels written."""
    from relaydp.data.formats import read_libsvm

    X, y = read_libsvm(path, features=22)
    return hashlib.sha256(X.astype("<f8").tobytes() + y.astype("i1").tobytes()).hexdigest()


def bytes_digest(path: Path) -> str:
    """sha256 of a gzip file's decompressed bytes: the same at every compression level."""
    with gzip.open(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True)
class Original:
    """One published file: its path in a data folder, its source, and how it is recognised.

    path       relative to $RELAYDP_DATA and to the cache
    urls       the same file at each; tried in turn
    sha256     of the file itself
    inside     (function, sha256): the hash of the contents, for files that were compressed again
    batches    for CIFAR-10: members of the archive at the URL whose cats and dogs this file holds
    """

    path: str
    urls: tuple[str, ...]
    sha256: str
    inside: tuple[Callable[[Path], str], str] | None = None
    batches: tuple[str, ...] = ()


def _idx(folder: str, bases: tuple[str, ...], **sums: str) -> tuple[Original, ...]:
    names = {"train_images": "train-images-idx3-ubyte.gz", "train_labels": "train-labels-idx1-ubyte.gz"}
    names |= {"test_images": "t10k-images-idx3-ubyte.gz", "test_labels": "t10k-labels-idx1-ubyte.gz"}
    return tuple(
        Original(f"{folder}/{file}", tuple(base + file for base in bases), sums[key]) for key, file in names.items()
    )


# In each: the training part first, then the test part.
IJCNN1 = (
    Original(
        "ijcnn1.bz2",
        (f"{LIBSVM_PAGE}ijcnn1.bz2",),
        "450dee8470b168e47b9fae1fc160396b8a809c675737837fce3acd51dcdc0481",
        (records_digest, "f8906b4340dc398ff58e07dd76a2f9aa464772e844faa6597d8ef9b2a40776b9"),
    ),
    Original(
        "ijcnn1.t.bz2",
        (f"{LIBSVM_PAGE}ijcnn1.t.bz2",),
        "acd1db430684fdd3f0c768ecc49aa8e749d0004fc117611220c2aa576a7b6a24",
        (records_digest, "1986c3181b2d2420fcb1ea96edca55092f4e62e782afe51338b8481601480e60"),
    ),
)
MNIST = _idx(
    "mnist",
    ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
    train_images="440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    train_labels="3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    test_images="8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    test_labels="f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
)
FASHION = _idx(
    "fashion-mnist",
    ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
    train_images="3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
    train_labels="a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
    test_images="346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
    test_labels="67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
)
CIFAR10 = (
    Original(
        "cifar10-cat-dog-train.bin.gz",
        (CIFAR_ARCHIVE,),
        "2f4612927be94e97552ab3942f9090fa2eea297de6f18ebe2bbeff1f096ca372",
        (bytes_digest, "fffcc58db4ba6df8cd399397c2ae7dc8a8d96d7854fa4c9941489e1649abd8fb"),
        tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
    ),
    Original(
        "cifar10-cat-dog-test.bin.gz",
        (CIFAR_ARCHIVE,),
        "341e3a10675055fa72361e7d1afb202f61c7b8b3cf4877d3842051053daf45ec",
        (bytes_digest, "693b8402d28f6cd4a3ed7f509f699024e0f841015ecc841ec06df9204926ef8b"),
        ("test_batch.bin",),
    ),
)


def cache_folder() -> Path:
    """The folder of downloads: the system's cache folder for relaydp."""
    import pooch

    return Path(pooch.os_cache("relaydp"))


def _folders() -> list[Path]:
    """The folders to search, in order."""
    chosen = os.environ.get(VARIABLE)
    if not chosen:
        return [cache_folder()]
    folder = Path(chosen).expanduser()
    if not folder.is_dir():
        raise InputError(
            f"{VARIABLE}={chosen} is not a folder; it must be a folder with data files. Correct or unset it."
        )
    return [folder, cache_folder()]


def located(path: str) -> Path | None:
    """The file at this relative path, if it is in $RELAYDP_DATA or in the cache. Its contents are not checked."""
    return next((folder / path for folder in _folders() if (folder / path).is_file()), None)


@functools.cache
def _fault(original: Original, file: Path, size: int, changed: int) -> str:
    """'' for the right file, else what is wrong. Cached by size and time, so a file is hashed once per process."""
    with file.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found == original.sha256:
        return ""
    fault = f"its sha256 is {found}, and it must be {original.sha256}"
    if original.inside is None:
        return fault
    digest, wanted = original.inside
    try:
        return "" if digest(file) == wanted else f"{fault}, and its contents differ too"
    except Exception as error:  # broad, because damaged files raise many kinds of error
        return f"{fault}, and its contents cannot be read ({error})"


def fault(original: Original, file: Path) -> str:
    state = file.stat()
    return _fault(original, file, state.st_size, state.st_mtime_ns)


def find(originals: Iterable[Original]) -> list[Path]:
    """A checked file for each original, downloading those that are missing."""
    originals = list(originals)
    missing: list[Original] = []
    for original in originals:
        file = located(original.path)
        if file is None:
            missing.append(original)
        elif wrong := fault(original, file):
            raise InputError(
                f"{file} is not the published {original.path}: {wrong}. It was not changed; replace it from "
                f"{original.urls[0]}, or move it away to have it downloaded."
            )
    for urls in dict.fromkeys(original.urls for original in missing):
        _download([original for original in missing if original.urls == urls], missing)
    return [_present(original) for original in originals]


def _present(original: Original) -> Path:
    file = located(original.path)
    if file is None:  # removed by another program since the check
        raise InputError(f"{original.path} disappeared while it was being read. Run this again.")
    return file


def _download(wanted: list[Original], missing: list[Original]) -> None:
    """Download one URL and keep the files wanted from it, complete and checked, or nothing."""
    cache = cache_folder()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix="partial-") as folder:
            source = _retrieve(wanted[0], Path(folder))
            for original in wanted:
                file = _cats_and_dogs(source, original, Path(folder)) if original.batches else source
                if wrong := fault(original, file):
                    raise ValueError(f"the download is not the published file: {wrong}")
                target = cache / original.path
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(file, target)
    except Exception as error:  # network, disk, checksum or archive: the cure is the same for all
        raise InputError(_by_hand(missing, error)) from error


def _retrieve(original: Original, folder: Path) -> Path:
    import pooch

    name = original.urls[0].rsplit("/", 1)[-1]
    if original.batches and (archive := located(name)) is not None:
        return archive  # the whole CIFAR-10 archive, put there by hand
    known = f"sha256:{CIFAR_ARCHIVE_SHA256 if original.batches else original.sha256}"
    if original.inside is not None and not original.batches:
        known = None  # recognised later by its contents
    for url in original.urls:
        try:
            return Path(pooch.retrieve(url, known, fname=name, path=folder, progressbar=True))
        except Exception:
            if url == original.urls[-1]:
                raise
    raise AssertionError("an Original has at least one URL")


def _cats_and_dogs(archive: Path, original: Original, folder: Path) -> Path:
    """Keep the records of cats and dogs, in the archive's order, as one gzip file."""
    made = folder / original.path
    with tarfile.open(archive) as tar, gzip.GzipFile(made, "wb", mtime=0) as out:
        for batch in original.batches:
            member = tar.extractfile(f"cifar-10-batches-bin/{batch}")
            if member is None:
                raise ValueError(f"{archive.name} has no {batch}")
            records = np.frombuffer(member.read(), np.uint8).reshape(-1, CIFAR_RECORD)
            out.write(records[np.isin(records[:, 0], (CAT, DOG))].tobytes())
    return made


def _by_hand(missing: list[Original], error: Exception) -> str:
    """Instructions for a download by hand, after a failed one."""
    chosen = os.environ.get(VARIABLE)
    reason = " ".join(str(error).split())[:400] or type(error).__name__
    here = f"${VARIABLE} ({chosen})" if chosen else f"a folder of yours named by ${VARIABLE} (not set now)"
    lines = [f"{len(missing)} file(s) not on this machine could not be downloaded: {reason}"]
    lines.append(f"Put each in {here}, or in the cache {cache_folder()}, under the path given:")
    for original in missing:
        lines.append(f"  {original.path}\n    sha256 {original.sha256}\n    from {' or '.join(original.urls)}")
    if any(original.batches for original in missing):
        lines.append(
            f"  or, for the cifar10 files, the whole {CIFAR_ARCHIVE.rsplit('/', 1)[-1]}, "
            f"sha256 {CIFAR_ARCHIVE_SHA256}; cats and dogs are then taken from it"
        )
    return "\n".join(lines)
