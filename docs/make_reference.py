"""Write the pages of the reference that the code dictates: commands, Python names, messages of errors.

They go to `docs/generated/`, which git ignores; `docs/conf.py` writes them before every build of the site.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import shutil
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, get_args

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "generated"
PACKAGES = {"secondguess": ROOT / "src" / "secondguess", "secondguess_lab": ROOT / "lab" / "src" / "secondguess_lab"}
# Rooms whose names are part of the public face, beside those that `secondguess` opens under their own names.
MORE_ROOMS = ("results", "progress", "errors")
VERBS = ("audit", "Guard", "estimate", "find_errors", "overconfidence", "compare")


def pages() -> dict[str, str]:
    """Every generated page by its path below the folder."""
    return {**commands(), **names(), "errors.md": errors(), **project()}


def write() -> None:
    """Write all of them anew; a page whose text is the same keeps its time, so that Sphinx does not read it again."""
    wanted = {FOLDER / name: text for name, text in pages().items()}
    for old in FOLDER.rglob("*.md") if FOLDER.exists() else ():
        if old not in wanted:
            old.unlink()
    for path, text in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, encoding="utf-8")


# Commands


def commands() -> dict[str, str]:
    """One page for each command of `secondguess`, from its own help."""
    import typer

    from secondguess.cli.app import app

    root = typer.main.get_command(app)
    top = sorted(root.commands.items())  # type: ignore[attr-defined]
    found = {f"commands/{name}.md": _command_page(f"secondguess {name}", command) for name, command in top}
    entries = "\n".join(name for name, _ in top)
    rows = "\n".join(f"* [`secondguess {name}`]({name}.md): {_first_line(command)}" for name, command in top)
    found["commands/index.md"] = (
        "# Every option of every command\n\n"
        "Written from the same help that `secondguess COMMAND --help` prints. What the commands have in common, how "
        f"long they take and how they exit is in [Command line](../../commands.md).\n\n{rows}\n\n"
        f"```{{toctree}}\n:hidden:\n\n{entries}\n```\n"
    )
    return found


def _command_page(title: str, command: Any) -> str:
    parts = [f"# {title}\n\n{_help(command)}\n", *_options(command)]
    for name, inner in sorted(getattr(command, "commands", {}).items()):
        parts += [f"\n## {title.removeprefix('secondguess ')} {name}\n\n{_help(inner)}\n", *_options(inner)]
    return "".join(parts)


def _first_line(command: Any) -> str:
    return str(command.help).strip().partition("\n")[0]


def _help(command: Any) -> str:
    text = re.sub(r"\s*\f.*", "", str(command.help or ""), flags=re.DOTALL).strip()
    # A command that stands alone is a block: it can be copied, and a phone breaks no option in two.
    return re.sub(r"^`(secondguess [^`\n]+)`$", r"    \1", text, flags=re.MULTILINE)


def _options(command: Any) -> Iterator[str]:
    """The parameters as definition lists, under the headings that the help has."""
    shown = [one for one in command.params if not getattr(one, "hidden", False) and one.name != "help"]
    panels: dict[str, list[Any]] = {}
    for one in shown:
        kind = "Arguments" if one.param_type_name == "argument" else "Options"
        panels.setdefault(getattr(one, "rich_help_panel", None) or kind, []).append(one)
    for panel in sorted(panels, key=lambda name: (name != "Arguments", name != "Options")):
        yield f"\n**{panel}**\n\n"
        for one in panels[panel]:
            yield f"{_spelt(one)}\n: {_meaning(one)}\n\n"


def _spelt(option: Any) -> str:
    words = [option.name.upper()] if option.param_type_name == "argument" else option.opts + option.secondary_opts
    return ", ".join(f"`{word}`" for word in words)


def _meaning(option: Any) -> str:
    text = str(getattr(option, "help", "") or "").strip() or "(no description)"
    default = option.default() if callable(option.default) else option.default
    given = default not in (None, "", (), [], False, ...) and "UNSET" not in repr(default).upper()
    notes = ["required"] if option.required else []
    notes += ["may be repeated"] if getattr(option, "multiple", False) and "repeated" not in text else []
    notes += [f"default `{default}`"] if given and not isinstance(default, bool) else []
    return text + (f" ({'; '.join(notes)})" if notes else "")


# Python


def names() -> dict[str, str]:
    """One page for what `import secondguess` gives, one for each room that it opens."""
    import secondguess as sg

    public = [name for name in sg.__all__ if not name.startswith("_")]
    nouns = [name for name in public if name not in VERBS]
    sections = (("The six verbs", VERBS), ("Nouns, results and helpers", nouns))
    top = "".join(
        f"\n## {title}\n\n" + "".join(_autodoc("secondguess", name, getattr(sg, name)) for name in members)
        for title, members in sections
    )
    rooms = [*sg._OPEN_ROOMS, *MORE_ROOMS]
    found = {"python/secondguess.md": f"# secondguess\n\nAll of `import secondguess as sg`.\n{top}"}
    listed = []
    for room in rooms:
        module = importlib.import_module(f"secondguess.{room}")
        members = [
            name for name in module.__all__ if name not in public or getattr(sg, name) is not getattr(module, name)
        ]
        body = "".join(_autodoc(module.__name__, name, getattr(module, name)) for name in members)
        found[f"python/{room}.md"] = f"# secondguess.{room}\n\n{module.__doc__}\n\n{_also(module, members)}{body}"
        listed.append(f"* [`secondguess.{room}`]({room}.md): {str(module.__doc__).strip().partition(chr(10))[0]}")
    toctree = "\n".join(["secondguess", *(f"{room} <{room}>" for room in rooms)])
    found["python/index.md"] = (
        "# Python\n\nFrom the docstrings.\n\n* [`secondguess`](secondguess.md): the six verbs and the nouns\n"
        + "\n".join(listed)
        + f"\n\n```{{toctree}}\n:hidden:\n\n{toctree}\n```\n"
    )
    return found


def _also(module: Any, members: list[str]) -> str:
    """Names of a room that stand on the first page already."""
    others = [f"`{name}`" for name in module.__all__ if name not in members]
    return f"{', '.join(others)}: see [secondguess](secondguess.md).\n\n" if others else ""


def _autodoc(module: str, name: str, value: Any) -> str:
    if isinstance(value, type):
        directive = f".. autoclass:: {module}.{name}\n   :members:\n   :inherited-members: Exception,dict,tuple,str,int"
    elif inspect.isroutine(value):
        directive = f".. autofunction:: {module}.{name}"
    else:
        several = get_args(value) or value
        listed = [several] if isinstance(several, str) else several
        shown = ", ".join(f"``{one!r}``" for one in listed)
        directive = f".. py:data:: {module}.{name}\n\n   {shown}"
    return f"```{{eval-rst}}\n{directive}\n```\n\n"


# Errors


def errors() -> str:
    """Every sentence of a `UserError`, as the source code has it, by package and room."""
    found = sorted({(room, sentence) for room, sentence in _sentences() if len(sentence) > 20})
    parts = [
        "# Every message of an error\n\n"
        "A mistake that a user can correct is a `secondguess.UserError`: one sentence, exit code 2, no traceback. "
        "Everything else that is raised is a defect of secondguess and keeps its traceback; please report it.\n\n"
        f"These are all {len(found):,} sentences of the source code that are written out there, by room. `‹…›` stands "
        "for what you gave. Search this page for the words around it.\n"
    ]
    for room, sentences in groupby(found, key=lambda one: one[0]):
        parts.append(f"\n## {room}\n\n" + "".join(f"* {_escaped(sentence)}\n" for _, sentence in sentences))
    return "".join(parts)


def _sentences() -> Iterator[tuple[str, str]]:
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            inner = path.relative_to(folder).parts
            room = f"{package}.{inner[0]}" if len(inner) > 1 else package
            yield from ((room, sentence) for sentence in sentences(path.read_text("utf-8")))


def sentences(source: str) -> Iterator[str]:
    """Those of the errors that one module raises."""
    if "UserError" in source or "MissingExtra" in source:
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and _called(node) in ("UserError", "MissingExtra") and node.args:
                yield " ".join(_text(node.args[0]).split())


def _called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def _text(node: ast.expr) -> str:
    """The sentence with `‹name›` where something is filled in."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left) + _text(node.right)
    if isinstance(node, ast.IfExp):
        return _text(node.body)
    inner = node.value if isinstance(node, ast.FormattedValue) else node
    return f"‹{inner.id}›" if isinstance(inner, ast.Name) else "‹…›"


