"""The dense tensors that a tensor of any layout consists of."""

import torch
from torch import Tensor

PARTS = {
    torch.sparse_coo: ("_indices", "_values"),
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}


def parts(tensor: Tensor) -> list[Tensor]:
    """Return the tensor itself, if it is dense, or its indices and, last, its values; nothing of another layout."""
    if tensor.layout is torch.strided:
        return [tensor]
    return [getattr(tensor, part)() for part in PARTS.get(tensor.layout, ())]
