r"""
Custom functions under DDP and FSDP2
====================================

You will run custom functions in several processes, each with a part of the batch, and get the gradients of a single
process up to rounding. You will also compute a loss that compares samples of different processes.
"""

# %%
# When to use it
# --------------
#
# DDP (``DistributedDataParallel``) and FSDP2 (``fully_shard``) split the batch over several processes and average the
# gradients. FSDP2 also splits the weights. Under both, a custom function must take its parameters as arguments and
# *return* their gradients. A backward that calls ``torch.autograd.backward``, like many checkpoints written by hand,
# fills ``.grad`` itself. DDP can then silently miss a part of this gradient, as the section "The wrong version" shows.
#
# Read on if your gradients differ from those of one process. Also read on if a loss compares samples of different
# processes, as contrastive losses do. Such a loss needs :func:`~autograd_cookbook.recipes.data_parallel.all_gather`.
#
# The gradient
# ------------
#
# Each of :math:`n` ranks (processes) has a loss :math:`L_r` of its own samples, and DDP and FSDP2 average the
# gradients: :math:`\bar{\theta} = \frac{1}{n} \sum_r \partial L_r / \partial \theta`. If each loss is a mean and the
# parts of the batch are equal, this average is the gradient of the whole batch. If every rank uses the samples of all
# ranks, the gradient of a sample comes from all ranks. These gradients must be added up on the rank that has the
# sample:
#
# .. math:: y_r = [x_0, x_1, \dots], \qquad \bar{x}_r = \textstyle\sum_s \text{part } r \text{ of } \bar{y}_s .
#
# The recipe
# ----------
#
# The recipe has two functions, ``all_gather`` and ``reduce_scatter``. Each is the backward of the other, so there are
# derivatives of any order.
#
# .. recipe:: all_gather
#
# ``run_ranks`` lets you try distributed code without a cluster: it runs a function in several processes of this
# machine. ``run_ranks`` sends the function as text, so the function must import all modules that it uses. In a program
# started by ``torchrun``, call ``init_process_group`` and then the function.
#
# .. recipe:: run_ranks

# sphinx_gallery_tags = ["distributed", "gradient"]
# sphinx_gallery_thumbnail_number = 1

import matplotlib.pyplot as plt

from autograd_cookbook.recipes.data_parallel import run_ranks

# %%
# See it work
# -----------
#
# The model consists of two custom functions, :doc:`linear_relu </cookbook/04_memory/masks>` and
# :doc:`linear_cross_entropy </cookbook/04_memory/linear_cross_entropy>`, in float64. Two ranks process half of the
# batch each, and the cell compares their gradients with those of the whole batch in one process. The same processes
# also run the mistakes that the section "The wrong version" prints.


