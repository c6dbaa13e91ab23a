"""Rules on Python in files and notebooks: syntax, unseeded draws, swallowed errors, p-values rounded to zero."""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Iterator

from reviews.requests.rules.rule_findings import RuleFindings, RuleMaterial, place
from specs.system.confinement.task_file import HERE, newer_version
from specs.trail.requested_review import ReadFile

_DRAWS: dict[str, tuple[str, ...]] = {
    "random": (
        *("random", "randint", "randrange", "choice", "choices", "sample", "shuffle"),
        *("uniform", "gauss", "normalvariate", "betavariate"),
    ),
    "np.random": (
        *("rand", "randn", "randint", "random", "choice", "shuffle", "permutation"),
        *("normal", "uniform", "binomial", "poisson"),
    ),
    "torch": ("rand", "randn", "randint", "randperm", "multinomial", "bernoulli", "normal", "rand_like", "randn_like"),
}
_SEEDS = ("seed", "manual_seed", "manual_seed_all", "set_seed", "seed_everything", "seed_all")
_MAKES_GENERATOR = ("default_rng", "RandomState", "Random", "SeedSequence")
_BROAD = ("Exception", "BaseException")
_OTHER_CELL = re.compile(r"\s*%%(?!time|capture|prun)")
"""The first line of a cell that is no Python."""
_MAGIC = re.compile(r"^(\s*)(?:[%!?].*|[\w.]+\?\??\s*)$")
"""A line for IPython or the shell."""


def check_python(material: RuleMaterial) -> RuleFindings:
    """Look at every Python file and notebook that was read."""
    result = RuleFindings()
    parsed: list[tuple[ReadFile, ast.Module]] = []
    for file in material.ending(".py", ".ipynb"):
        result.looked_at.append(file.name)
        source = file.text
        try:
            if file.name.lower().endswith(".ipynb"):
                source = _notebook_code(file)
            with warnings.catch_warnings():
                # An invalid escape in a string is not a fault that matters here.
                warnings.simplefilter("ignore")
                parsed.append((file, ast.parse(source)))
        except SyntaxError as error:
            if version := newer_version(error, source):
                message = f"{file.name}:{error.lineno}: written for Python {version} or newer, which {HERE} cannot read"
                result.not_judged.append(message)
                continue
            message = f"it is not valid Python: {error.msg}; nothing else in it was looked at"
            result.issue("CRITICAL", message, [place(file, error.lineno or 1)])
        except (ValueError, TypeError, LookupError, StopIteration, RecursionError, MemoryError) as error:
            result.not_judged.append(f"{file.name}: cannot be parsed ({type(error).__name__})")
    seeded = any(_sets_seed(tree) for _, tree in parsed)
    for file, tree in parsed:
        _check_draws(result, file, tree, seeded)
        _check_handlers(result, file, tree)
        _check_tails(result, file, tree)
    return result


def _notebook_code(file: ReadFile) -> str:
    """Return the code of a notebook's cells, each line where the file has it, so that places need no translation.

    Raises:
        ValueError: it is not JSON, or does not have each line of source on a separate line, as Jupyter writes it.
        LookupError, StopIteration, TypeError: it does not have the form of a notebook.
    """
    code = [""] * len(file.lines)
    stripped = [line.strip().removesuffix(",") for line in file.lines]
    at = 0
    for cell in json.loads(file.text)["cells"]:
        source: list[str] = cell["source"]
        at = next(number for number in range(at, len(code)) if stripped[number].startswith('"source":')) + 1
        if [json.loads(line) for line in stripped[at : at + len(source)]] != source:
            raise ValueError("the lines of a cell are not those of the file")
        if cell["cell_type"] == "code" and source and not _OTHER_CELL.match(source[0]):
            code[at : at + len(source)] = [_MAGIC.sub(r"\1pass", line.rstrip("\n")) for line in source]
        at += len(source)
    return "\n".join(code)


def _check_draws(result: RuleFindings, file: ReadFile, tree: ast.Module, seeded: bool) -> None:
    names = _map_imports(tree)
    unseeded = [node.lineno for node in _calls(tree) if _makes_unseeded_generator(node, names)]
    draws = [] if seeded else [node.lineno for node in _calls(tree) if _draws(node, names)]
    lines = sorted({*unseeded, *draws})
    if not lines:
        return
    why = "and no file that was read sets a seed" if draws else "from a generator without a seed"
    result.issue("HIGH", f"random numbers are drawn {why}", [place(file, line) for line in lines])
    result.recommend(
        "Set every seed in one place, from a registered value.",
        "Without it a result cannot be repeated, and chance in one run cannot be distinguished from an effect.",
    )


def _check_handlers(result: RuleFindings, file: ReadFile, tree: ast.Module) -> None:
    handlers = (node for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler))
    if lines := sorted(node.lineno for node in handlers if _swallows(node)):
        message = "every error is caught and nothing is done about it: a failure looks like a result"
        result.issue("HIGH", message, [place(file, line) for line in lines])
        result.recommend(
            "Catch only what is expected, and count or record what was skipped.",
            "Rows that failed silently are missing from the population a rate is computed over.",
        )


def _check_tails(result: RuleFindings, file: ReadFile, tree: ast.Module) -> None:
    lines: list[int] = []
    for node in ast.walk(tree):
        match node:
            case ast.BinOp(ast.Constant(1 | 1.0), ast.Sub(), ast.Call(ast.Attribute(attr="cdf"))):
                lines.append(node.lineno)
            case _:
                pass
    if lines:
        message = "a p-value is computed as 1 - cdf: below about 1e-16 it becomes 0 or negative; sf() keeps it"
        result.concern(message, [place(file, line) for line in sorted(lines)])


def _calls(tree: ast.Module) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _map_imports(tree: ast.Module) -> dict[str, str]:
    """Return the full names of what a file imports: ``numpy`` for ``np``, ``random.shuffle`` for ``shuffle``."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.split(".")[0]
                names[alias.asname or first] = alias.name if alias.asname else first
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return names


def _full_name(node: ast.expr, names: dict[str, str]) -> str:
    """Return the dotted name of what is called, imports resolved; empty when it has none."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in names:
        return ""
    return ".".join([names[node.id], *reversed(parts)]).replace("numpy.random", "np.random")


def _draws(node: ast.Call, names: dict[str, str]) -> bool:
    module, _, function = _full_name(node.func, names).rpartition(".")
    if function == "train_test_split":
        return all(keyword.arg != "random_state" for keyword in node.keywords)
    return function in _DRAWS.get(module, ()) and all(keyword.arg != "generator" for keyword in node.keywords)


def _makes_unseeded_generator(node: ast.Call, names: dict[str, str]) -> bool:
    module, _, function = _full_name(node.func, names).rpartition(".")
    return module in ("np.random", "random") and function in _MAKES_GENERATOR and not node.args and not node.keywords


def _sets_seed(tree: ast.Module) -> bool:
    for node in _calls(tree):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called in _SEEDS and (node.args or node.keywords):
            return True
        if any(keyword.arg in ("seed", "data_seed") for keyword in node.keywords):
            return True
    return False


def _swallows(node: ast.ExceptHandler) -> bool:
    broad = node.type is None or (isinstance(node.type, ast.Name) and node.type.id in _BROAD)
    return broad and all(
        isinstance(stmt, ast.Pass | ast.Continue)
        or (isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Constant))
        for stmt in node.body
    )
