r"""
Mixed precision: low outside, float32 inside
============================================

You will write a function for half precision whose gradient is as accurate as its dtype allows, and see how autocast
affects the forward and the backward of a custom function.
"""

# %%
# When to use it
# --------------
#
# In half precision, every operation of a composition rounds its result. If this loses too much accuracy, write a
# ``Function`` that takes half-precision arguments, computes in float32, rounds only its result, and keeps no float32
# tensor for backward. You need no ``Function`` if torch has such a fused operation, or if the rounding of each step is
# harmless.
#
# The gradient
# ------------
#
# A bar marks a gradient: :math:`\bar{c}` is the gradient of the loss with respect to :math:`c`.
#
# The example is the cosine of the angle between two vectors. With the unit vectors :math:`a = x / \|x\|` and
# :math:`b = y / \|y\|`,
#
# .. math::
#
#    c = a^\top b, \qquad \bar{x} = \frac{\bar{c}}{\|x\|}\,(b - c\,a) .
#
# When training has made two vectors nearly parallel, :math:`b - c\,a` is a difference of nearly equal numbers. If these
# numbers are rounded to three digits first, the difference is noise.
#
# The recipe
# ----------
#
# The recipe saves the arguments unchanged. Backward converts them to float32 again, and computes the unit vectors
# again.
#
# .. recipe:: cosine_similarity
#
# The second recipe is for functions with matrix products, which autocast runs in half precision:
#
# .. recipe:: cast_inputs

# sphinx_gallery_tags = ["stability", "memory", "compile", "second order"]
# sphinx_gallery_thumbnail_number = 1

import matplotlib.pyplot as plt
import torch
from torch.amp import custom_bwd, custom_fwd
from torch.autograd import Function, gradcheck, gradgradcheck
from torch.nn import functional as F

from autograd_cookbook.auditing import saved_bytes
from autograd_cookbook.recipes.mixed_precision import cast_inputs, cosine_similarity

print("torch", torch.__version__)

# %%
# See it work
# -----------
#
# The figure shows the error of the gradient for different angles between the vectors. The reference is the gradient in
# float64, for the same arguments, which are already rounded to bfloat16. The dotted line is the float64 gradient,
# rounded to bfloat16: no bfloat16 gradient can be better.

torch.manual_seed(0)
vectors, others, weights = torch.randn(256, 256), torch.randn(256, 256), torch.rand(256) + 0.5


def upcast(x, y):
    """What you would write: operation by operation in float32, then back."""
    unit_x, unit_y = F.normalize(x.float(), dim=-1), F.normalize(y.float(), dim=-1)
    return (unit_x * unit_y).sum(-1).to(x.dtype)


def by_parts(x, y):
    return (F.normalize(x, dim=-1) * F.normalize(y, dim=-1)).sum(-1)


def gradient(function, x, y, dtype=torch.bfloat16):
    x = x.to(dtype).requires_grad_()
    return torch.autograd.grad(function(x, y.to(dtype)), x, weights.bfloat16().to(dtype))[0].double()


ways = {"composed": by_parts, "built-in": F.cosine_similarity, "composed in float32": upcast, "ours": cosine_similarity}
angles = torch.logspace(0, -2.3, 12)
errors = {name: [] for name in (*ways, "best possible")}
for angle in angles:
    x, y = vectors.bfloat16(), (vectors + angle * others).bfloat16()
    exact = gradient(by_parts, x, y, torch.float64)
    found = {name: gradient(function, x, y) for name, function in ways.items()}
    for name, value in (found | {"best possible": exact.bfloat16().double()}).items():
        errors[name].append(float((value - exact).norm() / exact.norm()))
sides = [torch.randn(256, 256, dtype=torch.bfloat16).requires_grad_() for _ in range(2)]
kept = {name: saved_bytes(function, *sides) / sides[0].numel() for name, function in ways.items()}

