"""Directives that render the catalog: a recipe with its source and badges, and the capability matrix."""

import html
import sys
from pathlib import Path

from docs._ext import digests, results, trades, versions
from docs._ext.freshness import imports_of
from docs._ext.pages import PLACES
from docs._ext.results import GROUPS, LABELS
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.builders import Builder
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective
from sphinx.writers.html5 import HTML5Translator

from autograd_cookbook import catalog
from autograd_cookbook.auditing.checks import Check, all_checks
from autograd_cookbook.catalog import BY_NAME, RECIPES, Recipe

REPOSITORY = "https://github.com/autograd-cookbook/autograd-cookbook/blob/main/src/"
# A mark and a word for each verdict: nobody has to tell colors apart.
MARKS = {"yes": "✓", "no": "–", "wrong": "✗", "unknown": "?"}
PAGE, COSTS = "capabilities", "costs"
LESSON = "template"  # a page to read from the first line to the last: nothing is folded, or better done by torch
# What makes the text of a copied file.
SOURCE = [Path(catalog.__file__).with_name(name) for name in ("_recipe.py", "_source.py")]
LIMITED_MARK = "*"  # behind that of a capability with a limit, where there is no place to say which
# What no audit tells, each behind the capability that it is next to. The measurements of the costs tell the memory, and
# tests/test_ddp.py tells DDP.
MEMORY, DDP, LIMITED = "compiled_memory", "ddp", "compile"
BEYOND = {MEMORY: "low memory when compiled", DDP: "DDP"}
BEHIND = {LIMITED: MEMORY, "saved_tensor_hooks": DDP}
PURPOSES = {
    MEMORY: "When compiled, the recipe keeps no more bytes between forward and backward than in eager mode.",
    DDP: "Under DistributedDataParallel, two ranks with a mean loss get the gradients of one process.",
}


# The page that says how to give a function of one's own what its badge says is missing.
LEARN = {
    "first_order": "guide/debugging",
    "second_order": "cookbook/05_higher_order/double_backward",
    "forward_mode": "cookbook/05_higher_order/forward_mode",
    "func_grad": "guide/func",
    "vmap": "cookbook/05_higher_order/per_sample_gradients",
    "batched_grad": "guide/func",
    "compile": "cookbook/07_compile/torch_compile",
    MEMORY: "guide/compiled_bytes",
    DDP: "cookbook/08_distributed/data_parallel",
    "checkpoint": "cookbook/04_memory/checkpointing",
    "saved_tensor_hooks": "cookbook/04_memory/saved_tensor_hooks",
    "non_contiguous": "pitfalls/layouts",
    "empty": "pitfalls/contract",
    "float32": "pitfalls/precision",
    "float16": "cookbook/07_compile/mixed_precision",
    "bfloat16": "cookbook/07_compile/mixed_precision",
    "autocast": "cookbook/07_compile/mixed_precision",
    "complex128": "cookbook/05_higher_order/complex_numbers",
}


def shown(members: dict[str, str]) -> dict[str, str]:
    """The labels of capabilities, with those that no audit tells in their places."""
    labels = {}
    for member, label in members.items():
        labels[member] = label
        if member in BEHIND:
            labels[BEHIND[member]] = BEYOND[BEHIND[member]]
    return labels


def beyond(recipe: Recipe, can: dict[str, str]) -> dict[str, str]:
    """The verdicts that no audit tells, of a recipe of which the others are known."""
    return {MEMORY: memory(recipe, can), DDP: "wrong" if recipe.unlike_one_process else "yes"}


def memory(recipe: Recipe, can: dict[str, str]) -> str:
    """Whether a recipe, of which this is known, compiles and keeps no more bytes then."""
    if can[LIMITED] != "yes":
        return "no"
    contenders = results.measured(recipe, "cost")["contenders"] if recipe.cost else {}
    if "ours, compiled" not in contenders:
        return "unknown"
    return "yes" if trades.compiled(recipe, contenders) is None else "no"


CHECKS: dict[str, list[Check]] = {}
for _check in all_checks().values():
    CHECKS.setdefault(_check.capability or "", []).append(_check)


