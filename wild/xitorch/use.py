"""Roots, eigenvalues, linear systems and integrals with gradients."""

import torch
from xitorch import LinearOperator, linalg
from xitorch.integrate import quad, solve_ivp
from xitorch.optimize import equilibrium, rootfinder

torch.manual_seed(0)
kwargs = {"dtype": torch.double, "requires_grad": True}
a = torch.randn(3, 3, **kwargs)
symmetric = a + a.t() + 6 * torch.eye(3, dtype=torch.double)
operator = LinearOperator.m(symmetric, is_hermitian=True)
linalg.solve(operator, torch.randn(3, 2, **kwargs)).sum().backward(retain_graph=True)
values, vectors = linalg.symeig(operator, neig=2)
(values.sum() + vectors.square().sum(0)[0]).backward()


def residual(y: torch.Tensor, A: torch.Tensor) -> torch.Tensor:
    return torch.tanh(A @ y + 0.1) + y / 2.0


A = torch.tensor([[1.1, 0.4], [0.3, 0.8]], **kwargs)
guess = torch.zeros((2, 1), dtype=torch.double)
rootfinder(residual, guess, params=(A,)).sum().backward()
equilibrium(lambda y, A: 0.2 * torch.tanh(A @ y + 0.1), guess, params=(A,)).sum().backward()
rate = torch.tensor(0.7, **kwargs)
limits = torch.tensor(0.0, **kwargs), torch.tensor(1.0, **kwargs)
quad(lambda t, c: torch.exp(-c * t), *limits, params=(rate,)).backward()
times = torch.linspace(0, 1, 4, dtype=torch.double)
solve_ivp(lambda t, y, c: -c * y, times, torch.ones(2, **kwargs), params=(rate,), method="rk4").sum().backward()
