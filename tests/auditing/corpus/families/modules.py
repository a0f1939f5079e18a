"""Modules that cannot be copied, stored or moved."""

import torch
from docs.pitfalls.programs import broken, leaf, right
from docs.pitfalls.programs.modules import _Swish
from torch import nn

# --- module_copies ---


@broken(
    "module_copies", "freed_at_once", "module_tensors", inputs=lambda: (leaf(4, 3),), source="pytorch/pytorch#54580"
)
class SwishRemembersItsOutput(nn.Module):
    """Keeps its last output as an attribute; a tensor with a graph cannot be deep-copied, and nor can the module."""

    def __init__(self):
        super().__init__()
        self.beta = nn.Parameter(torch.ones(3, dtype=torch.float64))
        self.features = None

    def forward(self, x):
        self.features = _Swish.apply(x, self.beta)
        return self.features


@broken("module_copies", inputs=lambda: (leaf(4, 3),))
class SwishWithAnInitializer(nn.Module):
    """Keeps a lambda that it needs once, in __init__; no lambda can be pickled, and so the module cannot be either."""

    def __init__(self):
        super().__init__()
        self.initialize = lambda size: torch.full((size,), 1.5, dtype=torch.float64)
        self.beta = nn.Parameter(self.initialize(3))

    def forward(self, x):
        return _Swish.apply(x, self.beta)


def table(*shape):
    return torch.randn(*shape, dtype=torch.float64)


@broken("module_copies", inputs=lambda: (leaf(4, 3),))
class SwishStoresItselfInHalf(nn.Module):
    """Rounds its parameters on the way into the state dict, for smaller files: what is loaded is another module."""

    def __init__(self):
        super().__init__()
        self.beta = nn.Parameter(table(3))

    def forward(self, x):
        return _Swish.apply(x, self.beta)

    def state_dict(self, *args, **kwargs):
        return {name: tensor.half() for name, tensor in super().state_dict(*args, **kwargs).items()}


@right(inputs=lambda: (leaf(5, 4),))
class RotaryWithDerivedBuffer(nn.Module):
    """The frequencies follow from the arguments of __init__, so that they need not be in the state dict."""

    def __init__(self, dim=4, base=10_000.0):
        super().__init__()
        frequencies = base ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
        self.register_buffer("frequencies", frequencies, persistent=False)
        self.scale = nn.Parameter(torch.ones(dim, dtype=torch.float64))

    def forward(self, x):
        angle = torch.arange(x.shape[-2], dtype=self.frequencies.dtype).unsqueeze(-1) * self.frequencies
        a, b = (x * self.scale).chunk(2, -1)
        cos, sin = angle.cos(), angle.sin()
        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


# --- module_tensors ---


@broken("module_tensors", inputs=lambda: (leaf(4, 3),))
class SwishesInAList(nn.Module):
    """Keeps its parameters in a plain list, where no optimizer finds them."""

    def __init__(self):
        super().__init__()
        self.betas = [nn.Parameter(table(3)) for _ in range(2)]

    def forward(self, x):
        for beta in self.betas:
            x = _Swish.apply(x, beta)
        return x
