"""Rewrites a script with libcst, which keeps comments and formatting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import libcst as cst
from libcst import matchers, metadata

from trireme.compat.port._native import (
    ADDED_METRICS,
    CHECKPOINT_METHODS,
    DELETED,
    INIT_PARAMETERS,
    PARAMETERS,
    RENAMED,
    advice,
    native,
    split,
)


@dataclass(frozen=True, order=True)
class Note:
    line: int
    text: str
    by_hand: bool = False


@dataclass(frozen=True)
class Ported:
    source: str
    notes: list[Note]


def port(source: str, path: str) -> Ported:
    compile(source, path, "exec", dont_inherit=True)  # raises SyntaxError
    wrapper = metadata.MetadataWrapper(cst.parse_module(source))
    uses = _Uses()
    wrapper.visit(uses)
    rewriter = _Rewriter(uses)
    made = wrapper.visit(rewriter).code
    compile(made, path, "exec", dont_inherit=True)
    return Ported(made, sorted({*uses.notes, *rewriter.notes}))


def _dotted(node: cst.BaseExpression | None) -> str:
    """'ray.train' for the expression; empty if it is anything else."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute) and (base := _dotted(node.value)):
        return f"{base}.{node.attr.value}"
    return ""


def _of_ray(name: str) -> bool:
    return name == "ray" or name.startswith("ray.")


def target_of(qualified: set[str]) -> str:
    """'trireme.RunConfig' for {'ray.train.RunConfig'}; empty for others."""
    for name in qualified:
        if _of_ray(name) and (found := split(name)) and (target := native(found[0])):
            return target.replace(":", ".")
    return ""


class _Uses(cst.CSTVisitor):
    """Finds the names of Ray that the script uses through a module, such as ray.train.report."""

    METADATA_DEPENDENCIES = (metadata.QualifiedNameProvider, metadata.PositionProvider, metadata.ParentNodeProvider)

    def __init__(self) -> None:
        self.replaced: dict[cst.Attribute, str] = {}  # the expression's target "module:name"
        self.kept_modules: set[str] = set()  # first parts of expressions that stay
        self.needed: set[str] = set()  # modules of Trireme
        self.deleted: set[cst.Arg] = set()
        self.unused: set[str] = set()  # names of Ray that only deleted arguments use
        self._used: set[str] = set()
        self.notes: list[Note] = []

    def visit_Call(self, node: cst.Call) -> bool:
        for argument in node.args:
            if argument.keyword and argument.keyword.value in DELETED.get(self._target_of(node.func), ()):
                self.deleted.add(argument)
                for name in matchers.findall(argument.value, matchers.Name()):
                    self.unused |= self._qualified(name)
        if isinstance(node.func, cst.Attribute) and _dotted(node.func.value).lower().endswith("checkpoint"):
            method = node.func.attr.value
            if text := CHECKPOINT_METHODS.get(method):
                self._by_hand(node, f"Checkpoint.{method}: Trireme's checkpoints do not have it; {text}")
        return True

    def visit_Arg(self, node: cst.Arg) -> bool:
        return node not in self.deleted

    def visit_Name(self, node: cst.Name) -> None:
        self._used |= self._qualified(node)

    def leave_Module(self, original_node: cst.Module) -> None:
        self.unused -= self._used

    def visit_Subscript(self, node: cst.Subscript) -> bool:
        key = node.slice[0].slice if len(node.slice) == 1 else None
        if (
            isinstance(node.value, cst.Attribute)
            and node.value.attr.value == "metrics"
            and isinstance(key, cst.Index)
            and isinstance(key.value, cst.SimpleString)
            and (added := ADDED_METRICS.get(str(key.value.evaluated_value)))
        ):
            self._by_hand(node, f"metrics[{key.value.value}]: Trireme adds nothing to the reported metrics; {added}")
        return True

    def _by_hand(self, node: cst.CSTNode, text: str) -> None:
        line = self.get_metadata(metadata.PositionProvider, node).start.line
        self.notes.append(Note(line, f"by hand: {text}", True))

    def _qualified(self, node: cst.CSTNode) -> set[str]:
        return {each.name for each in self.get_metadata(metadata.QualifiedNameProvider, node, set())}

    def _target_of(self, node: cst.CSTNode) -> str:
        return target_of(self._qualified(node))

    def visit_Attribute(self, node: cst.Attribute) -> bool:
        if isinstance(self.get_metadata(metadata.ParentNodeProvider, node), (cst.Attribute, cst.ImportFrom)):
            return True  # the outermost expression decides
        local = _dotted(node)
        if local:
            self._note(node, local)
        return True

    def visit_Import(self, node: cst.Import) -> bool:
        return False

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
        return False

    def _note(self, node: cst.Attribute, local: str) -> None:
        for qualified in self.get_metadata(metadata.QualifiedNameProvider, node, set()):
            if qualified.source is not metadata.QualifiedNameSource.IMPORT or not _of_ray(qualified.name):
                continue
            found = split(qualified.name)
            line = self.get_metadata(metadata.PositionProvider, node).start.line
            if found is None:
                self.kept_modules.add(local.split(".")[0])
                self.notes.append(Note(line, f"by hand: {qualified.name}: {advice(qualified.name)}", True))
                return
            name, rest = found
            inner: cst.BaseExpression = node
            for _ in rest.split(".") if rest else ():
                assert isinstance(inner, cst.Attribute)
                inner = inner.value
            if not isinstance(inner, cst.Attribute):
                return  # of a name that is imported itself
            target = native(name)
            if target is None:
                self.kept_modules.add(local.split(".")[0])
                self.notes.append(Note(line, f"by hand: {name}: {advice(name)}", True))
                return
            module, _, attribute = target.partition(":")
            self.replaced[inner] = target
            self.needed.add(module)
            self.notes.append(Note(line, f"{_dotted(inner)} -> {module}.{attribute}"))


