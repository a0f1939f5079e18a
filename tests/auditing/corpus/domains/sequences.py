"""Recurrences, scans, positions and padded sequences."""

import numpy as np
import torch
import torch.nn.functional as F
from docs.pitfalls.programs import broken, right
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from tests.auditing.corpus.shared import FULL, between, leaf, only

# --- broken ---


@broken("first_order", "unneeded_gradients", inputs=lambda: (leaf(5, 2), between(0.5, 1.5, 2), leaf(2)))
class DecayScanLastState(Function):
    """Ignores the gradient of the second output, the final state (as in huggingface/transformers#23774)."""

    @staticmethod
    def scan(x, decay):
        states = [torch.zeros_like(decay)]
        for row in x:
            states.append(decay * states[-1] + row)
        return states

    @staticmethod
    def forward(x, decay, bonus):
        states = DecayScanLastState.scan(x, decay)
        return torch.stack(states[:-1]) + bonus * x, states[-1]

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g, g_state):
        x, decay, bonus = ctx.saved_tensors
        states = DecayScanLastState.scan(x, decay)
        carried = torch.zeros_like(decay)
        grad_decay = torch.zeros_like(decay)
        rows = []
        for t in reversed(range(x.shape[0])):
            rows.append(bonus * g[t] + carried)
            grad_decay = grad_decay + carried * states[t]
            carried = g[t] + decay * carried
        return torch.stack(rows[::-1]), grad_decay, (g * x).sum(0)


@broken("unused_outputs", "unneeded_gradients", inputs=lambda: (leaf(6), leaf(3)))
class PositionEncodingBothOrNothing(Function):
    """With undefined gradients switched on, it drops the whole gradient if only one of its outputs was used."""

    @staticmethod
    def forward(position, frequency):
        phase = torch.outer(position, frequency)
        return torch.sin(phase), torch.cos(phase)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g_sin, g_cos):
        if g_sin is None or g_cos is None:
            return None, None
        position, frequency = ctx.saved_tensors
        phase = torch.outer(position, frequency)
        g_phase = g_sin * torch.cos(phase) - g_cos * torch.sin(phase)
        return g_phase @ frequency, position @ g_phase


_ROTATIONS = {}


def _rotation(length, width, dtype):
    if (length, width) not in _ROTATIONS:
        step = 100.0 ** (-torch.arange(width, dtype=dtype) / width)
        angle = torch.arange(length, dtype=dtype)[:, None] * step
        _ROTATIONS[length, width] = angle.cos(), angle.sin()
    return _ROTATIONS[length, width]


@broken("float32", "float16", inputs=lambda: (leaf(2, 5, 6),))
class RotaryTableIgnoresDtype(Function):
    """Caches the rotation by size only: the first caller's dtype decides result dtype and accuracy for all others."""

    @staticmethod
    def rotate(x, sign):
        cos, sin = _rotation(x.shape[-2], x.shape[-1] // 2, x.dtype)
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - sign * b * sin, sign * a * sin + b * cos], -1)

    @staticmethod
    def forward(x):
        return RotaryTableIgnoresDtype.rotate(x, 1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        return RotaryTableIgnoresDtype.rotate(g, -1)


@broken(
    "subsets",
    "sizes",
    inputs=lambda: (
        between(-1.5, 1.5, 3, 4),
        between(-1.5, 1.5, 3, 2),
        between(-1.5, 1.5, 2, 4),
        between(-1.5, 1.5, 2, 2),
    ),
)
class ElmanCell(Function):
    """Guards the gradient of the hidden state with the flag of the input, so it is lost when the input is data."""

    @staticmethod
    def forward(x, h, w, u):
        return torch.tanh(x @ w.t() + h @ u.t())

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx, g):
        x, h, w, u, y = ctx.saved_tensors
        pre = g * (1 - y * y)
        grad_x = grad_h = grad_w = grad_u = None
        if ctx.needs_input_grad[0]:
            grad_x = pre @ w
            grad_h = pre @ u
        if ctx.needs_input_grad[2]:
            grad_w = pre.t() @ x
        if ctx.needs_input_grad[3]:
            grad_u = pre.t() @ h
        return grad_x, grad_h, grad_w, grad_u


