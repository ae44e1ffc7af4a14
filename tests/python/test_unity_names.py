"""Names in unnamed namespaces: a unity build compiles several files as one, in which they must not meet."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from cpp_programs import ROOT

# Folders of src/ that do not belong to the core, by target: the files of a target may be compiled together.
OTHERS = {"trireme_data": ["dataset", "formats/images"], "trireme_torch": ["torch"], "trireme_cli": ["cli"]}

_IGNORED = re.compile(
    r"//[^\n]*|/\*.*?\*/|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*"  # comments, preprocessor
    r'|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<!\d)\'(?:\\.|[^\'\\\n])+\'',
    re.S | re.M,
)
_NAMESPACE = re.compile(r"(?:inline )?namespace ?([\w:]*)$")
_TYPE = re.compile(r"(?:enum (?:class )?|struct |class |union )(?:\[\[.*?\]\] )?(\w+)(?: final)?(?: ?:.*)?$")
_ALIAS = re.compile(r"(?:using|namespace) (?:[\w:]*::)?(\w+)(?: ?=.*)?$")


def _has_value(head: str) -> bool:
    """A variable with a value: `= ` outside of parentheses, which contain the default values of parameters."""
    while (shorter := re.sub(r"\([^()]*\)", "", head)) != head:
        head = shorter
    return re.search(r"[^=!<>]=[^=]", head + " ") is not None and "operator" not in head


def declarations(source: str) -> Iterator[tuple[str, str]]:
    """Of all unnamed namespaces: the namespace around it, and the text up to `{` or `;`."""
    text = _IGNORED.sub(lambda match: " " if match[0].lstrip()[0] in "#/" else '""', source)
    scopes: list[str | None] = []  # the name of a namespace, None for any other block
    start, inside = 0, 0  # inside: of parentheses, and of the braces of a value
    for match in re.finditer(r"[{};()]", text):
        head = " ".join(text[start : match.start()].split())
        if match[0] in "()" or (match[0] in "{}" and inside) or (match[0] == "{" and _has_value(head)):
            inside += 1 if match[0] in "({" else -1
            continue
        if inside:
            continue
        if scopes and scopes[-1] == "" and head and match[0] != "}":
            yield "::".join(scope for scope in scopes if scope), head
        if match[0] == "{":
            namespace = _NAMESPACE.match(head)
            scopes.append(namespace[1] if namespace else None)
        elif match[0] == "}":
            scopes.pop()
        start = match.end()


def _parameters(text: str) -> str:
    """Their types: without names and default values."""
    types, depth = [""], 0
    for character in text:
        depth += {"<": 1, "(": 1, "{": 1, ">": -1, ")": -1, "}": -1}.get(character, 0)
        if character == "," and depth == 0:
            types.append("")
        else:
            types[-1] += character
    plain = [re.sub(r" ?=.*", "", each.strip()) for each in types]
    return ", ".join(re.sub(r"(?<=[ &*])\w+$", "", each).strip() for each in plain)


def key(head: str) -> tuple[str, str] | None:
    """The name, and what may tell it from another one: the types of a function's parameters, the target of an alias."""
    head = re.sub(r"^template ?<.*?> ?(?=(struct|class|[\w:]+[<&* ]).*)|\[\[.*?\]\] ?", "", head)
    if head.startswith(("using namespace", "TRIREME_")):
        return None
    if alias := _ALIAS.match(head):
        return alias[1], head
    if found := _TYPE.match(head):
        return found[1], "type"
    if function := re.match(r"[^=(]*?(\w+|operator\S+) ?\((.*)\)[^()]*$", head):
        return function[1], f"({_parameters(function[2])})"
    variable = re.match(r"[^=]*?(\w+)(?:\[\w*\])* ?(?:=.*)?$", head)
    return (variable[1], "variable") if variable else None


def collisions(files: dict[str, str]) -> list[str]:
    seen: dict[tuple[str, str], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for file, source in files.items():
        for namespace, head in declarations(source):
            if found := key(head):
                seen[namespace, found[0]][found[1]].add(file)
    problems = []
    for (namespace, name), kinds in sorted(seen.items()):
        aliases = {kind for kind in kinds if kind.startswith(("using ", "namespace "))}
        # `using storage::failed;` may be repeated, and is one of many overloads.
        functions = {kind for kind in kinds if kind[0] == "(" or (kind in aliases and "=" not in kind)}
        repeated = [where for kind, where in kinds.items() if kind not in aliases and len(where) > 1]
        everywhere = set.union(*kinds.values())
        mixed = len(kinds) > 1 and functions != set(kinds) and len(everywhere) > 1
        if repeated or mixed:
            where = everywhere if mixed else set.union(*repeated)
            problems.append(f"{namespace}::{name}: {', '.join(sorted(where))}")
    return problems


def test_files_of_a_target_can_be_compiled_as_one() -> None:
    targets: dict[str, dict[str, str]] = defaultdict(dict)
    target_of = {f"src/{folder}": target for target, folders in OTHERS.items() for folder in folders}
    for path in [*(ROOT / "src").rglob("*.cpp"), *(ROOT / "python/bindings").glob("*.cpp")]:
        relative = path.relative_to(ROOT)
        folder = str(relative.parent)
        targets[target_of.get(folder, "core" if folder.startswith("src") else "_core")][str(relative)] = (
            path.read_text()
        )
    assert len(targets) == len(OTHERS) + 2, "a folder has moved"
    problems = [problem for files in targets.values() for problem in collisions(files)]
    assert not problems, "rename one of each, or move it to a header that both include:\n" + "\n".join(problems)


def test_what_collides() -> None:
    def source(text: str, namespace: str = "trireme::data") -> str:
        return f'#include "x.h"\nnamespace {namespace} {{\nnamespace {{\n{text}\n}}  // namespace\nvoid f() {{}}\n}}'

    one = "using Rows = int; constexpr int kMost = 1 << 20; int count(const Rows& rows, int most = 3) { return 1; }"
    for other, found in {
        "int count(const Rows& other, int) { return 2; }": ["count"],
        "int count(const Rows& rows, double most) { return 2; }": [],
        "template <typename T>\nclass Rows final : public Base<T> { int kMost; };": ["Rows"],
        "using Rows = int; using storage::count;": [],
        "using Rows = double;": ["Rows"],
        "const std::map<int, char> kMost = {{1, '}'}}; struct Local { int count(const Rows& rows, int most); };": [
            "kMost"
        ],
        "// int count(const Rows& rows, int most) {": [],
        "enum class Mode { kOne = 1 }; struct Rows {};": ["Rows"],
    }.items():
        problems = collisions({"one.cpp": source(one), "other.cpp": source(other)})
        assert problems == [f"trireme::data::{name}: one.cpp, other.cpp" for name in found], other
        assert not collisions({"one.cpp": source(one), "other.cpp": source(other, "trireme::wire")})
