"""Decompositions at coincidences: what is special beyond the catalog's own tests."""

import pytest
import torch
from torch.autograd import gradcheck

from autograd_cookbook.auditing import saved_bytes
from autograd_cookbook.recipes.eigenvalues import divided_differences, eigh, matrix_function, svd

ALIKE = "what is rounded is alike in both where Simpson's rule is needed, as they are near each other"
SURVIVORS = {
    "EighFunction.backward: difference = {values.unsqueeze(-2) - values.unsqueeze(-1) -> values.unsqueeze(-1) - "
    "values.unsqueeze(-2)}, number 1": ("only the size of the difference counts"),
    "SvdFunction.backward: s.unsqueeze(-1) <= limit -> s.unsqueeze(-1) < limit": (
        "differs for a zero of one row and one column alone"
    ),
    "SvdFunction.backward: {s.unsqueeze(-2) - s.unsqueeze(-1) -> s.unsqueeze(-1) - s.unsqueeze(-2)}.abs()": (
        "only the size of the difference counts"
    ),
    "unit: values.detach() -> values": "what is divided by it is multiplied by it again",
    "unit: largest.masked_fill(largest == 0, {1 -> 2})": "of a matrix of zeros nothing is kept",
    "divided_differences: rounding[..., None] + rounding[..., None, :] -> rounding[..., None]": ALIKE,
    "divided_differences: rounding[..., None] + rounding[..., None, :] -> rounding[..., None, :]": ALIKE,
    "divided_differences: (simpson - quotient).abs() <= noise -> (simpson - quotient).abs() < noise": "a tie",
    "divided_differences: simpson - quotient -> quotient - simpson": "only the size of the difference counts",
}

DTYPES = [torch.float64, torch.complex128]


def hermitian(*shape, dtype=torch.float64):
    x = torch.randn(shape, dtype=dtype)
    return (x + x.mH) / 2


def with_eigenvalues(values, dtype=torch.float64):
    """A random Hermitian matrix, and its eigenvectors."""
    q = torch.linalg.qr(torch.randn(len(values), len(values), dtype=dtype)).Q
    return ((q * torch.tensor(values)) @ q.mH).requires_grad_(), q


def gradient_of(function, x):
    x = x.detach().requires_grad_()
    return torch.autograd.grad(function(x), x)[0]


def inner(a, b):
    return (a * b.conj()).real.sum()


