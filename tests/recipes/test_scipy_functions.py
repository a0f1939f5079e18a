"""Functions of SciPy: the adjoint of what is not symmetric, one factorization for all derivatives, and bad input."""

import pytest
import scipy
import torch
from scipy.sparse import linalg

from autograd_cookbook.auditing import audit, saved_bytes
from autograd_cookbook.recipes.scipy_functions import dct, sparse_solve

# --- the cosine transform ---


@pytest.mark.parametrize(("type", "inverse"), [(1, 1), (2, 3), (3, 2), (4, 4)])
@pytest.mark.parametrize("dim", [0, 1, -1, -2])
def test_the_gradient_is_the_inverse_transform(type, inverse, dim) -> None:
    x = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(4, 5, dtype=torch.float64)
    (found,) = torch.autograd.grad(dct(x, type, dim), x, weights)
    torch.testing.assert_close(found, dct(weights, inverse, dim), rtol=1e-13, atol=1e-14)
    torch.testing.assert_close(dct(found, type, dim), weights, rtol=1e-13, atol=1e-14)


def test_dct_is_scipys() -> None:
    x = torch.randn(3, 7, dtype=torch.float64)
    assert dct(x).numpy() == pytest.approx(scipy.fft.dct(x.numpy(), norm="ortho"), rel=1e-15)


def test_dct_keeps_nothing() -> None:
    assert saved_bytes(dct, torch.randn(100, requires_grad=True)) == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_dct_of_half_precision_is_rounded_once(dtype) -> None:
    x = torch.randn(50).to(dtype)
    assert torch.equal(dct(x), dct(x.float()).to(dtype))


def test_dct_of_a_lazy_conjugate() -> None:
    x = torch.randn(6, dtype=torch.complex128)
    torch.testing.assert_close(dct(x.conj()), dct(x).conj().resolve_conj(), rtol=1e-14, atol=0)
    torch.testing.assert_close(dct(x.conj().imag), -dct(x.imag), rtol=1e-14, atol=0)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((torch.ones(3, dtype=torch.int64),), TypeError, "torch.int64"),
        ((torch.ones(3), 5), ValueError, "type 1, 2, 3 or 4, got 5"),
        ((torch.ones(3), "2"), ValueError, "got '2'"),
        ((torch.ones(3), 2, 1), IndexError, "got 1"),
        ((torch.ones(2, 0),), RuntimeError, "length 1 or more for type 2, got 0"),
        ((torch.ones(1), 1), RuntimeError, "length 2 or more for type 1, got 1"),
        ((torch.tensor(1.0),), IndexError, "scalar|no dimensions|range"),
    ],
)
def test_dct_of_bad_input(arguments, error, message) -> None:
    with pytest.raises(error, match=message):
        dct(*arguments)


# --- the sparse system ---


def system(size: int = 5, dtype: torch.dtype = torch.float64):
    """A matrix that is not symmetric, with values at the same place."""
    more = torch.randint(0, size, (2, 2 * size))
    values = torch.randn(3 * size, dtype=dtype)
    values[:size] += 4
    indices = torch.cat([torch.arange(size).expand(2, size), more], dim=1)
    return indices, values.requires_grad_(), torch.randn(size, dtype=dtype, requires_grad=True)


def full(indices, values, size):
    return values.new_zeros(size, size).index_put(tuple(indices), values, accumulate=True)


@pytest.fixture
def factorized(monkeypatch: pytest.MonkeyPatch) -> list:
    """The matrices that SciPy factorizes from now on."""
    matrices, splu = [], linalg.splu

    def counted(matrix):
        matrices.append(matrix)
        return splu(matrix)

    monkeypatch.setattr(linalg, "splu", counted)
    return matrices


def test_one_factorization_serves_derivatives_of_any_order(factorized) -> None:
    indices, values, rhs = system()
    (first,) = torch.autograd.grad(sparse_solve(indices, values, rhs).sin().sum(), values, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), values, create_graph=True)
    (found,) = torch.autograd.grad(second.square().sum(), values)
    assert len(factorized) == 1
    again = values.detach().requires_grad_()
    dense = torch.linalg.solve(full(indices, again, 5), rhs.detach())
    (first,) = torch.autograd.grad(dense.sin().sum(), again, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), again, create_graph=True)
    (expected,) = torch.autograd.grad(second.square().sum(), again)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_factors_of_other_values_are_not_used(factorized) -> None:
    """As when saved-tensor hooks give back rounded values: then these are the ones that count."""
    indices, values, rhs = system()
    packed = torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t * 2 if t.is_floating_point() else t)
    with packed:
        solution = sparse_solve(indices, values, rhs)
    (found,) = torch.autograd.grad(solution.sum(), rhs)
    assert len(factorized) == 2
    expected = torch.linalg.solve(full(indices, values.detach(), 5).mT * 2, torch.ones(5, dtype=torch.float64))
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-13)


