"""Values and gradients that stay finite and accurate."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from autograd_cookbook import cross_entropy, entmax, safe, spectral
from autograd_cookbook.catalog.recipe import Cost, Recipe, Sample
from autograd_cookbook.catalog.samples import complex_randn, million, randn, unary


def _softplus() -> Iterator[Sample]:
    yield from unary()
    yield Sample("sharp", (randn(4, 3), 5.0))


def _exact_softplus(input: Tensor, beta: float = 1.0) -> Tensor:
    return torch.logaddexp(beta * input, torch.zeros_like(input)) / beta


def _positive(*shape: int) -> Tensor:
    return (torch.rand(shape, dtype=torch.float64) + 0.1).requires_grad_()


def _xlogy() -> Iterator[Sample]:
    yield Sample("same shape", (randn(4, 3), _positive(4, 3)))
    yield Sample("some zeros", (randn(4, 3).detach().clamp(min=0).requires_grad_(), _positive(4, 3)))
    yield Sample("row", (randn(2, 3), _positive(3)))
    yield Sample("frozen targets", (randn(2, 3).detach(), _positive(2, 3)))
    yield Sample("two scalars", (randn(), _positive()))
    yield Sample("empty", (randn(0, 3), _positive(3)))


def _safe_sqrt() -> Iterator[Sample]:
    yield Sample("matrix", (_positive(4, 3),))
    yield Sample("scalar", (_positive(),))
    yield Sample("empty", (_positive(0, 3),))
    yield Sample("complex", (complex_randn(3),))


def _double_where_sqrt(input: Tensor) -> Tensor:
    return torch.where(input == 0, 0, torch.where(input == 0, 1, input).sqrt())


def _safe_divide() -> Iterator[Sample]:
    yield Sample("same shape", (randn(4, 3), _positive(4, 3)))
    yield Sample("by a column", (randn(4, 3), _positive(4, 1)))
    yield Sample("by counts", (randn(2, 3), torch.tensor([2.0, 0.0, 3.0], dtype=torch.float64)))
    yield Sample("two scalars", (randn(), _positive()))
    yield Sample("empty", (randn(0, 3), _positive(3)))
    yield Sample("complex", (complex_randn(2, 3), complex_randn(3)))
    yield Sample("real and complex", (randn(2, 3), complex_randn(3)))


def _double_where_divide(input: Tensor, other: Tensor) -> Tensor:
    return torch.where(other == 0, 0, input / torch.where(other == 0, 1, other))


def _parts() -> tuple[Tensor, Tensor]:
    """Two tensors of a million positive numbers."""
    return torch.rand(1000, 1000).add(0.1).requires_grad_(), torch.rand(1000, 1000).add(0.1).requires_grad_()


def _rows() -> Iterator[Sample]:
    """For functions that map a row to a distribution."""
    yield Sample("last dim", (randn(4, 5),))
    yield Sample("middle", (randn(2, 4, 3), -2))
    yield Sample("first", (randn(3, 2), 0))
    yield Sample("scalar", (randn(), 0))
    yield Sample("empty batch", (randn(0, 3), 1))
    yield Sample("empty rows", (randn(2, 0), 1))


def _cross_entropy() -> Iterator[Sample]:
    yield Sample("some ignored", (randn(4, 5), torch.tensor([0, 2, -100, 4])))
    yield Sample("smoothed image", (randn(2, 4, 3), torch.tensor([[0, 2, 1], [3, 2, 2]]), None, 2, "none", 0.1))
    yield Sample("two image dims", (randn(2, 3, 2, 2), torch.arange(8).reshape(2, 2, 2) % 3, None, -100, "sum"))
    yield Sample("one row", (randn(5), torch.tensor(3)))
    yield Sample("smoothed mean", (randn(3, 4), torch.tensor([1, -1, 3]), None, -1, "mean", 0.4))
    yield Sample("empty batch", (randn(0, 3), torch.zeros(0, dtype=torch.int64), None, -100, "sum"))


def _torch_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """With arguments by position, among which torch has two more."""
    return F.cross_entropy(
        input, target, weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing
    )


def _simplex() -> Iterator[Sample]:
    """Rows like those of a softmax, and some whose support is small."""
    yield from (sample for sample in _rows() if sample.name != "scalar")
    yield Sample(
        "sparse", (torch.tensor([[5.0, 4.7, -9.0], [0.0, 0.6, -0.3]], dtype=torch.float64).requires_grad_(), 1)
    )


def _composed_sparsemax(input: Tensor, dim: int = -1) -> Tensor:
    """The algorithm as the paper has it, in differentiable operations."""
    x = input.movedim(dim, -1)
    descending = x.sort(-1, descending=True).values
    total, k = descending.cumsum(-1), torch.arange(1, x.shape[-1] + 1, dtype=x.dtype)
    size = (1 + k * descending > total).sum(-1, keepdim=True).clamp(min=1)
    if x.shape[-1] == 0:
        return input.clone()
    p = torch.relu(x - (total.gather(-1, size - 1) - 1) / size)
    return p.movedim(-1, dim)


def _composed_entmax15(input: Tensor, dim: int = -1) -> Tensor:
    """The algorithm as the paper has it; the root is taken of the chosen size alone, so that no gradient is NaN."""
    x = input.movedim(dim, -1) / 2
    if x.shape[-1] == 0:
        return input.clone()
    x = x - x.amax(-1, keepdim=True).detach()
    descending = x.sort(-1, descending=True).values
    k = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype)
    mean = descending.cumsum(-1) / k
    radicand = mean.square() - descending.square().cumsum(-1) / k + 1 / k
    size = (mean - radicand.clamp(min=0).sqrt() <= descending).sum(-1, keepdim=True).clamp(min=1)
    threshold = mean.gather(-1, size - 1) - radicand.gather(-1, size - 1).sqrt()
    p = torch.relu(x - threshold).square()
    return p.movedim(-1, dim)


def _normalized(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The same distribution; where it is NaN, so is its gradient now, and an audit does not compare it."""

    def normalized(input: Tensor, dim: int = -1) -> Tensor:
        p = function(input, dim)
        return p / p.sum(dim, keepdim=True)

    return normalized


