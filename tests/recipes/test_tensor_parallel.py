"""The operators between ranks, the layers and the loss made of them, in every rank of a group of two, and of four."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._dynamo  # torch.func would import it in each of the ranks
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import _functional_collectives as collectives
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional as F

from autograd_cookbook.auditing import audit, saved_bytes
from autograd_cookbook.recipes.data_parallel import all_gather, reduce_scatter, run_ranks
from autograd_cookbook.recipes.tensor_parallel import (
    column_parallel_linear,
    copy_to_ranks,
    gather_from_ranks,
    reduce_from_ranks,
    row_parallel_linear,
    scatter_to_ranks,
    vocab_parallel_cross_entropy,
)
from tests.recipes.in_ranks import EXACT, Checks, close, expect_vmap_to_be_a_loop, in_a_rank, mine, randn, total

# All in one worker of pytest, which starts the ranks once.
pytestmark = pytest.mark.xdist_group("ranks")

check = Checks(__name__)


# --- What each operator is, by its definition ---------------------------------------------------------------------

VALUES = [(torch.float16, 1e-3), (torch.bfloat16, 1e-2), (torch.float32, 1e-6), (torch.float64, 1e-15)]


@check
def operators_return_what_they_say() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for dtype, tolerance in [*VALUES, (torch.complex64, 1e-6), (torch.complex128, 1e-15)]:
        whole = randn(2 * size + 1, 3).to(dtype)  # one row too many to be shared evenly
        part = mine(whole)
        close(copy_to_ranks(whole), whole, 0)
        close(reduce_from_ranks(whole), whole * size, tolerance)
        close(scatter_to_ranks(whole, 0), part, 0)
        close(gather_from_ranks(part, 0), whole, 0)
        close(all_gather(part), whole, 0)
        close(reduce_scatter(whole * (rank + 1)), part * (size * (size + 1) // 2), size * tolerance)
        for result in (reduce_from_ranks(whole), scatter_to_ranks(whole, 0), all_gather(part), reduce_scatter(whole)):
            assert result.dtype == dtype, f"expected {dtype}, got {result.dtype}"
            assert result.is_contiguous()


@check
def inputs_are_left_alone() -> None:
    whole = randn(dist.get_world_size(), 2)
    before = whole.clone()
    for function in (copy_to_ranks, reduce_from_ranks, scatter_to_ranks, gather_from_ranks, all_gather, reduce_scatter):
        function(whole)
        assert torch.equal(whole, before), f"{function.__name__} writes to its input"


@check
def any_dimension_and_layout() -> None:
    size = dist.get_world_size()
    for dim in (0, 1, 2, -1, -3):
        whole = randn(size + 1, 2 * size, 3 * size).transpose(0, 2)
        part = whole.tensor_split(size, dim)[dist.get_rank()]  # not contiguous
        close(gather_from_ranks(part, dim), whole, 0)
        close(scatter_to_ranks(whole, dim), part, 0)
        close(all_gather(part, dim), whole, 0)
        close(reduce_scatter(whole, dim), part * size, 1e-15)


@check
def empty_tensors_and_numbers() -> None:
    assert reduce_from_ranks(torch.ones(0, 3)).shape == (0, 3)
    assert all_gather(torch.ones(2, 0)).shape == (2 * dist.get_world_size(), 0)
    # Some ranks have nothing: fewer rows than ranks.
    close(scatter_to_ranks(torch.ones(1, 2), 0), torch.ones(1 - min(dist.get_rank(), 1), 2), 0)
    close(all_gather(torch.ones(1 - min(dist.get_rank(), 1), 2)), torch.ones(1, 2), 0)
    assert reduce_scatter(torch.ones(1, 2)).shape == (1 - min(dist.get_rank(), 1), 2)
    close(reduce_from_ranks(torch.tensor(2.0)), torch.tensor(2.0 * dist.get_world_size()), 0)
    close(copy_to_ranks(torch.tensor(2.0)), torch.tensor(2.0), 0)


@check
def gradients_are_the_conjugates() -> None:
    """By the definition of the adjoint: <y', f(x)> is <f*(y'), x>; once if replicated, else summed over ranks."""
    size = dist.get_world_size()
    whole, part = randn(size + 1, 2).requires_grad_(), None
    torch.manual_seed(100 + dist.get_rank())  # from here on each rank draws its own numbers
    part = mine(whole).detach().normal_().requires_grad_()
    varying = randn(size + 1, 2).requires_grad_()

    def products(function: Callable[..., Tensor], input: Tensor, *dims: int) -> tuple[Tensor, Tensor]:
        output = function(input, *dims)
        weights = randn(*output.shape)
        if function in (reduce_from_ranks, gather_from_ranks):
            dist.broadcast(weights, 0)  # the output is replicated, and so is its gradient
        (grad,) = torch.autograd.grad(output, input, weights)
        return (output * weights).sum().detach(), (grad * input).sum().detach()

    for function, input in ((copy_to_ranks, whole), (scatter_to_ranks, whole)):
        forward, backward = products(function, input, *([0] if function is scatter_to_ranks else []))
        close(total(forward), backward)
    for function, input in ((reduce_from_ranks, varying), (gather_from_ranks, part)):
        forward, backward = products(function, input, *([0] if function is gather_from_ranks else []))
        close(forward, total(backward))
    for function, input in ((all_gather, part), (reduce_scatter, varying)):
        forward, backward = products(function, input)
        close(total(forward), total(backward))


@check
def all_gather_is_gather_then_copy() -> None:
    part = (randn(3, 2) + dist.get_rank()).requires_grad_()
    weights = (dist.get_rank() + 1.0) * randn(3 * dist.get_world_size(), 2)
    (one,) = torch.autograd.grad(all_gather(part), part, weights)
    (two,) = torch.autograd.grad(copy_to_ranks(gather_from_ranks(part, 0)), part, weights)
    close(one, two)


def composed(x: Tensor, w: Tensor, shared: bool) -> Tensor:
    """A scalar through all operators, replicated; alone in one process, or with each rank doing its part."""
    if not shared:
        return (((x.sin() @ w).exp() * x).sum(1) * x.square().sum(1)).sum() + (x.sum(0) ** 3).sum()
    rows, x_all = scatter_to_ranks(x, 0), copy_to_ranks(x)
    hidden = (rows.sin() @ copy_to_ranks(w)).exp() * rows
    sums = gather_from_ranks(hidden.sum(1), 0)
    first = (sums * x.square().sum(1)).sum()
    mine_of_sum = reduce_scatter(all_gather(rows) / dist.get_world_size(), 0).sum(0)
    del x_all
    return first + (reduce_from_ranks(mine_of_sum) ** 3).sum()


@check
def all_orders_agree_with_one_process() -> None:
    for rows in (2 * dist.get_world_size(), 2 * dist.get_world_size() + 1):
        x, w = randn(rows, 3).requires_grad_(), randn(3, 3).requires_grad_()
        v = [randn(*t.shape) for t in (x, w)]
        results = []
        for shared in (False, True):
            value = composed(x, w, shared)
            found = [value]
            for _ in range(3):  # gradient, then twice the derivative along v
                grads = torch.autograd.grad(value, (x, w), create_graph=True)
                found += grads
                value = sum((g * d).sum() for g, d in zip(grads, v, strict=True))
            results.append(found)
        for order, (one, many) in enumerate(zip(*results, strict=True)):
            torch.testing.assert_close(many, one, rtol=EXACT, atol=EXACT, msg=lambda m, o=order: f"result {o}: {m}")


@check
def vmap_is_a_loop() -> None:
    for function, *dims in (
        *((copy_to_ranks,), (reduce_from_ranks,)),
        *((scatter_to_ranks, 0), (scatter_to_ranks, -1), (gather_from_ranks, 0)),
    ):
        expect_vmap_to_be_a_loop(function, *dims)


@check
def shapes_that_do_not_fit_are_named() -> None:
    rank = dist.get_rank()
    for function in (gather_from_ranks, all_gather):
        with pytest.raises(
            RuntimeError, match=r"differ in dimension 0 alone, got .*\(2, 3\) of torch.float32, \(2, 4\)"
        ):
            function(torch.ones(2, 3 + rank), 0)
        with pytest.raises(RuntimeError, match=r"\(2,\) of torch.float32, \(2,\) of torch.float64"):
            function(torch.ones(2, dtype=torch.float32 if rank == 0 else torch.float64), 0)
        with pytest.raises(RuntimeError, match=r"\(2,\) of torch.float32, \(2, 1\) of"):
            function(torch.ones(2) if rank == 0 else torch.ones(2, 1), 0)
        with pytest.raises(IndexError, match="Dimension out of range"):
            function(torch.ones(2), 1)
        with pytest.raises(IndexError, match="no dimensions"):
            function(torch.tensor(1.0), 0)
        size = dist.get_world_size()
        for sizes in ([2] * (size + 1), [3] * size):
            with pytest.raises(ValueError, match=f"each of {size} ranks, 2 for rank {rank}, got"):
                function(torch.ones(2), 0, sizes=sizes)
    for function in (scatter_to_ranks, reduce_scatter):
        with pytest.raises(IndexError, match="Dimension out of range"):
            function(torch.ones(2), -2)


@check
def groups_of_some_ranks() -> None:
    """Every rank makes both groups, and the operators work within its own."""
    size, rank = dist.get_world_size(), dist.get_rank()
    groups = [dist.new_group(list(range(part, size, 2))) for part in (0, 1)]
    own, other = groups[rank % 2], groups[1 - rank % 2]
    members = torch.arange(rank % 2, size, 2.0)
    close(reduce_from_ranks(torch.tensor(float(rank)), own), members.sum(), 0)
    x = torch.tensor(1.0, requires_grad=True)
    (copy_to_ranks(x, own) * rank).backward()
    close(x.grad, members.sum(), 0)
    close(all_gather(torch.tensor([float(rank)]), 0, own), members, 0)
    close(scatter_to_ranks(members, 0, own), torch.tensor([float(rank)]), 0)
    close(reduce_scatter(members, 0, own), torch.tensor([float(rank)]) * len(members), 0)
    for function in (copy_to_ranks, reduce_from_ranks):
        with pytest.raises(ValueError, match=f"got rank {rank}, which is not in it"):
            function(x, other)
    with pytest.raises(ValueError, match="not in it"):
        scatter_to_ranks(members, 0, other)
    logits, target = randn(3, 2), torch.tensor([0, 1, 1])
    if len(members) == 1:
        close(vocab_parallel_cross_entropy(logits, target, group=own), F.cross_entropy(logits, target))


@check
def nothing_is_kept() -> None:
    x = torch.ones(8, 8).requires_grad_()
    for function in (copy_to_ranks, reduce_from_ranks, scatter_to_ranks, gather_from_ranks, all_gather, reduce_scatter):
        assert saved_bytes(function, x) == 0, f"{function.__name__} keeps tensors for backward"


def audits() -> dict[str, str]:
    """All that the audit looks for beside what ranks do together; in a world of one, and what it finds."""
    torch.manual_seed(0)
    x, target, found = randn(4, 3).requires_grad_(), torch.tensor([0, 2, -100, 1]), {}
    for function, args, reference in (
        (copy_to_ranks, (x,), lambda x: x.view_as(x)),
        (reduce_from_ranks, (x,), torch.clone),
        (gather_from_ranks, (x, 0, None, (4,)), lambda x, *_: x.clone()),
        (scatter_to_ranks, (x, 0), lambda x, *_: x.clone()),
        (all_gather, (x, 0, None, (4,)), lambda x, *_: x.clone()),
        (reduce_scatter, (x, 0), lambda x, *_: x.clone()),
        (
            vocab_parallel_cross_entropy,
            (x, target, -100, "mean", None, (3,)),
            lambda x, t, *_: F.cross_entropy(x, t),
        ),
    ):
        report = audit(
            function,
            args,
            reference=reference,
            require=("second_order", "vmap", "func_grad", "checkpoint", "non_contiguous", "empty"),
            # opcheck finds fault with torch's own collectives, and a thread of gloo may hold a result a moment longer.
            skip=["compile", "opcheck", "freed_at_once"],
            isolate=False,  # a forked process has no threads of gloo
        )
        found[function.__name__] = "" if report.ok else str(report)
    return found


# --- Tensor parallelism -------------------------------------------------------------------------------------------


@check
def parallel_layers_are_the_layers() -> None:
    size = dist.get_world_size()
    for hidden in (4 * size, 4 * size + 1):
        x, target = randn(5, 3).requires_grad_(), randn(5, 2)
        w1, b1, w2, b2 = (t.requires_grad_() for t in (randn(hidden, 3), randn(hidden), randn(2, hidden), randn(2)))
        ours = x.detach().clone().requires_grad_()
        v1, c1, v2, c2 = mine(w1), mine(b1), mine(w2, 1), b2.detach().clone().requires_grad_()

        expected = (F.linear(F.linear(x, w1, b1).tanh(), w2, b2) - target).square().mean()
        expected.backward()
        loss = (row_parallel_linear(column_parallel_linear(ours, v1, c1).tanh(), v2, c2) - target).square().mean()
        loss.backward()
        close(loss, expected)
        close(ours.grad, x.grad)
        for part, whole, dim in ((v1, w1, 0), (c1, b1, 0), (v2, w2, 1)):
            close(part.grad, mine(whole.grad, dim))
        close(c2.grad, b2.grad)


@check
def parallel_layers_between_gather_and_scatter() -> None:
    x, w = randn(5, 3).requires_grad_(), randn(2 * dist.get_world_size() + 1, 3).requires_grad_()
    weights = randn(5, len(w))
    part = mine(w)
    expected = torch.autograd.grad((F.linear(x, w).sin() * weights).sum(), (x, w))
    joined = gather_from_ranks(column_parallel_linear(x, part))
    found = torch.autograd.grad((joined.sin() * weights).sum(), (x, part))
    close(found[0], expected[0])
    close(found[1], mine(expected[1]))

    weight = randn(2, len(w)).requires_grad_()
    data = randn(5, len(w)).requires_grad_()
    expected = torch.autograd.grad(F.linear(data, weight).sin().sum(), (data, weight))
    part = mine(weight, 1)
    found = torch.autograd.grad(row_parallel_linear(scatter_to_ranks(data), part).sin().sum(), (data, part))
    close(found[0], expected[0])
    close(found[1], mine(expected[1], 1))


@check
def parallel_layers_have_second_derivatives() -> None:
    x, w1, w2 = randn(4, 3).requires_grad_(), randn(5, 3), randn(2, 5)
    v = randn(4, 3)

    def twice(network: Callable[[Tensor], Tensor]) -> Tensor:
        (grad,) = torch.autograd.grad(network(x).sin().sum(), x, create_graph=True)
        return torch.autograd.grad((grad * v).sum(), x)[0]

    p1, p2 = mine(w1), mine(w2, 1)
    expected = twice(lambda x: F.linear(F.linear(x, w1).tanh(), w2))
    close(twice(lambda x: row_parallel_linear(column_parallel_linear(x, p1).tanh(), p2)), expected)


@check
def without_the_all_reduce_the_gradient_is_a_part() -> None:
    """What the page on tensor parallelism shows to be wrong."""
    x, w = randn(4, 3).requires_grad_(), randn(2 * dist.get_world_size(), 3)
    forgotten = reduce_from_ranks(F.linear(x, mine(w)).sin().sum())  # no copy_to_ranks
    (partial,) = torch.autograd.grad(forgotten, x)
    (right,) = torch.autograd.grad(F.linear(x, w).sin().sum(), x)
    assert not torch.allclose(partial, right)
    close(total(partial), right)


@check
def torchs_own_styles_give_the_same_gradients() -> None:
    """ColwiseParallel and RowwiseParallel, which are the parallel layers for modules."""
    size = dist.get_world_size()
    x, network = randn(5, 3), nn.Sequential(nn.Linear(3, 2 * size), nn.Tanh(), nn.Linear(2 * size, 2)).double()
    v1, c1, v2 = mine(network[0].weight), mine(network[0].bias), mine(network[2].weight, 1)
    c2, ours = network[2].bias.detach().clone().requires_grad_(), x.clone().requires_grad_()
    row_parallel_linear(column_parallel_linear(ours, v1, c1).tanh(), v2, c2).square().sum().backward()

    theirs = x.clone().requires_grad_()
    styles = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    parallelize_module(network, init_device_mesh("cpu", (size,)), styles)(theirs).square().sum().backward()
    close(ours.grad, theirs.grad)
    grads = [p.grad.full_tensor() for p in network.parameters()]
    for part, expected in zip(
        (v1, c1, v2, c2), (mine(grads[0]), mine(grads[1]), mine(grads[2], 1), grads[3]), strict=True
    ):
        close(part.grad, expected)


# --- Cross-entropy over a divided vocabulary -----------------------------------------------------------------------


def logits_and_targets(classes: int, ignored: bool = True) -> tuple[Tensor, Tensor]:
    logits = (3 * randn(2, 5, classes)).requires_grad_()
    target = torch.randint(classes, (2, 5))
    if ignored:
        target[0, 1] = target[1, 4] = -100
    return logits, target


def cross_entropy(logits: Tensor, target: Tensor, **options: Any) -> Tensor:
    # As a matrix: torch's third derivative refuses what has been transposed.
    losses = F.cross_entropy(logits.flatten(0, 1), target.flatten(), **options)
    return losses.reshape(target.shape) if losses.dim() else losses


@check
def vocab_parallel_is_cross_entropy() -> None:
    for classes in (3 * dist.get_world_size(), 3 * dist.get_world_size() + 1):  # even and uneven parts
        logits, target = logits_and_targets(classes)
        part = mine(logits, -1)
        for reduction in ("mean", "sum", "none"):
            expected = cross_entropy(logits, target, reduction=reduction)
            found = vocab_parallel_cross_entropy(part, target, reduction=reduction)
            close(found, expected)
            weights = torch.rand(expected.shape, dtype=torch.float64) + 0.5
            (grad,) = torch.autograd.grad(expected, logits, weights)
            close(torch.autograd.grad(found, part, weights)[0], mine(grad, -1))


@check
def vocab_parallel_second_and_third_derivative() -> None:
    logits, target = logits_and_targets(2 * dist.get_world_size() + 1)
    part, v = mine(logits, -1), randn(*logits.shape)
    weights = torch.rand(2, 5, dtype=torch.float64).requires_grad_()
    results = []
    for loss, input, direction, sums in (
        (cross_entropy(logits, target, reduction="none"), logits, v, lambda t: t),
        (vocab_parallel_cross_entropy(part, target, reduction="none"), part, mine(v, -1), reduce_from_ranks),
    ):
        found, value = [], (loss * weights).square().sum()
        for _ in range(3):
            (grad,) = torch.autograd.grad(value, input, create_graph=True)
            found.append(grad)
            value = sums((grad * direction).sum())
        found += torch.autograd.grad(value, weights)
        results.append(found)
    *expected, of_weights = results[0]
    *found, of_our_weights = results[1]
    for order, (e, f) in enumerate(zip(expected, found, strict=True), 1):
        torch.testing.assert_close(f, mine(e, -1), rtol=EXACT, atol=EXACT, msg=lambda m, o=order: f"order {o}: {m}")
    close(of_our_weights, of_weights)


@check
def vocab_parallel_shapes() -> None:
    classes = 2 * dist.get_world_size()
    logits = randn(classes).requires_grad_()
    target = torch.tensor(classes - 1)
    part = mine(logits)
    close(vocab_parallel_cross_entropy(part, target), F.cross_entropy(logits, target))
    none = vocab_parallel_cross_entropy(torch.zeros(0, 2, requires_grad=True), target.expand(0), reduction="sum")
    none.backward()
    close(none, torch.tensor(0.0), 0)
    ignored = vocab_parallel_cross_entropy(part, torch.tensor(-100))
    assert ignored.isnan(), "a mean over no token is NaN, as in torch"
    close(vocab_parallel_cross_entropy(part, target, ignore_index=classes - 1, reduction="sum"), 0 * target.double())


@check
def vocab_parallel_dtypes() -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        logits, target = logits_and_targets(3 * dist.get_world_size())
        low = logits.detach().to(dtype).requires_grad_()
        part = mine(low, -1)
        loss = vocab_parallel_cross_entropy(part, target)
        loss.backward()
        exact = low.detach().double().requires_grad_()
        expected = cross_entropy(exact, target)
        expected.backward()
        assert (loss.dtype, part.grad.dtype) == (dtype, dtype)
        rounding = torch.finfo(dtype).eps
        close(loss.double(), expected.detach(), 8 * rounding)
        close(part.grad.double(), mine(exact.grad, -1).detach(), 8 * rounding)
    with torch.autocast("cpu", torch.bfloat16):
        assert vocab_parallel_cross_entropy(part.bfloat16(), target).dtype == torch.float32
        assert vocab_parallel_cross_entropy(part.double(), target).dtype == torch.float64


@check
def vocab_parallel_large_and_infinite_logits() -> None:
    size = dist.get_world_size()
    logits, target = randn(3, 2 * size) * 1e4, torch.tensor([0, 1, 2 * size - 1])
    logits[1, :2] = -torch.inf  # all classes of rank 0 are ruled out
    target[1] = 2 * size - 1
    logits.requires_grad_()
    part = mine(logits, -1)
    found, expected = (
        vocab_parallel_cross_entropy(part, target, reduction="none"),
        F.cross_entropy(logits, target, reduction="none"),
    )
    close(found, expected)
    expected.sum().backward()
    found.sum().backward()
    assert part.grad.isfinite().all()
    close(part.grad, mine(logits.grad, -1).detach())


@check
def vocab_parallel_keeps_two_numbers_a_token() -> None:
    logits, target = torch.randn(64, 100, requires_grad=True), torch.zeros(64, dtype=torch.int64)
    assert saved_bytes(vocab_parallel_cross_entropy, logits, target, -100, "sum") == 64 * 8


@check
def vocab_parallel_per_sample_gradients() -> None:
    logits, target = logits_and_targets(2 * dist.get_world_size() + 1)
    part = mine(logits, -1).detach()
    sizes = [3] + [2] * (dist.get_world_size() - 1)

    def loss(z: Tensor, t: Tensor) -> Tensor:
        return vocab_parallel_cross_entropy(z, t, reduction="sum", sizes=sizes)

    mapped = torch.func.vmap(torch.func.grad(loss))(part, target)
    close(mapped, torch.stack([torch.func.grad(loss)(z, t) for z, t in zip(part, target, strict=True)]))
    shared = torch.func.vmap(torch.func.grad(loss), (0, None))(part, target[0])
    close(shared, torch.stack([torch.func.grad(loss)(z, target[0]) for z in part]))


@check
def vocab_parallel_bad_input() -> None:
    z = torch.zeros(2, 3)
    classes = 3 * dist.get_world_size()
    for target in (torch.tensor([0, classes]), torch.tensor([0, -1])):
        with pytest.raises(IndexError, match=f"from 0 to {classes - 1} or -100, got"):
            vocab_parallel_cross_entropy(z, target)
    with pytest.raises(TypeError, match=r"real floating dtype, got torch.int64"):
        vocab_parallel_cross_entropy(z.long(), torch.tensor([0, 1]))
    with pytest.raises(RuntimeError, match=r"torch.int64, got torch.int32"):
        vocab_parallel_cross_entropy(z, torch.tensor([0, 1], dtype=torch.int32))
    with pytest.raises(ValueError, match=r"shape \(2,\), got \(3,\)"):
        vocab_parallel_cross_entropy(z, torch.tensor([0, 1, 0]))
    with pytest.raises(ValueError, match="'none', got 'max'"):
        vocab_parallel_cross_entropy(z, torch.tensor([0, 1]), reduction="max")
    with pytest.raises(ValueError, match=r"a class or more on each rank, got \(3, 0"):
        vocab_parallel_cross_entropy(z if dist.get_rank() == 0 else z[:, :0], torch.tensor([0, 1]))


# --- What torch's own collectives do with gradients ----------------------------------------------------------------


@check
def functional_collectives_count_a_replicated_loss_many_times() -> None:
    """Their all_reduce has an all_reduce for backward, which is right for losses of the ranks' own."""
    x = torch.ones(2, dtype=torch.float64, requires_grad=True)
    results = {}
    for name, function in (
        ("ours", reduce_from_ranks),
        ("theirs", lambda t: collectives.all_reduce(t, "sum", dist.group.WORLD)),
    ):
        (results[name],) = torch.autograd.grad(function(x).sum(), x)
    close(results["ours"], torch.ones(2).double(), 0)
    close(results["theirs"], dist.get_world_size() * torch.ones(2).double(), 0)


