"""Compile the error index: ``python -m docs.errors.build``; no program is run.

Four sources: what the programs raise (kept in the index, renewed by ``python -m docs.errors.programs --update``), what
other releases of torch said, the entries that have no program, and the rules by which a pasted text is read.
"""

import ast
import inspect
import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import torchgen
import yaml
from docs.errors import programs
from docs.errors.questions import questions

from autograd_cookbook.errors import INDEX, PROGRAMS, storing
from autograd_cookbook.errors.matching import as_entry, squashed, wordings
from autograd_cookbook.errors.topics import concepts, fields, plain, said, words

HERE = Path(__file__).parent
RULES = HERE / "rules.toml"
# One table for each entry: what is known of one without a program, or what a program's entry has besides. Its `cases`
# are other texts for it, each with the signs `when` it is shown: another cause, or that the usual fix was tried.
ENTRIES = HERE / "entries"
# What other releases said: {"name": [{"torch": "1.13 to 2.3", "kind": …, "message": …}, …], …}.
WORDINGS = HERE / "wordings.json"
# The kind of an entry without a message: readers tell it in words.
IN_WORDS = "In words"
# What a run of the program gives; everything else is written by hand.
RAISED = ("name", "kind", "message", "torch")
# What a paste need not show of a program. A case that asks of this only may be the reader's though nothing shows it.
AROUND = ("text: ", "printed: ", "own: ", "told: ", "frames: ", "place: ", "not ")
FEW = 20  # questions that may share a word that people ask with
TELLING = 6  # such words that are kept of a question, the rarest
PROSE = ("title", "cause", "fix", "change", "harmless", "tell", "borrowed")
# Nodes of old releases that the installed torch has no longer.
FORMER_NODES = (
    *("CudnnConvolutionTranspose", "ThnnConv2D", "ThnnConv3D", "ThnnConvDepthwise2D", "SlowConv2D", "BatchNorm"),
    *(
        "Svd",
        "SvdHelper",
        "Symeig",
        "Eig",
        "Solve",
        "Inverse",
        "Qr",
        "Lstsq",
        "Lu",
        "LuWithInfo",
        "LuSolve",
        "Logdet",
        "SWhere",
        "Ger",
    ),
)


def compiled(raised: Iterable[Mapping[str, str]]) -> dict[str, Any]:
    """The index, of what the programs have raised: their name, kind and message, and the version of torch."""
    rules = tomllib.loads(RULES.read_text(encoding="utf-8"))
    more = written()
    former = json.loads(WORDINGS.read_text(encoding="utf-8")) if WORDINGS.exists() else {}
    known = programs.load()
    entries: list[dict[str, Any]] = []
    for each in raised:
        program = known[each["name"]]
        told = {"group": program.group, "title": program.title, "cause": program.cause, "fix": program.fix}
        entry = {**each, **told, **more.pop(program.name, {})}
        entries.append({**entry, "names": [*names_in(program.source), *entry.get("names", ())]})
    entries += [{"name": name, **entry} for name, entry in more.items()]
    for entry in entries:
        said = [{"torch": entry["torch"], "message": entry["message"]}]
        said += [*former.get(entry["name"], ()), *entry.pop("former", ())]
        if said[1:]:
            entry["former"] = said[1:]
        own = [*entry.pop("names", ()), "program"]
        rows = [
            (*row, kind)
            for each in said
            for kind in [each.get("kind", entry["kind"])]
            if kind != IN_WORDS
            for row in wordings(kind, each["message"], own, rules["tokens"])
        ]
        entry["wordings"] = [list(row) for row in dict.fromkeys(rows) if row[0]]
        if (signs := entry.get("signs")) and isinstance(signs[0], str):
            entry["signs"] = [signs]  # one way of telling it
        if unknown := {name for way in entry.get("ways", ()) for name in named_in(way)} - {
            *rules["concepts"],
            *rules["details"],
        }:
            raise ValueError(f"{entry['name']}: no such concepts: {', '.join(sorted(unknown))}")
    named = {entry["name"]: entry for entry in entries}
    for entry in entries:
        # The same signs speak for the same case of another entry with this message.
        shared_cases = [case for name in entry.pop("cases_of", ()) for case in named[name]["cases"]]
        if shared_cases:
            entry["cases"] = [*entry.get("cases", ()), *shared_cases]
        for case in entry.get("cases", ()):
            if "asked" not in case and all(sign.startswith(AROUND) for sign in case["when"]):
                case["asked"] = True
        shared = [row for name in entry.pop("wordings_of", ()) for row in named[name]["wordings"]]
        entry["wordings"] += [row for row in shared if row not in entry["wordings"]]
    # By page, because texts of one page repeat each other: the stored form is then smaller. The order in a page stays.
    pages = list(programs.GROUPS)
    entries.sort(key=lambda entry: pages.index(entry["group"]) if entry["group"] in pages else len(pages))
    answers = list(questions())
    for entry in entries:
        if not entry["wordings"]:  # one with a message is found by its words
            entry["about"] = concepts(symptom(entry), rules["concepts"])
    for each in answers:
        each["about"] = concepts(symptom(as_entry(each)), rules["concepts"])
        # Of what people ask, only the words that the question and its answer lack are searched.
        known = plain(f"{each['title']} {each['change']}")
        each["asked"] = [word for word in words(each["asked"], rules["topics"]) if word not in known]
    having = Counter(word for each in answers for word in each["asked"])
    for each in answers:  # and which tell it from others
        rarest = sorted((word for word in each["asked"] if having[word] <= FEW), key=lambda word: (having[word], word))
        each["asked"] = "".join(sorted(rarest[:TELLING])).strip()
    return {
        "rules": rules,
        "nodes": nodes(),
        "derivatives": derivatives(),
        "entries": entries,
        "questions": answers,
    }


