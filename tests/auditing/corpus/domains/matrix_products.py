"""Linear layers, products of matrices and attention."""

import math

import torch
import torch.nn.functional as F
from docs.pitfalls.programs import broken, right
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from tests.auditing.corpus.shared import between, leaf

# --- broken ---


@broken("first_order", "unneeded_gradients", inputs=lambda: (leaf(5, 3), leaf(3, 3), leaf(5, 3)))
class BilinearTransposedWeight(Function):
    """Returns the transpose of the weight's gradient, which a square weight accepts."""

    @staticmethod
    def forward(left, weight, right):
        return torch.einsum("bi,ij,bj->b", left, weight, right)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        left, weight, right = ctx.saved_tensors
        scaled = g.unsqueeze(1)
        grad_left = scaled * (right @ weight.t())
        grad_weight = (scaled * right).t() @ left
        grad_right = scaled * (left @ weight)
        return grad_left, grad_weight, grad_right


@broken("first_order", "empty", inputs=lambda: (leaf(4, 3, 2), leaf(2, 3, 2)))
class GroupedScoresFirstHead(Function):
    """Keys are shared by two query heads each, but their gradient takes the first head of a group, not the sum."""

    @staticmethod
    def forward(query, key):
        groups = query.shape[0] // key.shape[0]
        return query @ key.repeat_interleave(groups, 0).transpose(1, 2)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        query, key = ctx.saved_tensors
        groups = query.shape[0] // key.shape[0]
        grad_query = g @ key.repeat_interleave(groups, 0)
        grad_key = g.transpose(1, 2) @ query
        return grad_query, grad_key.unflatten(0, (key.shape[0], groups))[:, 0]


@broken("first_order", "empty", inputs=lambda: (leaf(3, 4), leaf(5, 4), leaf(5, 2), leaf(3, 5)))
class AttentionScaledBias(Function):
    """The optional bias is added after the scaling, but its gradient is scaled like that of the scores."""

    @staticmethod
    def forward(query, key, value, bias=None):
        scores = query @ key.t() / math.sqrt(query.shape[1])
        if bias is not None:
            scores = scores + bias
        return torch.softmax(scores, 1) @ value

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        query, key, value, bias = ctx.saved_tensors
        scale = 1 / math.sqrt(query.shape[1])
        scores = query @ key.t() * scale
        if bias is not None:
            scores = scores + bias
        p = torch.softmax(scores, 1)
        grad_p = g @ value.t()
        grad_scores = p * (grad_p - (grad_p * p).sum(1, keepdim=True)) * scale
        grad_bias = grad_scores if bias is not None else None
        return grad_scores @ key, grad_scores.t() @ query, p.t() @ g, grad_bias


@broken("subsets", inputs=lambda: (leaf(4, 3), leaf(2, 3), leaf(2)))
class LinearBiasFollowsWeight(Function):
    """Reads the entry of the weight in needs_input_grad for the bias, so a frozen weight stops the bias, too."""

    @staticmethod
    def forward(x, weight, bias):
        return x @ weight.t() + bias

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, _ = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        grad_x = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            grad_x = g @ weight
        if ctx.needs_input_grad[1]:
            grad_weight = g.t() @ x
            grad_bias = g.sum(0)
        return grad_x, grad_weight, grad_bias


@broken("first_order", "second_order", inputs=lambda: (leaf(3), [leaf(4), leaf(4), leaf(4)]))
class MixtureOfList(Function):
    """Takes its tensors in a list, which autograd does not look into, so only the weights get a gradient."""

    @staticmethod
    def forward(ctx, weights, tensors):
        stacked = torch.stack(tensors)
        ctx.save_for_backward(stacked)
        return weights @ stacked

    @staticmethod
    def backward(ctx, g):
        (stacked,) = ctx.saved_tensors
        return stacked @ g, None


@broken("grad_output_layouts", "empty", inputs=lambda: (leaf(2, 3, 4), leaf(5, 4)))
class LinearViewsGradient(Function):
    """Flattens grad_output with view, which raises for most gradients that are not contiguous (NVIDIA/apex#1601)."""

    @staticmethod
    def forward(x, weight):
        return x @ weight.t()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        rows = g.view(-1, weight.shape[0])
        return (rows @ weight).view(x.shape), rows.t() @ x.reshape(-1, weight.shape[1])


