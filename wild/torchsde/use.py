"""An SDE whose gradient comes from the adjoint."""

import torch
import torchsde
from torch import nn

torch.manual_seed(0)


class Drift(nn.Module):
    noise_type, sde_type = "diagonal", "stratonovich"

    def __init__(self) -> None:
        super().__init__()
        self.mu, self.sigma = nn.Linear(2, 2), nn.Parameter(torch.tensor([0.2, 0.3]))

    def f(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.mu(y).tanh()

    def g(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.sigma.sigmoid() * torch.ones_like(y)


start = torch.full((3, 2), 0.1, requires_grad=True)
path = torchsde.sdeint_adjoint(Drift(), start, torch.linspace(0, 0.3, 3), dt=0.1, method="midpoint")
path.square().sum().backward()
