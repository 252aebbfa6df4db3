"""What a Python program certainly does if it runs without a GPU."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

_LONGEST = 1 << 16  # characters
_NEED = ("current_device", "get_device_name", "get_device_capability", "get_device_properties", "synchronize", "mem_get_info")
_HARMLESS = ("torch.no_grad", "torch.inference_mode", "open")
_ENDS = ("exit", "sys.exit", "quit", "os._exit")


def needs_gpu(program: str) -> str:
    """The statement that certainly fails without a GPU; "" if none does, or if that is not certain."""
    if len(program) > _LONGEST:
        return ""
    try:
        module = ast.parse(program.strip("\n"))
        return next((" ".join(ast.unparse(node).split()) for node in _failing(module.body)), "")
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # nested deeper than Python's own parser can read
        return ""


def _failing(body: Iterable[ast.stmt]) -> Iterator[ast.AST]:
    """Statements that certainly fail; those in a function, after a condition or in a try may not run, or not fail."""
    for statement in body:
        if isinstance(statement, ast.Assert):
            if _truth(statement.test) is False:
                yield statement
            yield from _computing(statement.test)
        elif isinstance(statement, ast.If):
            yield from _chosen(statement)
        elif isinstance(statement, ast.With):
            opened = [item.context_expr for item in statement.items]
            if all(isinstance(one, ast.Call) and _name(one.func) in _HARMLESS for one in opened):
                yield from _failing(statement.body)
        elif isinstance(statement, ast.Expr | ast.Assign | ast.AnnAssign | ast.AugAssign):
            if _ends(statement):
                return
            if statement.value:
                yield from _computing(statement.value)


def _chosen(statement: ast.If) -> Iterator[ast.AST]:
    yield from _computing(statement.test)
    known = _truth(statement.test)
    if known is not None:
        body = statement.body if known else statement.orelse
        yield from (node for node in body if _gives_up(node))
        yield from _failing(body)


def _ends(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _name(node.value.func) in _ENDS


def _gives_up(node: ast.stmt) -> bool:
    """`raise …` or `sys.exit(1)`."""
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call) or not _ends(node):
        return isinstance(node, ast.Raise)
    return any(not isinstance(value, ast.Constant) or value.value not in (0, None) for value in node.value.args)


def _computing(node: ast.AST) -> Iterator[ast.AST]:
    """Calls in an expression that are certainly made and need a GPU."""
    if isinstance(node, ast.Call) and _on_gpu(node):
        yield node
    elif isinstance(node, ast.IfExp):
        yield from _computing(node.test)
        known = _truth(node.test)
        yield from () if known is None else _computing(node.body if known else node.orelse)
    elif isinstance(node, ast.BoolOp):
        for value in node.values:
            yield from _computing(value)
            if _truth(value) is not isinstance(node.op, ast.And):
                return  # what follows may not be evaluated
    elif not isinstance(node, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        for child in ast.iter_child_nodes(node):
            yield from _computing(child)


def _on_gpu(call: ast.Call) -> bool:
    name = _name(call.func)
    if name.startswith("torch.cuda."):
        return name.removeprefix("torch.cuda.") in _NEED
    if name.startswith("torch."):  # torch.zeros(1, device="cuda"); torch.device("cuda") touches nothing
        return any(keyword.arg == "device" and _names_cuda(keyword.value) for keyword in call.keywords)
    if not isinstance(call.func, ast.Attribute):
        return False
    return (call.func.attr == "cuda" and not call.args) or (call.func.attr == "to" and any(map(_names_cuda, call.args[:1])))


def _names_cuda(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.partition(":")[0] == "cuda"


def _truth(node: ast.expr) -> bool | None:
    """The truth value of an expression without a GPU; None if it is not known."""
    if isinstance(node, ast.Constant):
        return bool(node.value)
    if isinstance(node, ast.Call) and _name(node.func).endswith(("cuda.is_available", "cuda.device_count")):
        return False
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        inner = _truth(node.operand)
        return None if inner is None else not inner
    if isinstance(node, ast.BoolOp):
        values, decisive = [_truth(value) for value in node.values], isinstance(node.op, ast.Or)
        return decisive if decisive in values else None if None in values else not decisive
    return _compared(node) if isinstance(node, ast.Compare) else None


def _compared(node: ast.Compare) -> bool | None:
    """`torch.cuda.device_count() > 0` and the like: the count is 0."""
    if _truth(node.left) is not False or len(node.ops) != 1 or not isinstance(node.comparators[0], ast.Constant):
        return None
    other = node.comparators[0].value
    if not isinstance(other, int):
        return None
    found = {ast.Gt: other < 0, ast.GtE: other <= 0, ast.Eq: other == 0, ast.NotEq: other != 0, ast.Is: other is False}
    return found.get(type(node.ops[0]))


def _name(node: ast.expr) -> str:
    """`torch.cuda.is_available`; "" for anything other than a dotted name."""
    if isinstance(node, ast.Attribute):
        before = _name(node.value)
        return f"{before}.{node.attr}" if before else ""
    return node.id if isinstance(node, ast.Name) else ""
