"""Rotations, motions and similarities: exponentials, logarithms, products, and what they act on."""

import pypose
import torch

torch.manual_seed(0)
for group, algebra in (("SO3", "so3"), ("SE3", "se3"), ("RxSO3", "rxso3"), ("Sim3", "sim3")):
    element = getattr(pypose, f"randn_{group}")(2, requires_grad=True)
    small = getattr(pypose, f"randn_{algebra}")(2, requires_grad=True)
    points = torch.randn(2, 3, requires_grad=True)
    for result in (
        element.Log(),
        small.Exp(),
        element.Act(points),
        element @ getattr(pypose, f"randn_{group}")(2),
        element.Inv(),
        element.Adj(small),
        element.AdjT(small),
    ):
        result.sum().backward()
