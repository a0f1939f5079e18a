"""A function that writes to its argument, and says so."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.nn import functional as F

from autograd_cookbook.auditing import audit, held_bytes, saved_bytes
from autograd_cookbook.recipes.in_place import LeakyReLUInPlaceFunction, leaky_relu_

SURVIVORS = {
    "LeakyReLUInPlaceFunction.vmap: 0 -> 1": "what comes back is the input, mapped as it was",
}

INF = float("inf")


def hidden(values, **options):
    """A leaf, and a tensor with the same values that may be written to."""
    leaf = torch.tensor(values, requires_grad=True, **options)
    return leaf, leaf * 1


def test_the_audit_takes_it_as_it_is() -> None:
    """The catalog holds it with a copy in front."""
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    report = audit(leaky_relu_, (x, 0.2), skip=["compile"], require=("first_order", "second_order", "vmap"))
    report.raise_for_findings()
    assert report.saved_bytes == 0


def test_it_is_the_same_tensor_with_a_new_history() -> None:
    leaf, h = hidden([-4.0, 2.0])
    place, version = h.data_ptr(), h._version
    result = leaky_relu_(h, 0.5)
    assert result is h
    assert h.data_ptr() == place
    assert h._version > version
    assert h.tolist() == [-2.0, 2.0]
    (gradient,) = torch.autograd.grad(h, leaf, torch.tensor([3.0, 7.0]))
    assert gradient.tolist() == [1.5, 7.0]


@pytest.mark.parametrize("slope", [0.01, 1.0, 3.0])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_it_agrees_with_torch_at_every_kind_of_number(dtype, slope) -> None:
    values = [-INF, -2.0, -0.0, 0.0, 3.0, INF, float("nan")]
    gradient = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], dtype=dtype)
    results = []
    for function in (leaky_relu_, F.leaky_relu):
        leaf, h = hidden(values, dtype=dtype)
        y = function(h, slope)
        results.append((y.detach(), *torch.autograd.grad(y, leaf, gradient)))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)


def test_derivatives_of_the_overwritten_tensor() -> None:
    x = torch.randn(5, dtype=torch.float64, requires_grad=True)

    def through_the_old_name(x):
        h = x.exp() - 1
        leaky_relu_(h, 0.3)
        return h.square()

    assert gradcheck(through_the_old_name, x)
    assert gradgradcheck(through_the_old_name, x)


def test_nothing_is_kept_and_nothing_allocated() -> None:
    x = torch.randn(1000, requires_grad=True)
    h = x * 1
    assert saved_bytes(leaky_relu_, h, 0.1) == 0
    assert held_bytes(leaky_relu_, x * 1, 0.1) == 0
    assert held_bytes(F.leaky_relu, x * 1, 0.1) == 4000


@pytest.mark.parametrize("view", [False, True])
def test_a_leaf_is_refused_before_it_is_touched(view) -> None:
    leaf = torch.tensor([-2.0, 3.0], requires_grad=True)
    message = "a view of a leaf Variable" if view else "^a leaf Variable"
    for function in (leaky_relu_, F.leaky_relu_):
        with pytest.raises(RuntimeError, match=message):
            function(leaf[:1] if view else leaf, 0.5)
        assert leaf.tolist() == [-2.0, 3.0]


def test_mark_dirty_alone_refuses_a_leaf_too_late() -> None:
    """If this changes, the recipe need not ask."""
    leaf = torch.tensor([-2.0, 3.0], requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf Variable"):
        LeakyReLUInPlaceFunction.apply(leaf, 0.5)
    assert leaf.tolist() == [-1.0, 3.0]


def test_leaves_may_be_overwritten_where_nothing_is_recorded() -> None:
    leaf = torch.tensor([-2.0, 3.0], requires_grad=True)
    with torch.no_grad():
        assert leaky_relu_(leaf, 0.5).data_ptr() == leaf.data_ptr()
        leaky_relu_(leaf[:1], 0.5)
    assert leaf.tolist() == [-0.5, 3.0]
    plain = torch.tensor([-2.0])
    assert not leaky_relu_(plain, 0.5).requires_grad
    assert plain.tolist() == [-1.0]


def test_the_base_of_a_view_learns_of_it() -> None:
    leaf, h = hidden([[-2.0, 3.0], [-4.0, 5.0]])
    leaky_relu_(h[0], 0.5)
    assert h.tolist() == [[-1.0, 3.0], [-4.0, 5.0]]
    (gradient,) = torch.autograd.grad(h.sum(), leaf)
    assert gradient.tolist() == [[0.5, 1.0], [1.0, 1.0]]


def test_one_of_several_views_is_refused() -> None:
    _, h = hidden([[-2.0, 3.0], [-4.0, 5.0]])
    first, _ = h.unbind()
    with pytest.raises(RuntimeError, match="returns multiple views"):
        leaky_relu_(first, 0.5)


def test_who_saved_the_old_values_is_told() -> None:
    leaf, h = hidden([-2.0, 3.0])
    square = h.square()
    leaky_relu_(h, 0.5)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(square.sum(), leaf)


def test_a_later_write_to_the_output_is_noticed() -> None:
    leaf, h = hidden([-2.0, 3.0])
    leaky_relu_(h, 0.5).mul_(-1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(h.sum(), leaf)


@pytest.mark.parametrize("dim", [0, 1])
def test_vmap_writes_to_the_batch(dim) -> None:
    x = torch.tensor([[-2.0, 3.0, -4.0], [5.0, -6.0, 7.0]])
    expected = F.leaky_relu(x, 0.5)
    result = torch.func.vmap(lambda row: leaky_relu_(row, 0.5), dim, dim)(x)
    assert torch.equal(result, expected)
    assert torch.equal(x, expected)


@pytest.mark.parametrize("old_name", [False, True])
def test_by_torch_func(old_name) -> None:
    def loss(x):
        h = 1 * x
        result = leaky_relu_(h, 0.5)
        return (h if old_name else result).square().sum()

    x = torch.tensor([[-2.0, 3.0], [5.0, -6.0]])
    expected = [[-1.0, 6.0], [10.0, -3.0]]
    assert torch.func.grad(loss)(x).tolist() == expected
    assert torch.func.vmap(torch.func.grad(loss))(x).tolist() == expected


# torch looks at the attribute, of a tensor that is no leaf, while it compiles.
@pytest.mark.filterwarnings("ignore:The .grad attribute")
@pytest.mark.parametrize("function", [leaky_relu_, lambda h, slope: leaky_relu_(h, slope) + 0])
def test_compiled_it_breaks_the_graph_and_is_right(function) -> None:
    leaf, h = hidden([-2.0, 3.0])
    torch._dynamo.reset()
    y = torch.compile(lambda h: function(h, 0.5), backend="aot_eager")(h)
    for result in (y, h):
        (gradient,) = torch.autograd.grad(result.sum(), leaf, retain_graph=True)
        assert gradient.tolist() == [0.5, 1.0]
    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(lambda h: function(h, 0.5), backend="aot_eager", fullgraph=True)(leaf * 1)


@pytest.mark.parametrize("slope", [0.0, -0.1, float("nan")])
def test_the_slope_must_be_positive(slope) -> None:
    with pytest.raises(ValueError, match=f"expected slope > 0, got {slope}"):
        leaky_relu_(torch.ones(2), slope)


def test_integers_are_refused_and_left_alone() -> None:
    x = torch.tensor([-1, 2])
    with pytest.raises(NotImplementedError, match="Long"):
        leaky_relu_(x, 0.5)
    assert x.tolist() == [-1, 2]
