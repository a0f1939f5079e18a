"""Modules that cannot be copied, stored or moved."""

import torch
from docs.pitfalls.programs import broken, fixes, leaf
from torch import nn
from torch.autograd import Function

# --- module_copies ---


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


@broken("module_copies", inputs=lambda: (leaf(4, 3),))
class SwishByALambda(nn.Module):
    """The lambda refers to the module that made it, so a copy of the module still computes with the original beta."""

    def __init__(self):
        super().__init__()
        self.beta = nn.Parameter(torch.ones(3, dtype=torch.float64))
        self.activation = lambda x: _Swish.apply(x, self.beta)

    def forward(self, x):
        return self.activation(x)


@fixes(SwishByALambda)
class SwishByAMethod(nn.Module):
    """The method uses the beta of the module on which you call it."""

    def __init__(self):
        super().__init__()
        self.beta = nn.Parameter(torch.ones(3, dtype=torch.float64))

    def activation(self, x):
        return _Swish.apply(x, self.beta)

    def forward(self, x):
        return self.activation(x)


# --- module_tensors ---


@broken("module_tensors", inputs=lambda: (leaf(4, 3), torch.tensor([0, 2, 1, 2])))
class WeightedLossWithAPlainTensor(nn.Module):
    """The class weights are a plain attribute, so they stay on the CPU when the module moves to a GPU."""

    def __init__(self):
        super().__init__()
        self.class_weights = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)

    def forward(self, logits, target):
        losses = -logits.log_softmax(-1).gather(-1, target.unsqueeze(-1)).squeeze(-1)
        return self.class_weights[target] * losses


@fixes(WeightedLossWithAPlainTensor)
class WeightedLossWithABuffer(nn.Module):
    """The class weights are a buffer, so they move with the module and are in its state dict."""

    def __init__(self):
        super().__init__()
        self.register_buffer("class_weights", torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64))

    def forward(self, logits, target):
        losses = -logits.log_softmax(-1).gather(-1, target.unsqueeze(-1)).squeeze(-1)
        return self.class_weights[target] * losses