@broken("vmap", inputs=lambda: (between(-1.5, 1.5, 5, 3), 0))
class DiscountedReturns(Function):
    """The vmap rule moves the batch to the front without moving a non-negative dim along, so it sums over the batch."""

    GAMMA = 0.9

    @staticmethod
    def forward(rewards, dim):
        total, out = torch.zeros_like(rewards.select(dim, 0)), []
        for reward in reversed(rewards.unbind(dim)):
            total = reward + DiscountedReturns.GAMMA * total
            out.append(total)
        return torch.stack(out[::-1], dim)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.dim = inputs[1]

    @staticmethod
    def backward(ctx, g):
        return DiscountedReturns.apply(g.flip(ctx.dim), ctx.dim).flip(ctx.dim), None

    @staticmethod
    def vmap(info, in_dims, rewards, dim):
        return DiscountedReturns.apply(rewards.movedim(in_dims[0], 0), dim), 0


# --- right ---


def _hmm():
    return leaf(6, 3), leaf(3, 3)


@right(inputs=_hmm)
class ChainLogPartition(Function):
    """The log partition of a linear chain by a NumPy recursion; the gradients are its marginals (0-dim output)."""

    @staticmethod
    def _messages(unary, pair):
        alpha, beta = np.zeros_like(unary), np.zeros_like(unary)
        alpha[0] = unary[0]
        for t in range(1, len(unary)):
            alpha[t] = unary[t] + np.logaddexp.reduce(alpha[t - 1][:, None] + pair, axis=0)
        for t in range(len(unary) - 2, -1, -1):
            beta[t] = np.logaddexp.reduce(pair + unary[t + 1] + beta[t + 1], axis=1)
        return alpha, beta, np.logaddexp.reduce(alpha[-1])

    @staticmethod
    def forward(unary, pair):
        if unary.dim() != 2 or len(unary) == 0 or pair.shape != (unary.shape[1], unary.shape[1]):
            raise ValueError("expected a chain that is not empty and a square matrix of transitions")
        total = ChainLogPartition._messages(unary.detach().double().numpy(), pair.detach().double().numpy())[2]
        return torch.tensor(total, dtype=unary.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        unary, pair = (t.double().numpy() for t in ctx.saved_tensors)
        alpha, beta, total = ChainLogPartition._messages(unary, pair)
        grad_unary = grad_pair = None
        if ctx.needs_input_grad[0]:
            grad_unary = g * torch.from_numpy(np.exp(alpha + beta - total)).to(g.dtype)
        if ctx.needs_input_grad[1]:
            joint = alpha[:-1, :, None] + pair + (unary[1:] + beta[1:])[:, None, :] - total
            grad_pair = g * torch.from_numpy(np.exp(joint).sum(0)).to(g.dtype)
        return grad_unary, grad_pair


@right(inputs=lambda: (leaf(7, 2, 4), torch.tensor([[1, 3, 3], [2, 1, 0]]), (7, 6), (3, 2)))
def ctc_of_scores(scores, targets, lengths, target_lengths):
    """The built-in CTC loss after log_softmax: integer targets, tuples, a step that one sample ignores, no hessian."""
    return F.ctc_loss(scores.log_softmax(-1), targets, lengths, target_lengths, reduction="none")


@right(inputs=lambda: (leaf(2, 4, 3), leaf(3, 3)))
class ChainForwardScore(Function):
    """The backward runs the backward algorithm over the sequence and returns marginals, once differentiable."""

    @staticmethod
    def forward(ctx, emissions, transitions):
        only(FULL, emissions, transitions)
        if emissions.dim() != 3 or emissions.shape[1] == 0:
            raise ValueError("expects emissions (batch, steps, tags) with one step at least")
        alphas = [emissions[:, 0]]
        for t in range(1, emissions.shape[1]):
            alphas.append((alphas[-1].unsqueeze(2) + transitions).logsumexp(1) + emissions[:, t])
        total = alphas[-1].logsumexp(1)
        ctx.save_for_backward(emissions, transitions, torch.stack(alphas, 1), total)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        emissions, transitions, alphas, total = ctx.saved_tensors
        steps = emissions.shape[1]
        beta = torch.zeros_like(emissions[:, 0])
        marginals, grad_transitions = [], torch.zeros_like(transitions)
        for t in range(steps - 1, -1, -1):
            if ctx.needs_input_grad[0]:
                marginals.append((alphas[:, t] + beta - total.unsqueeze(1)).exp() * g.unsqueeze(1))
            if t:
                step = transitions + (emissions[:, t] + beta).unsqueeze(1)
                if ctx.needs_input_grad[1]:
                    pair = (alphas[:, t - 1].unsqueeze(2) + step - total[:, None, None]).exp()
                    grad_transitions += (pair * g[:, None, None]).sum(0)
                beta = step.logsumexp(2)
        grad_emissions = torch.stack(marginals[::-1], 1) if ctx.needs_input_grad[0] else None
        return grad_emissions, grad_transitions if ctx.needs_input_grad[1] else None


@right(inputs=lambda: (leaf(3, 8), leaf(3, 2)))
class LstmPointwise(Function):
    """Two outputs of which either may be unused; recomputes the gates so that the second derivative is right."""

    @staticmethod
    def forward(ctx, gates, cell):
        only(FULL, gates, cell)
        if gates.dim() != 2 or gates.shape != (cell.shape[0], 4 * cell.shape[1]):
            raise ValueError("expects gates (N, 4 H) and cells (N, H)")
        ctx.save_for_backward(gates, cell)
        i, f, o, c = gates.chunk(4, 1)
        new = f.sigmoid() * cell + i.sigmoid() * c.tanh()
        return o.sigmoid() * new.tanh(), new

    @staticmethod
    def backward(ctx, grad_hidden, grad_cell):
        gates, cell = ctx.saved_tensors
        i, f, o, c = gates.chunk(4, 1)
        i, f, o, c = i.sigmoid(), f.sigmoid(), o.sigmoid(), c.tanh()
        squashed = (f * cell + i * c).tanh()
        total = grad_cell + grad_hidden * o * (1 - squashed * squashed)
        parts = [
            total * c * i * (1 - i),
            total * cell * f * (1 - f),
            grad_hidden * squashed * o * (1 - o),
            total * i * (1 - c * c),
        ]
        return torch.cat(parts, 1), total * f


@right(inputs=lambda: (leaf(2, 3), leaf(2, 3, 4), 5))
class BeamStep(Function):
    """Top hypotheses with their parents and tokens, two integer outputs; only the chosen entries get gradient."""

    @staticmethod
    def forward(scores, log_probs, length):
        only(FULL, scores, log_probs)
        if log_probs.dim() != 3 or scores.shape != log_probs.shape[:2]:
            raise ValueError("expects scores (N, beams) and log probabilities (N, beams, tokens)")
        vocabulary = log_probs.shape[2]
        best, flat = (scores.unsqueeze(2) + log_probs).flatten(1).topk(scores.shape[1], dim=1)
        return best / length**0.6, flat // vocabulary, flat % vocabulary

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.length, ctx.vocabulary = inputs[2], inputs[1].shape[2]
        ctx.save_for_backward(*output[1:])
        ctx.mark_non_differentiable(*output[1:])

    @staticmethod
    def backward(ctx, g, *_):
        parent, token = ctx.saved_tensors
        g = g / ctx.length**0.6
        grad_scores = grad_log_probs = None
        if ctx.needs_input_grad[0]:
            grad_scores = torch.zeros_like(g).scatter_add(1, parent, g)
        if ctx.needs_input_grad[1]:
            flat = g.new_zeros(g.shape[0], g.shape[1] * ctx.vocabulary)
            flat = flat.scatter(1, parent * ctx.vocabulary + token, g)
            grad_log_probs = flat.unflatten(1, (g.shape[1], ctx.vocabulary))
        return grad_scores, grad_log_probs, None


@right(inputs=lambda: (leaf(2, 3), leaf(4, 3), leaf(1, 3)))
class PackSequences(Function):
    """Takes any number of tensors, returns integer offsets too, and gives views of one gradient back."""

    @staticmethod
    def forward(*sequences):
        if not sequences:
            raise ValueError("expects one sequence at least")
        lengths = torch.tensor([0] + [s.shape[0] for s in sequences])
        return torch.cat(sequences), lengths.cumsum(0)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.lengths = [s.shape[0] for s in inputs]
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx, g, _):
        return g.split(ctx.lengths)


@right(inputs=lambda: (leaf(9, 4), torch.tensor([0, 2, 2, 5, 9])))
class SegmentSums(Function):
    """Sums between offsets, which must be sorted and end with the number of rows."""

    @staticmethod
    def forward(x, offsets):
        lengths = offsets.diff()
        if offsets[-1] != len(x) or (lengths < 0).any():
            raise ValueError("the offsets must be sorted and end with the number of rows")
        segment = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
        return x.new_zeros(len(lengths), x.shape[1]).index_add(0, segment, x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx, g):
        (offsets,) = ctx.saved_tensors
        return torch.repeat_interleave(g, offsets.diff(), 0), None
