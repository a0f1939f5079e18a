r"""
Gradients that survive an export
================================

You will export a model, see which custom gradients are in the exported file and which are silently lost, and make the
export raise if it loses one.
"""

# %%
# When to use it
# --------------
#
# Use the checked export of this page when you will *differentiate* a program made by :func:`torch.export.export`. For
# example, you fine-tune it elsewhere, compute adversarial examples with it, or put it into a larger model. For
# inference alone, there is nothing to check.
#
# The gradient
# ------------
#
# A bar marks a gradient: :math:`\bar{y}` is the gradient of the loss with respect to :math:`y`.
#
# An export records the operators that run in forward. The program has the derivative of these operators:
#
# * A ``Function`` is not an operator. The export records its forward but not its backward. If your backward is the
#   derivative of the forward, the program has the same gradient. If your backward returns *another* gradient on
#   purpose, the program loses it. In this case, write an operator instead. With ``strict=True``, the export records the
#   forward under ``no_grad``, so the program loses the gradient of every ``Function`` (torch 2.13).
# * For an operator of :func:`torch.library.custom_op`, the export records only the name. A process must register the
#   operator before it loads the program. The program then uses the gradient that this process has registered, and not
#   the gradient from the process that exported it.
#
# For example, take rounding, :math:`r`, with the straight-through gradient. In the module, the gradient passes
# unchanged: :math:`\bar{x} = \bar{y}`. In the program, it is multiplied by the derivative of rounding, which is 0:
# :math:`\bar{x} = \bar{y}\, r'(x) = 0`.
#
# The recipe
# ----------
#
# .. recipe:: export_with_gradients

# sphinx_gallery_tags = ["black box", "gradient"]
# sphinx_gallery_thumbnail_number = 1

import io
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from torch import nn

from autograd_cookbook.auditing import audit
from autograd_cookbook.recipes.custom_operator import recursive_filter
from autograd_cookbook.recipes.export import export_with_gradients
from autograd_cookbook.recipes.straight_through import round_ste

print("torch", torch.__version__)

# %%
# See it work
# -----------
#
# The layer in the next cell rounds its weights to multiples of 1/8. It does so in two ways: with the ``Function`` of
# :doc:`/cookbook/02_changing_the_gradient/straight_through`, and with an operator that has the same gradient. The cell
# exports both and fine-tunes the programs. The figure shows that only the program with the operator learns.


@torch.library.custom_op("cookbook_page::round_through", mutates_args=())
def round_through(input: torch.Tensor) -> torch.Tensor:
    return input.round()


round_through.register_fake(lambda input: torch.empty_like(input))
round_through.register_autograd(lambda ctx, grad_output: grad_output)


class Rounded(nn.Module):
    def __init__(self, rounding):
        super().__init__()
        self.rounding = rounding
        self.weight = nn.Parameter(torch.linspace(-1, 1, 8).reshape(1, 8))

    def forward(self, input):
        return torch.nn.functional.linear(input, self.rounding(self.weight * 8) / 8)


torch.manual_seed(0)
data = torch.randn(256, 8)
target = data @ torch.tensor([[0.5, -0.25, 1.0, 0.0, -1.0, 0.75, 0.125, -0.5]]).mT


