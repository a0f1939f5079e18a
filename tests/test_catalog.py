"""What every recipe of the catalog owes its readers."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from docs._ext import digests, results, versions
from docs._ext.pages import PLACES
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from autograd_cookbook.auditing import audit
from autograd_cookbook.catalog import BY_NAME, RECIPES, Recipe, Sample
from tests.support import (
    HANG,
    at,
    copies,
    expect_close,
    gradients,
    is_differentiable,
    leaves,
    outputs_of,
    places,
    weights_like,
)

# Much tighter than gradcheck's own rtol of 1e-3, under which a factor of 0.999 goes unseen. What is computed again
# for a second backward, from outputs to inputs and back, is rounded once more.
TIGHT = {"atol": 1e-6, "rtol": 1e-5, "nondet_tol": 1e-13}
EXAMPLES = Path(__file__).parents[1] / "examples"
slow = pytest.mark.slow(
    "src/autograd_cookbook/recipes", "src/autograd_cookbook/catalog", "src/autograd_cookbook/auditing"
)
EXACT = [recipe for recipe in RECIPES if recipe.gradient == "exact"]
COMPARABLE = [recipe for recipe in RECIPES if recipe.gradient != "approximate"]


def each_sample(recipes: list[Recipe]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        ("recipe", "sample"),
        [pytest.param(r, s, id=f"{r.name}-{s.name}") for r in recipes for s in r.calls],
    )


def each_recipe(recipes: tuple[Recipe, ...] | list[Recipe] = RECIPES) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("recipe", [pytest.param(r, id=r.name) for r in recipes])


@each_sample(EXACT)
def test_gradient_agrees_with_finite_differences(recipe: Recipe, sample: Sample) -> None:
    args = copies(sample.args)
    assert gradcheck(at(places(args), recipe.function, args), leaves(args), **TIGHT)


@each_sample([recipe for recipe in EXACT if "second_order" in recipe.promises])
def test_second_order_agrees_with_finite_differences(recipe: Recipe, sample: Sample) -> None:
    """Entry by entry on the typical sample, and along random directions on the others.

    At other points, the nightly tests compare each entry of every sample.
    """
    args = copies(sample.args)
    fast = sample is not recipe.calls[0]
    assert gradgradcheck(at(places(args), recipe.function, args), leaves(args), fast_mode=fast, **TIGHT)


@each_sample(COMPARABLE)
@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float64, 1e-12), (torch.float32, 1e-5)], ids=["float64", "float32"])
def test_agrees_with_the_nearest_built_in(recipe: Recipe, sample: Sample, dtype: torch.dtype, rtol: float) -> None:
    converted = sample.to(dtype)
    expected = gradients(recipe.reference, copies(converted.args))
    expect_close(gradients(recipe.function, copies(converted.args)), expected, rtol)


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@each_sample([recipe for recipe in RECIPES if recipe.gradient == "approximate"])
def test_an_estimate_is_within_its_tolerance(recipe: Recipe, sample: Sample) -> None:
    args = copies(sample.args)
    expect_close(
        gradients(recipe.function, args), gradients(recipe.reference, copies(args)), 2 * float(recipe.tolerance)
    )


@each_sample(COMPARABLE)
def test_keeps_dtype_and_shape_of_the_built_in(recipe: Recipe, sample: Sample) -> None:
    # There is no complex bfloat16, and complex numbers of two halves can hardly do anything in torch.
    can = results.measured(recipe, "verified")["capabilities"]
    halves = (
        () if any(is_differentiable(a) and a.is_complex() for a in sample.args) else (torch.float16, torch.bfloat16)
    )
    for dtype in (*halves, torch.float32, torch.float64):
        args = sample.to(dtype).args
        if can.get(str(dtype)[6:]) == "no":
            continue  # refused, says the badge
        ours, theirs = (gradients(f, copies(args)) for f in (recipe.function, recipe.reference))
        assert [(t.dtype, t.shape, t.device) for t in ours] == [(t.dtype, t.shape, t.device) for t in theirs]


@each_recipe([recipe for recipe in RECIPES if recipe.calls and len(leaves(recipe.calls[0].args)) > 1])
def test_a_frozen_input_changes_nothing_for_the_others(recipe: Recipe) -> None:
    """Each input alone gets the gradient that it gets together with the others."""
    args = copies(recipe.calls[0].args)
    together = gradients(recipe.function, args)[-len(leaves(args)) :]
    for wanted, expected in zip(places(args), together, strict=True):
        alone = tuple(a.detach().requires_grad_(i == wanted) if is_differentiable(a) else a for i, a in enumerate(args))
        expect_close(gradients(recipe.function, alone)[-1:], [expected], 1e-12)


@each_sample(COMPARABLE)
def test_memory_layout_changes_nothing(recipe: Recipe, sample: Sample) -> None:
    """Transposed and strided inputs and gradients, and the expanded ones that a sum sends back."""
    expected = gradients(recipe.function, copies(sample.args))

    def transposed(tensor: Tensor) -> Tensor:
        return tensor.mT.contiguous().mT if tensor.dim() > 1 else tensor.repeat_interleave(2)[::2].view(tensor.shape)

    args = tuple(
        transposed(a.detach()).requires_grad_(a.requires_grad) if is_differentiable(a) else a for a in sample.args
    )
    expect_close(gradients(recipe.function, args), expected, 1e-12)
    expect_close(gradients(recipe.function, copies(sample.args), change=transposed), expected, 1e-12)

    def summed(function):
        return lambda *args: tuple(
            output.sum() for output in at(places(args), function, args)(*leaves(args)) if output.requires_grad
        )

    expect_close(
        gradients(summed(recipe.function), copies(sample.args)),
        gradients(summed(recipe.reference), copies(sample.args)),
        1e-11,
    )


# Each source in an empty namespace and without this package; its function, not the package's, is put through gradcheck.
ALONE = """
import json, sys, traceback
import torch
from torch.autograd import gradcheck