def _eigh() -> Iterator[Sample]:
    yield Sample("matrix", (randn(4, 4),))
    yield Sample("batch", (randn(2, 3, 3),))
    yield Sample("complex", (complex_randn(3, 3),))
    yield Sample("empty batch", (randn(0, 2, 2),))


def _svd() -> Iterator[Sample]:
    yield Sample("square", (randn(3, 3),))
    yield Sample("tall", (randn(4, 2),))
    yield Sample("wide batch", (randn(2, 2, 3),))
    yield Sample("complex", (complex_randn(3, 2),))
    yield Sample("empty batch", (randn(0, 3, 2),))


def _matrix_function() -> Iterator[Sample]:
    yield Sample("exponential", (randn(4, 4), torch.exp, torch.exp))
    yield Sample("sine of a batch", (randn(2, 3, 3), torch.sin, torch.cos))
    yield Sample("complex", (complex_randn(3, 3), torch.exp, torch.exp))
    yield Sample("empty batch", (randn(0, 2, 2), torch.exp, torch.exp))


def _torch_eigh(input: Tensor, gap: float | None = None) -> tuple[Tensor, Tensor]:
    """With the signs, or phases, that the recipe chooses."""
    values, vectors = torch.linalg.eigh((input + input.mH) / 2)
    return values, vectors * spectral.phase(vectors).conj() if vectors.numel() else vectors