@check
def plain_collectives_have_no_gradient() -> None:
    x = torch.ones(2, requires_grad=True)
    parts = [torch.empty(2) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x * 2)
    assert not torch.cat(parts).requires_grad
    y = x * 2
    dist.all_reduce(y)
    with pytest.warns(UserWarning, match="an autograd kernel was not registered"):
        y.sum().backward()


# --- The last check takes the group down ----------------------------------------------------------------------------


@check
def without_a_process_group_torch_says_so() -> None:
    dist.destroy_process_group()
    try:
        x = torch.ones(2)
        for function in (
            copy_to_ranks,
            reduce_from_ranks,
            gather_from_ranks,
            scatter_to_ranks,
            all_gather,
            reduce_scatter,
            lambda x: column_parallel_linear(x, torch.eye(2)),
            lambda x: row_parallel_linear(x, torch.eye(2)),
            lambda x: vocab_parallel_cross_entropy(x, torch.tensor(0)),
        ):
            with pytest.raises(ValueError, match="Default process group has not been initialized"):
                function(x)
    finally:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)


# --- The tests that pytest sees -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(check))
@pytest.mark.parametrize("world_size", [2, 4])
def test_in_every_rank(name: str, world_size: int) -> None:
    check.assert_passed(name, world_size)


@pytest.fixture(scope="session")
def audited() -> dict[str, str]:
    (found,) = run_ranks(in_a_rank, 1, __name__, "audits", limit=240)
    return found


OPERATORS = (
    *(copy_to_ranks, reduce_from_ranks, gather_from_ranks, scatter_to_ranks, all_gather, reduce_scatter),
    vocab_parallel_cross_entropy,
)


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.__name__)
def test_in_a_world_of_one_the_audit_finds_nothing(operator: Callable[..., Tensor], audited: dict[str, str]) -> None:
    assert not audited[operator.__name__], audited[operator.__name__]
