"""A call that makes no sense is refused at once, by an exception that names what was given and what was expected."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from autograd_cookbook.auditing import audit, capability_names, held_bytes, peak_bytes, saved_bytes
from autograd_cookbook.auditing.checks import all_checks

X = torch.rand(3, 2, dtype=torch.float64, requires_grad=True)
CONSTANT = torch.rand(3, 2, dtype=torch.float64)
WHOLE = torch.arange(3)


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, grad_output):
        return 2 * grad_output


def refused(expected: type[Exception], *words: str, **options: Any) -> str:
    """The message of an audit of torch.sigmoid, or another ``fn``, that must be refused."""
    arguments = {"fn": torch.sigmoid, "inputs": (X,)} | options
    started: list[str] = []
    with pytest.raises(expected) as caught:
        audit(arguments.pop("fn"), arguments.pop("inputs"), progress=lambda name, *_: started.append(name), **arguments)
    assert type(caught.value) is expected
    message = str(caught.value)
    for word in words:
        assert word in message, message
    assert "\n" not in message
    assert started in ([], ["runs"])
    return message


# --- fn ---


@pytest.mark.parametrize(
    ("fn", "words"),
    [
        pytest.param(3, ("expected a callable", "int: 3"), id="a number"),
        pytest.param(None, ("expected a callable", "NoneType"), id="None"),
        pytest.param("sigmoid", ("expected a callable", "str: 'sigmoid'"), id="a name"),
        pytest.param(X, ("expected a callable", "Tensor"), id="a tensor"),
        pytest.param(Twice, ("got the class Twice", "pass Twice.apply"), id="a Function without apply"),
        pytest.param(nn.Linear, ("got the class Linear", "an instance of it"), id="a module class"),
        pytest.param(dict, ("got the class dict", "an instance of it"), id="any class"),
    ],
)
def test_what_cannot_be_called(fn: Any, words: tuple[str, ...]) -> None:
    assert len(refused(TypeError, *words, fn=fn)) <= 200


class Opaque(Tensor):
    """Stands for another tensor, and has none of torch's operations."""

    @staticmethod
    def __new__(cls, inner: Tensor) -> "Opaque":
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner: Tensor) -> None:
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.detach.default:
            return Opaque(args[0].inner)
        raise NotImplementedError(f"{func} of an Opaque")


class ReturnsOpaque(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return Opaque(2 * x)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        return 2 * grad_output


@pytest.mark.parametrize("isolate", [None, False])
def test_a_function_that_returns_a_tensor_that_cannot_be_read(isolate: bool | None) -> None:
    with pytest.raises(TypeError, match="whose numbers can be read, got Opaque, which raises NotImplementedError"):
        audit(ReturnsOpaque.apply, (torch.randn(3, requires_grad=True),), isolate=isolate)


@pytest.mark.parametrize("isolate", [None, False])
@pytest.mark.parametrize(
    ("returned", "name"),
    [(None, "NoneType"), (1.0, "float"), ("text", "str"), ((1, "a"), "tuple"), ([], "list"), ({"y": 2}, "dict")],
)
def test_a_function_that_returns_no_tensor(returned: Any, name: str, isolate: bool | None) -> None:
    refused(TypeError, "returns a tensor", f"got {name}", fn=lambda x: returned, isolate=isolate)


# --- inputs ---


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        pytest.param((), ("got nothing",), id="empty"),
        pytest.param((3, "a", None), ("got int, str, NoneType",), id="no tensor"),
        pytest.param(CONSTANT, ("got a torch.float64 tensor",), id="a tensor without requires_grad"),
        pytest.param((CONSTANT, WHOLE), ("got a torch.float64 tensor, a torch.int64 tensor",), id="none requires grad"),
        pytest.param((WHOLE, WHOLE > 1), ("a torch.int64 tensor, a torch.bool tensor",), id="integers and bools"),
    ],
)
def test_inputs_without_a_tensor_to_differentiate(inputs: Any, words: tuple[str, ...]) -> None:
    refused(TypeError, "floating or complex tensor that requires grad", *words, inputs=inputs)


@pytest.mark.parametrize("inputs", [3, None, "x", {"x": X}, {X}, iter((X,)), torch.sigmoid])
def test_inputs_that_are_no_tuple(inputs: Any) -> None:
    refused(TypeError, "inputs must be a tuple of the function's arguments", type(inputs).__name__, inputs=inputs)


