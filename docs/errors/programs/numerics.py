"""nan in gradients, and derivatives of decompositions."""

import torch
from docs.errors.programs import fixes, raises
from torch import nn
from torch.autograd import Function
from torch.distributions import Cauchy, Normal, kl_divergence
from torch.nn import functional as F


@raises(
    "The gradient of a division is nan",
    cause="The derivative of ``a / b`` is infinite or nan where ``b`` is 0. Masking the result afterwards does not "
    "help: the masked elements send a gradient of zero into the division, and zero times infinity is nan.",
    fix="Make the denominator safe before you divide: ``a / torch.where(b == 0, 1.0, b)``, and choose the result by "
    "``torch.where`` afterwards. Adding a small number to ``b`` works where ``b`` cannot be negative.",
    see=("guide/nonfinite", "cookbook/03_stability/safe_functions"),
)
def nan_in_division():
    error = torch.tensor([0.0, 1.0], requires_grad=True)
    scale = torch.tensor([0.0, 2.0])
    with torch.autograd.set_detect_anomaly(True):
        ratio = error / scale
        ratio[scale > 0].mean().backward()


@fixes(nan_in_division)
def division_made_safe():
    error = torch.tensor([0.0, 1.0], requires_grad=True)
    scale = torch.tensor([0.0, 2.0])
    with torch.autograd.set_detect_anomaly(True):
        ratio = error / torch.where(scale > 0, scale, 1.0)
        ratio[scale > 0].mean().backward()


@raises(
    "The gradient of a power whose exponent requires grad is nan",
    cause="The derivative of ``base**exponent`` with respect to the exponent contains ``log(base)``: it is nan for a "
    "negative base, and in older releases also for a base of 0.",
    fix="Keep the base positive: ``base.clamp(min=eps)**exponent``. If the exponent should get no gradient, as the "
    "weight of a focal loss, pass ``exponent.detach()``.",
    see=("guide/nonfinite", "cookbook/03_stability/safe_functions"),
)
def nan_in_power():
    base = torch.tensor([-0.5, 2.0], requires_grad=True)
    exponent = torch.tensor([2.0, 2.0], requires_grad=True)
    with torch.autograd.set_detect_anomaly(True):
        (base**exponent).sum().backward()


@fixes(nan_in_power)
def power_of_constant():
    base = torch.tensor([-0.5, 2.0], requires_grad=True)
    exponent = torch.tensor([2.0, 2.0], requires_grad=True)
    with torch.autograd.set_detect_anomaly(True):
        (base ** exponent.detach()).sum().backward()


@raises(
    "The gradient of a logarithm is nan",
    cause="The derivative of the logarithm at 0 is infinite. The elements at 0 were masked afterwards, so they send a "
    "gradient of zero, and zero times infinity is nan.",
    fix="Keep the argument away from 0 before the logarithm: ``p.clamp(min=eps).log()``. Better, use a function that "
    "is stable as a whole: ``log_softmax``, ``logsigmoid``, ``torch.special.xlogy``, or a loss that takes logits.",
    see=("guide/nonfinite", "cookbook/03_stability/safe_functions", "cookbook/03_stability/cross_entropy"),
)
def nan_in_logarithm():
    p = torch.tensor([0.0, 0.5], requires_grad=True)
    with torch.autograd.set_detect_anomaly(True):
        p.log()[p > 0].sum().backward()


@fixes(nan_in_logarithm)
def logarithm_clamped():
    p = torch.tensor([0.0, 0.5], requires_grad=True)
    with torch.autograd.set_detect_anomaly(True):
        p.clamp(min=1e-6).log()[p > 0].sum().backward()


@raises(
    "The gradient of an exponential is nan",
    cause="The exponential overflowed to infinity in the forward; in ``float32`` above 88, in ``float16`` above 11. "
    "Its gradient is infinity times a gradient that is zero (a masked element) or infinite.",
    fix="Use the stable function for the whole formula: ``F.softplus`` for ``log(1 + exp(x))``, ``torch.logsumexp``, "
    "``softmax``, ``torch.expm1``. Otherwise clamp the argument before the exponential: ``x.clamp(max=30).exp()``.",
    see=("guide/nonfinite", "cookbook/03_stability/safe_functions"),
)
def nan_in_exponential():
    x = torch.tensor([100.0, 1.0], requires_grad=True)
    with torch.autograd.set_detect_anomaly(True):
        torch.log(1 + x.exp()).sum().backward()


