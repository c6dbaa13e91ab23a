"""llama.cpp through llama-cpp-python, on the CPU: the granted weights in float32, several rows in one pass.

llama.cpp computes logits; tokens are chosen by the loop of the batched engine, so that penalty, nucleus, seeds and stop
strings mean the same.
"""

from __future__ import annotations

import ctypes
import logging
import tempfile
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from specs.system.digests import digest_file
from specs.system.extras import install_hint
from training.engines.batched import Completion, CompletionTask, in_batches, shared_beginning, write
from training.engines.engine import CompletionEngine, EngineMissing, IncompleteCompletion, ends_of
from training.engines.gguf_file import write_gguf
from training.engines.gguf_weights import NoGguf

if TYPE_CHECKING:
    import torch

READ_AT_ONCE = 512
"""Tokens in one pass."""
_FLOAT32 = 0
"""ggml's number of the type."""


class _Token(NamedTuple):
    """A token to read: after ``position`` others, by one row."""

    id: int
    position: int
    row: int
    predicts: bool


class Llama(CompletionEngine):
    """llama.cpp in this process; the GGUF file is made from the checkpoint and removed once it is open."""

    name = "llama"
    device, dtype = "cpu", "float32"

    def __init__(self, folder: Path, batch_size: int, scratch: Path) -> None:
        try:
            import_module("gguf")
            library: Any = import_module("llama_cpp")
        except ImportError as error:
            raise EngineMissing(
                f"engine 'llama' needs the package {error.name}, which is not installed here",
                install_hint("llama"),
            ) from error
        from transformers import AutoTokenizer

        logging.getLogger("llama-cpp-python").setLevel(logging.ERROR)
        self._library = library
        self.description = f"llama.cpp, llama-cpp-python {library.__version__}"
        self.tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        self._ends = ends_of(folder, self.tokenizer)
        self._rows = min(batch_size, library.llama_max_parallel_sequences())
        with tempfile.TemporaryDirectory(dir=scratch, prefix="gguf-") as made:
            file = Path(made) / "model.gguf"
            try:
                write_gguf(folder, file)
            except NoGguf as error:
                why = f"engine 'llama' cannot read these weights: {error}"
                raise EngineMissing(why, "use another engine") from error
            self.facts = {"gguf": digest_file(file)}
            self.model = self._open_model(file)

    def _open_model(self, file: Path) -> Any:
        library = self._library
        library.llama_backend_init()
        wanted = library.llama_model_default_params()
        wanted.n_gpu_layers = 0
        model = library.llama_model_load_from_file(str(file).encode(), wanted)
        if not model:
            raise EngineMissing(f"llama.cpp cannot open the weights of this checkpoint ({file.name})", "see the log")
        return model

    def close(self) -> None:
        """Free the weights."""
        if self.model is not None:
            self._library.llama_model_free(self.model)
        super().close()

    def _complete(self, work: CompletionTask) -> list[list[Completion]]:
        def complete_batch(task: CompletionTask) -> list[Completion]:
            longest = max(map(len, task.prompts)) + task.sampling.max_new_tokens
            with _Passes(self._library, self.model, len(task.prompts) * task.samples, longest) as passes:
                return write(passes, task, self._ends)

        return in_batches(work, self._rows, complete_batch)


class _Passes:
    """A context of llama.cpp for one batch: rows are its sequences, and cells of its cache are shared between them."""

    drop_at = 1.0
    can_add = False

    def __init__(self, library: Any, model: Any, rows: int, longest: int) -> None:
        import torch

        self._library = library
        wanted = library.llama_context_default_params()
        wanted.n_ctx = rows * longest
        wanted.n_batch = wanted.n_ubatch = READ_AT_ONCE
        wanted.n_seq_max = rows
        wanted.kv_unified = True
        wanted.n_threads = wanted.n_threads_batch = torch.get_num_threads()
        # The library's own choice would be 16 bits.
        wanted.type_k = wanted.type_v = _FLOAT32
        wanted.flash_attn_type = library.LLAMA_FLASH_ATTN_TYPE_DISABLED
        self._context = library.llama_init_from_model(model, wanted)
        if not self._context:
            raise IncompleteCompletion(f"llama.cpp has no context for {rows} rows of {longest} tokens")
        self._batch = library.llama_batch_init(READ_AT_ONCE, 0, 1)
        self._vocabulary = library.llama_vocab_n_tokens(library.llama_model_get_vocab(model))

    def __enter__(self) -> _Passes:
        return self

    def __exit__(self, *_: object) -> None:
        self._library.llama_batch_free(self._batch)
        self._library.llama_free(self._context)

    def read(self, prompts: list[Sequence[int]], samples: int) -> torch.Tensor:
        memory = self._library.llama_get_memory(self._context)
        common = shared_beginning(prompts)
        if common:
            self._run([_Token(id, position, 0, False) for position, id in enumerate(prompts[0][:common])])
            for place in range(1, len(prompts)):
                self._library.llama_memory_seq_cp(memory, 0, place * samples, 0, common)
        tokens = [
            _Token(prompt[position], position, place * samples, position == len(prompt) - 1)
            for place, prompt in enumerate(prompts)
            for position in range(common, len(prompt))
        ]
        logits = self._run(tokens)
        for place, prompt in enumerate(prompts):
            for row in range(place * samples + 1, (place + 1) * samples):
                self._library.llama_memory_seq_cp(memory, place * samples, row, 0, len(prompt))
        self._rows = [
            (place * samples + sample, len(prompt)) for place, prompt in enumerate(prompts) for sample in range(samples)
        ]
        return logits.repeat_interleave(samples, 0)

    def keep(self, rows: torch.Tensor) -> None:
        self._rows = [self._rows[place] for place in rows.tolist()]

    def next(self, token: torch.Tensor) -> torch.Tensor:
        pairs = zip(token.tolist(), self._rows, strict=True)
        logits = self._run([_Token(id, position, row, True) for id, (row, position) in pairs])
        self._rows = [(row, position + 1) for row, position in self._rows]
        return logits

    def _run(self, tokens: list[_Token]) -> torch.Tensor:
        """Read tokens in passes of at most :data:`READ_AT_ONCE`; return the logits of the positions that predict."""
        import numpy
        import torch

        results: list[Any] = []
        for start in range(0, len(tokens), READ_AT_ONCE):
            chunk = tokens[start : start + READ_AT_ONCE]
            batch = self._batch
            batch.n_tokens = len(chunk)
            for place, token in enumerate(chunk):
                batch.token[place], batch.pos[place] = token.id, token.position
                batch.n_seq_id[place], batch.seq_id[place][0] = 1, token.row
                batch.logits[place] = token.predicts
            code = self._library.llama_decode(self._context, batch)
            if code != 0:
                raise IncompleteCompletion(f"llama.cpp gave up on a pass of {len(chunk)} tokens with code {code}")
            for place, token in enumerate(chunk):
                if token.predicts:
                    at = self._library.llama_get_logits_ith(self._context, place)
                    values = ctypes.cast(at, ctypes.POINTER(ctypes.c_float * self._vocabulary)).contents
                    # Copied: the next pass writes over it.
                    results.append(numpy.array(values, dtype=numpy.float32))
        return torch.from_numpy(numpy.stack(results)) if results else torch.zeros((0, self._vocabulary))