def _escaped(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>$#{}|])", r"\\\1", text)


# What stands at the root of the repository


def project() -> dict[str, str]:
    """The pages that GitHub looks for at the root, with their links as seen from here."""
    root = {path.name: f"project/{path.stem.lower()}.md" for path in ROOT.glob("*.md") if path.name != "README.md"}

    def seen_from_here(match: re.Match[str]) -> str:
        target, anchor = match[1], match[2] or ""
        if target.startswith("docs/"):
            return f"](../../{target.removeprefix('docs/')}{anchor})"
        return f"]({Path(root[target]).name}{anchor})" if target in root else match.group()

    link = re.compile(r"\]\(([^)#:]+)(#[^)]*)?\)")
    texts = {page: (ROOT / name).read_text("utf-8") for name, page in root.items()}
    found = {page: link.sub(seen_from_here, text) for page, text in texts.items()}
    entries = "\n".join(sorted(Path(page).stem for page in found))
    found["project/index.md"] = f"# Project\n\n```{{toctree}}\n:maxdepth: 1\n\n{entries}\n```\n"
    return found


if __name__ == "__main__":
    shutil.rmtree(FOLDER, ignore_errors=True)
    write()
    sys.stdout.write(f"{FOLDER.relative_to(ROOT)} written\n")