@fixes(nan_in_exponential)
def exponential_inside():
    x = torch.tensor([100.0, 1.0], requires_grad=True)
    with torch.autograd.set_detect_anomaly(True):
        F.softplus(x).sum().backward()


@raises(
    "The gradient of a softmax is nan",
    cause="A row of the scores has nothing but ``-inf`` (every position is masked), or it has ``+inf`` or nan. Its "
    "softmax is nan, and so is its gradient, also where the row is replaced afterwards.",
    fix="Leave one position of each row unmasked, or mask with ``torch.finfo(scores.dtype).min`` instead of "
    "``-inf``, and zero the empty rows after the softmax.",
    see=("guide/nonfinite", "cookbook/03_stability/safe_functions"),
)
def nan_in_softmax():
    scores = torch.randn(2, 3, requires_grad=True)
    masked = torch.tensor([[True, True, True], [False, False, True]])
    with torch.autograd.set_detect_anomaly(True):
        weights = scores.masked_fill(masked, -torch.inf).softmax(-1)
        weights.nan_to_num().square().sum().backward()


@fixes(nan_in_softmax)
def softmax_of_finite():
    scores = torch.randn(2, 3, requires_grad=True)
    masked = torch.tensor([[True, True, True], [False, False, True]])
    with torch.autograd.set_detect_anomaly(True):
        weights = scores.masked_fill(masked, torch.finfo(scores.dtype).min).softmax(-1)
        weights.masked_fill(masked, 0.0).square().sum().backward()


@raises(
    "The gradient of a standard deviation or variance is nan",
    cause="""By default, ``std`` and ``var`` divide by ``n - 1``, so the result for a single element is nan. The
    derivative of a standard deviation of 0 is infinite, like that of the square root at 0.""",
    fix="Skip groups of one element, or pass ``correction=0``; for ``std`` add a small number under the root: "
    "``(x.var(correction=0) + eps).sqrt()``.",
    see=("guide/nonfinite", "cookbook/03_stability/safe_functions"),
)
def nan_in_deviation():
    x = torch.randn(1, requires_grad=True)
    with torch.autograd.set_detect_anomaly(True):
        x.std().backward()


@fixes(nan_in_deviation)
def deviation_with_eps():
    x = torch.randn(1, requires_grad=True)
    with torch.autograd.set_detect_anomaly(True):
        (x.var(correction=0) + 1e-6).sqrt().backward()


@raises(
    "Anomaly mode found nan in an operation that only passes it on",
    cause="""Products, sums, indexing and most other operations make nan only if an operand or the incoming gradient
    is infinite or nan already. The operation at fault is a neighbor, for example a logarithm, which is ``-inf`` at
    0.""",
    fix="Look at the operands of the line that the traceback above the error shows: print "
    "``torch.isfinite(x).all()`` for each. Make the one that is infinite safe where it is computed; for "
    "``p * log(p)`` use ``torch.special.xlogy(p, p.clamp(min=eps))``.",
    see=("guide/nonfinite", "guide/debugging", "cookbook/03_stability/safe_functions"),
)
def nan_in_product():
    p = torch.tensor([0.0, 1.0], requires_grad=True)
    with torch.autograd.set_detect_anomaly(True):
        entropy = -(p * p.log()).nansum()
        entropy.backward()


@fixes(nan_in_product)
def product_of_finite():
    p = torch.tensor([0.0, 1.0], requires_grad=True)
    with torch.autograd.set_detect_anomaly(True):
        entropy = -torch.special.xlogy(p, p.clamp(min=1e-6)).sum()
        entropy.backward()


@raises(
    "The gradient of a layer is nan",
    cause="The layer itself cannot make nan of finite numbers: its input, its weights or the gradient that arrives are "
    "infinite or nan already. Usual reasons are data with nan, a learning rate that made the weights explode, an "
    "overflow in ``float16``, or an operation between the layer and the loss.",
    fix="Find where the first nan is: check the batch with ``torch.isfinite(x).all()``, then the weights, then the "
    "output of each layer with a forward hook. Skip bad batches, lower the learning rate or clip the gradient norm.",
    see=("guide/nonfinite", "guide/debugging", "cookbook/02_changing_the_gradient/clipping"),
)
def nan_in_layer():
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    data = torch.randn(4, 3)
    data[0, 0] = torch.nan
    with torch.autograd.set_detect_anomaly(True):
        model(data).sum().backward()


@fixes(nan_in_layer)
def layer_of_finite():
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    data = torch.randn(4, 3)
    data[0, 0] = torch.nan
    data = data[torch.isfinite(data).all(1)]
    with torch.autograd.set_detect_anomaly(True):
        model(data).sum().backward()


