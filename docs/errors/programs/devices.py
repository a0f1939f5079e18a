"""CUDA kernels, CUDA graphs and Triton: what of it a CPU can raise."""

import torch
from docs.errors.programs import fixes, raises
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel


@raises(
    "An operation has no deterministic implementation",
    cause="``torch.use_deterministic_algorithms(True)`` refuses operations whose result depends on the order of "
    "parallel additions. On CUDA these are many backwards: of interpolation, pooling, padding, ``grid_sample`` and "
    "cumulative sums. They are named ``..._backward_cuda``.",
    fix="Pass ``warn_only=True`` if the result may differ from run to run. Or replace the operation: interpolation by "
    "``nearest`` or a matrix product, pooling by reshaping and ``mean``. Or run that layer on the CPU.",
    see=("guide/training",),
)
def not_deterministic():
    torch.use_deterministic_algorithms(True)
    pooled, where = F.max_pool2d(torch.randn(1, 1, 4, 4, requires_grad=True), 2, return_indices=True)
    F.max_unpool2d(pooled, where, 2).sum().backward()


@fixes(not_deterministic)
def not_deterministic_allowed():
    torch.use_deterministic_algorithms(True, warn_only=True)
    pooled, where = F.max_pool2d(torch.randn(1, 1, 4, 4, requires_grad=True), 2, return_indices=True)
    F.max_unpool2d(pooled, where, 2).sum().backward()


@raises(
    "No attention kernel is left for these inputs",
    cause="``sdpa_kernel(...)`` or ``enable_math_sdp(False)`` allows only some kernels of "
    "``scaled_dot_product_attention``, and none of these takes the inputs. Flash attention takes no mask tensor. On a "
    "GPU, it takes only half precision and certain head sizes. The warnings above the message name the reason.",
    fix="Allow the general kernel too: ``sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH])``, or drop the "
    "context. To keep flash attention on a GPU, cast query, key and value to ``bfloat16``, and pass ``is_causal=True`` "
    "instead of a mask.",
    see=("cookbook/07_compile/mixed_precision",),
)
def attention_without_kernel():
    query, mask = torch.randn(1, 2, 4, 8, requires_grad=True), torch.zeros(4, 4)
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION]):
        F.scaled_dot_product_attention(query, query, query, dropout_p=0.1, attn_mask=mask).sum().backward()


@fixes(attention_without_kernel)
def attention_with_general_kernel():
    query, mask = torch.randn(1, 2, 4, 8, requires_grad=True), torch.zeros(4, 4)
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
        F.scaled_dot_product_attention(query, query, query, dropout_p=0.1, attn_mask=mask).sum().backward()
