"""JAX's settings for relaydp, made once, when the first module that computes with JAX imports this one.

`import relaydp` alone imports no JAX and changes nothing. Everything is here, in JAX's configuration: nothing is
written to the environment, and a process started from this one makes its own settings.

float64         switched on: problems are solved to 1e-12, and noise needs enough bits to hide a value. JAX has it off
                unless told otherwise, so that an array which you make before you first use relaydp is float32; relaydp
                converts it. Where the environment has JAX_ENABLE_X64=0, relaydp does not overrule it and stops. Where a
                program switches float64 off later, a run with noise is refused (`release` in privacy/mechanism.py,
                `release_secret_traced` in privacy/secret.py), and a run without noise computes in float32
drawing         one way to draw from a key, so that a simulation depends on its seed alone
compiled code   kept in the user's cache folder, from the first array on that is placed (`keep_compiled`): importing
                touches no file
"""

from __future__ import annotations

import functools
import os
import warnings
import zlib

import jax
from jax.experimental.compilation_cache import compilation_cache

from relaydp.errors import InputError

OFF = ("0", "f", "false", "n", "no", "off")  # as JAX reads its variables
MOST_COMPILED = 2000  # programs kept, some 30 kB each


def _need_float64() -> None:
    """Switch on float64, unless the environment says off: whoever set that wants it for other code, and must decide."""
    said = os.environ.get("JAX_ENABLE_X64", "")
    if said.lower() in OFF and not getattr(jax.config, "jax_enable_x64", False):
        raise InputError(
            f"the environment has JAX_ENABLE_X64={said}, which switches off float64 in JAX; relaydp needs float64, "
            "where noise has enough bits to hide a value. Unset the variable, or set it to 1."
        )
    jax.config.update("jax_enable_x64", True)


@functools.cache
def keep_compiled() -> None:
    """Let JAX keep what it compiles in the user's cache folder: a second process starts some 3 s earlier.

    RELAYDP_COMPILED=0 turns it off, RELAYDP_COMPILED=FOLDER moves it; JAX's own settings, where there are any, stand.
    Where there is no folder that is safe to use, nothing is kept and nothing is said.
    """
    asked = os.environ.get("RELAYDP_COMPILED", "")
    given = any(name in os.environ for name in ("JAX_COMPILATION_CACHE_DIR", "JAX_ENABLE_COMPILATION_CACHE"))
    given = given or getattr(jax.config, "jax_compilation_cache_dir", None) is not None
    if asked == "0" or given or os.name != "posix":
        return
    try:
        folder = _folder_of_this_processor(asked)
    except OSError:
        return
    if folder is None:
        return
    # an entry cut short by a crash or a full disk is compiled anew: nothing the user need know
    warnings.filterwarnings("ignore", message="Error (reading|writing) persistent compilation cache entry")
    jax.config.update("jax_compilation_cache_dir", folder)
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    # JAX decides once, when it first compiles, whether to keep programs, and the user may have used it before
    compilation_cache.reset_cache()


def _folder_of_this_processor(asked: str) -> str | None:
    """A folder for compiled code, made if need be; None if others may write to it, since its programs are run.

    Compiled code is for one kind of processor, so each kind has a folder of its own.
    """
    with open("/proc/cpuinfo", "rb") as facts:  # the first processor's lines, without those that change
        lines = facts.read(8192).split(b"\n\n")[0].splitlines()
    kind = zlib.crc32(b"".join(line for line in lines if line.startswith((b"vendor", b"model", b"flags", b"Feat"))))
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = os.path.join(asked or os.path.join(home, "relaydp", "compiled"), f"{os.uname().machine}-{kind:08x}")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    about = os.stat(folder)
    if about.st_uid != os.getuid() or about.st_mode & 0o022 or not os.access(folder, os.W_OK | os.X_OK):
        return None
    entries = [entry.path for entry in os.scandir(folder)]
    if len(entries) > MOST_COMPILED:  # begin anew rather than keep account of their use
        for path in entries:
            os.unlink(path)
    return folder


_need_float64()
# One way to draw from a key, whatever the environment says: a simulation's seed is all that it depends on.
jax.config.update("jax_threefry_partitionable", True)
