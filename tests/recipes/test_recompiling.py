"""How often ``torch.compile`` compiles, counted."""

import pytest
import torch
from torch.autograd import Function

from autograd_cookbook.recipes.recompiling import compilations
from autograd_cookbook.recipes.torch_compile import huber

# What is compiled here is called with tensors that are no leaves, and the compiler looks whether they have a gradient.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")


@pytest.fixture(autouse=True)
def _nothing_compiled_before():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def test_dynamic_shapes_do_not_recompile_a_third_time() -> None:
    from torch._dynamo.testing import CompileCounter  # here, since every collection of the tests would wait for it

    counter = CompileCounter()
    compiled = torch.compile(huber, fullgraph=True, backend=counter)
    for size in (3, 4, 5, 6):
        compiled(torch.ones(size, requires_grad=True))
    assert counter.frame_count == 2  # once for 3, once for any size


class _Square(Function):
    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        return 2 * ctx.saved_tensors[0] * grad_output


def test_compilations_are_counted_call_by_call() -> None:
    def function(x):
        return _Square.apply(x)

    def calls(*sizes):  # fresh ones: the compiler writes on a tensor what it knows of its sizes
        return [(torch.ones(n, requires_grad=True),) for n in sizes]

    assert compilations(function, calls(3, 4, 5, 1)) == [1, 2, 2, 3]  # 1 is a version of its own
    assert compilations(function, calls(3, 4, 5), dynamic=True) == [1, 1, 1]
    assert compilations(function, calls(3, 4, 5), dynamic=False) == [1, 2, 3]
    assert compilations(function, []) == []


@pytest.mark.parametrize("context", [torch.no_grad, lambda: torch.autocast("cpu", torch.bfloat16)])
def test_modes_are_versions_of_their_own(context) -> None:
    from torch._dynamo.testing import CompileCounter  # here, since every collection of the tests would wait for it

    counter = CompileCounter()
    compiled = torch.compile(lambda x: _Square.apply(x), fullgraph=True, backend=counter)
    x = torch.ones(3, requires_grad=True)
    compiled(x)
    with context():
        compiled(x)
    compiled(x)
    assert counter.frame_count == 2


@pytest.mark.parametrize("other", [torch.ones(3), torch.ones(3, dtype=torch.float64, requires_grad=True)])
def test_dtypes_and_tensors_without_grad_are_versions_of_their_own(other) -> None:
    x = torch.ones(3, requires_grad=True)
    assert compilations(lambda x: _Square.apply(x), [(x,), (other,), (x,)]) == [1, 2, 2]


def test_too_many_versions_are_refused() -> None:
    limit = torch._dynamo.config.recompile_limit
    with pytest.raises(torch._dynamo.exc.FailOnRecompileLimitHit):
        compilations(torch.exp, [(torch.ones(n + 2),) for n in range(limit + 1)], dynamic=False)