def test_a_batch_of_right_hand_sides_is_one_solve(factorized) -> None:
    indices, values, _ = system()
    batch = torch.randn(3, 5, 2, dtype=torch.float64)

    def loss(values, rhs):
        return sparse_solve(indices, values, rhs).square().sum()

    found = torch.func.vmap(torch.func.grad(loss), (None, 0))(values.detach(), batch)
    assert len(factorized) == 1
    for each, rhs in zip(found, batch, strict=True):
        torch.testing.assert_close(each, torch.func.grad(loss)(values.detach(), rhs), rtol=1e-11, atol=1e-12)


def test_vmap_in_vmap_over_values_and_right_hand_sides() -> None:
    indices, _, _ = system()
    values, rhs = torch.randn(3, 15, dtype=torch.float64), torch.randn(2, 5, dtype=torch.float64)
    values[:, :5] += 4
    expected = torch.stack([torch.linalg.solve(full(indices, v, 5), rhs.mT).mT for v in values])
    over = torch.func.vmap
    found = over(lambda v: over(lambda b: sparse_solve(indices, v, b))(rhs))(values)
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-12)
    found = over(lambda b: over(lambda v: sparse_solve(indices, v, b))(values))(rhs)
    torch.testing.assert_close(found, expected.transpose(0, 1), rtol=1e-11, atol=1e-12)


def test_a_hessian_of_each_matrix_in_a_batch() -> None:
    indices, _, rhs = system(3)
    values = torch.randn(2, 9, dtype=torch.float64)
    values[:, :3] += 4

    def loss(values):
        return sparse_solve(indices, values, rhs.detach()).sin().sum()

    def composed(values):
        return torch.linalg.solve(full(indices, values, 3), rhs.detach()).sin().sum()

    found = torch.func.vmap(torch.func.hessian(loss))(values)
    expected = torch.stack([torch.func.hessian(composed)(each) for each in values])
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def test_a_mapped_solve_has_the_gradients_of_each_in_both_modes() -> None:
    """Where the graph is recorded outside of the map, so that backward and jvp meet the whole batch."""
    indices, _, _ = system(4)
    values = torch.randn(2, 12, dtype=torch.float64)[:, : indices.shape[1]]
    values[:, :4] += 4
    values.requires_grad_()
    batch = torch.randn(2, 4, 3, dtype=torch.float64)
    mapped = torch.func.vmap(lambda v, b: sparse_solve(indices, v, b))
    each = [sparse_solve(indices, v, b) for v, b in zip(values, batch, strict=True)]
    weights = torch.randn(2, 4, 3, dtype=torch.float64)
    (found,) = torch.autograd.grad(mapped(values, batch), values, weights)
    (expected,) = torch.autograd.grad(torch.stack(each), values, weights)
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-12)
    direction = torch.randn_like(values)
    _, found = torch.func.jvp(lambda v: mapped(v, batch), (values.detach(),), (direction,))
    expected = [
        torch.func.jvp(lambda v, b=b: sparse_solve(indices, v, b), (v,), (d,))[1]
        for v, b, d in zip(values.detach(), batch, direction, strict=True)
    ]
    torch.testing.assert_close(found, torch.stack(expected), rtol=1e-11, atol=1e-12)


def test_only_stored_places_have_a_gradient() -> None:
    """So a value that is stored and 0 gets one, and what is not stored would have changed the solution, too."""
    indices, values = torch.tensor([[0, 1, 0], [0, 1, 1]]), torch.tensor([2.0, 4.0, 0.0], requires_grad=True)
    sparse_solve(indices, values, torch.tensor([2.0, 4.0])).sum().backward()
    assert values.grad.tolist() == [-0.5, -0.25, -0.5]


def test_a_sparse_tensor_of_torch_goes_in_by_its_parts() -> None:
    matrix = torch.tensor([[2.0, 0.0], [1.0, 4.0]], dtype=torch.float64, requires_grad=True)
    with torch.sparse.check_sparse_tensor_invariants():
        stored = matrix.to_sparse().coalesce()
        solution = sparse_solve(stored.indices(), stored.values(), torch.ones(2, dtype=torch.float64))
    solution.sum().backward()
    dense = torch.linalg.solve(again := matrix.detach().requires_grad_(), torch.ones(2, dtype=torch.float64))
    dense.sum().backward()
    torch.testing.assert_close(matrix.grad, again.grad * (matrix.detach() != 0), rtol=1e-13, atol=1e-14)


