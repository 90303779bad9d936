"""Rules about the source itself, each a function from text to complaints.

They are plain functions, so that a test can plant a violation in each and see it caught. What
ruff already checks (line length, imports, complexity) has no second rule here.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping

MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 50
LINE_CHARACTERS_MAX = 100

# Marks are written in pieces, so that this file does not complain about itself.
_FIX_ME = "FIX" + "ME"
_TO_DO = re.compile(r"\bTO" + r"DO\b(?!\(#\d+\))")
_MACHINE_PATHS = re.compile(r"(?<![\w.}-])/(?:work|root|opt/wheels|home/\w+)(?:/|\b)|file:///")
_REGISTRY = re.compile(
    r"--(?:extra-)?index-url|--find-links|--trusted-host|https?://[^\s/]*(?:pypi|artifactory|nexus)"
)

_PATH_ARITHMETIC = {"join", "basename", "dirname", "split", "splitext", "normpath"}
_FILE_MODULES = {"io", "mmap", "pathlib", "shutil", "tempfile"}


def long_lines(text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), start=1):
        if len(line) > LINE_CHARACTERS_MAX:
            yield f"line {number} has {len(line)} characters, at most {LINE_CHARACTERS_MAX}"


def long_module(text: str) -> Iterator[str]:
    lines = len(text.splitlines())
    if lines > MODULE_LINES_MAX:
        yield f"{lines} lines, at most {MODULE_LINES_MAX}"


def long_functions(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            lines = node.end_lineno - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield f"{node.name} has {lines} lines, at most {FUNCTION_LINES_MAX}"


def unfinished_marks(text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), start=1):
        if _FIX_ME in line:
            yield f"line {number}: {_FIX_ME} may not be committed"
        if _TO_DO.search(line):
            yield f"line {number}: what is left to do names its issue, (#12)"


def missing_docstring(text: str) -> Iterator[str]:
    if ast.get_docstring(ast.parse(text)) is None:
        yield "no docstring that says what the module owns"


def code_in_init(text: str) -> Iterator[str]:
    """A package's __init__ holds its docstring, imports and public names, and nothing else."""
    for node in ast.parse(text).body:
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant()):
                continue
            case ast.Assign(targets=[ast.Name(id="__all__" | "__version__")]):
                continue
        yield f"line {node.lineno}: code in an __init__.py"


def machine_paths(text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), start=1):
        if _MACHINE_PATHS.search(line):
            yield f"line {number}: a path of one machine"


def registries(text: str) -> Iterator[str]:
    """Locks and settings must leave it to the user where packages come from."""
    for number, line in enumerate(text.splitlines(), start=1):
        if _REGISTRY.search(line):
            yield f"line {number}: names a package registry"


def asked_the_time(text: str) -> Iterator[str]:
    """Code is given a Clock; only the clock itself asks."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Import(names=names) if any(alias.name == "time" for alias in names):
                yield f"line {node.lineno}: imports time"
            case ast.ImportFrom(module="time"):
                yield f"line {node.lineno}: imports from time"
            case (
                ast.Call(func=ast.Attribute(attr="now" | "utcnow" | "today"))
                | ast.Attribute(
                    value=ast.Name(id="datetime" | "date"), attr="now" | "utcnow" | "today"
                )
            ):
                yield f"line {node.lineno}: asks for the date"


def files_past_the_layer(text: str) -> Iterator[str]:
    """Files are reached through a FileLayer, so that a test can fail, tear and lose writes."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Call(func=ast.Name(id="open")):
                yield f"line {node.lineno}: opens a file itself"
            case ast.Attribute(value=ast.Name(id="os"), attr=name) if name != "path":
                yield f"line {node.lineno}: uses os.{name}"
            case ast.Attribute(value=ast.Attribute(value=ast.Name(id="os")), attr=name):
                if name not in _PATH_ARITHMETIC:
                    yield f"line {node.lineno}: os.path.{name} looks at the disk"
            case ast.Import(names=names):
                for alias in names:
                    if alias.name in _FILE_MODULES:
                        yield f"line {node.lineno}: imports {alias.name}"
            case ast.ImportFrom(module=str(module)) if module in {"os", *_FILE_MODULES}:
                yield f"line {node.lineno}: imports from {module}"


def broad_excepts(text: str) -> Iterator[str]:
    """A handler for everything may clean up, and must then raise again."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.ExceptHandler(type=None | ast.Name(id="Exception" | "BaseException")):
                match node.body[-1]:
                    case ast.Raise(exc=None):
                        continue
                yield f"line {node.lineno}: catches everything"


def imported_packages(text: str) -> set[str]:
    """The top-level names that a module imports, wherever in it the import stands."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Import(names=names):
                found |= {alias.name.partition(".")[0] for alias in names}
            case ast.ImportFrom(module=str(module), level=0):
                found.add(module.partition(".")[0])
    return found


def dead_modules(modules: Mapping[str, str], roots: Iterable[str]) -> list[str]:
    """Modules that nothing reaches from `roots`; `modules` is name to source.

    A name in a string counts as an import: commands are loaded by name.
    """
    seen: set[str] = set()
    waiting = [name for name in roots if name in modules]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        waiting += [n for n in _mentioned(name, modules[name]) if n in modules and n not in seen]
    return sorted(set(modules) - seen)


def _mentioned(name: str, text: str) -> Iterator[str]:
    yield from _parents(name)
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Import(names=names):
                found = [alias.name for alias in names]
            case ast.ImportFrom(module=str(module), names=names, level=0):
                found = [module, *(f"{module}.{alias.name}" for alias in names)]
            case ast.Constant(value=str(value)):
                found = [value]
            case _:
                continue
        for module in found:
            yield module
            yield from _parents(module)


def _parents(name: str) -> Iterator[str]:
    while "." in name:
        name = name.rpartition(".")[0]
        yield name


def undocumented_targets(makefile: str) -> Iterator[str]:
    for match in re.finditer(r"^([a-z][\w-]*):(?!=)(.*)$", makefile, flags=re.MULTILINE):
        if "## " not in match[2]:
            yield f"target {match[1]} has no ## description"


def pins(lock: str) -> dict[str, str]:
    """Package to version, for every requirement of a lock."""
    return dict(re.findall(r"^([A-Za-z0-9._-]+)==([^\s;]+)", lock, flags=re.MULTILINE))


def requirements_without_hash(lock: str) -> list[str]:
    blocks = re.split(r"^(?=[A-Za-z0-9])", lock, flags=re.MULTILINE)[1:]
    return [b.split()[0] for b in blocks if "==" not in b or "--hash=sha256:" not in b]