def _torch_svd(input: Tensor, gap: float | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """With the signs, or phases, that the recipe chooses."""
    u, s, vh = torch.linalg.svd(input, full_matrices=False)
    turn = spectral.phase(u) if s.numel() else u.new_ones(1, 1)
    return u * turn.conj(), s, vh * turn.mT


def _composed_matrix_function(
    input: Tensor, function: Callable[[Tensor], Tensor], derivative: Callable[[Tensor], Tensor]
) -> Tensor:
    values, vectors = torch.linalg.eigh((input + input.mH) / 2)
    return (vectors * function(values).unsqueeze(-2)) @ vectors.mH


RECIPES: tuple[Recipe, ...] = (
    Recipe(
        name="softplus",
        page="03_stability/safe_functions",
        topics=("C2",),
        function=safe.softplus,
        exports=("softplus",),
        samples=_softplus,
        reference=_exact_softplus,
        cost=Cost(
            million, saved=0, minimum=0, composition=lambda x: x.exp().log1p(), built_in=F.softplus, wins=("range",)
        ),
    ),
    Recipe(
        name="xlogy",
        page="03_stability/safe_functions",
        topics=("C2",),
        function=safe.xlogy,
        exports=("xlogy",),
        samples=_xlogy,
        reference=torch.xlogy,
        cost=Cost(
            _parts, saved=0, minimum=0, composition=lambda x, y: x * y.log(), built_in=torch.xlogy, wins=("range",)
        ),
    ),
    Recipe(
        name="safe_sqrt",
        page="03_stability/safe_functions",
        topics=("C2",),
        function=safe.safe_sqrt,
        exports=("safe_sqrt",),
        samples=_safe_sqrt,
        reference=_double_where_sqrt,
        cost=Cost(lambda: _parts()[:1], saved=4, minimum=0, composition=_double_where_sqrt, built_in=torch.sqrt),
    ),
    Recipe(
        name="safe_divide",
        page="03_stability/safe_functions",
        topics=("C2",),
        function=safe.safe_divide,
        exports=("safe_divide",),
        samples=_safe_divide,
        reference=_double_where_divide,
        cost=Cost(_parts, saved=0, minimum=0, composition=_double_where_divide, built_in=torch.div),
    ),
    Recipe(
        name="cross_entropy",
        page="03_stability/cross_entropy",
        topics=("C3",),
        function=cross_entropy.cross_entropy,
        exports=("cross_entropy",),
        samples=_cross_entropy,
        reference=_torch_cross_entropy,
        cost=Cost(
            lambda: (*million(), torch.randint(1000, (1000,))),
            saved=0,
            minimum=0,
            composition=lambda x, target: -torch.softmax(x, 1).log().gather(1, target.unsqueeze(1)).mean(),
            built_in=F.cross_entropy,
            unit="logit",
            wins=("bytes", "range"),
        ),
    ),
    Recipe(
        name="softmax",
        page="03_stability/cross_entropy",
        topics=("C3",),
        function=cross_entropy.softmax,
        exports=("softmax",),
        samples=_rows,
        reference=lambda input, dim=-1: torch.softmax(input, dim),
        cost=Cost(
            million,
            saved=4,
            minimum=0,
            composition=lambda x: x.exp() / x.exp().sum(-1, keepdim=True),
            built_in=lambda x: torch.softmax(x, -1),
            wins=("range",),
        ),
    ),
    Recipe(
        name="sparsemax",
        page="03_stability/sparsemax",
        topics=("C3",),
        function=entmax.sparsemax,
        exports=("sparsemax",),
        samples=_simplex,
        reference=_normalized(_composed_sparsemax),
        cost=Cost(million, saved=4, minimum=0, composition=_composed_sparsemax, wins=("bytes", "peak", "time")),
    ),
    Recipe(
        name="entmax15",
        page="03_stability/sparsemax",
        topics=("C3",),
        function=entmax.entmax15,
        exports=("entmax15",),
        samples=_simplex,
        reference=_normalized(_composed_entmax15),
        cost=Cost(million, saved=4, minimum=0, composition=_composed_entmax15, wins=("bytes", "peak", "time")),
    ),
    Recipe(
        name="eigh",
        page="03_stability/eigenvalues",
        topics=("C4",),
        function=spectral.eigh,
        exports=("eigh",),
        samples=_eigh,
        reference=_torch_eigh,
    ),
    Recipe(
        name="svd",
        page="03_stability/eigenvalues",
        topics=("C4",),
        function=spectral.svd,
        exports=("svd",),
        samples=_svd,
        reference=_torch_svd,
    ),
    Recipe(
        name="matrix_function",
        page="03_stability/eigenvalues",
        topics=("C4",),
        function=spectral.matrix_function,
        exports=("matrix_function",),
        samples=_matrix_function,
        reference=_composed_matrix_function,
        promises=("first_order", "vmap"),
    ),
)
