"""A small network for tables with each kind of mask, and the activation for two classes."""

import torch
from pytorch_tabnet.sparsemax import entmoid15
from pytorch_tabnet.tab_network import TabNet

torch.manual_seed(0)
features, target = torch.randn(8, 5), torch.tensor([0, 1] * 4)
for mask in ("sparsemax", "entmax"):
    groups = torch.eye(5)
    network = TabNet(5, 2, n_d=4, n_a=4, n_steps=2, mask_type=mask, group_attention_matrix=groups).train()
    output, sparsity = network(features)
    (torch.nn.functional.cross_entropy(output, target) + 0.001 * sparsity).backward()

entmoid15(torch.randn(8, 5, requires_grad=True)).sum().backward()
