"""Reads a GGUF file with llama.cpp (package cyllama: a wheel, nothing to compile): token ids and logits.

The llama engine answers with llama-cpp-python. This module reads what was exported, vocabulary included, as its users
will, and one token at a time through the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from specs.stages.packaging.parameters import PACKAGE
from specs.system.extras import install_hint
from training.engines.engine import EngineMissing

_FLOAT32 = 0
"""ggml's number of the type."""
_WITHOUT_FLASH_ATTENTION = 0


class LlamaFile:
    """A GGUF file, open in llama.cpp on the CPU."""

    def __init__(self, file: Path, *, threads: int = 1) -> None:
        """Open it; raises EngineMissing without the package, or if llama.cpp refuses the file."""
        try:
            self._library: Any = import_module(f"{PACKAGE}.llama.llama_cpp")
        except ImportError as error:
            raise EngineMissing(f"llama.cpp cannot be loaded: {error}", install_hint("gguf")) from error
        library = self._library
        self.description = f"llama.cpp, {PACKAGE} {version(PACKAGE)}"
        self._threads = threads
        library.llama_backend_init()
        library.ggml_backend_load_all()
        wanted = library.LlamaModelParams()
        wanted.n_gpu_layers = 0
        # `get_logits_ith` asks the model for a size that LlamaModel lacks (seen in cyllama 0.2.18).
        model = type("Model", (library.LlamaModel,), {"n_vocab": property(lambda value: value.get_vocab().n_vocab)})
        try:
            self._model = model(str(file), wanted, verbose=True)
        except (ValueError, RuntimeError, OSError) as error:
            raise EngineMissing(f"llama.cpp refuses {file.name}: {error}", "see the log above") from error
        self._vocabulary = self._model.get_vocab()
        self.size = int(self._vocabulary.n_vocab)
        """Tokens of the vocabulary."""

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text: special tokens in it are read as such, none are added."""
        return list(self._vocabulary.tokenize(text, False, True))

    def read(self, prompt: Sequence[int], answer: Sequence[int]) -> Any:
        """Return the logits that predict each token of the answer and the token after it. [answer + 1, vocabulary]."""
        import numpy

        library = self._library
        wanted = library.LlamaContextParams()
        wanted.n_ctx = wanted.n_batch = wanted.n_ubatch = len(prompt) + len(answer) + 8
        wanted.n_threads = wanted.n_threads_batch = self._threads
        # The library's own choice is 16 bits, which moves logits a hundred times as far as float32 does.
        wanted.type_k = wanted.type_v = _FLOAT32
        wanted.flash_attn_type = _WITHOUT_FLASH_ATTENTION
        context = library.LlamaContext(self._model, wanted)
        array = numpy.empty((len(answer) + 1, self.size), "f4")
        try:
            for place, ids in enumerate([list(prompt), *([value] for value in answer)]):
                context.decode(library.llama_batch_get_one(ids, 0 if not place else len(prompt) + place - 1))
                array[place] = context.get_logits_ith(-1)
        finally:
            context.close()
        return array
