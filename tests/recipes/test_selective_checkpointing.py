"""Checkpoints that keep chosen results: what is kept, what runs twice, and what cannot be chosen."""

import pytest
import torch
from scipy import signal
from torch.autograd import Function
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from autograd_cookbook.auditing import held_bytes
from autograd_cookbook.recipes.custom_operator import filter_gradients, recursive_filter, save_for_filter
from autograd_cookbook.recipes.selective_checkpointing import overloads, save_only
from tests.support import since

FILTER = "autograd_cookbook::recursive_filter"
EXACT = {"use_reentrant": False, "preserve_rng_state": False}  # the state of the generator would be held, too
SIZE = 32 * 64 * 4


class BareFunction(Function):
    """The filter without an operator, and without operations in place."""

    @staticmethod
    def forward(input, coefficients):
        a = torch.cat([torch.ones(1), coefficients]).detach().numpy()
        return torch.from_numpy(signal.lfilter(a[:1], a, input.detach().numpy()))

    setup_context = staticmethod(save_for_filter)

    @staticmethod
    def backward(ctx, grad_output):
        return filter_gradients(BareFunction.apply, ctx, grad_output)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list:
    """The calls of SciPy from now on."""
    made, lfilter = [], signal.lfilter

    def counted(*args, **options):
        made.append("lfilter")  # its arguments would be kept alive
        return lfilter(*args, **options)

    monkeypatch.setattr(signal, "lfilter", counted)
    return made


def network(filter=recursive_filter):
    torch.manual_seed(0)
    w, a = torch.randn(64, 64, requires_grad=True), torch.tensor([-1.0, 0.5], requires_grad=True)

    def block(x):
        return torch.tanh(filter((x @ w).relu(), a) @ w)

    return block, torch.randn(32, 64, requires_grad=True), [w, a]


def gradients(function, x, parameters):
    return torch.autograd.grad(function(x).sum(), [x, *parameters])


@pytest.mark.parametrize(
    ("kept", "sizes", "runs"),
    [
        (None, 1, 3),  # the output, which is the input of whatever follows
        ([FILTER], 2, 2),
        (["aten::mm"], 3, 3),
        (["aten::mm", FILTER], 4, 2),
        ([torch.ops.autograd_cookbook.recursive_filter], 2, 2),
        ([torch.ops.autograd_cookbook.recursive_filter.default], 2, 2),
    ],
)
def test_what_is_kept_is_not_computed_again(calls, kept, sizes, runs) -> None:
    """Runs of the filter: forward, backward, and once more where its result was not kept."""
    block, x, parameters = network()
    options = EXACT | ({"context_fn": save_only(*kept)} if kept else {})

    def checkpointed(x):
        return checkpoint(block, x, **options)

    assert held_bytes(block, x) == 3 * SIZE
    assert held_bytes(checkpointed, x) == sizes * SIZE
    expected = gradients(block, x, parameters)
    calls.clear()
    for found, wanted in zip(gradients(checkpointed, x, parameters), expected, strict=True):
        assert torch.equal(found, wanted)
    assert len(calls) == runs


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
def test_the_compiler_follows_the_policy(calls) -> None:
    block, x, parameters = network()
    context_fn = save_only(FILTER)
    torch._dynamo.reset()
    try:
        # In torch 2.11 the compiler keeps the result without being asked.
        for options, runs in (({}, 3 if since("2.12") else 2), ({"context_fn": context_fn}, 2)):
            whole = torch.compile(
                lambda x, options=options: checkpoint(block, x, **EXACT, **options), fullgraph=True, backend="aot_eager"
            )
            gradients(whole, x, parameters)
            calls.clear()
            found = gradients(whole, x, parameters)
            assert len(calls) == runs
            for one, other in zip(found, gradients(block, x, parameters), strict=True):
                torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    finally:
        torch._dynamo.reset()


@pytest.mark.parametrize(("filter", "runs"), [(recursive_filter, 2), (BareFunction.apply, 3)], ids=["operator", "bare"])
def test_a_function_is_invisible_to_a_policy(calls, filter, runs) -> None:
    """Even one that keeps all that it is asked about."""
    block, x, parameters = network(filter)
    asked = []

    def policy(context, operator, *args, **options):
        asked.append(str(operator))
        return CheckpointPolicy.MUST_SAVE

    def context_fn():
        return create_selective_checkpoint_contexts(policy)

    gradients(lambda x: checkpoint(block, x, context_fn=context_fn, **EXACT), x, parameters)
    assert len(calls) == runs
    assert ("autograd_cookbook.recursive_filter.default" in asked) == (filter is recursive_filter)
    assert not any("BareFunction" in name for name in asked)


def test_a_policy_that_never_finds_its_operator_raises() -> None:
    w = torch.ones(2, 2, requires_grad=True)

    def layer(x):
        return torch.nn.functional.linear(x, w)

    def silent():
        return create_selective_checkpoint_contexts([torch.ops.aten.linear.default])

    checkpoint(layer, torch.ones(1, 2), context_fn=silent, **EXACT)
    with pytest.raises(RuntimeError, match=r"ran aten.t.default, aten.mm.default, and none of aten::linear$"):
        checkpoint(layer, torch.ones(1, 2), context_fn=save_only("aten::linear"), **EXACT)


def test_an_error_of_the_function_is_not_hidden() -> None:
    def fails(x):
        raise ArithmeticError("its own")

    with pytest.raises(ArithmeticError, match="its own"):
        checkpoint(fails, torch.ones(2, requires_grad=True), context_fn=save_only("aten::mm"), **EXACT)


def test_kept_results_are_handed_out_once() -> None:
    block, x, parameters = network()
    loss = checkpoint(block, x, context_fn=save_only(FILTER), **EXACT).sum()
    torch.autograd.grad(loss, parameters, retain_graph=True)
    with pytest.raises(RuntimeError, match="only allowed to backward once"):
        torch.autograd.grad(loss, parameters)


@pytest.mark.parametrize(
    ("operators", "error", "message"),
    [
        ((), ValueError, "at least one operator"),
        (("aten::no_such_thing",), ValueError, "'aten::no_such_thing'"),
        (("mm",), ValueError, "got 'mm'"),
        ((BareFunction,), TypeError, "FunctionMeta"),
        ((torch.mm,), TypeError, "builtin_function_or_method"),
    ],
)
def test_bad_operators(operators, error, message) -> None:
    with pytest.raises(error, match=message):
        save_only(*operators)


def test_a_name_stands_for_all_overloads() -> None:
    assert torch.ops.aten.mm.default in overloads("aten::mm")
    assert overloads(torch.ops.aten.mm.default) == {torch.ops.aten.mm.default}
