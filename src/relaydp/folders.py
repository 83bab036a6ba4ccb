"""Folders that appear whole or not at all."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from relaydp.errors import InputError


@contextmanager
def new_folder(target: Path, mark: str, overwrite: bool) -> Iterator[Path]:
    """A place to write in, which becomes `target` when all is written.

    Only a folder that has the file `mark` in it, or nothing at all, is replaced.
    """
    if target.exists() and not overwrite:
        raise InputError(f"{target} exists already; choose another folder, or pass overwrite=True.")
    if target.exists() and not (target.is_dir() and ((target / mark).is_file() or not any(target.iterdir()))):
        raise InputError(f"{target} has no {mark} in it, so it is not overwritten; choose another folder.")
    target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        yield work
        if target.exists():
            shutil.rmtree(target)
        work.rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