def models():
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.autograd import Function
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    from autograd_cookbook.recipes.linear_cross_entropy import linear_cross_entropy
    from autograd_cookbook.recipes.masks import linear_relu

    rank, size = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (size,))
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    x, labels = torch.randn(8, 6), torch.randint(10, (8,))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.body, self.head = nn.Linear(6, 16), nn.Linear(16, 10, bias=False)

        def forward(self, x, labels):
            hidden = linear_relu(x, self.body.weight, self.body.bias)
            return linear_cross_entropy(hidden, self.head.weight, labels)

    def part(tensor):
        return tensor.chunk(size)[rank]

    found = {"torch": torch.__version__}
    one = Model()
    one(x, labels).backward()
    for name, model in (("DDP", DistributedDataParallel(Model())), ("FSDP2", fully_shard(Model(), mesh=mesh))):
        model(part(x), part(labels)).backward()
        grads = [p.grad.full_tensor() if name == "FSDP2" else p.grad for p in model.parameters()]
        errors = [(g - p.grad).abs().max() for g, p in zip(grads, one.parameters(), strict=True)]
        found[f"{name}: largest difference"] = float(max(errors))

    # What goes wrong, and what only seems to go wrong.

    def message(function):
        try:
            function()
        except RuntimeError as error:
            return str(error).partition(". ")[0]

    plain = nn.Linear(6, 3)
    model = DistributedDataParallel(nn.Linear(6, 3))
    model.module.load_state_dict(plain.state_dict())
    model(part(x)).square().sum().backward()
    plain(x).square().sum().backward()
    found["a sum as loss under DDP, ratio"] = float((model.module.weight.grad / plain.weight.grad).mean())

    class KeepsWeight(Function):
        """Keeps the weight, or a copy of it, without save_for_backward."""

        @staticmethod
        def forward(input, weight, copy):
            return input @ weight.mT

        @staticmethod
        def setup_context(ctx, inputs, output):
            input, weight, copy = inputs
            ctx.save_for_backward(input)
            ctx.weight = weight.detach().clone() if copy else weight

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output @ ctx.weight, grad_output.mT @ ctx.saved_tensors[0], None

    class Layer(nn.Module):
        def __init__(self, copy):
            super().__init__()
            torch.manual_seed(2)
            self.weight, self.copy = nn.Parameter(torch.randn(6, 6)), copy

        def forward(self, x):
            y = KeepsWeight.apply(x, self.weight, self.copy)
            self.kept = y.grad_fn.weight
            return y

    for copy in (False, True):
        model = nn.Sequential(Layer(copy), Layer(copy))
        for layer in (*model, model):
            fully_shard(layer, mesh=mesh)
        loss = model(part(x)).square().mean()
        name = "copy" if copy else "attribute"
        found[f"bytes of the {name} after forward"] = model[0].kept.untyped_storage().nbytes()
        loss.backward()
        found[f"gradient with the {name}"] = float(model[0].weight.grad.full_tensor().norm())

    class NotAnInput(nn.Linear):
        def forward(self, x):
            bias = self.bias.detach()  # then a function can use it without having it as an argument
            return KeepsWeight.apply(x, self.weight, False) + bias

    model = DistributedDataParallel(nn.Sequential(NotAnInput(6, 3)))
    model(x).sum().backward()
    found["DDP, a parameter that is no input"] = message(lambda: model(x).sum().backward())
    model = DistributedDataParallel(nn.Sequential(NotAnInput(6, 3)), find_unused_parameters=True)
    for _ in range(2):
        model(x).sum().backward()
    found["DDP, silenced: bias without gradient"] = model.module[0].bias.grad is None

    class Recomputes(Function):
        """A checkpoint by hand, whose parameters get their gradients from a backward inside of backward."""

        @staticmethod
        def forward(ctx, x, layer):
            ctx.layer = layer
            ctx.save_for_backward(x)
            return layer(x)

        @staticmethod
        def backward(ctx, grad_output):
            x = ctx.saved_tensors[0].detach().requires_grad_()
            with torch.enable_grad():
                y = ctx.layer(x)
            torch.autograd.backward(y, grad_output)
            return x.grad, None

    class ReturnsGradients(Recomputes):
        @staticmethod
        def forward(ctx, x, layer, *parameters):
            return Recomputes.forward(ctx, x, layer)

        @staticmethod
        def backward(ctx, grad_output):
            x = ctx.saved_tensors[0].detach().requires_grad_()
            with torch.enable_grad():
                y = ctx.layer(x)
            grad_x, *grads = torch.autograd.grad(y, [x, *ctx.layer.parameters()], grad_output)
            return grad_x, None, *grads

    class Shared(nn.Module):
        def __init__(self, how, times):
            super().__init__()
            torch.manual_seed(3)
            self.layer, self.how, self.times = nn.Linear(6, 6), how, times

        def forward(self, x):
            for _ in range(self.times):
                parameters = () if self.how is Recomputes else self.layer.parameters()
                x = self.how.apply(x, self.layer, *parameters).tanh()
            return x.square().mean()

    cases = (
        ("returns gradients, used twice", ReturnsGradients, 2, {}),
        ("backward inside, used once", Recomputes, 1, {}),
        ("backward inside, used twice", Recomputes, 2, {}),
        ("backward inside, used twice, static_graph=True", Recomputes, 2, {"static_graph": True}),
        ("backward inside, used once, find_unused_parameters=True", Recomputes, 1, {"find_unused_parameters": True}),
    )
    for name, how, times, options in cases:
        alone, model = Shared(how, times), DistributedDataParallel(Shared(how, times), **options)
        alone(x.clone().requires_grad_()).backward()
        raised = message(lambda model=model: model(part(x).clone().requires_grad_()).backward())
        both = model.module.layer.weight.grad, alone.layer.weight.grad
        found[name] = raised or float((both[0] - both[1]).norm() / both[1].norm())

    head = fully_shard(nn.Linear(6, 10, bias=False), mesh=mesh)
    found["FSDP2, a weight outside of its module"] = message(lambda: linear_cross_entropy(x, head.weight, labels))

    for name, model in (("DDP", DistributedDataParallel(Model())), ("FSDP2", fully_shard(Model(), mesh=mesh))):
        leaf = x.clone().requires_grad_()
        (grad,) = torch.autograd.grad(model(leaf, labels), leaf, create_graph=True)
        found[f"{name}, second order"] = message(grad.square().sum().backward)
    (grad,) = torch.autograd.grad(model(leaf, labels), leaf, create_graph=True)
    model.unshard()
    found["FSDP2, second order after unshard()"] = message(grad.square().sum().backward)
    return found