@raises(
    "Anomaly mode found nan in the backward of your own Function",
    cause="The node is named by the class of a ``torch.autograd.Function`` and ``Backward``, so the nan was computed "
    "in its ``backward``: mostly a division by a saved value that is 0, or zero times infinity at a masked element.",
    fix="Guard the formula in ``backward`` itself, with ``torch.where`` on the saved value before the division. Do not "
    "remove nan afterwards: ``nan_to_num`` hides other errors.",
    see=("guide/nonfinite", "cookbook/03_stability/safe_functions", "check:special_points"),
)
def nan_in_own_backward():
    class SafeRoot(Function):
        @staticmethod
        def forward(ctx, x):
            result = x.sqrt()
            ctx.save_for_backward(result)
            return result

        @staticmethod
        def backward(ctx, grad_output):
            (result,) = ctx.saved_tensors
            return torch.where(result > 0, grad_output, 0.0) / (2 * result)

    x = torch.tensor([0.0, 4.0], requires_grad=True)
    with torch.autograd.set_detect_anomaly(True):
        SafeRoot.apply(x).sum().backward()


@fixes(nan_in_own_backward)
def own_backward_guarded():
    class SafeRoot(Function):
        @staticmethod
        def forward(ctx, x):
            result = x.sqrt()
            ctx.save_for_backward(result)
            return result

        @staticmethod
        def backward(ctx, grad_output):
            (result,) = ctx.saved_tensors
            safe = torch.where(result > 0, result, 1.0)
            return torch.where(result > 0, grad_output / (2 * safe), 0.0)

    x = torch.tensor([0.0, 4.0], requires_grad=True)
    with torch.autograd.set_detect_anomaly(True):
        SafeRoot.apply(x).sum().backward()


@raises(
    "The gradient of eigenvectors or singular vectors is nan",
    cause="""The gradient of eigenvectors contains ``1 / (difference of two eigenvalues)``, and the gradient of
    singular vectors contains ``1 / (difference of their squares)``. Both are infinite if two values are equal: in a
    multiple of the identity, in a projection, or in a matrix of low rank, which has several zeros.""",
    fix="""Use only what does not depend on the choice among equal values: a symmetric function of the eigenvalues or
    singular values, such as ``eigvalsh(A).log().sum()``, or a function of the whole matrix. Otherwise use the recipe
    for eigenvalues that may be equal, or separate them with a small random diagonal.""",
    see=("cookbook/03_stability/eigenvalues", "guide/nonfinite"),
)
def nan_in_decomposition():
    covariance = torch.eye(3, requires_grad=True)
    with torch.autograd.set_detect_anomaly(True):
        _, vectors = torch.linalg.eigh(covariance)
        vectors[0].square()[0].backward()


@fixes(nan_in_decomposition)
def values_of_decomposition():
    covariance = torch.eye(3, requires_grad=True)
    with torch.autograd.set_detect_anomaly(True):
        torch.linalg.eigvalsh(covariance).log().sum().backward()


@raises(
    "The gradient of a solve, inverse or determinant is nan",
    cause="""The matrix is singular or nearly singular for this input. The gradient contains its inverse, which
    overflows. Adding the same small number to all elements does not help: the matrix stays nearly singular.""",
    fix="""Add a small multiple of the identity: ``A + eps * torch.eye(n)``, and check ``torch.linalg.cond(A)``. If
    the matrix is finite and well conditioned, its right-hand side is infinite or nan.""",
    see=("guide/nonfinite", "cookbook/05_higher_order/implicit"),
)
def nan_in_solve():
    matrix = (1e-20 * torch.eye(3)).requires_grad_()
    with torch.autograd.set_detect_anomaly(True):
        torch.linalg.solve(matrix, torch.ones(3)).square().sum().backward()


@fixes(nan_in_solve)
def solve_regularized():
    matrix = (1e-20 * torch.eye(3)).requires_grad_()
    with torch.autograd.set_detect_anomaly(True):
        torch.linalg.solve(matrix + 1e-3 * torch.eye(3), torch.ones(3)).square().sum().backward()