def limit(recipe: Recipe, capability: str, verdict: str) -> str:
    """What a capability that the recipe has does not hold for, as a badge says it; mostly nothing."""
    if capability == DDP and recipe.unlike_one_process:
        return f"with {recipe.unlike_one_process}"
    if verdict != "yes":
        return ""
    where = [recipe.limit(capability)] if recipe.limit(capability) else []
    if capability == "compile" and any(c == "compile" for c, _ in results.measured(recipe, "verified")["findings"]):
        where.append("torch.func inside of it")  # which goes by the derivative of forward: the page compiled_rules
    return f"not for {' and '.join(where)}" if where else ""


def anchor(capability: str) -> str:
    return "capability-" + capability.replace("_", "-")


def purpose(capability: str) -> str:
    """What the checks behind a capability say of themselves."""
    if capability in PURPOSES:
        return PURPOSES[capability]
    return " ".join(check.purpose.replace("``", "") for check in CHECKS[capability])


def badge(name: str, verdict: str, builder: Builder) -> str:
    """The attributes of a badge: it leads to what was checked, says it, and leads to how to add what is not there."""
    page = builder.current_docname
    to = f"{builder.get_relative_uri(page, PAGE)}#{anchor(name)}"
    learn = "" if verdict == "yes" else f' data-learn="{builder.get_relative_uri(page, LEARN[name])}"'
    return f'class="badge-{verdict}" href="{to}" title="{html.escape(purpose(name))}"{learn}'


class Badges(nodes.General, nodes.Element):
    """A row of verdicts, each a link to what was checked."""


def visit_badges(translator: HTML5Translator, node: Badges) -> None:
    parts = []
    for group, members in GROUPS.items():
        items = "".join(
            f"<li><a {badge(name, verdict, translator.builder)}>"
            f'<span aria-hidden="true">{MARKS[verdict]}</span> {label}<span class="visually-hidden">: {verdict}</span>'
            f"{', ' + html.escape(end) if end else ''}</a></li>"
            for name, label in shown(members).items()
            for verdict in [node["verdicts"][name]]
            for end in [limit(BY_NAME[node["recipe"]], name, verdict)]
        )
        parts.append(f'<ul aria-label="{group}">{items}</ul>')
    translator.body.append(f'<div class="badges">{"".join(parts)}</div>')


def link(target: str, label: nodes.Node | None, domain: str, role: str, docname: str) -> nodes.Node:
    """A link with a label, or with the title of what it leads to."""
    options = {"refdomain": domain, "reftype": role, "refexplicit": label is not None, "refdoc": docname}
    return addnodes.pending_xref("", label or nodes.inline(), reftarget=target, refwarn=True, **options)


def to_check(name: str, docname: str) -> nodes.Node:
    """A link to the section on a check of the audit."""
    return link(f"check-{name.replace('_', '-')}", nodes.literal("", name), "std", "ref", docname)


def to_recipe(recipe: Recipe, docname: str) -> nodes.Node:
    """A link to the page of a recipe, by the recipe's name."""
    label = nodes.inline(recipe.name, recipe.name)
    return link(f"/cookbook/{PLACES[recipe.page]}", label, "std", "doc", docname)


def instead(recipe: Recipe) -> str | None:
    """What to use instead, where the reference is torch's own function and the measurement is for that."""
    name = trades.public_name(recipe.reference)
    if name is None or recipe.gradient != "exact" or not recipe.cost or recipe.cost.built_in is not recipe.reference:
        return None
    said = trades.instead(recipe, results.measured(recipe, "cost")["contenders"])
    return None if said is None else f"Use <code>{name}</code> instead{html.escape(said)}"


class Take(nodes.General, nodes.Element):
    """The buttons that copy and download a recipe."""


FOLDER = "recipes"  # of the site, where the files are that a reader downloads


def take(name: str, builder: Builder) -> str:
    """The buttons, that a script shows where it can copy; the download works without one."""
    up = "../" * builder.current_docname.count("/")
    return (
        f'<span class="glance-take"><button type="button" data-copy="{name}" aria-label="Copy {name}" hidden>Copy'
        f'</button><a class="glance-download" href="{up}{FOLDER}/{name}.py" download '
        f'aria-label="Download {name}.py">Download</a></span>'
    )