found = run_ranks(models, 2)[0]
print("torch", found["torch"])
for name in ("DDP", "FSDP2"):
    print(f"{name:5} largest difference to one process {found[f'{name}: largest difference']:.0e}")
    assert found[f"{name}: largest difference"] < 1e-10

# %%
# A contrastive loss needs more. The encoding of one view of a sample must be closest to the other view of the same
# sample, among the views on *all* ranks. Torch's ``dist.all_gather`` gathers the views without a gradient. A common
# repair replaces the rank's own part of the result by the tensor that was sent, because this tensor has a gradient. The
# example has thirty-two samples on two ranks. It averages their gradients as DDP does, and computes the gradient in one
# process for comparison:


def contrastive():
    import torch
    import torch.distributed as dist
    from torch.nn import Linear, Sequential, Tanh
    from torch.nn import functional as F
    from torch.nn.utils import parameters_to_vector, vector_to_parameters

    from autograd_cookbook.recipes.data_parallel import all_gather

    rank, size = dist.get_rank(), dist.get_world_size()
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    sample = torch.randn(32, 16)
    views = torch.stack([sample + 0.6 * torch.randn(32, 16) for _ in range(2)])
    part = views.chunk(size, dim=1)[rank]

    def plain(own):
        parts = [torch.empty_like(own) for _ in range(size)]
        dist.all_gather(parts, own.detach())
        return torch.cat(parts)

    def repaired(own):
        parts = list(plain(own).chunk(size))
        parts[rank] = own
        return torch.cat(parts)

    def loss_of(encoder, views, gather, first):
        queries, keys = F.normalize(encoder(views.flatten(0, 1)), dim=1).chunk(2)
        return F.cross_entropy(8 * queries @ gather(keys).mT, torch.arange(len(queries)) + first)

    def gradient(loss, encoder):
        return parameters_to_vector(torch.autograd.grad(loss, list(encoder.parameters()), retain_graph=True))

    curves = {}
    ways = {"one process": None, "all_gather": all_gather, "own part put back": repaired, "no gradient": plain}
    for name, gather in ways.items():
        torch.manual_seed(1)
        encoder = Sequential(Linear(16, 32), Tanh(), Linear(32, 4))
        losses, errors = [], []
        for _ in range(80):
            whole = loss_of(encoder, views, lambda keys: keys, 0)  # the loss of one process, only for comparison
            right = gradient(whole, encoder)
            loss = loss_of(encoder, part, gather, rank * part.shape[1]) if gather else whole
            used = gradient(loss, encoder)
            dist.all_reduce(used)
            used /= size  # the average, as under DDP
            step = parameters_to_vector(encoder.parameters()).detach() - 0.05 * used
            vector_to_parameters(step, encoder.parameters())
            errors.append(float((used - right).norm() / right.norm()))
            losses.append(whole.item())
        curves[name] = losses, errors
    return curves


curves = run_ranks(contrastive, 2)[0]
figure, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.2), layout="constrained")
figure.suptitle("A contrastive loss on two ranks also falls with wrong gradients")
for (name, (losses, errors)), style, width in zip(
    curves.items(), ("-", "--", "-.", ":"), (4, 1.8, 1.8, 1.8), strict=True
):
    left.semilogy(losses, style, label=name, linewidth=width, alpha=0.4 if width > 2 else 1)
    if name != "one process":
        right.semilogy(errors, style, color=left.lines[-1].get_color())
left.set(xlabel="step", ylabel="loss of the whole batch")
left.legend(fontsize=8)
right.set(xlabel="step", ylabel="relative error of the gradient", ylim=(1e-17, 10))
plt.show()

for name, (losses, errors) in curves.items():
    print(f"{name:18} last loss {losses[-1]:.4f}, largest error of a gradient {max(errors):.1e}")
