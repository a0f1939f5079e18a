"""A neural ODE, trained by the adjoint method, through the solver, and to an event."""

import torch
from torch import nn
from torchdiffeq import odeint, odeint_adjoint, odeint_event

torch.manual_seed(0)


class Spiral(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 2))

    def forward(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.net(y**3)


field = Spiral()
start = torch.tensor([[2.0, 0.0]], requires_grad=True)
times = torch.linspace(0.0, 1.0, 3)
# An adaptive method would be audited for minutes.
odeint_adjoint(field, start, times, method="rk4", options={"step_size": 0.04}).square().mean().backward()
odeint(field, start, times, method="dopri5").square().mean().backward()
odeint(field, start, times, method="rk4").square().mean().backward()


class Fall(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gravity = nn.Parameter(torch.tensor(9.8))

    def forward(self, t: torch.Tensor, state: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        height, velocity = state
        return velocity, -self.gravity + torch.zeros_like(height)


state = torch.tensor([10.0], requires_grad=True), torch.tensor([0.0], requires_grad=True)
hit, _ = odeint_event(
    Fall(), state, torch.tensor(0.0), event_fn=lambda t, state: state[0], odeint_interface=odeint, atol=1e-8, rtol=1e-8
)
hit.backward()