def test_it_keeps_the_solution_and_what_the_caller_has() -> None:
    indices, values, rhs = system()
    assert saved_bytes(sparse_solve, indices, values, rhs) == 5 * 8


def test_frozen_values_get_no_gradient_and_cost_none() -> None:
    indices, values, rhs = system()
    report = audit(sparse_solve, (indices, values.detach(), rhs), only=["unneeded_gradients", "first_order"])
    assert report.ok, report


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # the compiler itself looks at it
def test_a_compiled_program_steps_around_them() -> None:
    """Without a word about SciPy, whose Python the compiler must not trace."""
    indices, values, rhs = system()

    def loss(values):
        return (dct(sparse_solve(indices, values, rhs) * 2) ** 2).sum()

    torch._dynamo.reset()
    (found,) = torch.autograd.grad(torch.compile(loss, backend="aot_eager")(values), values)
    torch._dynamo.reset()
    torch.testing.assert_close(found, torch.autograd.grad(loss(values), values)[0], rtol=1e-12, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_a_singular_matrix_is_called_so(dtype) -> None:
    indices = torch.tensor([[0, 0, 1, 1], [0, 1, 0, 1]])
    with pytest.raises(torch.linalg.LinAlgError, match="2 × 2 matrix: Factor is exactly singular"):
        sparse_solve(indices, torch.ones(4, dtype=dtype), torch.ones(2, dtype=dtype))


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_values_that_are_not_finite_give_solutions_that_are_not(value) -> None:
    """SuperLU calls some of these singular; what diverges in training should look like it."""
    indices, values, rhs = system()
    changed = values.detach().index_fill(0, torch.tensor([7]), value).requires_grad_()
    solution = sparse_solve(indices, changed, rhs)
    assert solution.isnan().all()
    assert torch.autograd.grad(solution.sum(), rhs)[0].isnan().all()


ONE = torch.zeros(2, 1, dtype=torch.int64)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((ONE, torch.ones(1, dtype=torch.float16), torch.ones(1)), TypeError, "got torch.float16"),
        ((ONE, torch.ones(1), torch.ones(1, dtype=torch.float64)), RuntimeError, "rhs of dtype torch.float32"),
        ((ONE.int(), torch.ones(1), torch.ones(1)), RuntimeError, "got torch.int32"),
        ((ONE, torch.ones(2), torch.ones(1)), RuntimeError, r"got \(2, 1\) and \(2,\)"),
        ((ONE.mT, torch.ones(1), torch.ones(1)), RuntimeError, r"got \(1, 2\)"),
        ((ONE, torch.ones(1), torch.ones(1, 1, 1)), RuntimeError, r"got \(1, 1, 1\)"),
        ((ONE, torch.ones(1), torch.tensor(1.0)), RuntimeError, r"got \(\)"),
        ((ONE + 2, torch.ones(1), torch.ones(2)), IndexError, "from 0 to 1, got 2 to 2"),
        ((ONE - 1, torch.ones(1), torch.ones(2)), IndexError, "got -1 to -1"),
        ((ONE, torch.ones(1), torch.ones(0)), IndexError, "got 0 to 0"),
        ((ONE, torch.ones(1), torch.ones(1, device="meta")), RuntimeError, "on one device, got cpu, cpu and meta"),
    ],
)
def test_sparse_solve_of_bad_input(arguments, error, message) -> None:
    with pytest.raises(error, match=message):
        sparse_solve(*arguments)


def test_vmap_over_patterns_is_refused() -> None:
    with pytest.raises(ValueError, match="must share one pattern"):
        torch.func.vmap(sparse_solve, (0, None, None))(ONE.expand(3, 2, 1), torch.ones(1), torch.ones(1))


@pytest.mark.gpu
def test_the_result_comes_back_to_the_device() -> None:
    indices, values, rhs = system()
    expected = torch.autograd.grad(dct(sparse_solve(indices, values, rhs)).sin().sum(), (values, rhs))
    onto = [t.detach().cuda().requires_grad_(t.requires_grad) for t in (indices, values, rhs)]
    solution = sparse_solve(*onto)
    found = torch.autograd.grad(dct(solution).sin().sum(), onto[1:])
    assert {t.device.type for t in (solution, *found)} == {"cuda"}
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a.cpu(), b, rtol=1e-11, atol=1e-12)
