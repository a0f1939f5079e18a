"""Samples of the corpus, and what several of its functions refuse."""

import torch

FULL = (torch.float32, torch.float64)
REAL = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def leaf(*shape, grad=True, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=grad)


def between(low, high, *shape, grad=True):
    return (low + (high - low) * torch.rand(shape, dtype=torch.float64)).requires_grad_(grad)


def covariance(n):
    factor = torch.randn(n, n, dtype=torch.float64)
    return (factor @ factor.mT + n * torch.eye(n, dtype=torch.float64)).requires_grad_()


def closed_clamp(x, low, high):
    """A clamp whose gradient is 1 at the ends, too; that of torch.clamp is 0 there since torch 2.14."""
    return torch.where((x >= low) & (x <= high), x, x.detach().clamp(low, high))


def only_real(*tensors):
    if any(t.is_complex() for t in tensors):
        raise TypeError("takes real tensors only")


def only(kinds, *tensors):
    for tensor in tensors:
        if tensor is not None and tensor.dtype not in kinds:
            raise TypeError(f"dtype {tensor.dtype} is not supported")


def same_shapes(a, b):
    if a.shape != b.shape:
        raise ValueError(f"shapes differ: {tuple(a.shape)} and {tuple(b.shape)}")


def to_numpy(t):
    return t.detach().to("cpu", torch.float64).numpy(force=True)


def wide(x):
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