@raises(
    "The loss depends on the phase of complex eigenvectors",
    cause="""A complex eigenvector is only defined up to a factor ``e^{i phi}``, and the decomposition picks one such
    factor. This loss changes with the factor, so it has no derivative. PyTorch checks this on the gradient that
    arrives.""",
    fix="Make the loss independent of the phase: use ``abs(v)``, the projection ``v v^H``, or the eigenvalues. Or fix "
    "the phase yourself, in differentiable code: ``v * v[:1].conj() / v[:1].abs()`` makes the first row real.",
    see=("cookbook/03_stability/eigenvalues", "cookbook/05_higher_order/complex_numbers"),
)
def eigenvectors_phase():
    matrix = torch.randn(3, 3, dtype=torch.complex64)
    hermitian = (matrix + matrix.mH).requires_grad_()
    _, vectors = torch.linalg.eigh(hermitian)
    vectors.real.sum().backward()


@fixes(eigenvectors_phase)
def eigenvectors_modulus():
    matrix = torch.randn(3, 3, dtype=torch.complex64)
    hermitian = (matrix + matrix.mH).requires_grad_()
    _, vectors = torch.linalg.eigh(hermitian)
    vectors.abs().sum().backward()


@raises(
    "The loss depends on the phase of complex singular vectors",
    cause="""A pair of complex singular vectors ``u``, ``v`` is only defined up to a common factor ``e^{i phi}``. This
    loss changes with the factor, so it has no derivative. A loss of ``U`` alone or of ``Vh`` alone mostly does.""",
    fix="Make the loss independent of the phase: use both together, as in ``U @ torch.diag(s) @ Vh`` or ``U @ Vh``, "
    "``abs(U)``, or the singular values (``svdvals``).",
    see=("cookbook/03_stability/eigenvalues", "cookbook/05_higher_order/complex_numbers"),
)
def singular_vectors_phase():
    matrix = torch.randn(3, 3, dtype=torch.complex64, requires_grad=True)
    left, _, _ = torch.linalg.svd(matrix)
    left.real.sum().backward()


@fixes(singular_vectors_phase)
def singular_vectors_together():
    matrix = torch.randn(3, 3, dtype=torch.complex64, requires_grad=True)
    left, _, right = torch.linalg.svd(matrix)
    (left @ right).real.sum().backward()


@raises(
    "The loss depends on the phase of eigenvectors of torch.linalg.eig",
    cause="""``eig`` returns complex eigenvectors of length 1, which are defined only up to a factor ``e^{i phi}``.
    This loss changes with the factor, so it has no derivative.""",
    fix="Use ``abs(v)``, ``v v^H`` or the eigenvalues (``eigvals``). For a symmetric matrix use ``torch.linalg.eigh``, "
    "whose eigenvectors are real.",
    see=("cookbook/03_stability/eigenvalues", "cookbook/05_higher_order/complex_numbers"),
)
def general_eigenvectors_phase():
    matrix = torch.randn(3, 3, dtype=torch.complex64, requires_grad=True)
    _, vectors = torch.linalg.eig(matrix)
    vectors.real.sum().backward()


@fixes(general_eigenvectors_phase)
def general_eigenvectors_modulus():
    matrix = torch.randn(3, 3, dtype=torch.complex64, requires_grad=True)
    _, vectors = torch.linalg.eig(matrix)
    vectors.abs().sum().backward()


@raises(
    "A complete QR decomposition was differentiated",
    cause="""With ``mode="complete"`` and more rows than columns, the last columns of ``Q`` are an arbitrary basis of
    the remaining space, so they have no derivative.""",
    fix='Use ``mode="reduced"``, which is the default.',
    see=("guide/higher_order",),
)
def qr_complete():
    matrix = torch.randn(4, 2, requires_grad=True)
    q, _ = torch.linalg.qr(matrix, mode="complete")
    q.sum().backward()


@fixes(qr_complete)
def qr_reduced():
    matrix = torch.randn(4, 2, requires_grad=True)
    q, _ = torch.linalg.qr(matrix)
    q.sum().backward()


@raises(
    "A QR decomposition without Q was differentiated",
    cause='The derivative of ``R`` needs ``Q``, and ``mode="r"`` does not compute it.',
    fix='Use ``mode="reduced"``, and ignore ``Q``.',
    see=("guide/higher_order",),
)
def qr_without_q():
    matrix = torch.randn(4, 2, requires_grad=True)
    _, r = torch.linalg.qr(matrix, mode="r")
    r.diagonal().abs().log().sum().backward()


@fixes(qr_without_q)
def qr_with_q():
    matrix = torch.randn(4, 2, requires_grad=True)
    _, r = torch.linalg.qr(matrix)
    r.diagonal().abs().log().sum().backward()


