"""What the nodes in our pictures do, and their backward formulas.

A formula is a Python expression for the gradient of each input, in the order of ``next_functions``. It uses ``grad``,
the gradient that arrives, and the names of what the node saves. A test evaluates each one and calls the node.
"""

from typing import NamedTuple


class Entry(NamedTuple):
    does: str
    sends: tuple[str, ...]


TABLE = {
    "AddBackward0": Entry("adds", ("grad", "alpha * grad")),
    "AddmmBackward0": Entry(
        "multiplies two matrices and adds a third tensor",
        ("beta * grad", "alpha * grad @ mat2.T", "alpha * mat1.T @ grad"),
    ),
    "CosBackward0": Entry("cosine", ("-grad * self.sin()",)),
    "ExpBackward0": Entry("exponential", ("grad * result",)),
    "MeanBackward0": Entry("mean of all elements", ("grad.expand(self_sym_sizes) / self_sym_numel",)),
    "MmBackward0": Entry("multiplies two matrices", ("grad @ mat2.T", "self.T @ grad")),
    "MulBackward0": Entry("multiplies", ("grad * other", "grad * self")),
    "PowBackward0": Entry("power", ("grad * exponent * self ** (exponent - 1)",)),
    "ReluBackward0": Entry("sets negative elements to 0", ("grad * (result > 0)",)),
    "SinBackward0": Entry("sine", ("grad * self.cos()",)),
    "SqrtBackward0": Entry("square root", ("grad / (2 * result)",)),
    "SubBackward0": Entry("subtracts", ("grad", "-alpha * grad")),
    "SumBackward0": Entry("sum of all elements", ("grad.expand(self_sym_sizes)",)),
    "TBackward0": Entry("transposes", ("grad.T",)),
    "WhereBackward0": Entry(
        "chooses by a condition", ("torch.where(condition, grad, 0)", "torch.where(condition, 0, grad)")
    ),
}