def visit_take(translator: HTML5Translator, node: Take) -> None:
    translator.body.append(take(node["recipe"], translator.builder))


class Verdict(nodes.General, nodes.Element):
    """What a recipe can do in one regard, once for each group of releases that agree; the pinned one's is shown."""


def visit_verdict(translator: HTML5Translator, node: Verdict) -> None:
    for verdict, releases in node["releases"].items():
        hidden = "" if digests.torch() in releases else " hidden"
        marked = f'class="badge-{verdict}" data-releases="{" ".join(releases)}" data-verdict="{verdict}"{hidden}'
        end = limit(BY_NAME[node["recipe"]], node["capability"], verdict)
        star, words = (LIMITED_MARK, f", {html.escape(end)}") if end else ("", "")
        title = f' title="{html.escape(end)}"' if end else ""
        said = f'role="img" aria-label="{verdict}{words}" data-capability="{node["capability"]}"{title}'
        translator.body.append(f"<span {marked} {said}>{MARKS[verdict]}{star}</span>")


class Releases(nodes.General, nodes.Element):
    """A choice of one release of torch, shown where a script can act on it."""


def visit_releases(translator: HTML5Translator, node: Releases) -> None:
    choices = "".join(
        f'<label><input type="radio" name="release" value="{release}"{" checked" * (release == digests.torch())}> '
        f"{release}</label>"
        for release in node["releases"]
    )
    translator.body.append(f'<fieldset class="releases" hidden><legend>On torch</legend>{choices}</fieldset>')


class Needs(nodes.General, nodes.Element):
    """A choice of what a recipe must be able to do, shown where a script can act on it."""


def visit_needs(translator: HTML5Translator, node: Needs) -> None:
    choices = "".join(
        f'<label><input type="checkbox" name="need" value="{name}"> {label}</label>'
        for name, label in node["labels"].items()
    )
    translator.body.append(
        f'<fieldset class="needs" hidden><legend>Show recipes that work with</legend>{choices}'
        '<output class="needs-found" aria-live="polite"></output></fieldset>'
    )


def visited(translator: HTML5Translator, node: nodes.Element) -> None:
    pass


def note_catalog(env: BuildEnvironment, page: str = "*") -> None:
    """What is made from the catalog is made again when it, or what was measured, has changed: of a page, or of all."""
    for path in (
        *Path(catalog.__file__).parent.glob(f"{page}.py"),
        *results.RESULTS.glob(f"{page}.json"),
        versions.STORED,
    ):
        env.note_dependency(str(path))


def listed(items: list[nodes.Node]) -> list[nodes.Node]:
    """With commas between."""
    return [node for item in items for node in (nodes.Text(", "), item)][1:]


def row_of(texts: list[str]) -> nodes.row:
    return nodes.row("", *(nodes.entry("", nodes.paragraph("", text)) for text in texts))