def losses_of(model, steps=80):
    """Fine-tune a module or a program, and return the losses."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (model(data) - target).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def saved_and_loaded(program):
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    return torch.export.load(file).module()


programs = {
    "Function": torch.export.export(Rounded(round_ste), (data,)),
    "operator": export_with_gradients(Rounded(round_through), (data,)),
}
for name, program in programs.items():
    print(f"{name}: {[str(node.target) for node in program.graph.nodes if node.op == 'call_function']}")

curves = {"the module": losses_of(Rounded(round_ste))}
for name, program in programs.items():
    curves[f"its program, rounding by a{'n' if name[0] == 'o' else ''} {name}"] = losses_of(saved_and_loaded(program))

figure, axis = plt.subplots(figsize=(7, 3.1), layout="constrained")
styles = {"linewidth": 6, "color": "0.75"}, {}, {"linestyle": "--"}
for (name, curve), style in zip(curves.items(), styles, strict=True):
    axis.plot(curve, label=name, **style)
axis.set(xlabel="step of fine-tuning", ylabel="mean squared error", ylim=(0, None))
axis.set_title("In an exported file, rounding by a Function does not learn; by an operator, it does")
axis.legend(loc="center right")
plt.show()
module, from_function, from_operator = curves.values()
assert module == from_operator
assert from_function[-1] == from_function[0]

# %%
# The file contains only the name of the operator. A process that has not registered the operator cannot load the file:

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "rounded.pt2")
    torch.export.save(programs["operator"], path)
    load = f"import torch; torch.export.load({str(path)!r})"
    done = subprocess.run([sys.executable, "-c", load], capture_output=True, text=True, check=False)
print("exit status", done.returncode)
print(next(line[:150] for line in done.stderr.splitlines() if "round_through" in line and "rror" in line))
assert done.returncode != 0

# %%
# An exported program can also call SciPy, if you put the call into an operator, as on the page
# :doc:`/cookbook/06_beyond_autograd/custom_operator`. The next cell exports such a model for batches of any size, and
# compares the gradients of the loaded program with those of the model:


class Resonator(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(16, 16)
        self.a = nn.Parameter(torch.tensor([-1.2, 0.6]))

    def forward(self, input):
        return recursive_filter(self.mix(input), self.a).tanh()


model = Resonator()
program = export_with_gradients(model, (torch.randn(4, 16),), dynamic_shapes=({0: torch.export.Dim("batch")},))
loaded = saved_and_loaded(program)
batch = torch.randn(9, 16)
names = [name for name, _ in model.named_parameters()]
ours = torch.autograd.grad(model(batch).sum(), [model.get_parameter(name) for name in names])
theirs = torch.autograd.grad(loaded(batch).sum(), [loaded.get_parameter(name) for name in names])
for name, one, other in zip(names, ours, theirs, strict=True):
    print(f"{name:10} largest difference of the gradient {float((one - other).abs().max()):.0e}")
    assert torch.allclose(one, other, rtol=1e-5)

# %%
# The wrong version
# -----------------
#
# A plain export does not report a lost gradient, and its outputs are right. So a test of the *outputs* passes. The
# checked export raises:

module = Rounded(round_ste)
exported = torch.export.export(module, (data,)).module()
print("outputs are equal:", torch.equal(exported(data), module(data)))
print("gradient of the module ", torch.autograd.grad(module(data).sum(), module.weight)[0][0, :3].tolist())
print("gradient of the program", torch.autograd.grad(exported(data).sum(), exported.weight)[0][0, :3].tolist())
try:
    export_with_gradients(module, (data,))
except RuntimeError as error:
    print("RuntimeError:", error)

# %%
# With ``strict=True``, the program loses the gradient of every ``Function``. The next cell shows it for the cube
# :math:`x^3`, although its backward is the derivative of the forward. The checked export passes its options on to
# ``torch.export.export``, and raises an error here, too:


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(input):
        return input**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        return 3 * ctx.saved_tensors[0] ** 2 * grad_output


cubes = Rounded(Cube.apply)
(expected,) = torch.autograd.grad(cubes(data).sum(), cubes.weight)
for strict in (False, True):
    exported = torch.export.export(cubes, (data,), strict=strict).module()
    output = exported(data)
    kept = output.requires_grad and torch.allclose(torch.autograd.grad(output.sum(), exported.weight)[0], expected)
    print(f"strict={strict!s:5} the program has the gradient of the module: {kept}")
    assert kept != strict
try:
    export_with_gradients(cubes, (data,), strict=True)
except RuntimeError as error:
    print("RuntimeError:", error)
else:
    raise AssertionError("a strict export keeps the gradient: say so above")

# %%
# The audit also finds the lost gradient, because an exported program is a function like any other:

weight = (3 * torch.randn(5, dtype=torch.float64)).requires_grad_()


class Alone(nn.Module):
    def forward(self, weight):
        return round_ste(weight)


program = torch.export.export(Alone(), (weight.detach(),)).module()
for name, function in {"module": round_ste, "program": program}.items():
    report = audit(function, (weight,), surrogate=lambda weight: weight * 1, only=["first_order"])
    print(f"{name:8} declares the gradient of the identity: {'ok' if report.ok else report.findings[0].summary}")

# %%
# What it costs
# -------------
#
# When you export, the check runs forward and backward once for the module and once for the program. The check does not
# change the program, so afterward the program runs as fast as without it.
#
# Neighbors
# ---------
#
# * :doc:`/cookbook/06_beyond_autograd/custom_operator`: how to register an operator and its gradient.
# * :doc:`/cookbook/02_changing_the_gradient/straight_through`: gradients that are not the derivative, on purpose.
# * :doc:`/cookbook/07_compile/torch_compile`: how to compile a ``Function`` whole, with its backward.
# * In torch's documentation: :func:`torch.export.export`, :func:`torch.library.custom_op`.