class _Rewriter(cst.CSTTransformer):
    METADATA_DEPENDENCIES = (metadata.QualifiedNameProvider, metadata.PositionProvider)

    def __init__(self, uses: _Uses) -> None:
        self._uses = uses
        self._needed = sorted(uses.needed)
        self.notes: list[Note] = []

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:
        target = self._uses.replaced.get(original_node)
        if target is None:
            return updated_node
        return cst.parse_expression(target.replace(":", ".")).with_changes(
            lpar=updated_node.lpar, rpar=updated_node.rpar
        )

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        target = self._target_of(original_node.func)
        if target == "trireme.init":
            kept = [each for each in updated_node.args if each.keyword and each.keyword.value in INIT_PARAMETERS]
            if len(kept) != len(updated_node.args):
                gone = [
                    each.keyword.value if each.keyword else "address" for each in updated_node.args if each not in kept
                ]
                self._tell(original_node, f"trireme.init() without {', '.join(gone)}")
                if kept:
                    kept[-1] = kept[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
                return updated_node.with_changes(args=kept)
        kept = []
        for argument, updated in zip(original_node.args, updated_node.args, strict=True):
            name = argument.keyword.value if argument.keyword else ""
            if text := PARAMETERS.get(target, {}).get(name):
                self._tell(argument, f"by hand: {target}({name}=...): {text}", by_hand=True)
            if argument in self._uses.deleted:
                self._tell(argument, f"{target}({name}=...) deleted: {DELETED[target][name]}")
                continue
            if renamed := RENAMED.get(target, {}).get(name):
                self._tell(argument, f"{target}({name}=...) -> {renamed}=...")
                updated = updated.with_changes(keyword=cst.Name(renamed))
            kept.append(updated)
        if kept and kept[-1] is not updated_node.args[-1]:
            kept[-1] = _as_last(kept[-1], updated_node.args[-1])
        return updated_node.with_changes(args=kept)

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> Any:
        if len(original_node.body) != 1:
            return updated_node
        statement = original_node.body[0]
        made: list[cst.BaseSmallStatement] | None = None
        if isinstance(statement, cst.ImportFrom):
            made = self._import_from(statement)
        elif isinstance(statement, cst.Import):
            made = self._import(statement)
        if made is None:
            return updated_node
        lines = [cst.SimpleStatementLine([each]) for each in made]
        if not lines:
            return cst.RemoveFromParent()
        lines[0] = lines[0].with_changes(leading_lines=updated_node.leading_lines)
        lines[-1] = lines[-1].with_changes(trailing_whitespace=updated_node.trailing_whitespace)
        return cst.FlattenSentinel(lines)

    def _import_from(self, node: cst.ImportFrom) -> list[cst.BaseSmallStatement] | None:
        module = _dotted(node.module)
        if not _of_ray(module) or node.relative or isinstance(node.names, cst.ImportStar):
            return None
        made: list[cst.BaseSmallStatement]
        by_module: dict[str, list[cst.ImportAlias]] = {}
        kept: list[cst.ImportAlias] = []
        modules_gone = False
        for alias in node.names:
            name = _dotted(alias.name)
            local = _dotted(alias.asname.name) if alias.asname else name
            full_name = f"{module}.{name}"
            target = native(full_name)
            if target is not None and "(" not in target:
                where, _, theirs = target.partition(":")
                renamed = cst.AsName(cst.Name(local)) if local != theirs else None
                by_module.setdefault(where, []).append(cst.ImportAlias(cst.Name(theirs), renamed))
            elif full_name in self._uses.unused or self._is_gone(full_name, local):
                modules_gone = True
            else:
                kept.append(alias.with_changes(comma=cst.MaybeSentinel.DEFAULT))
                if not self._is_module(full_name):
                    self._tell(node, f"by hand: {full_name}: {advice(full_name)}", by_hand=True)
        if not by_module and not modules_gone:
            return None
        if len(by_module) == 1 and not kept and not modules_gone:
            made = [self._same_layout(node, *by_module.popitem())]
            self._tell(node, f"{_code(node)} -> {_code(made[0])}")
            return made
        made = self._take_needed() if modules_gone else []
        for where, aliases in sorted(by_module.items()):
            made.append(cst.ImportFrom(_expression(where), aliases))
        if kept:
            made.append(cst.ImportFrom(node.module, kept))
        self._tell(node, f"{_code(node)} -> {'; '.join(map(_code, made)) or 'removed'}")
        return made

    def _same_layout(self, node: cst.ImportFrom, where: str, aliases: list[cst.ImportAlias]) -> cst.BaseSmallStatement:
        """With the comments and lines of the original."""
        assert not isinstance(node.names, cst.ImportStar)
        names = [
            old.with_changes(name=new.name, asname=old.asname or new.asname)
            for old, new in zip(node.names, aliases, strict=True)
        ]
        return node.with_changes(module=_expression(where), names=names)

    def _import(self, node: cst.Import) -> list[cst.BaseSmallStatement] | None:
        kept = []
        for alias in node.names:
            local = _dotted(alias.asname.name) if alias.asname else _dotted(alias.name).split(".")[0]
            if not _of_ray(_dotted(alias.name)) or local in self._uses.kept_modules:
                kept.append(alias.with_changes(comma=cst.MaybeSentinel.DEFAULT))
        if len(kept) == len(node.names) and not (self._needed and any(_of_ray(_dotted(a.name)) for a in node.names)):
            return None
        made = self._take_needed()
        if kept:
            made.append(cst.Import(kept))
        self._tell(node, f"{_code(node)} -> {'; '.join(map(_code, made)) or 'removed'}")
        return made

    def _take_needed(self) -> list[cst.BaseSmallStatement]:
        """Imports of the modules that expressions name, once, in place of the first import of Ray."""
        needed, self._needed = self._needed, []
        return [cst.Import([cst.ImportAlias(_expression(name))]) for name in needed]

    def _is_module(self, full_name: str) -> bool:
        from trireme.compat.ray._table import MODULES

        return full_name in MODULES and not MODULES[full_name].refused

    def _is_gone(self, full_name: str, local: str) -> bool:
        return self._is_module(full_name) and local not in self._uses.kept_modules

    def _target_of(self, node: cst.BaseExpression) -> str:
        return target_of({each.name for each in self.get_metadata(metadata.QualifiedNameProvider, node, set())})

    def _tell(self, node: cst.CSTNode, text: str, by_hand: bool = False) -> None:
        self.notes.append(Note(self.get_metadata(metadata.PositionProvider, node).start.line, text, by_hand))


def _as_last(argument: cst.Arg, last: cst.Arg) -> cst.Arg:
    """The argument in the place of the last one: with its comma or without, but with the argument's own comment."""
    space = getattr(argument.comma, "whitespace_after", None)
    before = getattr(last.comma, "whitespace_after", None)
    if not isinstance(space, cst.ParenthesizedWhitespace) or not space.first_line.comment:
        return argument.with_changes(comma=last.comma)
    if isinstance(before, cst.ParenthesizedWhitespace):
        space = space.with_changes(indent=before.indent, last_line=before.last_line)
    return argument.with_changes(comma=cst.Comma(whitespace_after=space))


def _expression(dotted: str) -> Any:
    return cst.parse_expression(dotted)


def _code(node: cst.CSTNode) -> str:
    text = cst.Module([]).code_for_node(node)
    return " ".join(text.split())