assert max(curves["all_gather"][1]) < 1e-10 < 0.5 < max(curves["own part put back"][1])

# %%
# The wrong version
# -----------------
#
# The first wrong version is in the figure. Without the gradients of the other ranks, the loss still falls, to a worse
# value, and PyTorch gives no warning. If you put your own part back, the gradients of all other parts are still
# missing.
#
# The first cell of this page also tried other common mistakes under DDP and FSDP2. If the loss is a *sum* over samples,
# DDP averages these sums, so the gradient is too small by the number of ranks. Multiply such a loss by
# ``dist.get_world_size()``:

print(f"a sum as loss under DDP: {found['a sum as loss under DDP, ratio']:.2f} times the gradient of one process")

# %%
# A parameter that the function uses without having it as an argument gets no gradient. DDP waits for this gradient and
# raises in the next step. With ``find_unused_parameters=True`` there is no error, and the parameter never learns:

print(found["DDP, a parameter that is no input"])
assert found["DDP, silenced: bias without gradient"]

# %%
# A backward inside of backward is another mistake. DDP averages a gradient when ``.grad`` is filled for the first time.
# A layer that is used twice fills it twice, and DDP silently does not average the second gradient. Make the parameters
# arguments of the function and return their gradients instead. If you can't, pass ``static_graph=True``, but not
# ``find_unused_parameters=True``, with which DDP raises an error even for a layer that is used once. The cell prints
# the relative error of the weight's gradient, or the error:

for name in found:
    if "used" in name:
        print(f"{name:56} {found[name] if isinstance(found[name], str) else format(found[name], '.0e')}")
assert found["returns gradients, used twice"] < 1e-12 > found["backward inside, used once"]
assert found["backward inside, used twice"] > 0.01
assert found["backward inside, used twice, static_graph=True"] < 1e-12
assert "only once" in found["backward inside, used once, find_unused_parameters=True"]

# %%
# Outside of the forward of its module, an FSDP2 weight is a shard: the part of one rank. A loss that uses the weight of
# the last layer, like ``linear_cross_entropy``, must be called *inside* of a forward, as in the model above:

print(found["FSDP2, a weight outside of its module"])

# %%
# Second derivatives work with DDP. With FSDP2 they raise an error, because FSDP2 frees the weights after the first
# backward. This has nothing to do with custom functions. Gather the weights again in between: call ``unshard()`` on
# each module that was given to ``fully_shard``:

print("DDP:                    ", found["DDP, second order"] or "ok")
print("FSDP2:                  ", found["FSDP2, second order"])
print("FSDP2 after unshard():  ", found["FSDP2, second order after unshard()"] or "ok")
assert found["DDP, second order"] is None
assert "storage of size 0" in found["FSDP2, second order"]
assert found["FSDP2, second order after unshard()"] is None

# %%
# What it costs
# -------------
#
# ``all_gather`` keeps nothing for backward. Forward sends each part to every rank, and backward sends as much.
#
# FSDP2 empties the storage of a full weight after forward, and fills the same storage again for backward. So if you
# keep a weight as an attribute of ``ctx`` instead of saving it, its numbers are there again in backward. But PyTorch
# does not check such an attribute for in-place changes (:ref:`tensor on ctx <check-tensors-on-ctx>`). A *copy* of a
# weight, or any tensor computed from it, costs memory, because it stays whole on every rank. The next cell prints the
# bytes for a weight of 6 × 6 in float64:

for name in ("attribute", "copy"):
    print(f"{name:9} {found[f'bytes of the {name} after forward']:4} bytes between forward and backward")
assert found["gradient with the attribute"] == found["gradient with the copy"]
assert found["bytes of the attribute after forward"] == 0

# %%
# Neighbors
# ---------
#
# * :ref:`per-sample-ranks`: DP-SGD on several processes, which DDP can't do for you.
# * :doc:`/cookbook/08_distributed/tensor_parallel`: split a layer instead of the batch.
# * :doc:`/cookbook/04_memory/linear_cross_entropy`: the loss of this model.
# * :doc:`/cookbook/04_memory/masks`: the first layer of this model.
# * In torch's documentation: :class:`torch.nn.parallel.DistributedDataParallel`,
#   :func:`torch.distributed.fsdp.fully_shard`, :func:`torch.distributed.all_gather`.
