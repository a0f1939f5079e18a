"""Solves, determinants, roots and diagonals of a covariance matrix, with gradients."""

import torch
from linear_operator import settings
from linear_operator.operators import DenseLinearOperator

torch.manual_seed(0)
factor = torch.randn(4, 4, dtype=torch.float64)
matrix = (factor @ factor.T + 4 * torch.eye(4, dtype=torch.float64)).requires_grad_()
right = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)


def operator() -> DenseLinearOperator:
    return DenseLinearOperator(matrix)


(operator() @ right).sum().backward()
operator().solve(right).sum().backward()
quadratic, determinant = operator().inv_quad_logdet(inv_quad_rhs=right, logdet=True)
(quadratic + determinant).backward()
operator().inv_quad(right).backward()
operator().pivoted_cholesky(rank=2).sum().backward()
operator().sqrt_inv_matmul(right).sum().backward()
with settings.max_cholesky_size(1):
    operator().solve(right).sum().backward()
    operator().root_decomposition(method="lanczos").root.to_dense().square().sum().backward()
    operator().diagonalization(method="lanczos")[0].sum().backward()
