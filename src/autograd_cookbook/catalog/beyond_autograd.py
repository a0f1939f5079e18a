"""Code that autograd cannot see."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from autograd_cookbook import (
    approximate,
    attention,
    custom_op,
    native,
    scipy_functions,
    triton_attention,
    triton_softmax,
)
from autograd_cookbook.catalog.recipe import Cost, Recipe, Sample
from autograd_cookbook.catalog.samples import bowl, complex_randn, million, randn


def _finite_difference() -> Iterator[Sample]:
    yield Sample("matrix to vector", (lambda x: (x.sin() * x.exp()).sum(1), randn(3, 2)))
    yield Sample("scalar", (torch.sin, randn()))
    yield Sample("to a scalar", (bowl, randn(4)))
    yield Sample("empty", (torch.exp, randn(0, 3)))


def _simultaneous_perturbation() -> Iterator[Sample]:
    # With one element there is one direction and its opposite: the estimate has no variance and can be checked.
    yield Sample("one element", (torch.sin, randn(1), 3, None, torch.Generator().manual_seed(0)))
    yield Sample("scalar", (torch.exp, randn(), 1, None, torch.Generator().manual_seed(0)))
    yield Sample("vector output", (lambda x: torch.cat([x, x.exp()]), randn(1), 2, None, torch.Generator()))
    yield Sample("empty", (torch.exp, randn(0, 3), 1, None, torch.Generator()))


def _swish() -> Iterator[Sample]:
    yield Sample("matrix", (randn(4, 3), randn()))
    yield Sample("scalar", (randn(), randn()))
    yield Sample("odd size", (randn(3, 5, 7), randn()))
    yield Sample("empty", (randn(0, 3), randn()))
    yield Sample("frozen beta", (randn(5), randn().detach()))


def _fused_rms_norm() -> Iterator[Sample]:
    yield Sample("matrix", (randn(4, 3), randn(3)))
    yield Sample("one row, and an eps", (randn(5), randn(5), 0.1))
    yield Sample("odd size", (randn(3, 2, 7), randn(7)))
    yield Sample("no rows", (randn(0, 3), randn(3)))
    yield Sample("rows of nothing", (randn(3, 0), randn(0)))
    yield Sample("frozen weight", (randn(2, 5), randn(5).detach()))
    yield Sample("frozen input", (randn(2, 5).detach(), randn(5)))


def _dct() -> Iterator[Sample]:
    yield Sample("matrix", (randn(4, 5),))
    yield Sample("type 1 of columns", (randn(4, 3), 1, 0))
    yield Sample("type 3", (randn(7), 3))
    yield Sample("type 4 of the middle", (randn(2, 6, 3), 4, -2))
    yield Sample("one element", (randn(3, 1),))
    yield Sample("empty", (randn(0, 3),))
    yield Sample("complex", (complex_randn(2, 4),))


def _cosines(size: int, type: int) -> Tensor:
    """The matrix of an orthogonal cosine transform."""
    k = torch.arange(size, dtype=torch.float64)
    if type == 1:
        ends = (1 - 0.5 * ((k == 0) | (k == size - 1)).to(k)).sqrt()
        return torch.outer(ends, ends) * torch.cos(torch.pi * torch.outer(k, k) / (size - 1)) * (2 / (size - 1)) ** 0.5
    if type == 4:
        return torch.cos(torch.pi * torch.outer(k + 0.5, k + 0.5) / size) * (2 / size) ** 0.5
    matrix = torch.cos(torch.pi * torch.outer(k, k + 0.5) / size) * (2 / size) ** 0.5
    matrix[0] /= 2**0.5
    return matrix if type == 2 else matrix.mT


def _cosine_product(input: Tensor, type: int = 2, dim: int = -1) -> Tensor:
    """The transform as a product with that matrix."""
    return (input.movedim(dim, -1) @ _cosines(input.size(dim), type).to(input).mT).movedim(-1, dim)


def _sparse_system(size: int, *columns: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    """A diagonal that dominates, and some more places, a few of them twice."""
    more = torch.randint(0, max(size, 1), (2, 2 * size))
    indices = torch.cat([torch.arange(size).expand(2, size), more], dim=1)
    values = torch.randn(3 * size, dtype=dtype)
    values[:size] += 4
    return indices, values.requires_grad_(), torch.randn(size, *columns, dtype=dtype).requires_grad_()


def _sparse_solve() -> Iterator[Sample]:
    yield Sample("two right-hand sides", _sparse_system(5, 2))
    yield Sample("vector", _sparse_system(5))
    yield Sample("one unknown", _sparse_system(1))
    yield Sample("no unknown", _sparse_system(0))
    yield Sample("no right-hand side", _sparse_system(3, 0))
    yield Sample("complex", _sparse_system(4, dtype=torch.complex128))
    indices, values, rhs = _sparse_system(4)
    yield Sample("constant matrix", (indices, values.detach(), rhs))
    yield Sample("constant right-hand side", (indices, values, rhs.detach()))


def _dense_solve(indices: Tensor, values: Tensor, rhs: Tensor) -> Tensor:
    """The same system as a full matrix."""
    matrix = values.new_zeros(len(rhs), len(rhs)).index_put(tuple(indices), values, accumulate=True)
    solution = torch.linalg.solve(matrix, rhs)
    # With an infinite value, what the dense solver returns depends on the order of its pivots.
    return solution if values.isfinite().all() else solution * torch.nan


def _recursive_filter() -> Iterator[Sample]:
    coefficients = torch.tensor([-0.5, 0.3], dtype=torch.float64)
    yield Sample("two signals", (randn(2, 6), coefficients.clone().requires_grad_()))
    yield Sample("vector", (randn(7), coefficients[:1].clone().requires_grad_()))
    yield Sample("shorter than its memory", (randn(2, 3), (randn(5).detach() / 4).requires_grad_()))
    yield Sample("no step", (randn(2, 0), coefficients.clone().requires_grad_()))
    yield Sample("no signal", (randn(0, 4), coefficients.clone().requires_grad_()))
    yield Sample("frozen coefficients", (randn(3, 4), coefficients))
    yield Sample("fixed signal", (randn(2, 4).detach(), coefficients.clone().requires_grad_()))
    yield Sample("complex", (complex_randn(2, 4), complex_randn(2)))


def _step_by_step(input: Tensor, coefficients: Tensor) -> Tensor:
    """The recursion as it is written down; SciPy, too, multiplies earlier inputs by zero, which shows at infinity."""
    steps: list[Tensor] = []
    for t, value in enumerate(input.unbind(-1)):
        past = zip(coefficients, reversed(steps), strict=False)
        zeros = 0 * coefficients.sum() + 0 * input[..., max(t - len(coefficients), 0) : t].sum(-1)
        steps.append(value - sum((a * y for a, y in past), zeros))
    return torch.stack(steps, -1) if steps else input + 0 * coefficients.sum()


def _triangular(input: Tensor, coefficients: Tensor) -> Tensor:
    """The recursion as a system of equations with a triangular matrix: what torch has for it."""
    size = input.shape[-1]
    matrix = torch.eye(size, dtype=input.dtype, device=input.device)
    for k, a in enumerate(coefficients, 1):
        matrix = matrix + a * torch.diag_embed(input.new_ones(size - k), -k)
    return torch.linalg.solve_triangular(matrix.mT, input, upper=True, left=False)


def _rows() -> Iterator[Sample]:
    yield Sample("matrix", (randn(4, 3),))
    yield Sample("scalar", (randn(),))
    yield Sample("other dimension", (randn(3, 5, 2), 1))
    yield Sample("empty", (randn(0, 3),))
    yield Sample("odd width", (randn(2, 7),))


def _attention() -> Iterator[Sample]:
    yield Sample("matrices", (randn(4, 3), randn(5, 3), randn(5, 2)))
    yield Sample("causal", (randn(2, 4, 3), randn(2, 4, 3), randn(2, 4, 3), True))
    yield Sample("broadcast, scaled", (randn(2, 1, 3, 2), randn(2, 4, 2), randn(4, 1), False, 0.3))
    yield Sample("frozen key", (randn(3, 2), randn(3, 2).detach(), randn(3, 2)))
    yield Sample("no queries", (randn(0, 2), randn(3, 2), randn(3, 2)))


def _attention_in_tiles() -> Iterator[Sample]:
    yield from _attention()
    yield Sample("tiles of two", (randn(5, 3), randn(5, 3), randn(5, 3), True, None, 2))


def _composed_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    causal: bool = False,
    scale: float | None = None,
    block: int | None = None,
) -> Tensor:
    # Torch's own kernel for the CPU has no second derivative, so that an audit could not compare one.
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        allowed = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
        scores = scores.masked_fill(~allowed, -torch.inf)
    return torch.softmax(scores, -1) @ value


def _sequences() -> tuple[Tensor, ...]:
    shape = (1, 1, 1024, 64)
    return tuple(torch.randn(shape).requires_grad_() for _ in range(3))


RECIPES: tuple[Recipe, ...] = (
    Recipe(
        name="finite_difference",
        page="06_beyond_autograd/approximate_gradients",
        topics=("F2",),
        function=approximate.finite_difference,
        exports=("finite_difference",),
        samples=_finite_difference,
        reference=lambda black_box, input: black_box(input),
        gradient="approximate",
        tolerance=1e-8,
        # once_differentiable, and a loop over the elements that no transform can look into.
        promises=("first_order",),
    ),
    Recipe(
        name="simultaneous_perturbation",
        page="06_beyond_autograd/approximate_gradients",
        topics=("F2",),
        function=approximate.simultaneous_perturbation,
        exports=("simultaneous_perturbation",),
        samples=_simultaneous_perturbation,
        reference=lambda black_box, input, *options: black_box(input),
        gradient="approximate",
        tolerance=1e-8,
        promises=("first_order",),
    ),
    Recipe(
        name="dct",
        page="06_beyond_autograd/scipy_functions",
        topics=("F1",),
        function=scipy_functions.dct,
        exports=("dct",),
        samples=_dct,
        # An FFT makes NaN of a whole line with one infinite number, a product of matrices need not.
        reference=lambda input, type=2, dim=-1: _cosine_product(input, type, dim) + 0 * input.sum(dim, keepdim=True),
        promises=("first_order", "second_order", "forward_mode", "vmap"),
    ),
    Recipe(
        name="sparse_solve",
        page="06_beyond_autograd/scipy_functions",
        topics=("F1",),
        function=scipy_functions.sparse_solve,
        exports=("sparse_solve",),
        samples=_sparse_solve,
        reference=_dense_solve,
        promises=("first_order", "second_order", "forward_mode", "vmap"),
    ),
    Recipe(
        name="recursive_filter",
        page="06_beyond_autograd/custom_operator",
        topics=("F6",),
        function=custom_op.recursive_filter,
        exports=("recursive_filter",),
        samples=_recursive_filter,
        reference=_step_by_step,
        promises=("first_order", "second_order", "func_grad", "vmap", "compile"),
        cost=Cost(
            lambda: (*million(), torch.tensor([-1.6, 0.8]).requires_grad_()),
            saved=4,
            minimum=4,
            composition=_triangular,
            wins=("bytes", "time"),
        ),
    ),
    Recipe(
        name="swish",
        page="06_beyond_autograd/cuda_extension",
        topics=("A11", "F3", "F4"),
        function=native.swish,
        exports=("swish",),
        samples=_swish,
        reference=lambda input, beta: input * torch.sigmoid(beta * input),
        cost=Cost(
            lambda: (*million(), torch.ones(()).requires_grad_()),
            saved=0,
            minimum=0,
            composition=lambda x, beta: x * torch.sigmoid(beta * x),
        ),
    ),
    Recipe(
        name="fused_rms_norm",
        page="06_beyond_autograd/row_reduction",
        topics=("A7", "F3", "F4"),
        function=native.fused_rms_norm,
        exports=("fused_rms_norm",),
        samples=_fused_rms_norm,
        reference=lambda input, weight, eps=1e-6: F.rms_norm(input, weight.shape, weight, eps),
        cost=Cost(
            lambda: (*million(), torch.ones(1000).requires_grad_()),
            saved=0,
            minimum=0,
            composition=lambda x, w: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w,
            built_in=lambda x, w: F.rms_norm(x, w.shape, w, 1e-6),
            wins=("bytes", "time", "range"),
        ),
    ),
    Recipe(
        name="triton_softmax",
        page="06_beyond_autograd/triton_kernel",
        topics=("F5",),
        function=triton_softmax.triton_softmax,
        exports=("triton_softmax", "backend"),
        samples=_rows,
        reference=lambda input, dim=-1: torch.softmax(input, dim),
    ),
    Recipe(
        name="attention",
        page="06_beyond_autograd/flash_attention",
        topics=("F7",),
        function=attention.attention,
        exports=("attention",),
        samples=_attention_in_tiles,
        reference=_composed_attention,
        cost=Cost(
            _sequences,
            # The output, which the caller has anyway, and one number a query: for 1024 keys, 64 + 1 numbers.
            saved=4 * 65 / 1024,
            minimum=0,
            composition=_composed_attention,
            built_in=F.scaled_dot_product_attention,
            unit="score",
            units=1024 * 1024,
            wins=("second order",),
        ),
    ),
    Recipe(
        name="triton_attention",
        page="06_beyond_autograd/flash_attention",
        topics=("F5", "F7"),
        function=triton_attention.triton_attention,
        exports=("triton_attention", "backend"),
        samples=_attention,
        reference=_composed_attention,
    ),
)