@raises(
    "A singular value decomposition did not converge, because the matrix contains nan or inf",
    cause="""The matrix is not finite. If it is a gradient or a covariance, an earlier step made the nan: ``float16``
    overflowed under a large loss scale, or the weights exploded.""",
    fix="Check ``torch.isfinite(matrix).all()`` before the decomposition, and skip the step if it is not. With a "
    "GradScaler, call ``scaler.unscale_`` first. Another driver or a small diagonal does not help against nan.",
    see=("guide/nonfinite",),
)
def svd_of_nan():
    gradient = torch.full((3, 3), torch.nan)
    torch.linalg.svd(gradient)


@fixes(svd_of_nan)
def svd_of_finite():
    gradient = torch.full((3, 3), torch.nan)
    if torch.isfinite(gradient).all():
        torch.linalg.svd(gradient)


@raises(
    "An eigenvalue decomposition did not converge",
    cause="""In most cases the matrix contains nan or inf, although the message speaks of its condition. Repeated
    eigenvalues alone do not stop the forward on the CPU.""",
    fix="Check ``torch.isfinite(matrix).all()`` before the decomposition. If it is finite, decompose in ``float64``: "
    "``torch.linalg.eigh(matrix.double())``.",
    see=("guide/nonfinite", "cookbook/03_stability/eigenvalues"),
)
def eigh_of_nan():
    covariance = torch.full((3, 3), torch.nan)
    torch.linalg.eigh(covariance)


@fixes(eigh_of_nan)
def eigh_of_finite():
    covariance = torch.full((3, 3), torch.nan)
    if torch.isfinite(covariance).all():
        torch.linalg.eigh(covariance)


@raises(
    "A Cholesky decomposition met a matrix that is not positive definite",
    cause="""Rounding made the smallest eigenvalue zero or negative, or the matrix has a lower rank than its size
    (fewer samples than dimensions), or it contains nan.""",
    fix="Add a small multiple of the identity: ``A + 1e-5 * torch.eye(n)``, symmetrize with ``(A + A.mT) / 2``, and "
    "compute in ``float64``.",
    see=("guide/nonfinite",),
)
def cholesky_indefinite():
    samples = torch.randn(2, 3, requires_grad=True)
    covariance = samples.T @ samples - 1e-3 * torch.eye(3)
    torch.linalg.cholesky(covariance).sum().backward()


@fixes(cholesky_indefinite)
def cholesky_regularized():
    samples = torch.randn(2, 3, requires_grad=True)
    covariance = samples.T @ samples - 1e-3 * torch.eye(3)
    torch.linalg.cholesky(covariance + 1e-2 * torch.eye(3)).sum().backward()


@raises(
    "A singular matrix was inverted",
    cause="A row or column of the matrix depends on the others, so it has no inverse.",
    fix="Solve instead of inverting, with a small multiple of the identity: "
    "``torch.linalg.solve(A + eps * torch.eye(n), b)``, or use ``torch.linalg.lstsq`` or ``pinv``.",
    see=("guide/nonfinite",),
)
def inverse_of_singular():
    matrix = torch.ones(2, 2, requires_grad=True)
    torch.linalg.inv(matrix).sum().backward()


@fixes(inverse_of_singular)
def inverse_regularized():
    matrix = torch.ones(2, 2, requires_grad=True)
    torch.linalg.inv(matrix + 1e-3 * torch.eye(2)).sum().backward()


@raises(
    "The operation has no derivative for complex numbers",
    cause="""PyTorch can compute this operation for complex tensors, but it has its derivative for real tensors only.
    So the forward raises if an input requires grad.""",
    fix="""Write the operation with others that have a complex derivative, such as ``exp``, ``*``, ``/`` and ``abs``;
    here ``z * torch.sigmoid(z)``. Newer releases support more operations: ``sigmoid``, ``prod`` and ``cross`` came
    after 1.8.""",
    see=("cookbook/05_higher_order/complex_numbers",),
)
def complex_without_derivative():
    z = torch.randn(3, dtype=torch.complex64, requires_grad=True)
    F.silu(z).abs().sum().backward()


@fixes(complex_without_derivative)
def complex_by_hand():
    z = torch.randn(3, dtype=torch.complex64, requires_grad=True)
    (z * torch.sigmoid(z)).abs().sum().backward()


@raises(
    "A complex tensor was made real, and its imaginary part dropped",
    cause="""``z.to(torch.float32)``, a copy into a real buffer, and some backward steps keep only the real part. In a
    backward this is harmless if you made a real tensor complex on purpose, because a real input has a real
    gradient.""",
    fix="Say which part you mean: ``z.real`` or ``z.abs()``. If only backward warns, make the complex tensor by "
    "``torch.complex(x, zeros)`` or ``torch.view_as_complex``, and check that nothing else is converted.",
    see=("cookbook/05_higher_order/complex_numbers",),
    warning=True,
)
def imaginary_part_dropped():
    signal = torch.randn(8)
    spectrum = torch.fft.fft(signal)
    spectrum.to(torch.float32)