@broken("forward_mode", inputs=lambda: (leaf(4, 3), leaf(3, 3)))
class LinearTransposedTangent(Function):
    """Its jvp multiplies by the weight as backward does, without the transpose; a square weight hides it."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, weight):
        return x @ weight.mT

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        grad_x = g @ weight if ctx.needs_input_grad[0] else None
        grad_weight = g.mT @ x if ctx.needs_input_grad[1] else None
        return grad_x, grad_weight

    @staticmethod
    def jvp(ctx, x_t, weight_t):
        x, weight = ctx.saved_tensors
        return x_t @ weight + x @ weight_t.mT


@broken("empty", "bfloat16", inputs=lambda: (leaf(300, 2), leaf(2)))
class BiasSummedInHalf(Function):
    """Adds the rows of the bias gradient one by one in the bias's own type, so that bfloat16 stops counting at 256."""

    @staticmethod
    def forward(x, bias):
        return x + bias

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        grad_bias = None
        if ctx.needs_input_grad[1]:
            grad_bias = torch.zeros_like(g[0])
            for row in g:
                grad_bias = grad_bias + row
        return g, grad_bias


@broken("unused_saved", inputs=lambda: (leaf(6, 4), leaf(3, 4), leaf(3)))
class LinearSavesUnused(Function):
    """Saves the output and the bias as well, which backward never uses."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, weight, bias):
        return x @ weight.mT + bias

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx, g):
        x, weight, _, _ = ctx.saved_tensors
        grad_x = g @ weight if ctx.needs_input_grad[0] else None
        grad_weight = g.mT @ x if ctx.needs_input_grad[1] else None
        grad_bias = g.sum(0) if ctx.needs_input_grad[2] else None
        return grad_x, grad_weight, grad_bias


@broken("saved_copies", inputs=lambda: (leaf(4, 6), leaf(6, 5)))
class MatmulSavesCopies(Function):
    """Saves contiguous transposed copies of both inputs, which doubles what is kept for backward."""

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a.mT.contiguous(), b.mT.contiguous())
        return a @ b

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        a_t, b_t = ctx.saved_tensors
        grad_a = g @ b_t if ctx.needs_input_grad[0] else None
        grad_b = a_t @ g if ctx.needs_input_grad[1] else None
        return grad_a, grad_b


@broken("first_order", "unneeded_gradients", inputs=lambda: (leaf(2, 4, 3), leaf(2, 4, 3), leaf(2, 4, 3)))
class CausalAttentionKeyScaleLost(Function):
    """Attention whose backward applies the 1 / sqrt(d) scale to the gradient of the queries but not of the keys."""

    @staticmethod
    def forward(ctx, q, k, v):
        scale = q.shape[-1] ** -0.5
        scores = q @ k.mT * scale
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        p = scores.masked_fill(mask, -math.inf).softmax(-1)
        ctx.save_for_backward(q, k, v, p)
        ctx.scale = scale
        return p @ v

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        q, k, v, p = ctx.saved_tensors
        gp = g @ v.mT
        gs = p * (gp - (gp * p).sum(-1, keepdim=True))
        return gs @ k * ctx.scale, gs.mT @ q, p.mT @ g


@broken("subsets", inputs=lambda: (leaf(4, 3), leaf(2, 3), leaf(2)))
class LinearFrozenWeightLosesBias(Function):
    """The bias gradient sits under the weight's needs_input_grad, so tuning only the biases gets None for them."""

    @staticmethod
    def forward(x, weight, bias):
        return x @ weight.T + bias

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        gx = gw = gb = None
        if ctx.needs_input_grad[0]:
            gx = g @ weight
        if ctx.needs_input_grad[1]:
            gw = g.T @ x
            gb = g.sum(0)
        return gx, gw, gb


@broken("unneeded_gradients", inputs=lambda: (leaf(2, 3, 4), leaf(2, 4, 5)))
class BatchedProductAlwaysBoth(Function):
    """Computes both matrix products of the backward though one of the inputs is often a constant."""

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return torch.bmm(a, b)

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return torch.bmm(g, b.mT), torch.bmm(a.mT, g)


@broken("returned", inputs=lambda: (leaf(2, 3, 4), leaf(4)))
class BiasTanhSumLeftToEngine(Function):
    """Returns the bias gradient in the shape of the output; the engine sums it, which the author never noticed."""

    @staticmethod
    def forward(x, bias):
        return torch.tanh(x + bias)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        gx = g * (1 - y * y)
        return gx, gx


