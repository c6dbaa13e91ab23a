"""Every change of one expression or statement of a module's functions."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]


class Mutant(NamedTuple):
    """One change of a module."""

    file: str
    line: int
    before: str
    after: str
    number: int = -1
    """Which node of the module, in the order in which they are visited; none is changed for -1."""
    other: ast.AST = ast.Pass()
    """The node that replaces it."""

    def tree(self) -> ast.Module:
        """Return the changed module."""
        tree = _tree(self.file)
        _Put(self.number, self.other).visit(tree)
        return ast.fix_missing_locations(tree)


_OTHER: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_SUM: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
}  # fmt: skip


def _changed(node: ast.AST) -> Iterator[ast.AST]:
    """Yield every other form of a node."""
    other = copy.deepcopy(node)
    match other:
        case ast.Compare(ops=[op, *rest]) if type(op) in _OTHER:
            other.ops = [_OTHER[type(op)](), *rest]
            yield other
        case ast.BoolOp(op=op):
            other.op = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield other
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            yield inner
        case ast.BinOp(op=op) if type(op) in _SUM:
            other.op = _SUM[type(op)]()
            yield other
        case ast.Constant(value=bool(value)):
            other.value = not value
            yield other
        case ast.Constant(value=int(value) | float(value)):
            other.value = value + 1
            yield other
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            other.test = ast.UnaryOp(ast.Not(), test)
            yield other
        case ast.Return(value=value) if value is not None and not (
            isinstance(value, ast.Constant) and value.value is None
        ):
            other.value = ast.Constant(None)
            yield other
        case ast.Raise() | ast.Expr(value=ast.Yield() | ast.Call()):
            yield ast.Pass()
        case ast.Continue():
            yield ast.Break()
        case _:
            return


class _Put(ast.NodeTransformer):
    def __init__(self, number: int, other: ast.AST) -> None:
        self._left, self._other = number, other

    def visit(self, node: ast.AST) -> ast.AST:
        self._left -= 1
        return ast.copy_location(self._other, node) if self._left == -1 else self.generic_visit(node)


def _visited(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes in the order in which the transformer visits them."""
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _visited(child)


def mutants(file: str) -> list[Mutant]:
    """Return every mutant of a module's functions; what is only types or defaults of the module itself is left out."""
    tree = _tree(file)
    inside = {
        id(part)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        for statement in function.body
        for part in ast.walk(statement)
    }
    matching_mutants: list[Mutant] = []
    for number, node in enumerate(_visited(tree)):
        if id(node) not in inside:
            continue
        for other in _changed(node):
            matching_mutants.append(
                Mutant(file, getattr(node, "lineno", 0), _short(node), _short(other), number, other)
            )
    return matching_mutants


def _tree(file: str) -> ast.Module:
    return ast.parse((ROOT / file).read_text(encoding="utf-8"))


def _short(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())[:70]