@fixes(imaginary_part_dropped)
def imaginary_part_kept():
    signal = torch.randn(8)
    spectrum = torch.fft.fft(signal)
    spectrum.abs()


@raises(
    "Distances have no second derivative",
    cause="``torch.cdist`` and ``torch.pdist`` compute all distances in one kernel, "
    "whose backward has no derivative. A gradient penalty, forces in the loss, a Hessian or MAML need one.",
    fix="Write the distance with operations that can be differentiated again: ``(x[:, None] - y[None]).square().sum(-1)"
    ".clamp_min(torch.finfo(x.dtype).tiny).sqrt()``. The clamp keeps the gradient finite where two points coincide. "
    "A bound of ``1e-12`` would be 0 in float16.",
    see=("cookbook/05_higher_order/double_backward", "cookbook/03_stability/safe_functions"),
)
def distance_twice():
    x, y = torch.randn(5, 3, requires_grad=True), torch.randn(4, 3)
    energy = torch.cdist(x, y).sum()
    (force,) = torch.autograd.grad(energy, x, create_graph=True)
    force.square().sum().backward()


@fixes(distance_twice)
def distance_written():
    x, y = torch.randn(5, 3, requires_grad=True), torch.randn(4, 3)
    energy = (x[:, None] - y[None]).square().sum(-1).clamp_min(torch.finfo(x.dtype).tiny).sqrt().sum()
    (force,) = torch.autograd.grad(energy, x, create_graph=True)
    force.square().sum().backward()


@raises(
    "A product over groups has no second derivative where a group has several zeros",
    cause="The first derivative of ``scatter_reduce`` and ``index_reduce`` with a product handles zeros one by one. "
    "With two zeros in one group, its derivative has no formula.",
    fix="Keep the factors away from zero: ``x.clamp_min(1e-6)``, or ``x.exp()`` where they are positive. For positive "
    "factors, the sum of logarithms, ``exp(scatter_add(log(x)))``, can be differentiated any number of times.",
    see=("cookbook/05_higher_order/double_backward",),
)
def grouped_product_twice():
    x = torch.zeros(4, requires_grad=True)
    groups = torch.tensor([0, 1, 0, 1])
    product = torch.ones(2).scatter_reduce(0, groups, x, "prod")
    (slope,) = torch.autograd.grad(product.sum(), x, create_graph=True)
    slope.square().sum().backward()


@fixes(grouped_product_twice)
def grouped_product_of_exponentials():
    x = torch.zeros(4, requires_grad=True)
    groups = torch.tensor([0, 1, 0, 1])
    product = torch.ones(2).scatter_reduce(0, groups, x.exp(), "prod")
    (slope,) = torch.autograd.grad(product.sum(), x, create_graph=True)
    slope.square().sum().backward()


@raises(
    "A complex tensor whose conjugation is pending was turned into an array",
    cause="""``x.conj()`` and the gradients of complex functions only mark the tensor as conjugated. NumPy would read
    the memory and ignore the mark.""",
    fix="""Apply the conjugation first: ``x.resolve_conj().numpy()``. For a pending minus sign, call
    ``x.resolve_neg()``.""",
    see=("cookbook/05_higher_order/complex_numbers",),
)
def conjugate_to_numpy():
    x = torch.randn(3, dtype=torch.complex64, requires_grad=True)
    x.abs().square().sum().backward()
    x.grad.conj().numpy()


@fixes(conjugate_to_numpy)
def conjugate_resolved():
    x = torch.randn(3, dtype=torch.complex64, requires_grad=True)
    x.abs().square().sum().backward()
    x.grad.conj().resolve_conj().numpy()


@raises(
    "Probabilities to sample from contain nan, inf or negative numbers",
    cause="""The network returned logits that are nan or infinite. Usually an earlier gradient step made the weights
    nan, or ``float16`` overflowed. A row that holds only ``-inf`` because everything is masked gives nan as well.""",
    fix="Find the first nan, not this line: assert ``torch.isfinite(loss)`` and the gradient norm in each step, and "
    "clip gradients or lower the learning rate where they explode. In generation, load the model in ``bfloat16`` or "
    "``float32`` instead of ``float16``. Leave one entry of each row unmasked.",
    see=("guide/nonfinite",),
)
def sampled_from_nan():
    logits = torch.tensor([[0.5, float("nan"), 1.0]])
    torch.multinomial(logits.softmax(-1), 1)