def test_a_tensor_a_list_and_parameters_are_inputs() -> None:
    assert audit(torch.sigmoid, X, only=["runs"]).ok
    assert audit(torch.sigmoid, [X], only=["runs"]).ok
    assert audit(nn.Linear(2, 3).double(), (CONSTANT,), only=["runs"]).ok
    assert audit(lambda pair: pair["a"] * 2, ({"a": X},), only=["runs"]).ok


# --- names of checks and capabilities ---


@pytest.mark.parametrize("option", ["only", "skip"])
@pytest.mark.parametrize("name", ["first-order", "", "all", "transforms", 3, None])
def test_a_check_that_is_none(option: str, name: Any) -> None:
    message = refused(ValueError, f"{option}: unknown check {name!r}", **{option: ["runs", name]})
    for check in all_checks():
        assert check in message


@pytest.mark.parametrize("option", ["only", "skip"])
def test_a_string_is_no_list_of_checks(option: str) -> None:
    refused(ValueError, f"{option} must be a sequence of check names", "'first_order'", **{option: "first_order"})


@pytest.mark.parametrize("require", [["vmapp"], "vmapp", ["vmap", "first order"], ["runs"]])
def test_a_capability_that_is_none(require: Any) -> None:
    unknown = require if isinstance(require, str) else require[-1]
    message = refused(ValueError, f"unknown capability {unknown!r}", require=require)
    for capability in capability_names():
        assert capability in message


def test_a_capability_that_no_chosen_check_measures() -> None:
    refused(ValueError, "'vmap' is not measured by the checks that were chosen", require="vmap", only=["first_order"])
    refused(ValueError, "'compile' is not measured", require=["vmap", "compile"], skip=["compile"])


# --- gradient, surrogate, tolerance ---


@pytest.mark.parametrize("gradient", ["exakt", "EXACT", 1, True])
def test_a_kind_of_gradient_that_is_none(gradient: Any) -> None:
    refused(ValueError, "gradient must be one of exact, surrogate, approximate", repr(gradient), gradient=gradient)


@pytest.mark.parametrize(
    ("gradient", "surrogate"), [("surrogate", None), ("exact", torch.tanh), ("approximate", torch.tanh)]
)
def test_a_surrogate_belongs_to_surrogate_gradients(gradient: str, surrogate: Any) -> None:
    refused(ValueError, f"gradient={gradient!r}", "surrogate=", gradient=gradient, surrogate=surrogate)


@pytest.mark.parametrize("tolerance", [0, 0.0, -1, float("nan"), -0.1])
def test_a_tolerance_is_positive(tolerance: float) -> None:
    message = refused(ValueError, "tolerance must be positive", gradient="approximate", tolerance=tolerance)
    assert repr(tolerance) in message


@pytest.mark.parametrize("options", [{}, {"gradient": "exact"}, {"surrogate": torch.tanh}])
def test_a_tolerance_belongs_to_approximate_gradients(options: dict[str, Any]) -> None:
    refused(ValueError, "belongs to gradient='approximate'", "0.1", tolerance=0.1, **options)


@pytest.mark.parametrize("option", ["reference", "surrogate"])
@pytest.mark.parametrize("value", [3, "tanh", X, (torch.tanh,)])
def test_functions_to_compare_with_can_be_called(option: str, value: Any) -> None:
    refused(TypeError, option, "callable", type(value).__name__, **{option: value})


# --- the rest ---


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), "soon", None])
def test_a_timeout_is_a_positive_number(timeout: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="timeout"):
        audit(torch.sigmoid, (X,), only=["runs"], timeout=timeout)


@pytest.mark.parametrize("seed", [-1, 2**32, 0.5, "0", None])
def test_a_seed_is_one_that_every_library_takes(seed: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="seed"):
        audit(torch.sigmoid, (X,), only=["runs"], seed=seed)


@pytest.mark.parametrize("device", ["abacus", "cuda:99", 3.5])
def test_a_device_that_is_none(device: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="device"):
        audit(torch.sigmoid, (X,), only=["runs"], device=device)


def test_an_option_that_is_none() -> None:
    with pytest.raises(TypeError, match="tolerence"):
        audit(torch.sigmoid, (X,), tolerence=0.1)


@pytest.mark.parametrize("function", [saved_bytes, held_bytes, peak_bytes])
def test_bytes_of_a_function_that_raises(function: Callable[..., int]) -> None:
    """What the function raises is raised."""
    with pytest.raises(ZeroDivisionError):
        function(lambda x: 1 / 0, X)