@pytest.mark.parametrize("dtype", DTYPES)
def test_eigh_and_svd_agree_with_torch_for_losses_that_see_no_phase(dtype) -> None:
    weight = hermitian(5, 5, dtype=dtype)
    x = torch.randn(5, 5, dtype=dtype)

    def of_eigh(decompose):
        def loss(x):
            values, vectors = decompose((x + x.mH) / 2)
            projector = vectors[:, :2] @ vectors[:, :2].mH
            return inner(projector, weight) + inner((vectors * values.sin()) @ vectors.mH, weight) + values.exp().sum()

        return loss

    ours, theirs = (gradient_of(of_eigh(f), x) for f in (eigh, torch.linalg.eigh))
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)

    for shape in ((5, 5), (5, 3), (3, 5)):
        matrix, weight = torch.randn(shape, dtype=dtype), torch.randn(shape, dtype=dtype)

        def of_svd(decompose, weight=weight):
            def loss(x):
                u, s, vh = decompose(x)
                return inner(u @ vh, weight) + inner(u[:, :1] @ vh[:1], weight) + (s**3).sum()

            return loss

        theirs = gradient_of(of_svd(lambda a: torch.linalg.svd(a, full_matrices=False)), matrix)
        torch.testing.assert_close(gradient_of(of_svd(svd), matrix), theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("gap", [0.0, 1e-15, 1e-14])
def test_eigh_gives_the_gradient_of_a_projector_onto_a_cluster(dtype, gap) -> None:
    values = [-1.0, 0.5, 2.0, 2.0 + gap]
    x, q = with_eigenvalues(values, dtype)
    weight = hermitian(4, 4, dtype=dtype)
    gradient = gradient_of(lambda x: inner((v := eigh(x)[1][:, 2:]) @ v.mH, weight), x)
    f = torch.zeros(4, 4, dtype=torch.float64)
    for i in (0, 1):
        for j in (2, 3):
            f[i, j] = f[j, i] = 1 / (2.0 - values[i])
    torch.testing.assert_close(gradient, q @ (f * (q.mH @ weight @ q)) @ q.mH, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("make", [torch.eye, lambda n, dtype: torch.zeros(n, n, dtype=dtype)])
def test_symmetric_functions_of_equal_eigenvalues(make, dtype) -> None:
    x = make(3, dtype=dtype).requires_grad_()
    assert gradcheck(lambda x: eigh(x)[0].exp().sum(), (x,), rtol=1e-6)
    assert gradcheck(lambda x: eigh(x)[0].prod(), (x,), rtol=1e-6)


def test_eigh_at_the_identity_where_torch_has_nan() -> None:
    """What a function of the matrix loses there, as the docstring says, and ``matrix_function`` does not."""
    weight = torch.tensor([[1.0, 2.0], [2.0, 3.0]], dtype=torch.float64)
    x = torch.eye(2, dtype=torch.float64)

    def composed(decompose):
        return lambda x: inner((parts := decompose(x))[1] * parts[0].exp() @ parts[1].mT, weight)

    assert gradient_of(composed(torch.linalg.eigh), x).isnan().all(), "torch has learned it: say so on the page"
    e = torch.tensor(1.0, dtype=torch.float64).exp()
    torch.testing.assert_close(gradient_of(composed(eigh), x), torch.diag(weight.diag()) * e)
    right = gradient_of(lambda x: inner(matrix_function(x, torch.exp, torch.exp), weight), x)
    torch.testing.assert_close(right, weight * e)


def test_a_single_vector_of_a_cluster_has_a_finite_gradient() -> None:
    x, _ = with_eigenvalues([1.0, 1.0, 1.0 + 1e-15])
    assert gradient_of(lambda x: eigh(x)[1][0, 0], x).abs().max() < 10


@pytest.mark.parametrize(("epsilons", "equal"), [(9.5, True), (10.5, False)])
def test_eigenvalues_are_equal_within_the_gap_of_the_docstring(epsilons, equal) -> None:
    distance = epsilons * 3 * torch.finfo(torch.float64).eps * 2**0.5
    x, weight = torch.tensor([0.0, 1.0, 1.0 + distance], dtype=torch.float64).diag(), torch.ones(3, 3).triu()
    largest = gradient_of(lambda x: (eigh(x)[1] * weight).sum(), x).abs().max()
    assert largest < 10 if equal else largest > 0.1 / distance


def test_within_a_cluster_nothing_turns() -> None:
    x, weight = torch.eye(3, dtype=torch.float64), torch.randn(3, 3, dtype=torch.float64)
    assert gradient_of(lambda x: (eigh(x)[1] * weight).sum(), x).abs().max() < 1e-12


def test_gap_widens_the_cluster() -> None:
    x, _ = with_eigenvalues([0.0, 1.0, 1.001])
    weight = torch.randn(3, dtype=torch.float64)
    norm = torch.tensor([0.0, 1.0, 1.001]).norm()

    def size(gap):
        return gradient_of(lambda x: eigh(x, gap)[1][:, 1] @ weight, x).norm()

    assert size(0.9 * 0.001 / norm) == size(None) == size(0.0)
    assert size(1.1 * 0.001 / norm) < size(None) / 50


@pytest.mark.parametrize("function", [eigh, svd])
def test_a_second_derivative_is_nan_where_it_would_be_wrong(function) -> None:
    for values, finite in (([3.0, 2.0, 1.0], True), ([2.0, 2.0, 1.0], False), ([1.0, 1.0, 1.0], False)):
        x = torch.diag(torch.tensor(values, dtype=torch.float64)).requires_grad_()
        spectrum = function(x)[0 if function is eigh else 1]
        (first,) = torch.autograd.grad(spectrum.exp().sum(), x, create_graph=True)
        assert first.isfinite().all()
        (second,) = torch.autograd.grad(first.sum(), x)
        assert second.isfinite().all() == finite
        assert second.isnan().all() != finite
    x = torch.diag(torch.tensor([2.0, 1.0, 0.0])).requires_grad_()
    (first,) = torch.autograd.grad(svd(x)[1].square().sum(), x, create_graph=True)
    assert torch.autograd.grad(first.sum(), x)[0].isnan().all(), "a singular value is 0"


@pytest.mark.parametrize("function", [eigh, svd])
@pytest.mark.parametrize("gap", [0.0, None])
def test_of_a_batch_only_the_matrix_with_a_cluster_has_no_second_derivative(function, gap) -> None:
    x = torch.stack([torch.eye(3), torch.diag(torch.tensor([1.0, 2.0, 4.0]))]).double()
    x = x.unsqueeze(0).requires_grad_()  # two dimensions of a batch
    values = function(x, gap=gap)[0 if function is eigh else 1]
    (first,) = torch.autograd.grad(values.square().sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert second[0, 0].isnan().all()
    assert second[0, 1].isfinite().all()


@pytest.mark.parametrize("function", [eigh, svd])
def test_in_a_batch_of_batches_each_matrix_has_the_gradient_that_it_has_alone(function) -> None:
    x = torch.randn(2, 3, 4, 4, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(4, 4, dtype=torch.float64)

    def loss(x):
        left, middle, *right = function(x)
        values, vectors = (left, middle) if function is eigh else (middle, left @ right[0])
        return (values.exp() * (vectors.abs() if function is eigh else vectors @ weight).sum(-2)).sum()

    (together,) = torch.autograd.grad(loss(x), x)
    alone = torch.stack([torch.autograd.grad(loss(matrix), x)[0] for row in x for matrix in row]).sum(0)
    torch.testing.assert_close(together, alone, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_polar_factor_of_an_orthogonal_matrix(dtype) -> None:
    q = torch.linalg.qr(torch.randn(3, 3, dtype=dtype)).Q

    def polar(x):
        u, _, vh = svd(x)
        return u @ vh

    for x in (torch.eye(3, dtype=dtype), q, 2 * q[:, :2], q[:2]):
        assert gradcheck(polar, (x.clone().requires_grad_(),), rtol=1e-6, atol=1e-7)
    weight = torch.randn(3, 3, dtype=dtype)
    gradient = gradient_of(lambda x: inner(polar(x), weight), torch.eye(3, dtype=dtype))
    torch.testing.assert_close(gradient, (weight - weight.mH) / 2)


@pytest.mark.parametrize("shape", [(4, 4), (5, 4), (4, 5)])
def test_the_gradient_of_a_truncated_svd_at_low_rank(shape) -> None:
    """At rank 2 the best approximation of rank 2 moves along the tangent space only."""
    u = torch.linalg.qr(torch.randn(shape[0], 2, dtype=torch.float64)).Q
    v = torch.linalg.qr(torch.randn(shape[1], 2, dtype=torch.float64)).Q
    weight = torch.randn(shape, dtype=torch.float64)

    def truncated(x):
        u, s, vh = svd(x)
        return inner((u[:, :2] * s[:2]) @ vh[:2], weight)

    left, right = torch.eye(shape[0]) - u @ u.mT, torch.eye(shape[1]) - v @ v.mT
    expected = weight - left @ weight @ right
    x = (u * torch.tensor([3.0, 1.0])) @ v.mT
    torch.testing.assert_close(gradient_of(truncated, x), expected, rtol=1e-9, atol=1e-9)


def test_what_svd_loses_at_equal_values() -> None:
    """The product of all three is the matrix, but the part that turns the cluster is missing, as documented."""
    weight = torch.tensor([[1.0, 2.0], [4.0, 3.0]], dtype=torch.float64)
    x = torch.eye(2, dtype=torch.float64)
    found = gradient_of(lambda x: inner((parts := svd(x))[0] * parts[1] @ parts[2], weight), x)
    torch.testing.assert_close(found, torch.diag(weight.diag()) + (weight - weight.mT) / 2)


def test_the_gradient_of_svd_at_zero_is_finite() -> None:
    x = torch.zeros(3, 2, requires_grad=True)
    u, s, vh = svd(x)
    (u.sum() + s.sum() + vh.sum()).backward()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_largest_entry_of_each_vector_is_positive(dtype) -> None:
    x = torch.randn(6, 4, 4, dtype=dtype)
    u, s, vh = svd(x)
    torch.testing.assert_close((u * s.unsqueeze(-2)) @ vh, x)
    values, vectors = eigh(x)
    torch.testing.assert_close((vectors * values.unsqueeze(-2)) @ vectors.mH, (x + x.mH) / 2)
    for columns in (u, vectors):
        largest = columns.gather(-2, columns.abs().argmax(-2, keepdim=True))
        assert (largest.real > 0).all()
        torch.testing.assert_close(largest.abs(), largest.real)


@pytest.mark.parametrize("function", [eigh, lambda x: matrix_function(x, torch.exp, torch.exp)])
def test_both_triangles_count(function) -> None:
    x = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)
    assert gradcheck(function, (x,), rtol=1e-6)


@pytest.mark.parametrize("shape", [(1, 1), (0, 0), (2, 0, 0), (2, 0, 3), (3, 0)])
def test_small_and_empty_matrices(shape) -> None:
    x = torch.ones(shape, dtype=torch.float64, requires_grad=True)
    functions = [svd] if shape[-1] != shape[-2] else [svd, eigh, lambda x: (matrix_function(x, torch.sin, torch.cos),)]
    for function in functions:
        (gradient,) = torch.autograd.grad(sum(part.sum() for part in function(x)), x)
        assert gradient.shape == x.shape
        assert gradient.isfinite().all()
    if shape == (1, 1):
        assert gradient.item() == pytest.approx(torch.cos(torch.tensor(1.0)).item(), rel=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("gap", [0.0, 1e-14, 1e-10, 1e-6, 1e-4, 1e-2])
def test_matrix_function_agrees_with_the_matrix_exponential_at_any_gap(dtype, gap) -> None:
    x, _ = with_eigenvalues([-1.0, 0.5, 0.5 + gap, 2.0], dtype)
    weight = torch.randn(4, 4, dtype=dtype)
    ours = gradient_of(lambda x: inner(matrix_function(x, torch.exp, torch.exp), weight), x)
    theirs = gradient_of(lambda x: inner(torch.linalg.matrix_exp((x + x.mH) / 2), weight), x)
    torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("center", [1e-9, 1e-3, 1.0, 1e4])
@pytest.mark.parametrize("ratio", [0.0, 1e-15, 1e-9, 1e-5, 1e-3, 0.03, 0.5])
def test_divided_differences_to_rounding(center, ratio) -> None:
    """Of square root and logarithm, in forms that cancel nothing, at any scale."""
    values = torch.tensor([center, center * (1 + ratio)], dtype=torch.float64)
    a, b = values
    roots = divided_differences(values, torch.sqrt, lambda x: 0.5 / x.sqrt())
    torch.testing.assert_close(roots[0, 1], 1 / (a.sqrt() + b.sqrt()), rtol=1e-11, atol=0)
    logs = divided_differences(values, torch.log, lambda x: 1 / x)
    step = (b - a) / a
    expected = 1 / a if a == b else torch.log1p(step) / (b - a)
    torch.testing.assert_close(logs[0, 1], expected, rtol=2e-11, atol=0)
    torch.testing.assert_close(logs, logs.mT, rtol=1e-15, atol=0)


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_divided_differences_do_not_depend_on_the_size_of_the_function(scale) -> None:
    values = torch.tensor([[0.1, 0.5, 2.0], [1.0, 1.0 + 1e-6, 3.0]], dtype=torch.float64)
    found = divided_differences(values, lambda x: scale * x.exp(), lambda x: scale * x.exp())
    torch.testing.assert_close(found, scale * divided_differences(values, torch.exp, torch.exp), rtol=1e-12, atol=0)
    a, b = values.unsqueeze(-1), values.unsqueeze(-2)
    expected = scale * torch.where(a == b, a.exp(), a.exp() * torch.expm1(b - a) / torch.where(a == b, 1, b - a))
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=0)


def test_divided_differences_of_a_constant_are_zero() -> None:
    values = torch.tensor([1.0, 1.0, 2.0], dtype=torch.float64)
    assert torch.equal(divided_differences(values, torch.ones_like, torch.zeros_like), values.new_zeros(3, 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("periods", [1, 2, 3, 7])
def test_divided_differences_over_whole_periods(periods, dtype) -> None:
    """The derivative is the same at both ends and between them, and its mean is 0."""
    values = torch.tensor([0.0, periods, 2 * periods], dtype=dtype)
    turn = 2 * torch.pi
    found = divided_differences(values, lambda x: (turn * x).sin(), lambda x: turn * (turn * x).cos())
    expected = turn * torch.eye(3, dtype=dtype)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=100 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("frequency", [1e-3, 1.0, 1e3])
def test_divided_differences_of_a_sine_at_any_distance(frequency, dtype) -> None:
    distances = torch.logspace(-30, 6, 145, 2, dtype=torch.float64) / frequency
    a = torch.full_like(distances, 0.3 / frequency).to(dtype)
    values = torch.stack([a, (a + distances).to(dtype)], -1)
    found = divided_differences(values, lambda x: (frequency * x).sin(), lambda x: frequency * (frequency * x).cos())
    low, high = values.double().unbind(-1)
    half = frequency * (high - low) / 2
    expected = frequency * torch.cos(frequency * (low + high) / 2) * torch.where(half == 0, 1, half.sin() / half)
    eps = torch.finfo(dtype).eps
    error = (found[:, 0, 1].double() - expected).abs() / frequency
    assert error.max() < 3 * eps**0.8
    # Far from each other the quotient has all its digits.
    assert error[half > 1].max() < 40 * eps


@pytest.mark.parametrize("turns", [100, 101])
def test_divided_differences_know_what_was_rounded_in_the_argument(turns) -> None:
    """Where the function is 0 and steep, a quotient of near pairs has lost what its argument was rounded by."""
    values = torch.tensor([turns * torch.pi / 3, turns * torch.pi / 3 + 1e-9], dtype=torch.float64)
    found = divided_differences(values, lambda x: (3 * x).sin(), lambda x: 3 * (3 * x).cos())
    torch.testing.assert_close(found[0, 1], 3 * (3 * values[0]).cos(), rtol=1e-13, atol=0)


def test_divided_differences_across_a_kink() -> None:
    values = torch.tensor([-1.0, 3.0, 4.0])
    found = divided_differences(values, torch.relu, lambda x: (x > 0).float())
    torch.testing.assert_close(found, torch.tensor([[0, 0.75, 0.8], [0.75, 1, 1], [0.8, 1, 1]]))


def test_matrix_function_refuses_a_second_derivative() -> None:
    x = hermitian(3, 3).requires_grad_()
    (first,) = torch.autograd.grad(matrix_function(x, torch.exp, torch.exp).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


def test_a_second_derivative_of_matrix_function_raises_next_to_other_terms() -> None:
    """torch's own decorator does not, and the second derivative would be that of the other terms."""
    x = hermitian(3, 3).requires_grad_()
    loss = matrix_function(x, torch.exp, torch.exp).sum() + x.square().sum()
    (first,) = torch.autograd.grad(loss, x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        torch.autograd.grad(first.sum(), x)


def test_what_they_keep() -> None:
    x = torch.randn(20, 20, requires_grad=True)
    assert saved_bytes(lambda x: matrix_function(x, torch.exp, torch.exp), x) == (20 * 20 + 20) * 4
    # Values and vectors; of the largest entry of each vector index (two numbers long), value and sign.
    assert saved_bytes(eigh, x) == (20 * 20 + 20 + 4 * 20) * 4
    assert saved_bytes(svd, x) == (2 * 20 * 20 + 20 + 4 * 20) * 4


@pytest.mark.parametrize("function", [eigh, svd])
def test_bad_input(function) -> None:
    with pytest.raises(ValueError, match="expected gap >= 0, got -1"):
        function(torch.eye(2), -1)
    with pytest.raises(NotImplementedError, match="not implemented for 'Half'"):
        function(torch.eye(2).half())
    with pytest.raises(RuntimeError):
        function(torch.ones(2))
    if function is eigh:
        with pytest.raises(RuntimeError):
            function(torch.ones(2, 3))
        with pytest.raises(RuntimeError):
            matrix_function(torch.ones(2, 3), torch.exp, torch.exp)


@pytest.mark.parametrize("function", [eigh, svd])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_gradient_of_the_vectors_falls_as_the_matrix_grows(function, sign) -> None:
    """As well where all eigenvalues are negative: their squares would overflow."""
    spread = hermitian(4, 4)
    matrix = sign * (spread @ spread + torch.eye(4))

    def slope(scale):
        scaled = (scale * matrix).requires_grad_()
        vectors = function(scaled)[1 if function is eigh else 2]
        return torch.autograd.grad((vectors * torch.arange(16.0).reshape(4, 4)).sum(), scaled)[0]

    scale = 2.0**600
    torch.testing.assert_close(slope(scale) * scale, slope(1.0), rtol=1e-9, atol=1e-9)


def test_the_largest_eigenvalue_by_size_sets_the_scale() -> None:
    def slope(*values):
        matrix = torch.diag(torch.tensor(values, dtype=torch.float64)).requires_grad_()
        return torch.autograd.grad((eigh(matrix)[1] * torch.arange(4.0).reshape(2, 2)).sum(), matrix)[0]

    size = 2.0**600
    torch.testing.assert_close(slope(-size, 1 / size) * size, slope(-1.0, 0.0))
