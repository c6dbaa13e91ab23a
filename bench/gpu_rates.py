"""How fast is a GPU at what stages and witnesses do, for `bench.witness_plan`? `python -m bench.gpu_rates`.

Measured with a random model of a published shape in bfloat16: seconds until a process has the libraries that load a
model, and a CUDA context; bytes a second of digesting and of loading weights that were read before; tokens a second of
the batched engine, beside the bound that reading all weights once a step sets; operations a second of a witness that
reads those answers again. `python -m bench.planned_gpu` measures training. It also holds the plan of memory while
decoding against what torch reserved.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from bench.random_models import SHAPES, random_checkpoint, words
from training.planning.generation_memory import Decoding, memory

GB = 10**9
BATCHES = (16, 64)
_START = (
    "import time; began = time.time(); from training.engines.checkpoint import import_libraries; import_libraries();"
    "imports = time.time(); import torch; torch.zeros(1, device='cuda').sum().item();"
    "print(began, imports, time.time())"
)


def starting() -> dict[str, float]:
    """Return the median seconds of imports and of a CUDA context, of three processes; the interpreter's are in both."""
    imports: list[float] = []
    context: list[float] = []
    for _ in range(3):
        began = time.time()
        done = subprocess.run([sys.executable, "-c", _START], capture_output=True, text=True, check=True)
        _, imported, ended = map(float, done.stdout.split())
        imports.append(imported - began)
        context.append(ended - imported)
    return {"imports_s": median(imports), "context_s": median(context)}


def files(folder: Path) -> dict[str, float]:
    """Return the rates of digesting a checkpoint and of loading it onto the GPU, both read before."""
    import torch

    from specs.digests import digest_path
    from training.engines.checkpoint import free, load

    count = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    digest_path(folder)
    began = time.perf_counter()
    digest_path(folder)
    digested = time.perf_counter() - began
    model, _ = load(folder)
    del model
    free()
    began = time.perf_counter()
    model, _ = load(folder)
    torch.cuda.synchronize()
    loaded = time.perf_counter() - began
    del model
    free()
    parts = len(list(folder.glob("*.safetensors")))
    return {"digest_GB_s": count / digested / GB, "files": parts, "load_GB_s": count / loaded / GB, "load_s": loaded}


def decoding(name: str, folder: Path, prompt: int, new: int) -> list[dict[str, Any]]:
    """Return how fast answers are written in batches, how fast they are read again, and what memory each takes."""
    import torch

    from training.engines.checkpoint import load
    from training.engines.engine import Batched
    from training.engines.token_sampling import Sampling
    from training.jobs.witness.asked import answer
    from training.jobs.witness.reading import read

    shape, results = SHAPES[name], list[dict[str, Any]]()
    model, tokenizer = load(folder)
    tokenizer.chat_template = None
    for batch in BATCHES:
        texts = [words(prompt, shape.vocabulary, number) for number in range(batch)]
        prompts: list[list[int]] = [tokenizer(text)["input_ids"] for text in texts]
        sampling = Sampling(new, temperature=0.7)
        engine = Batched(model, tokenizer, batch, share=False)
        engine.complete(prompts, sampling._replace(max_new_tokens=4), seed=1)
        torch.cuda.reset_peak_memory_stats()
        began = time.perf_counter()
        written = [output for (output,) in engine.complete(prompts, sampling, seed=1)]
        torch.cuda.synchronize()
        seconds = time.perf_counter() - began
        reserved, tokens = torch.cuda.max_memory_reserved(), sum(len(output.ids) for output in written)
        requests = [
            answer(place, ids, sampling, ids=output.ids, text=output.text, finish=output.finish)
            for place, (ids, output) in enumerate(zip(prompts, written, strict=True))
        ]
        list(read(model, tokenizer, requests[:2]))
        began = time.perf_counter()
        list(read(model, tokenizer, requests))
        torch.cuda.synchronize()
        again = time.perf_counter() - began
        weights = shape.parameters()
        whole = batch * prompt + tokens
        plan = memory(shape, Decoding(batch, prompt, new, all_logits=False), gpu=True)
        results.append(
            {
                "shape": name,
                "batch": batch,
                "prompt": prompt,
                "new": new,
                "tokens_s": tokens / seconds,
                "step_ms": 1000 * seconds / new,
                "weights_read_TB_s": 2 * weights / (seconds / new) / 1e12,
                "witness_s": again,
                "witness_TFLOP_s": 2 * weights * whole / again / 1e12,
                "witness_share": again / seconds,
                "reserved_GB": reserved / GB,
                "planned_GB": plan.total() / GB,
            }
        )
    return results


def passes(name: str, folder: Path) -> dict[str, float]:
    """Return the operations a second of forward passes over 8 x 1,024 tokens, the logits of the last only."""
    import torch

    from training.engines.checkpoint import load

    shape = SHAPES[name]
    model, _ = load(folder)
    ids = torch.randint(3, shape.vocabulary, (8, 1024), device=model.device)
    with torch.inference_mode():
        model(input_ids=ids, use_cache=False, logits_to_keep=1)
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(5):
            model(input_ids=ids, use_cache=False, logits_to_keep=1)
        torch.cuda.synchronize()
    seconds = (time.perf_counter() - began) / 5
    return {"forward_TFLOP_s": 2 * shape.parameters() * ids.numel() / seconds / 1e12}


def main() -> int:
    """Print the figures of each shape as JSON."""
    parser = argparse.ArgumentParser(description="What a GPU does in a second, of what stages and witnesses do.")
    parser.add_argument("--shapes", nargs="+", choices=list(SHAPES), default=["1B", "8B"])
    parser.add_argument("--prompt", type=int, default=256)
    parser.add_argument("--new", type=int, default=128)
    parser.add_argument("--models", type=Path, help="keep the random models here")
    namespace = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        raise SystemExit("torch finds no NVIDIA GPU on this machine")
    print(json.dumps({"card": torch.cuda.get_device_name(0), "torch": torch.__version__} | starting()), flush=True)
    with tempfile.TemporaryDirectory() as name:
        models = namespace.models or Path(name)
        models.mkdir(parents=True, exist_ok=True)
        for shape in namespace.shapes:
            folder = random_checkpoint(models / shape, SHAPES[shape])
            print(json.dumps({"shape": shape} | files(folder) | passes(shape, folder)), flush=True)
            for line in decoding(shape, folder, namespace.prompt, namespace.new):
                print(json.dumps(line), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