from autograd_cookbook.catalog import RECIPES
from tests.support import at, copies, leaves, places

# Of two operators with one name the first is dead, so the package's come first; then it cannot be imported.
sys.modules |= dict.fromkeys([name for name in sys.modules if name.split(".")[0] == "autograd_cookbook"])
sources, results, copied = json.load(sys.stdin), {}, {}
for name, source in sources.items():
    copied[name] = {"__name__": "copied"}
    try:
        with open(f"copied_{name}.py", "w") as file:  # Triton reads the source of kernels from their file
            file.write(source)
        exec(compile(source, file.name, "exec"), copied[name])
    except Exception:
        results[name] = traceback.format_exc()

for recipe in RECIPES:
    try:
        if recipe.calls and recipe.gradient == "exact" and recipe.name not in results:
            args = copies(recipe.calls[0].args)
            function = copied[recipe.name][recipe.exports[0]]

            def on_copies(*args):  # what works in place refuses leaves
                return function(*(a.clone() if isinstance(a, torch.Tensor) else a for a in args))

            assert gradcheck(at(places(args), on_copies, args), leaves(args), atol=1e-6, rtol=1e-5, nondet_tol=1e-13)
    except Exception:
        results[recipe.name] = traceback.format_exc()
print(json.dumps(results))
"""


@pytest.fixture(scope="session")
def failures_alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What went wrong with each copied source, all of them run in one other process."""
    done = subprocess.run(
        [sys.executable, "-c", ALONE],
        input=json.dumps({recipe.name: recipe.source for recipe in RECIPES}),
        cwd=tmp_path_factory.mktemp("empty"),
        env=os.environ | {"PYTHONPATH": str(EXAMPLES.parent)},
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


AUTOCAST = [name for name, row in results.rows("verified").items() if row["capabilities"]["autocast"] == "yes"]


@each_sample([recipe for recipe in RECIPES if recipe.name in AUTOCAST])
def test_under_autocast_each_gradient_has_the_dtype_of_its_input(recipe: Recipe, sample: Sample) -> None:
    """On all samples, where the audit behind the badge looks at the typical one."""
    args = sample.to(torch.float32).args
    with torch.autocast("cpu", torch.bfloat16):
        outputs = outputs_of(recipe.function(*args))
    grads = torch.autograd.grad([o.abs().sum() for o in outputs], leaves(args), allow_unused=True)
    assert [g.dtype for g in grads if g is not None] == [
        a.dtype for a, g in zip(leaves(args), grads, strict=True) if g is not None
    ]


@each_recipe([recipe for recipe in RECIPES if recipe.calls and "vmap" in recipe.promises])
def test_vmap_is_a_loop(recipe: Recipe) -> None:
    """Value and gradient, of two samples that lie side by side in the last dimension."""
    args = recipe.calls[0].args
    function = at(places(args), recipe.function, args)

    def both(*values: Tensor) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        outputs, pull_back = torch.func.vjp(function, *values)
        return outputs, pull_back(tuple(map(weights_like, outputs)))

    one = [a.detach() for a in leaves(args)]
    other = [1.25 * a for a in one]
    mapped = torch.func.vmap(both, in_dims=tuple(a.dim() for a in one))(
        *(torch.stack(pair, -1) for pair in zip(one, other, strict=True))
    )
    loop = [both(*values) for values in (one, other)]
    for k in range(2):
        expect_close(mapped[k], [torch.stack(pair) for pair in zip(*(each[k] for each in loop), strict=True)], 1e-10)


@each_recipe()
@pytest.mark.xdist_group("alone")  # one process for all of them, not one for each worker
def test_copied_source_runs_alone(recipe: Recipe, failures_alone: dict[str, str]) -> None:
    """The page's copy button yields this text; the browser tests click it and compare."""
    assert recipe.name not in failures_alone, f"the copied source fails:\n{failures_alone[recipe.name]}"


@each_recipe()
def test_catalog_entry_is_consistent(recipe: Recipe) -> None:
    assert recipe.function.__name__ == recipe.exports[0]
    script = EXAMPLES / f"{PLACES[recipe.page]}.py"
    assert f".. recipe:: {recipe.name}\n" in script.read_text(), f"{script.name} does not show recipe {recipe.name}"
    assert recipe.function.__doc__, f"{recipe.name} has no docstring"
    assert (recipe.reference is not None) == bool(recipe.calls)
    assert (recipe.tolerance is not None) == (recipe.gradient == "approximate")


@each_recipe()
def test_a_recipe_for_complex_numbers_has_a_complex_sample(recipe: Recipe) -> None:
    """Of real samples alone, no test would notice a conjugate that is missing."""
    says_so = re.search(
        r"(floating|float64|real) or complex|any shape and dtype", " ".join(str(recipe.function.__doc__).split())
    )
    tensors = [a for sample in recipe.calls for a in sample.args if isinstance(a, Tensor)]
    if says_so and tensors:
        assert any(a.is_complex() for a in tensors), f"{recipe.name} says that it takes complex numbers: {says_so[0]!r}"


@each_recipe()
def test_it_has_tests_of_its_own(recipe: Recipe) -> None:
    """Beyond those that all recipes share: where its edge cases are, and its bad inputs."""
    tests = Path(__file__).parent / "recipes" / f"test_{recipe.page}.py"
    assert re.search(rf"\b{recipe.name}\b", tests.read_text()), f"{tests.name} does not test {recipe.name}"


@each_recipe([recipe for recipe in RECIPES if recipe.limits])
def test_limits_are_those_of_badges_that_say_yes(recipe: Recipe) -> None:
    can = results.measured(recipe, "verified")["capabilities"]
    names = {sample.name for sample in recipe.calls[1:]}
    for limit in recipe.limits:
        assert {can[name] for name in limit.capabilities} == {"yes"}
        assert set(limit.samples) <= names
        assert limit.samples or recipe.name in Path(__file__).with_name("test_scales.py").read_text()


def test_recipe_names_are_unique() -> None:
    assert len(BY_NAME) == len(RECIPES)


@slow
@each_sample(RECIPES)
def test_audit_finds_nothing(recipe: Recipe, sample: Sample) -> None:
    """On the edge cases, too; the typical sample is audited below, and compiled.

    What it cannot do there although its badge says that it can, the badge has as a limit, and nothing else.
    """
    # However slow the machine is, every check runs.
    report = audit(recipe.function, sample.args, skip=["compile"], budget=None, **recipe.audit_options)
    report.raise_for_findings()
    if versions.running() == digests.torch():
        can = results.measured(recipe, "verified")["capabilities"]
        lost = {name for name, verdict in report.capabilities.items() if verdict == "no" and can[name] == "yes"}
        assert lost == {name for limit in recipe.limits if sample.name in limit.samples for name in limit.capabilities}


@slow
@each_recipe([recipe for recipe in RECIPES if recipe.calls])
def test_badges_hold(recipe: Recipe) -> None:
    """A fresh audit says what the site says, and that the recipe can do what it promises.

    Every run of the tests compares the digest of what was audited; whether another machine measures the same is seen
    at night.
    """
    release = versions.running()
    if release != digests.torch() and release not in versions.releases():
        pytest.skip(f"nothing is stored of torch {release}: nox -s versions -- {release} stores what it does otherwise")
    now, stored = results.verify(recipe), versions.verified(recipe.name, results.measured(recipe, "verified"))
    for row in (now, stored):  # the numbers in a text may differ from machine to machine
        row["findings"] = [check for check, _ in row["findings"]]
    changed = {key: (stored[key], now[key]) for key in now if key != "notes" and stored[key] != now[key]}
    assert not changed, f"stored and now: {changed}; if it has to be so, run nox -s refresh -- {recipe.name}"