class RecipeDirective(SphinxDirective):
    """``.. recipe:: name``: badges, the standalone source with its copy button, links to the reference."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        name, page = self.arguments[0], self.env.docname.rpartition("/")[2]
        if name not in BY_NAME:
            raise self.error(f"no recipe {name!r} in the catalog; there are {', '.join(sorted(BY_NAME))}")
        recipe = BY_NAME[name]
        if recipe.page != page:
            raise self.error(f"recipe {name!r} belongs to page {recipe.page!r} by the catalog, not to {page!r}")
        module = Path(sys.modules[recipe.module].__file__)
        note_catalog(self.env, page)
        for path in (module, *imports_of(module), *SOURCE):
            self.env.note_dependency(str(path))

        box = nodes.container(classes=["recipe"], ids=[f"recipe-{name}"], names=[])
        box += nodes.paragraph("", "", nodes.strong(name, name), Take(recipe=name), classes=["recipe-name"])
        if recipe.page != LESSON and (warning := instead(recipe)):
            box += nodes.raw("", f'<p class="glance-instead">{warning}</p>', format="html")
        if recipe.calls:
            try:
                audit = results.measured(recipe, "verified")
            except results.NotMeasuredError as error:
                raise self.error(str(error)) from None
            verdicts = audit["capabilities"] | beyond(recipe, audit["capabilities"])
            box += Badges(recipe=name, verdicts=verdicts)
        box += nodes.literal_block(recipe.source, recipe.source, language="python")
        links = nodes.paragraph("", "", nodes.Text("Reference: "), classes=["recipe-links"])
        labels = [nodes.literal(export, export) for export in recipe.exports]
        links += listed(
            [link(n, label, "py", "obj", self.env.docname) for n, label in zip(recipe.names, labels, strict=True)]
        )
        path = module.relative_to(Path(catalog.__file__).parents[1])
        links += [nodes.Text(". Source: "), nodes.reference(path.name, path.name, refuri=REPOSITORY + path.as_posix())]
        links += nodes.Text(".")
        box += links
        if recipe.calls:
            box += self.report(name, audit)
        return [box]

    def report(self, name: str, audit: results.Row) -> nodes.Node:
        """What the audit says, folded up: its verdict in a line, and inside what the recipe lacks, and why."""
        title = f"Audit: ok. {len(audit['checks'])} checks on torch {digests.torch()} found no error and no warning."
        if audit["saved_bytes"] is not None:
            title += f" In the audit's example call, the recipe keeps {audit['saved_bytes']} bytes besides its inputs."
        box = nodes.admonition("", nodes.title(title, title), classes=["recipe-audit"], collapsible="closed")
        lead = "The audit also noted these limitations:" if audit["findings"] else "It found no limitation."
        box += nodes.paragraph("", lead)
        items = nodes.definition_list()
        for check, summary in audit["findings"]:
            term = nodes.term("", "", to_check(check, self.env.docname))
            items += nodes.definition_list_item("", term, nodes.definition("", nodes.paragraph("", summary)))
        box += [items] if audit["findings"] else []
        box += [nodes.paragraph("", note) for note in audit["notes"]]
        for capability, found in versions.verdicts(name, audit).items():
            if len(found) > 1:
                said = "; ".join(f"{verdict} on torch {', '.join(on)}" for verdict, on in found.items())
                box += nodes.paragraph("", f"{LABELS[capability]} depends on the release of torch: {said}.")
        return box


class MatrixDirective(SphinxDirective):
    """``.. capability-matrix::``: every recipe against every capability, as last verified on each release."""

    def run(self) -> list[nodes.Node]:
        record = results.rows("verified")
        note_catalog(self.env)
        releases = versions.releases()
        labels = shown(LABELS)
        group = nodes.tgroup(cols=1 + len(labels))
        group += [nodes.colspec(colwidth=1) for _ in range(1 + len(labels))]
        group += nodes.thead("", row_of(["recipe", *labels.values()]))
        body = nodes.tbody()
        for recipe in sorted(RECIPES, key=lambda recipe: recipe.name):
            if recipe.name in record:
                cells = [nodes.paragraph("", "", to_recipe(recipe, self.env.docname))]
                found = versions.verdicts(recipe.name, record[recipe.name])
                more = beyond(recipe, record[recipe.name]["capabilities"])  # of the pinned release
                found |= {name: {verdict: releases} for name, verdict in more.items()}
                # Without paragraphs: two thousand elements less.
                cells += [Verdict(recipe=recipe.name, capability=name, releases=found[name]) for name in labels]
                body += nodes.row("", *(nodes.entry("", cell) for cell in cells))
        group += body
        table = nodes.table("", group, classes=["capability-matrix"])
        return [Releases(releases=releases), Needs(labels=labels), table]


class PurposesDirective(SphinxDirective):
    """``.. capability-list::``: what is checked for each capability, and which recipes are the exceptions."""

    def check(self, check: Check) -> nodes.Node:
        target = to_check(check.name, self.env.docname)
        return nodes.paragraph("", "", target, nodes.Text(f": {check.purpose.replace('``', '')}"))

    def verdicts(self, capability: str) -> nodes.paragraph:
        """How many recipes have the most common verdict, and the names of all others."""
        record = results.rows("verified")
        found = {verdict: [] for verdict in ("yes", "no", "wrong")}
        for recipe in RECIPES:
            if recipe.name in record:
                found[record[recipe.name]["capabilities"][capability]].append(recipe)
        common = max(found, key=lambda verdict: len(found[verdict]))
        text = nodes.paragraph("", f"{MARKS[common]} {common}: {len(found.pop(common))} recipes.")
        for verdict, recipes in found.items():
            if recipes:
                links = [to_recipe(recipe, self.env.docname) for recipe in recipes]
                text += [nodes.Text(f" {MARKS[verdict]} {verdict}: "), *listed(links), nodes.Text(".")]
        return text

    def run(self) -> list[nodes.Node]:
        entries = nodes.definition_list()
        for name, label in shown(LABELS).items():
            if name in BEYOND:
                entries += self.beyond(name)
                continue
            entries += nodes.definition_list_item(
                "",
                nodes.term("", "", nodes.Text(label), ids=[anchor(name)]),
                nodes.definition(
                    "", *(self.check(check) for check in CHECKS[name]), self.verdicts(name), self.learn(name)
                ),
            )
        return [entries]

    def beyond(self, capability: str) -> nodes.definition_list_item:
        """What is said of a capability that no audit tells, and the exceptions."""
        record, by_verdict, limited = results.rows("verified"), {}, {}
        for recipe in RECIPES:
            if recipe.name in record:
                verdict = beyond(recipe, record[recipe.name]["capabilities"])[capability]
                by_verdict.setdefault(verdict, []).append(recipe)
                if end := limit(recipe, capability, verdict):
                    limited.setdefault(end, []).append(recipe)
        text = nodes.paragraph("", PURPOSES[capability])
        if capability == MEMORY:
            text += nodes.Text(" The measurements are on the page ")
            text += [link(f"/{COSTS}", None, "std", "doc", self.env.docname), nodes.Text(".")]
        for verdict in ("yes", "unknown"):
            if verdict in by_verdict:
                text += nodes.Text(f" {MARKS[verdict]} {verdict}: {len(by_verdict[verdict])} recipes.")
        named = {f"{MARKS['no']} no": by_verdict["no"]} if "no" in by_verdict else {}
        named |= {f"{MARKS['wrong']} wrong {end}": found for end, found in limited.items()}
        for said, recipes in named.items():
            links = [to_recipe(recipe, self.env.docname) for recipe in recipes]
            text += [nodes.Text(f" {said}: "), *listed(links), nodes.Text(".")]
        term = nodes.term("", "", nodes.Text(BEYOND[capability]), ids=[anchor(capability)])
        return nodes.definition_list_item("", term, nodes.definition("", text, self.learn(capability)))

    def learn(self, capability: str) -> nodes.paragraph:
        """Where to read how to give it to a function."""
        page = link(f"/{LEARN[capability]}", None, "std", "doc", self.env.docname)
        return nodes.paragraph("", "", nodes.Text("In your own function: "), page, nodes.Text("."))


class LacksDirective(SphinxDirective):
    """``.. lacks:: capability``: how many recipes have it, and what the audit says of each that has not."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        (capability,) = self.arguments
        if capability not in LABELS:
            raise self.error(f"no capability {capability!r}; there are {', '.join(LABELS)}")
        note_catalog(self.env)
        record, items = results.rows("verified"), nodes.bullet_list()
        checks = {check.name for check in CHECKS[capability]}
        for name, row in record.items():
            if row["capabilities"][capability] != "yes":
                said = (summary for check, summary in row["findings"] if check in checks)
                said = "; ".join(summary.removeprefix(f"no {capability}: ") for summary in said)
                text = nodes.paragraph("", "", nodes.literal(name, name), nodes.Text(f": {said}"))
                items += nodes.list_item("", text)
        count = f"It works for {len(record) - len(items)} of {len(record)} recipes. The audit says of the others:"
        return [nodes.paragraph("", count), items]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_node(Badges, html=(visit_badges, visited))
    app.add_node(Take, html=(visit_take, visited))
    app.add_node(Verdict, html=(visit_verdict, visited))
    app.add_node(Needs, html=(visit_needs, visited))
    app.add_node(Releases, html=(visit_releases, visited))
    app.add_directive("recipe", RecipeDirective)
    app.add_directive("capability-matrix", MatrixDirective)
    app.add_directive("capability-list", PurposesDirective)
    app.add_directive("lacks", LacksDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