@fixes(sampled_from_nan)
def sampled_from_finite():
    logits = torch.tensor([[0.5, 0.2, 1.0]])
    assert torch.isfinite(logits).all()
    torch.multinomial(logits.softmax(-1), 1)


@raises(
    "A parameter of a probability distribution is nan or out of range",
    cause="""``torch.distributions`` checks its arguments. The network that computes this parameter returned nan,
    usually because an earlier gradient step made the weights nan, or it returned a scale that is not positive.""",
    fix="Print the parameter, the loss and the gradient norm of the step before; clip the gradients or lower the "
    "learning rate if they explode. Keep scales positive: ``F.softplus(raw) + 1e-6``, or ``raw.clamp(-5, 2).exp()``. "
    "``validate_args=False`` only hides it.",
    see=("guide/nonfinite",),
)
def distribution_of_nan():
    mean = torch.log(torch.tensor([-1.0, 2.0]))
    torch.distributions.Normal(mean, 1.0).sample()


@fixes(distribution_of_nan)
def distribution_of_finite():
    mean = torch.log(torch.tensor([-1.0, 2.0]).clamp_min(1e-6))
    torch.distributions.Normal(mean, 1.0).sample()


@raises(
    "binary_cross_entropy got values outside of 0 to 1",
    cause="``binary_cross_entropy`` and ``nn.BCELoss`` take probabilities. Here they got logits, because a sigmoid is "
    "missing, or nan.",
    fix="Pass the logits to ``F.binary_cross_entropy_with_logits`` (``nn.BCEWithLogitsLoss``) and drop the sigmoid: it "
    "is also the stable formula. If there is a sigmoid, the values are nan: look for the first nan in an earlier step.",
    see=("cookbook/03_stability/cross_entropy", "guide/nonfinite"),
)
def probabilities_out_of_range():
    logits = nn.Linear(3, 1)(torch.randn(4, 3)) + 5
    F.binary_cross_entropy(logits, torch.ones(4, 1)).backward()


@fixes(probabilities_out_of_range)
def logits_in_loss():
    logits = nn.Linear(3, 1)(torch.randn(4, 3)) + 5
    F.binary_cross_entropy_with_logits(logits, torch.ones(4, 1)).backward()


@raises(
    "log_prob got a value that the distribution cannot have",
    cause="""``log_prob`` checks that the value is in the support of the distribution. This value is not: for example,
    an action was clipped or scaled, a class is too large, or the network returned nan because its gradients were nan
    before.""",
    fix="Evaluate the value that was sampled, not the one that was clipped for the environment, and bring it into the "
    "support: ``x.clamp(eps, 1 - eps)`` for ``Beta``. If the message shows nan, look for the first nan in the loss "
    "of an earlier step. ``validate_args=False`` only moves the nan into the loss.",
    see=("guide/nonfinite",),
)
def value_out_of_support():
    one = torch.tensor(1.0, requires_grad=True)
    action = torch.tensor(1.5)
    loss = -torch.distributions.Beta(one, one).log_prob(action)
    loss.backward()


@fixes(value_out_of_support)
def value_in_support():
    one = torch.tensor(1.0, requires_grad=True)
    action = torch.tensor(1.5).clamp(1e-6, 1 - 1e-6)
    loss = -torch.distributions.Beta(one, one).log_prob(action)
    loss.backward()


@raises(
    "No formula is registered for the divergence of these two distributions",
    cause="""``kl_divergence`` looks up a formula for the pair of classes. No formula is registered for this pair, or
    one of the two is wrapped, for example by ``TransformedDistribution``.""",
    fix="Estimate it from samples that carry the gradient: ``z = p.rsample(); (p.log_prob(z) - "
    "q.log_prob(z)).mean()``. Or register a formula with ``torch.distributions.kl.register_kl(P, Q)``.",
    see=("cookbook/02_changing_the_gradient/discrete_choices",),
)
def divergence_without_formula():
    mean = torch.zeros(3, requires_grad=True)
    kl_divergence(Normal(mean, 1.0), Cauchy(0.0, 1.0)).sum().backward()


@fixes(divergence_without_formula)
def divergence_from_samples():
    mean = torch.zeros(3, requires_grad=True)
    p, q = Normal(mean, 1.0), Cauchy(0.0, 1.0)
    z = p.rsample((100,))
    (p.log_prob(z) - q.log_prob(z)).mean(0).sum().backward()


