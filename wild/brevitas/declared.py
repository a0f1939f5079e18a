"""What the straight-through operations are the gradients of."""


def identity(x, *limits):
    return x.clone()
