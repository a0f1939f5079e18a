"""Recipes whose forward or backward the compiler takes as one step keep compiled what they keep in eager mode."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
import torch
from torch._library.custom_ops import OPDEFS
from torch.nn import functional as F

from autograd_cookbook.auditing import held_bytes
from autograd_cookbook.catalog import BY_NAME, RECIPES, Recipe
from autograd_cookbook.recipes import selective_saving
from autograd_cookbook.recipes._opaque import opaque
from autograd_cookbook.recipes.matmul import masked_linear
from tests.support import since


def leaf(*shape):
    return torch.randn(shape, requires_grad=True)


CALLS = {
    "linear_cross_entropy": lambda: (leaf(64, 8), leaf(3000, 8), torch.randint(3000, (64,))),
    "attention": lambda: (leaf(100, 8), leaf(300, 8), leaf(300, 8), True, None, 32),
    "masked_linear": lambda: (leaf(16, 100), leaf(200, 100), torch.rand(200, 100) < 0.1),
    "gelu_linear": lambda: (leaf(16, 100), leaf(200, 100), leaf(200)),
    "swiglu_linear": lambda: (leaf(16, 100), leaf(16, 100), leaf(200, 100)),
}


@pytest.fixture(autouse=True)
def _fresh():
    torch.compiler.reset()


@pytest.mark.parametrize("name", CALLS)
def test_compiled_it_holds_what_it_holds_in_eager_mode(name) -> None:
    function, args = BY_NAME[name].function, CALLS[name]()
    whole = torch.compile(function, fullgraph=True, backend="aot_eager_decomp_partition")
    leaves = [a for a in args if isinstance(a, torch.Tensor) and a.requires_grad]
    expected, got = (torch.autograd.grad(f(*args).sum(), leaves) for f in (function, whole))
    torch.testing.assert_close(got, expected)
    assert held_bytes(whole, *args) <= held_bytes(function, *args)


@pytest.mark.parametrize("name", CALLS)
def test_the_composition_does_not(name) -> None:
    """Or the recipe would not need it."""
    args, composition = CALLS[name](), BY_NAME[name].cost.composition
    if name == "attention":
        pytest.skip("the compiler recognizes the composition")
    whole = torch.compile(composition, fullgraph=True, backend="aot_eager_decomp_partition")
    assert held_bytes(whole, *args) > held_bytes(BY_NAME[name].function, *args) + 1000


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_a_copy_in_another_module_replaces_no_operator(recipe: Recipe, tmp_path: Path) -> None:
    """Otherwise the compiled code of the first calls an operator that is gone, which can end the process."""
    if recipe.page == "custom_operator":
        pytest.skip("its operator has a name for a reader to replace, and says so")
    before = dict(OPDEFS)
    path = tmp_path / f"{recipe.name}.py"
    path.write_text(recipe.source)
    for library in ("library", "other-library"):
        found = spec_from_file_location(f"{library}.{recipe.name}", path)
        found.loader.exec_module(module_from_spec(found))
    assert [name for name, operator in before.items() if OPDEFS[name] is not operator] == []


def test_a_gradient_that_is_not_needed_is_not_computed() -> None:
    input, weight, target = CALLS["linear_cross_entropy"]()
    loss = torch.compile(BY_NAME["linear_cross_entropy"].function, fullgraph=True, backend="aot_eager")
    loss(input, weight.detach(), target).backward()
    assert input.grad.shape == input.shape
    loss(input.detach(), weight, target).backward()
    assert weight.grad.shape == weight.shape


def test_a_transform_inside_of_a_compiled_function_sees_what_it_transforms() -> None:
    input, weight, mask = CALLS["masked_linear"]()
    loss = lambda x: masked_linear(x, weight.detach(), mask).sin().sum()  # noqa: E731
    gradient = torch.func.grad(loss)
    whole = torch.compile(gradient, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(whole(input.detach()), gradient(input.detach()))

    mapped = torch.func.vmap(gradient)
    whole = torch.compile(mapped, fullgraph=True, backend="aot_eager")
    if since("2.15"):  # which takes the recipe's backward here, and has no rule to map it: docs/guide/compiled_rules.md
        with pytest.raises(torch._dynamo.exc.InternalTorchDynamoError, match="it does not have vmap support"):
            whole(input.detach())
    else:
        torch.testing.assert_close(whole(input.detach()), mapped(input.detach()))


def test_autocast_gives_the_dtype_of_eager_mode() -> None:
    args = CALLS["masked_linear"]()
    whole = torch.compile(masked_linear, fullgraph=True, backend="aot_eager")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected, got = masked_linear(*args), whole(*args)
    assert expected.dtype is got.dtype is torch.bfloat16
    assert torch.equal(got, expected)


def test_an_exported_graph_is_made_of_torchs_operations() -> None:
    class Layer(torch.nn.Module):
        def forward(self, input, weight, mask):
            return masked_linear(input, weight, mask)

    program = torch.export.export(Layer(), tuple(a.detach() for a in CALLS["masked_linear"]()))
    targets = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert targets
    assert not any("autograd_cookbook" in target for target in targets)


def test_what_the_compiler_sees_is_the_name() -> None:
    names = []

    def backend(graph, _):
        names.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return graph.forward

    def doubled(input: torch.Tensor) -> torch.Tensor:
        return F.relu(input) * 2

    call = opaque("test_doubled", doubled, torch.empty_like)
    x = torch.randn(3)
    torch.testing.assert_close(torch.compile(lambda x: call(x) + 1, backend=backend)(x), doubled(x) + 1)
    assert any("test_doubled" in name for name in names)
    assert not any("relu" in name for name in names)
    assert torch.equal(call(x), doubled(x))


def test_the_products_of_a_backward_have_the_shape_of_the_weight() -> None:
    grad, input = torch.randn(2, 3, 5), torch.randn(2, 3, 4)
    like = selective_saving.like_products(grad, input, "none")
    assert like.shape == selective_saving.gelu_products(grad, input, "none").shape == (5, 4)
