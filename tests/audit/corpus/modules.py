"""Modules that cannot be copied, stored or moved: one for each finding of the family."""

import torch
from torch import nn
from torch.autograd import Function

from tests.audit.corpus import broken, right


def leaf(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def table(*shape):
    return torch.randn(*shape, dtype=torch.float64)


class _Swish(Function):
    """x * sigmoid(beta * x), one beta for each feature."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, beta):
        return x * (beta * x).sigmoid()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        x, beta = ctx.saved_tensors
        s = (beta * x).sigmoid()
        slope = s * (1 - s)
        return grad_output * (s + beta * x * slope), (grad_output * x * x * slope).sum_to_size(beta.shape)


# --- module_copies ---


@broken("module_copies", inputs=lambda: (leaf(4, 3),), shown=True)
class SwishByALambda(nn.Module):
    """The lambda refers to the module that made it: a copy goes on computing with the original's beta."""

    def __init__(self):
        super().__init__()
        self.beta = nn.Parameter(torch.ones(3, dtype=torch.float64))
        self.activation = lambda x: _Swish.apply(x, self.beta)

    def forward(self, x):
        return self.activation(x)


@right(inputs=lambda: (leaf(4, 3),), mends="SwishByALambda")
class SwishByAMethod(nn.Module):
    """A method finds the beta of the module that it is called on."""

    def __init__(self):
        super().__init__()
        self.beta = nn.Parameter(torch.ones(3, dtype=torch.float64))

    def activation(self, x):
        return _Swish.apply(x, self.beta)

    def forward(self, x):
        return self.activation(x)


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


@broken("module_tensors", inputs=lambda: (leaf(4, 3), torch.tensor([0, 2, 1, 2])), shown=True)
class WeightedLossWithAPlainTensor(nn.Module):
    """The class weights are a plain attribute, which stays behind on the CPU when the module moves to a GPU."""

    def __init__(self):
        super().__init__()
        self.class_weights = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)

    def forward(self, logits, target):
        losses = -logits.log_softmax(-1).gather(-1, target.unsqueeze(-1)).squeeze(-1)
        return self.class_weights[target] * losses


@right(inputs=lambda: (leaf(4, 3), torch.tensor([0, 2, 1, 2])), mends="WeightedLossWithAPlainTensor")
class WeightedLossWithABuffer(nn.Module):
    """The class weights are a buffer, which moves along and is in the state dict."""

    def __init__(self):
        super().__init__()
        self.register_buffer("class_weights", torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64))

    def forward(self, logits, target):
        losses = -logits.log_softmax(-1).gather(-1, target.unsqueeze(-1)).squeeze(-1)
        return self.class_weights[target] * losses


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