@raises(
    "The gradient of lobpcg exists for one kind of problem only",
    cause="""``torch.lobpcg`` computes a few eigenpairs of a large symmetric matrix. Its backward supports real dense
    matrices without a second matrix ``B``, but its forward supports more.""",
    fix="Use ``torch.linalg.eigh`` on the dense matrix if it fits. For ``B``, reduce the problem with a Cholesky "
    "factor: ``L = torch.linalg.cholesky(B)``, then the matrix ``inv(L) A inv(L).T``. For a sparse matrix, compute "
    "the eigenpair without gradients and write its derivative: that of an eigenvalue is ``v vᵀ``.",
    see=("cookbook/03_stability/eigenvalues", "cookbook/05_higher_order/implicit"),
)
def sparse_eigenvalue():
    matrix = torch.arange(1.0, 10.0).diag().to_sparse().requires_grad_()
    value, _ = torch.lobpcg(matrix, k=1)
    value.sum().backward()


@fixes(sparse_eigenvalue)
def eigenvalue_by_formula():
    matrix = torch.arange(1.0, 10.0).diag().to_sparse().requires_grad_()
    with torch.no_grad():
        _, vector = torch.lobpcg(matrix, k=1)
    value = (vector * (matrix @ vector)).sum()  # the derivative of the vector does not enter
    value.backward()


@raises(
    "An operation that orders numbers was applied to complex numbers",
    cause="Complex numbers have no order, so ``clamp``, ``relu``, ``max``, ``sign`` and losses that compare have no "
    "value for them, and no gradient.",
    fix="Apply it to something real: ``z.abs()``, or ``torch.view_as_real(z)`` for the real and the imaginary part. "
    "For a direction, ``torch.sgn(z)``; for an activation, act on the magnitude and keep the angle.",
    see=("cookbook/05_higher_order/complex_numbers",),
)
def relu_of_complex():
    z = torch.randn(3, dtype=torch.complex64, requires_grad=True)
    F.relu(z).abs().sum().backward()


@fixes(relu_of_complex)
def relu_of_parts():
    z = torch.randn(3, dtype=torch.complex64, requires_grad=True)
    parts = F.relu(torch.view_as_real(z))
    torch.view_as_complex(parts).abs().square().sum().backward()


@raises(
    "The kernel of a backward was called with a gradient of another shape",
    cause="""Your backward calls an operator such as ``aten::avg_pool2d_backward`` or ``torch.nn.grad.conv2d_input``
    itself. The operator expects the gradient of the output that the forward had. The input, the stride, the padding
    or the output size that you pass belong to a different forward.""",
    fix="Pass what the forward used: keep the sizes and options on ``ctx``, and the input with ``save_for_backward``. "
    "``torch.autograd.grad`` on the forward operation, under ``torch.enable_grad()``, finds the right call by itself.",
    see=("cookbook/01_first_steps/convolution",),
)
def kernel_of_backward_elsewhere():
    x, weight = torch.randn(1, 1, 8, 8), torch.randn(1, 1, 3, 3)
    y = F.conv2d(x, weight, stride=2)
    torch.nn.grad.conv2d_input(x.shape, weight, torch.ones_like(y))


@fixes(kernel_of_backward_elsewhere)
def kernel_of_same_forward():
    x, weight = torch.randn(1, 1, 8, 8), torch.randn(1, 1, 3, 3)
    y = F.conv2d(x, weight, stride=2)
    torch.nn.grad.conv2d_input(x.shape, weight, torch.ones_like(y), stride=2)


@raises(
    "A complex tensor whose conjugation is pending was viewed as real",
    cause="``conj()`` and ``.mH`` only set a mark, and the numbers in memory are not conjugated yet. "
    "``view_as_real`` shows the memory, so it refuses such a tensor.",
    fix="Apply the conjugation first: ``torch.view_as_real(x.resolve_conj())``. If an optimizer raises it, a hook or "
    "your backward returned such a gradient: return ``grad.resolve_conj()``.",
    see=("cookbook/05_higher_order/complex_numbers",),
)
def conjugate_viewed():
    z = torch.randn(3, dtype=torch.cfloat, requires_grad=True)
    torch.view_as_real(z.conj()).square().sum().backward()


@fixes(conjugate_viewed)
def conjugate_view_resolved():
    z = torch.randn(3, dtype=torch.cfloat, requires_grad=True)
    torch.view_as_real(z.conj().resolve_conj()).square().sum().backward()