def symptom(entry: Mapping[str, Any]) -> str:
    """The texts of an entry that tell what is seen."""
    return " ".join([str(entry["title"]), said(entry), str(entry.get("tell") or fields(entry)[2])])


def named_in(way: str) -> list[str]:
    """The concepts in one way of telling a symptom."""
    return re.findall(r"\w+", way)


def written() -> dict[str, dict[str, Any]]:
    """The tables of all files, by the name of their entry."""
    tables: dict[str, dict[str, Any]] = {}
    for path in sorted(ENTRIES.glob("*.toml")):
        for name, table in tomllib.loads(path.read_text(encoding="utf-8")).items():
            if name in tables:
                raise ValueError(f"{path.name}: {name} is in another file, too")
            tables[name] = in_lines(table)
            if "cases" in table:
                tables[name]["cases"] = [in_lines(case) for case in table["cases"]]
    return tables


def in_lines(table: Mapping[str, Any]) -> dict[str, Any]:
    """A table whose sentences are one line each, however the file breaks them."""
    return {key: " ".join(text.split()) if key in PROSE else text for key, text in table.items()}


def nodes() -> list[str]:
    """What the engine calls the nodes of built-in operators, without "Backward0"."""
    known = {name.partition("Backward")[0] for name in dir(torch._C._functions) if "Backward" in name}
    return sorted(known | {*FORMER_NODES})


def derivatives() -> dict[str, list[str]]:
    """Which operators have a derivative in this torch, as far as the names of the nodes do not say it.

    A message of another release may lack them. "have": the operators made of others, and the backwards with a formula.
    "lack": the operators, or their inputs, in the form of the message, for which this torch raises the same message.
    """
    known = {squashed(name.partition("Backward")[0]) for name in dir(torch._C._functions) if "Backward" in name}
    formulas = yaml.safe_load((Path(torchgen.__file__).parent / "packaged/autograd/derivatives.yaml").read_text())
    lines = [(each["name"].partition("(")[0].partition(".")[0], list(texts(each))) for each in formulas]
    missing = re.compile(r"not_implemented\(.([^\"]+).[,)]|^not_implemented$|^non_differentiable$|^auto_|^output_diff")
    have = {name for name, said in lines if any(not missing.search(text) for text in said)}
    lack = {found[1] for _, said in lines for text in said for found in missing.finditer(text) if found[1]}
    for schema in torch._C._jit_get_all_schemas():
        name = schema.name.removeprefix("aten::")
        full = f"{schema.name}.{schema.overload_name}".rstrip(".")
        takes = any(isinstance(each.type, torch.TensorType) for each in schema.arguments)
        gives = any(isinstance(each.type, torch.TensorType) and not each.alias_info for each in schema.returns)
        if schema.name.startswith("aten::") and takes and gives and made_of_others(full):
            have.add(name)
    names = {schema.name.removeprefix("aten::") for schema in torch._C._jit_get_all_schemas()}
    lack |= {name for name in names - have if name.endswith("_backward") and "::" not in name}
    # What was removed has no derivative here, although an old release had a node of this name.
    lack |= {name for name in map(snake, FORMER_NODES) if removed(name)}
    return {"have": sorted(name for name in have - lack if squashed(name) not in known), "lack": sorted(lack)}


def texts(formula: Mapping[str, Any]) -> Iterator[str]:
    """The formulas of one operator in derivatives.yaml."""
    for name, text in formula.items():
        if isinstance(text, str) and name not in ("name", "result"):
            yield text
        elif isinstance(text, dict):  # by dispatch key, and then by input
            yield from texts(text)


def made_of_others(operator: str) -> bool:
    """Whether an operator is computed by others, whose derivatives are then its own."""
    if not torch._C._dispatch_has_kernel(operator):
        return False
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(operator, "CompositeImplicitAutograd"))


def removed(name: str) -> bool:
    """Whether a function of torch only says that it was removed."""
    function = getattr(torch, name, None)
    return inspect.isfunction(function) and "now removed" in inspect.getsource(function)


def snake(node: str) -> str:
    """The operator of a node: lu_solve for LuSolve."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", node).lower()


def names_in(source: str) -> set[str]:
    """What a program gives a name of its own: another reader's class is called otherwise."""
    tree = ast.parse(source)
    named = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    # A library's name, too: "mylib::scale".
    named |= {
        part
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "::" in node.value
        for part in node.value.partition("(")[0].split("::")
    }
    required = {"forward", "setup_context", "backward", "jvp", "vmap", "vjp"}  # called the same by everybody
    return {name for name in named if len(name) > 2 and name not in required}


def write(raised: Iterable[Mapping[str, str]]) -> int:
    """Write the index and the programs that go with it; return how many entries there are."""
    index = compiled(raised)
    shown = {
        program.name: [program.source, program.fixed_source if program.fixed else ""]
        for program in programs.load().values()
    }
    storing.write(INDEX, index)
    storing.write(PROGRAMS, shown)
    return len(index["entries"])


def renew() -> bool:
    """Compile the index anew, of what it has of the programs; whether it is another one now."""
    before = INDEX.read_bytes(), PROGRAMS.read_bytes()
    known = programs.load()
    stored = {entry["name"]: entry for entry in storing.read(INDEX)["entries"]}
    write({field: stored[name][field] for field in RAISED} for name in known if name in stored)
    return before != (INDEX.read_bytes(), PROGRAMS.read_bytes())


if __name__ == "__main__":
    print("the index is another one now" if renew() else "the index is as it was")
