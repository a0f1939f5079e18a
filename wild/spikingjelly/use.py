"""Spiking neurons with each surrogate gradient, and quantized values."""

import torch
from spikingjelly.activation_based import neuron, quantize, surrogate

torch.manual_seed(0)
x = torch.randn(3, 4, requires_grad=True)
surrogates = [
    surrogate.PiecewiseQuadratic(),
    surrogate.PiecewiseExp(),
    surrogate.Sigmoid(),
    surrogate.SoftSign(),
    surrogate.SuperSpike(),
    surrogate.ATan(),
    surrogate.NonzeroSignLogAbs(),
    surrogate.Erf(),
    surrogate.PiecewiseLeakyReLU(),
    surrogate.SquarewaveFourierSeries(),
    surrogate.S2NN(),
    surrogate.QPseudoSpike(),
    surrogate.LeakyKReLU(),
]
for function in surrogates:
    function(x).sum().backward()
neuron.LIFNode(surrogate_function=surrogate.ATan())(x).sum().backward()
quantize.round(x).sum().backward()
quantize.ceil(x).sum().backward()
quantize.floor(x).sum().backward()
quantize.clamp(x, -0.5, 0.7).sum().backward()
quantize.step_quantize(x, step=0.3).sum().backward()
quantize.k_bit_quantize(torch.rand(3, 4, requires_grad=True), k=2).sum().backward()
