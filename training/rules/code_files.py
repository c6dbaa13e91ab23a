"""Files that are code, or can run code when a library loads them: none comes with a checkpoint."""

from __future__ import annotations

from pathlib import PurePath

_PICKLES = (
    *(".bin", ".pt", ".pth", ".pt2", ".ckpt", ".pkl", ".pickle", ".dill", ".joblib", ".npy", ".npz", ".msgpack"),
    *(".h5", ".hdf5", ".keras", ".mar", ".nemo", ".t7"),
)
_PROGRAMS = (
    *(".py", ".pyc", ".pyo", ".pyd", ".pyw", ".pyz", ".so", ".dll", ".dylib", ".exe", ".sh", ".bat", ".ps1"),
    *(".js", ".mjs", ".jar", ".whl", ".egg", ".ipynb", ".wasm"),
)


def runs_code(name: str) -> bool:
    """Return whether a file of this name is code, or of a format that can carry it."""
    suffixes = PurePath(name.lower()).suffixes
    # "libx.so.1" is a library too.
    return bool(suffixes) and (suffixes[-1] in (*_PICKLES, *_PROGRAMS) or ".so" in suffixes)
