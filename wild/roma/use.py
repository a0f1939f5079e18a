"""Rotations from matrices and from points, with and without singular values."""

import roma
import torch

torch.manual_seed(0)
rotations = roma.special_procrustes(torch.randn(4, 3, 3, requires_grad=True))
roma.rotmat_geodesic_distance(rotations, roma.random_rotmat(4)).mean().backward()
rotations, values = roma.procrustes(torch.randn(2, 3, 3, requires_grad=True), return_singular_values=True)
(rotations.square().sum() + values.sum()).backward()
rotation, translation = roma.rigid_points_registration(torch.randn(10, 3), torch.randn(10, 3, requires_grad=True))
(rotation.sum() + translation.sum()).backward()
