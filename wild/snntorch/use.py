"""A leaky neuron with each surrogate gradient, losses of spike times, and quantized states."""

import snntorch as snn
import torch
from snntorch import functional as SF
from snntorch import surrogate
from snntorch.functional import quant

torch.manual_seed(0)
surrogates = [
    surrogate.straight_through_estimator(),
    surrogate.triangular(),
    surrogate.fast_sigmoid(slope=25),
    surrogate.atan(alpha=2.0),
    surrogate.heaviside(),
    surrogate.sigmoid(slope=25),
    surrogate.spike_rate_escape(beta=1, slope=25),
    surrogate.SSO(mean=0, variance=0.2),
    surrogate.SFS(slope=25, B=1),
]
for spike_grad in surrogates:
    neuron = snn.Leaky(beta=0.9, spike_grad=spike_grad)
    membrane = neuron.init_leaky()
    current = torch.randn(3, 4, requires_grad=True)
    for _ in range(2):
        spikes, membrane = neuron(current, membrane)
    (spikes.sum() + membrane.sum()).backward()

surrogate.LeakySpikeOperator.apply(torch.randn(3, 4, requires_grad=True), 0.1)
quantize = quant.state_quant(num_bits=4, uniform=True)
quantize(torch.randn(3, 4, requires_grad=True)).sum().backward()

steps = (torch.rand(6, 2, 3, requires_grad=True) - 0.5).relu().sign().detach().requires_grad_()
SF.ce_temporal_loss()(steps, torch.tensor([0, 2])).backward()
SF.mse_temporal_loss(target_is_time=False)(steps, torch.tensor([0, 2])).backward()
