"""A quantized layer, and each straight-through operation by itself."""

import brevitas.nn as qnn
import torch
from brevitas.function import ops_ste
from brevitas.quant import Int8WeightPerTensorFloat

torch.manual_seed(0)
x = torch.randn(4, 3)
layer = qnn.QuantLinear(3, 2, bias=True, weight_quant=Int8WeightPerTensorFloat)
layer(x.requires_grad_()).square().sum().backward()
low, high = torch.full((3,), -0.5), torch.full((3,), 0.7)
for operation in (
    ops_ste.round_ste,
    ops_ste.ceil_ste,
    ops_ste.floor_ste,
    ops_ste.round_to_zero_ste,
    ops_ste.dpu_round_ste,
    ops_ste.binary_sign_ste,
    ops_ste.ternary_sign_ste,
    ops_ste.abs_binary_sign_grad,
):
    operation(x).sum().backward()
ops_ste.scalar_clamp_ste(x, -0.5, 0.7).sum().backward()
ops_ste.scalar_clamp_min_ste(x, -0.5).sum().backward()
ops_ste.tensor_clamp_ste(x, low, high).sum().backward()
ops_ste.tensor_clamp_ste_(2 * x, low, high).sum().backward()