figure, (left, right) = plt.subplots(1, 2, figsize=(7.4, 3.1), width_ratios=(1.7, 1), layout="constrained")
figure.suptitle("A cosine in bfloat16: our gradient has the least possible error, and keeps only the arguments")
for (name, values), style in zip(errors.items(), ("-s", "--o", "-^", "-", ":"), strict=True):
    color = {"ours": "C0", "best possible": "black"}.get(name, f"C{list(errors).index(name) + 1}")
    left.loglog(angles, values, style, color=color, label=name, linewidth=4 if name == "ours" else 1.5, markersize=4)
left.set(xlabel="angle between the vectors", ylabel="relative error of the gradient")
left.legend(fontsize=8)
bars = right.barh(list(kept), list(kept.values()), color=["C1", "C2", "C3", "C0"])
right.bar_label(bars, fmt="%.3g", padding=3)
right.invert_yaxis()
right.set(xlabel="bytes per element", xlim=(0, 20))
plt.show()
assert max(errors["ours"]) < 1.01 * max(errors["best possible"])
assert errors["built-in"][-1] > 0.5
assert kept["ours"] == 0

# %%
# The built-in computes in the dtype of its arguments. In float64, its gradient is also wrong if a vector is shorter
# than ``eps``:

x, y = (torch.randn(4, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
print("gradcheck, gradgradcheck    ", gradcheck(cosine_similarity, (x, y)), gradgradcheck(cosine_similarity, (x, y)))
for function in (cosine_similarity, F.cosine_similarity):
    shorter = gradcheck(lambda x, y, f=function: f(x, y, -1, 10.0), (x, y), raise_exception=False)
    print(f"{function.__module__[:5]}, vectors shorter than eps", shorter)
    assert shorter == (function is cosine_similarity)

# %%
# What autocast does to a function
# --------------------------------
#
# Autocast affects torch's operations, not a ``Function`` as a whole. The arguments of a ``Function`` are not cast. The
# operations inside of ``forward`` run under autocast. ``backward`` runs in the autocast state of the code that calls
# ``.backward()``, usually without autocast. So in backward, a matrix product gets a float32 argument and a bfloat16
# gradient, and raises an error. Two decorators of PyTorch prevent this: :func:`torch.amp.custom_fwd` for ``forward``,
# and :func:`torch.amp.custom_bwd` for ``backward``. The next cell runs one function without them, with them, and with
# ``cast_inputs=torch.float32``:

seen = []


def note(where, *tensors):
    state = "on " if torch.is_autocast_enabled("cpu") else "off"
    seen.append(f"{where:9} autocast {state}  {', '.join(str(t.dtype)[6:] for t in tensors)}")


class Product(Function):
    """In the older form, for which the decorators were made."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        y = x @ w
        note("forward", x, w, y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        x, w = ctx.saved_tensors
        note("backward", x, w, grad_output)
        return grad_output @ w.mT, x.mT @ grad_output


amp = {"device_type": "cpu"}


class Decorated(Product):
    forward = staticmethod(custom_fwd(Product.forward, **amp))
    backward = staticmethod(custom_bwd(Product.backward, **amp))


class InFloat32(Decorated):
    forward = staticmethod(custom_fwd(Product.forward, **amp, cast_inputs=torch.float32))


def run(function, *, inside=False):
    seen.clear()
    torch.manual_seed(0)
    x, w = torch.randn(8, 64, requires_grad=True), torch.randn(64, 16, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        y = function(x, w)
        if inside:
            return torch.autograd.grad(y.sum(), (x, w))
    return torch.autograd.grad(y.sum(), (x, w))


for name, function in (("as it is", Product), ("custom_fwd, custom_bwd", Decorated), ("to float32", InFloat32)):
    outcome = ""
    try:
        run(function.apply)
    except RuntimeError as error:
        outcome = f"\n  {error}"
    print(name, *seen, sep="\n  ", end=outcome + "\n")

# %%
# ``custom_fwd`` stores the autocast state on its first argument, as ``_fwd_used_autocast`` and ``_dtype``, and
# ``custom_bwd`` restores this state. In the form with ``setup_context``, the first argument of ``forward`` is not
# ``ctx`` but a tensor of the caller. So decorate ``setup_context`` instead of ``forward``, but without ``cast_inputs``:


class Modern(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, w):
        return x @ w

    @staticmethod
    @custom_fwd(device_type="cpu")
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    @custom_bwd(device_type="cpu")
    def backward(ctx, grad_output):
        x, w = ctx.saved_tensors
        return grad_output @ w.mT, x.mT @ grad_output


class DecoratedForward(Modern):
    forward = staticmethod(custom_fwd(Modern.forward, device_type="cpu"))
    setup_context = staticmethod(Modern.setup_context.__wrapped__)


expected = run(Decorated.apply)
compiled = torch.compile(Modern.apply, fullgraph=True, backend="aot_eager")
for function in (Modern.apply, compiled):
    assert all(map(torch.equal, run(function), expected))
with torch.autocast("cpu", torch.bfloat16):
    torch.func.vmap(torch.func.grad(lambda x: Modern.apply(x[None], torch.ones(3, 2)).sum()))(torch.ones(4, 3))
print("setup_context and backward decorated: eager, compiled, torch.func and vmap agree")

for attempt in (lambda: run(DecoratedForward.apply), lambda: custom_fwd(Product.forward)):
    try:
        attempt()
    except (AttributeError, TypeError) as error:
        print(f"{type(error).__name__}: {error}")
touched = torch.ones(1, 1)
DecoratedForward.apply(touched, touched.clone())
print("left on the caller's tensor:", list(vars(touched)))

# %%
# On ``setup_context``, ``cast_inputs=torch.float32`` **does not give a float32 forward**. ``forward`` has already run
# under autocast when the decorator casts the tensors, so the decorator casts only what is saved. Instead, turn autocast
# off around the call, and cast there. The decorated ``setup_context`` then stores "off", so backward runs without
# autocast, too:


class CastsTheSaved(Modern):
    @staticmethod
    def forward(x, w):
        y = x @ w
        note("forward", x, w, y)
        return y

    @staticmethod
    @custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def setup_context(ctx, inputs, output):
        note("setup", *inputs)
        ctx.save_for_backward(*inputs)


def in_float32(x, w):
    with torch.autocast(x.device.type, enabled=False):
        return Modern.apply(x.float(), w.float())


seen.clear()
with torch.autocast("cpu", torch.bfloat16):
    rounded = CastsTheSaved.apply(torch.ones(2, 3, dtype=torch.bfloat16), torch.ones(3, 2))
print("cast_inputs on setup_context", *seen, sep="\n  ")
assert rounded.dtype is torch.bfloat16
assert [line.split()[::2][:2] for line in seen] == [["forward", "on"], ["setup", "off"]]
assert seen[1].endswith("float32, float32")

whole = torch.compile(in_float32, fullgraph=True, backend="aot_eager")
for function in (InFloat32.apply, in_float32, whole):
    for inside in (False, True):
        found, exact = run(function, inside=inside), run(lambda x, w: x.double() @ w.double())
        assert all(torch.allclose(f, e, rtol=1e-4, atol=1e-5) for f, e in zip(found, exact, strict=True))
print("autocast off around the call: float32 in forward and backward, eager and compiled")

# %%
# If autocast's dtype is enough, a simpler way works for any device: cast outside of the function, where autograd
# records the cast.


class Plain(Modern):
    setup_context = staticmethod(Modern.setup_context.__wrapped__)
    backward = staticmethod(Modern.backward.__wrapped__)


def product(x, w):
    return cast_inputs(Plain.apply, x, w)


for function in (product, torch.compile(product, fullgraph=True, backend="aot_eager")):
    assert all(map(torch.equal, run(function), expected))
print("cast_inputs, eager and compiled: the same gradients")

# %%
# Small gradients
# ---------------
#
# float16 has no number between 0 and 6e-8. The gradient of a mean over a million elements is about as small, so some of
# its elements become 0. So scale the loss with ``GradScaler``, which also works on the CPU and with custom functions.
# The scaled loss must not overflow, so return a loss in float32.


class MeanSquare(Function):
    @staticmethod
    def forward(x):
        return x.float().square().mean()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return (2 / x.numel() * grad_output * x.float()).to(x.dtype)


residual = (0.1 * torch.randn(1_000_000)).half().requires_grad_()
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
truth = 2e-6 * residual.detach().double()
for name, factor in (("alone", 1.0), ("scaled", scaler.get_scale())):
    loss = MeanSquare.apply(residual)
    (found,) = torch.autograd.grad(scaler.scale(loss) if factor > 1 else loss, residual)
    error = (found.double() / factor - truth).norm() / truth.norm()
    print(f"{name:7} zeros {float((found == 0).double().mean()):6.2%}   error {float(error):.1e}")
print("scaled, were the loss in float16:", (MeanSquare.apply(residual + 2).half() * scaler.get_scale()).item())

# %%
# The wrong version
# -----------------
#
# This ``Function`` computes its forward in float32, and does not set the precision of its backward. In eager mode, it
# is right if you call ``backward`` outside of autocast, as usual. Compiled, the backward is traced with the autocast
# state of the *forward's caller*, so its matrix products are in bfloat16:


class Unguarded(Plain):
    @staticmethod
    def forward(x, w):
        with torch.autocast(x.device.type, enabled=False):
            return x @ w


class Guarded(Unguarded):
    @staticmethod
    def backward(ctx, grad_output):
        x, w = ctx.saved_tensors
        with torch.autocast(grad_output.device.type, enabled=False):
            return grad_output @ w.mT, x.mT @ grad_output


def error_of(function, inside=False):
    (found, _), (exact, _) = run(function, inside=inside), run(lambda x, w: x.double() @ w.double())
    return float((found - exact).norm() / exact.norm())


for function in (Unguarded, Guarded):
    whole = torch.compile(lambda x, w, f=function: f.apply(x, w), fullgraph=True, backend="aot_eager")
    print(f"{function.__name__:9}  eager {error_of(function.apply):.0e}", end="")
    print(f"   backward under autocast {error_of(function.apply, inside=True):.0e}", end="")
    print(f"   compiled {error_of(whole):.0e}")

# %%
# The second mistake is ``custom_fwd(cast_inputs=...)`` in a function that is differentiated twice. The decorator casts
# the tensors, and passes the results to ``forward``. These results have no connection to the graph, so the second
# derivative silently loses a part. In the example, the first derivative of :math:`(wx)^3` with respect to
# :math:`x` is :math:`3 w^3 x^2`. Its derivative with respect to :math:`w` is :math:`9 w^2 x^2`:


class Cube(Function):
    @staticmethod
    @custom_fwd(device_type="cpu", cast_inputs=torch.bfloat16)
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    @custom_bwd(device_type="cpu")
    def backward(ctx, grad_output):
        return 3 * ctx.saved_tensors[0] ** 2 * grad_output


class PlainCube(Function):
    @staticmethod
    def forward(x):
        return x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        return 3 * ctx.saved_tensors[0] ** 2 * grad_output


second = {}
for name, cube in (("custom_fwd", Cube.apply), ("cast_inputs", lambda x: cast_inputs(PlainCube.apply, x))):
    x, w = torch.ones((), requires_grad=True), torch.tensor(1.5, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        y = cube(w * x)
    (slope,) = torch.autograd.grad(y, x, create_graph=True)
    second[name] = torch.autograd.grad(slope, w)[0].item()
print("exact", 9 * 1.5**2, second)
assert second["custom_fwd"] != second["cast_inputs"] == 9 * 1.5**2

# %%
# What it costs
# -------------
#
# .. costs::
#
# Backward computes the unit vectors again. For bfloat16 arguments, which have two bytes per element, the composition
# that computes in float32 keeps 16 bytes per element.
#
# Neighbors
# ---------
#
# * :doc:`/cookbook/04_memory/selective_saving`: ``rms_norm``, which computes in float32 in the same way.
# * :doc:`/cookbook/04_memory/linear_cross_entropy`: a loss that accumulates in float32.
# * :doc:`/cookbook/03_stability/safe_functions`: when no precision is enough.
# * :doc:`/cookbook/07_compile/graph_breaks`: other code that changes its meaning when compiled.
# * In torch's documentation: :func:`torch.amp.custom_fwd`, :func:`torch.amp.custom_bwd`, :class:`torch.autocast`.