@broken("grad_output_layouts", "empty", inputs=lambda: (leaf(2, 3, 4), leaf(5, 4)))
class TokenLinearViewsGradient(Function):
    """Calls .view on grad_output, which raises after a transpose of the output (NVIDIA/apex#1601)."""

    @staticmethod
    def forward(x, weight):
        return x @ weight.T

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        gx = gw = None
        if ctx.needs_input_grad[0]:
            gx = g @ weight
        if ctx.needs_input_grad[1]:
            gw = g.view(-1, g.shape[-1]).T @ x.reshape(-1, x.shape[-1])
        return gx, gw


@broken("global_settings", inputs=lambda: (leaf(3, 4), leaf(4, 2)))
class PreciseProductLeavesAutocastOff(Function):
    """Switches CPU autocast off for one precise product and never on again: the rest of the region runs in float32."""

    @staticmethod
    def forward(x, w):
        torch.set_autocast_enabled("cpu", False)
        return x @ w

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        gx = g @ w.T if ctx.needs_input_grad[0] else None
        gw = x.T @ g if ctx.needs_input_grad[1] else None
        return gx, gw


@broken("empty", "unneeded_gradients", inputs=lambda: (between(-1.5, 1.5, 3, 2, 4), between(-1.5, 1.5, 5, 8)))
class FlattenAndProject(Function):
    """The forward flattens to an explicit size, the backward to -1, which an empty batch cannot resolve."""

    @staticmethod
    def forward(x, w):
        return x.reshape(x.shape[0], w.shape[1]) @ w.t()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return (g @ w).reshape(x.shape), g.t() @ x.reshape(x.shape[0], -1)


