"""JAX's settings for relaydp, made once, when the first module that computes with JAX imports this one.

`import relaydp` alone does not import JAX. It has to switch on float64 by itself (relaydp/__init__.py says why);
everything else is here. Nothing is written to the environment: a process started from this one makes its own settings.
"""

from __future__ import annotations

import os
import warnings
import zlib

import jax
from jax.experimental.compilation_cache import compilation_cache

MOST_COMPILED = 2000  # programs kept, some 30 kB each


def _keep_compiled() -> None:
    """Let JAX keep what it compiles in the user's cache folder: a second process starts some 3 s earlier.

    RELAYDP_COMPILED=0 turns it off, RELAYDP_COMPILED=FOLDER moves it; JAX's own settings, where there are any, stand.
    Compiled code is for one kind of processor, so each kind has a folder of its own, which must be the user's and
    nobody else's to write to. Where it cannot be, nothing is kept and nothing is said.
    """
    asked = os.environ.get("RELAYDP_COMPILED", "")
    given = any(name in os.environ for name in ("JAX_COMPILATION_CACHE_DIR", "JAX_ENABLE_COMPILATION_CACHE"))
    given = given or getattr(jax.config, "jax_compilation_cache_dir", None) is not None
    if asked == "0" or given or os.name != "posix":
        return
    try:
        with open("/proc/cpuinfo", "rb") as facts:  # the first processor's lines, without those that change
            lines = facts.read(8192).split(b"\n\n")[0].splitlines()
        kind = zlib.crc32(b"".join(line for line in lines if line.startswith((b"vendor", b"model", b"flags", b"Feat"))))
        home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        folder = os.path.join(asked or os.path.join(home, "relaydp", "compiled"), f"{os.uname().machine}-{kind:08x}")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        about = os.stat(folder)
        if about.st_uid != os.getuid() or about.st_mode & 0o022 or not os.access(folder, os.W_OK | os.X_OK):
            return
        entries = [entry.path for entry in os.scandir(folder)]
        if len(entries) > MOST_COMPILED:  # begin anew rather than keep account of their use
            for path in entries:
                os.unlink(path)
    except OSError:
        return
    # an entry cut short by a crash or a full disk is compiled anew: nothing the user need know
    warnings.filterwarnings("ignore", message="Error (reading|writing) persistent compilation cache entry")
    jax.config.update("jax_compilation_cache_dir", folder)
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    # JAX decides once, when it first compiles, whether to keep programs, and the user may have used it before
    compilation_cache.reset_cache()


# One way to draw from a key, whatever the environment says: a simulation's seed is all that it depends on.
jax.config.update("jax_threefry_partitionable", True)
_keep_compiled()