@broken(
    "sizes",
    "unneeded_gradients",
    inputs=lambda: (between(-1.5, 1.5, 4, 3), between(-1.5, 1.5, 3, 5), between(-1.5, 1.5, 4, 5)),
)
class BilinearScore(Function):
    """Squeezes all sizes of one out of a gradient, so a batch of one comes back with a dimension too few."""

    @staticmethod
    def forward(a, m, b):
        return ((a @ m) * b).sum(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        a, m, b = ctx.saved_tensors
        gb = g.unsqueeze(-1) * b
        grad_a = torch.bmm(m.expand(g.shape[0], -1, -1), gb.unsqueeze(-1)).squeeze()
        return grad_a, a.t() @ gb, g.unsqueeze(-1) * (a @ m)


@broken(
    "unneeded_gradients",
    inputs=lambda: (
        between(-1.5, 1.5, 6, 5),
        between(-1.5, 1.5, 4, 5),
        between(-1.5, 1.5, 2, 5),
        between(-1.5, 1.5, 4, 2),
    ),
)
class LowRankAdaptedLinear(Function):
    """Computes the full gradient of the frozen base weight, the one thing that adapters are there to avoid."""

    @staticmethod
    def forward(x, w, down, up):
        return x @ w.t() + (x @ down.t()) @ up.t()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, w, down, up = ctx.saved_tensors
        inner = g @ up
        grad_x = g @ w + inner @ down if ctx.needs_input_grad[0] else None
        grad_w = g.t() @ x
        grad_down = inner.t() @ x if ctx.needs_input_grad[2] else None
        grad_up = g.t() @ (x @ down.t()) if ctx.needs_input_grad[3] else None
        return grad_x, grad_w, grad_down, grad_up


@broken("returned", inputs=lambda: (between(-1.5, 1.5, 2, 3, 4, 4), between(-1.5, 1.5, 3, 4, 4)))
class SoftmaxWithPositionBias(Function):
    """Returns the gradient of the bias with the batch still in it; only the engine's silent sum makes it right."""

    @staticmethod
    def forward(scores, bias):
        return (scores + bias).softmax(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        (weights,) = ctx.saved_tensors
        grad = weights * (g - (g * weights).sum(-1, keepdim=True))
        return grad, grad


@broken(
    "first_order",
    inputs=lambda: (torch.ones(4, 4).double().triu().to_sparse(), leaf(4, 3)),
)
class SparseNotTransposed(Function):
    """The backward multiplies with the sparse factor and not with its transpose."""

    @staticmethod
    def forward(matrix, x):
        return torch.sparse.mm(matrix, x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, g):
        return None, torch.sparse.mm(ctx.saved_tensors[0], g)


# --- right ---


@right(inputs=lambda: (leaf(2, 1, 3, 2), leaf(4, 2, 2)))
def broadcast_matmul(a, b):
    """Both batch shapes broadcast, so both gradients are sums."""
    return a @ b


@right(inputs=lambda: (leaf(2, 3), leaf(3, 4, 2), leaf(2, 4)))
def bilinear_form(a, w, b):
    """Three inputs in one contraction; the output is linear in each and in none together."""
    return torch.einsum("ni,ijk,nj->nk", a, w, b)


@right(inputs=lambda: (leaf(2, 4, 3), leaf(2, 4, 3), leaf(2, 4, 2)))
def causal_attention(q, k, v):
    """Scores are filled with minus infinity inside, though no output or gradient is infinite."""
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    return torch.softmax(scores.masked_fill(future, -math.inf), dim=-1) @ v


@right(inputs=lambda: (leaf(2, 3, 4), leaf(2, 4), None))
class LinearWithOptionalBias(Function):
    """The bias is None here, and its gradient then is None as well."""

    @staticmethod
    def forward(x, weight, bias):
        if x.ndim < 2 or weight.ndim != 2 or (bias is not None and bias.shape != weight.shape[:1]):
            raise ValueError("needs x of at least two dimensions, a matrix, and a bias as long as its rows are many")
        y = x @ weight.mT
        return y if bias is None else y + bias

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, _ = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        need_x, need_weight, need_bias = ctx.needs_input_grad
        rows = g.flatten(0, -2)
        grad_x = g @ weight.conj() if need_x else None
        grad_weight = rows.mT @ x.flatten(0, -2).conj() if need_weight else None
        grad_bias = rows.sum(0) if need_bias else None
        return grad_x, grad_weight, grad_bias


@right(inputs=lambda: (leaf(4, 3), leaf(5, 3), leaf(5)))
class LinearWithoutCustomFwd(Function):
    """Lacks custom_fwd, so that its backward raises under autocast: a capability that it lacks, not a wrong number."""

    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        grad_x = g.matmul(weight) if ctx.needs_input_grad[0] else None
        grad_weight = g.mT.matmul(x) if ctx.needs_input_grad[1] else None
        grad_bias = g.sum(0) if ctx.needs_input_grad[2] else None
        return grad_x, grad_weight, grad_bias


def _attention_inputs():
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    return leaf(2, 5, 3), leaf(2, 5, 3), leaf(2, 5, 4), mask


@right(inputs=_attention_inputs)
class RecomputedAttention(Function):
    """Keeps the log of the normalizer instead of the weights and computes the weights again in the backward."""

    @staticmethod
    def _scores(q, k, mask):
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        return scores if mask is None else scores.masked_fill(~mask, -math.inf)

    @staticmethod
    def forward(ctx, q, k, v, mask=None):
        if not q.shape[:-2] == k.shape[:-2] == v.shape[:-2]:
            raise ValueError("expected the same batch dimensions")
        with torch.autocast(q.device.type, enabled=False):
            scores = RecomputedAttention._scores(q, k, mask)
            normalizer = scores.logsumexp(-1, keepdim=True)
            result = (scores - normalizer).exp() @ v
        ctx.save_for_backward(q, k, v, mask, normalizer, result)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        q, k, v, mask, normalizer, result = ctx.saved_tensors
        need_q, need_k, need_v = ctx.needs_input_grad[:3]
        weights = (RecomputedAttention._scores(q, k, mask) - normalizer).exp()
        grad_q = grad_k = None
        if need_q or need_k:
            inner = weights * (g @ v.mT - (g * result).sum(-1, keepdim=True)) / math.sqrt(q.shape[-1])
            grad_q = inner @ k if need_q else None
            grad_k = inner.mT @ q if need_k else None
        return grad_q, grad_k, (weights.mT @ g if need_v else None), None


@right(inputs=lambda: (leaf(3, 4), leaf(2, 4), None))
class LinearBiasOrNot(Function):
    """A linear layer called without its bias, which asks for each product only when it is needed."""

    @staticmethod
    def forward(x, weight, bias):
        if x.dim() != 2:
            raise ValueError("expected a matrix of rows")
        with torch.autocast(x.device.type, enabled=False):
            return x @ weight.T if bias is None else x @ weight.T + bias

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        grad_x = g @ weight if ctx.needs_input_grad[0] else None
        grad_weight = g.T @ x if ctx.needs_input_grad[1] else None
        return grad_x, grad_weight, (g.sum(0) if ctx.needs_input_grad[2] else None)


@right(inputs=lambda: (torch.ones(4, 4).double().triu().to_sparse(), leaf(4, 3)))
class SparseTimesDense(Function):
    """The sparse factor needs no gradient, and has neither strides nor other sizes."""

    @staticmethod
    def forward(matrix, x):
        return torch.sparse.mm(matrix, x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, g):
        return None, torch.sparse.mm(ctx.saved_tensors[0].t(), g)
