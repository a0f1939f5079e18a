"""Autocast, GradScaler and dtypes that do not fit."""

import copy

import torch
from docs.errors.programs import fixes, raises
from torch import nn
from torch.amp import GradScaler, custom_bwd, custom_fwd
from torch.autograd import Function
from torch.nn import functional as F
from torch.optim.lr_scheduler import StepLR
from torch.utils.checkpoint import checkpoint


@raises(
    "custom_bwd was used without custom_fwd",
    cause="""``custom_bwd`` restores the autocast state that ``custom_fwd`` noted on ``ctx``. ``forward`` has no
    ``custom_fwd``, or takes no ``ctx``, as in a Function with ``setup_context``: then the note goes to its first
    argument, a tensor.""",
    fix="Decorate a ``forward`` that takes ``ctx`` with ``custom_fwd``, and ``backward`` with ``custom_bwd``. With "
    "``setup_context``, leave both out: note ``ctx.autocast = torch.is_autocast_enabled(x.device.type)`` there, and "
    "compute in ``backward`` under ``with torch.autocast(grad_output.device.type, enabled=ctx.autocast):``.",
    see=("cookbook/07_compile/mixed_precision", "check:autocast"),
)
def bwd_without_fwd():
    class Double(Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        @custom_bwd(device_type="cpu")
        def backward(ctx, grad_output):
            return 2 * grad_output

    Double.apply(torch.randn(3, requires_grad=True)).sum().backward()


@fixes(bwd_without_fwd)
def bwd_with_fwd():
    class Double(Function):
        @staticmethod
        @custom_fwd(device_type="cpu")
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        @custom_bwd(device_type="cpu")
        def backward(ctx, grad_output):
            return 2 * grad_output

    Double.apply(torch.randn(3, requires_grad=True)).sum().backward()


@raises(
    "custom_fwd was used without a device type",
    cause="""The decorators of ``torch.amp`` need the type of the device whose autocast they follow. The deprecated
    ones of ``torch.cuda.amp`` did not. ``custom_bwd`` raises the same message.""",
    fix='Write ``@custom_fwd(device_type="cuda")``, and the same for ``custom_bwd``.',
    see=("cookbook/07_compile/mixed_precision",),
)
def fwd_without_device():
    class Double(Function):
        @staticmethod
        @custom_fwd
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        @custom_bwd
        def backward(ctx, grad_output):
            return 2 * grad_output


@fixes(fwd_without_device)
def fwd_with_device():
    class Double(Function):
        @staticmethod
        @custom_fwd(device_type="cpu")
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        @custom_bwd(device_type="cpu")
        def backward(ctx, grad_output):
            return 2 * grad_output


@raises(
    "custom_fwd was taken from torch.cuda.amp",
    warning=True,
    cause="The decorators moved to ``torch.amp``, and take the type of the device.",
    fix='Use ``torch.amp.custom_fwd(device_type="cuda")``, and the same for ``custom_bwd``.',
    see=("cookbook/07_compile/mixed_precision",),
)
def deprecated_custom_fwd():
    class Double(Function):
        @staticmethod
        @torch.cuda.amp.custom_fwd
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        @torch.cuda.amp.custom_bwd
        def backward(ctx, grad_output):
            return 2 * grad_output


@fixes(deprecated_custom_fwd)
def current_custom_fwd():
    class Double(Function):
        @staticmethod
        @custom_fwd(device_type="cuda")
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        @custom_bwd(device_type="cuda")
        def backward(ctx, grad_output):
            return 2 * grad_output


@raises(
    "autocast was given a device number",
    cause="``autocast`` takes the type of the device, a string, and applies to all devices of that type.",
    fix='Write ``torch.autocast("cuda")``, or ``x.device.type``.',
    see=("cookbook/07_compile/mixed_precision",),
)
def autocast_device_index():
    with torch.autocast(0, dtype=torch.bfloat16):
        torch.randn(3, 3) @ torch.randn(3, 3)


@fixes(autocast_device_index)
def autocast_device_type():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.randn(3, 3) @ torch.randn(3, 3)


@raises(
    "autocast was called with a tensor",
    cause="``autocast`` is a context manager, or a decorator for a function. It does not convert tensors.",
    fix="Compute inside of ``with torch.autocast(...):``, and convert with ``x.bfloat16()``.",
    see=("cookbook/07_compile/mixed_precision",),
)
def autocast_of_tensor():
    x = torch.randn(3)
    torch.autocast("cpu")(x)


@fixes(autocast_of_tensor)
def autocast_as_context():
    x = torch.randn(3)
    with torch.autocast("cpu"):
        print(2 * x)


@raises(
    "autocast was asked for a dtype that it does not support",
    warning=True,
    cause="""On the CPU, autocast supports ``bfloat16`` and ``float16``. With another dtype it switches itself off,
    and only warns.""",
    fix="Pass a supported dtype.",
    see=("cookbook/07_compile/mixed_precision",),
)
def autocast_dtype():
    with torch.autocast("cpu", dtype=torch.float64):
        torch.randn(3, 3) @ torch.randn(3, 3)


@fixes(autocast_dtype)
def autocast_bfloat16():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.randn(3, 3) @ torch.randn(3, 3)


@raises(
    "autocast was asked for CUDA on a machine without it",
    warning=True,
    cause="Without CUDA the context switches itself off, and only warns: everything runs in full precision.",
    fix="""Take the type from the tensors: ``torch.autocast(x.device.type)``. On the CPU this computes in
    ``bfloat16``.""",
    see=("cookbook/07_compile/mixed_precision",),
)
def autocast_without_cuda():
    x = torch.randn(3, 3)
    with torch.autocast("cuda"):
        x @ x


@fixes(autocast_without_cuda)
def autocast_of_device():
    x = torch.randn(3, 3)
    with torch.autocast(x.device.type):
        x @ x


@raises(
    "The backward of a Function met two dtypes under autocast",
    cause="""Autocast was on in ``forward``, so the product is ``bfloat16``, but the saved matrices are ``float32``.
    ``backward`` ran outside of autocast, so its operation gets both dtypes.""",
    fix="""Decorate with ``custom_fwd`` and ``custom_bwd``, which restore the autocast state of ``forward`` in
    ``backward``; or convert the tensors in ``backward``.""",
    see=("cookbook/07_compile/mixed_precision", "check:autocast"),
)
def autocast_saved_dtypes():
    class MatMul(Function):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.save_for_backward(x, weight)
            return x @ weight

        @staticmethod
        def backward(ctx, grad_output):
            x, weight = ctx.saved_tensors
            return grad_output @ weight.T, x.T @ grad_output

    x, weight = torch.randn(3, 3, requires_grad=True), torch.randn(3, 3, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = MatMul.apply(x, weight).sum()
    loss.backward()


@fixes(autocast_saved_dtypes)
def autocast_state_restored():
    class MatMul(Function):
        @staticmethod
        @custom_fwd(device_type="cpu")
        def forward(ctx, x, weight):
            ctx.save_for_backward(x, weight)
            return x @ weight

        @staticmethod
        @custom_bwd(device_type="cpu")
        def backward(ctx, grad_output):
            x, weight = ctx.saved_tensors
            return grad_output @ weight.T, x.T @ grad_output

    x, weight = torch.randn(3, 3, requires_grad=True), torch.randn(3, 3, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = MatMul.apply(x, weight).sum()
    loss.backward()


@raises(
    "Gradients were unscaled twice before a step",
    cause="""``unscale_`` divides the gradients of an optimizer by the scale, once for each ``step``. ``scaler.step``
    calls it if you did not.""",
    fix="""Call it once in each iteration that steps, before clipping, and call ``scaler.update()`` after the step.
    With gradient accumulation, unscale, clip, step and update only in the iterations that step. If a trainer calls
    it, update the library, or set its accumulation to one step.""",
    see=("cookbook/07_compile/mixed_precision",),
)
def unscaled_twice():
    weight = torch.ones(3, requires_grad=True)
    optimizer, scaler = torch.optim.SGD([weight]), GradScaler("cpu")
    scaler.scale(weight.square().sum()).backward()
    scaler.unscale_(optimizer)
    scaler.unscale_(optimizer)


@fixes(unscaled_twice)
def unscaled_once():
    weight = torch.ones(3, requires_grad=True)
    optimizer, scaler = torch.optim.SGD([weight]), GradScaler("cpu")
    scaler.scale(weight.square().sum()).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()


@raises(
    "A GradScaler met gradients in float16",
    cause="""The scaler expects ``float32`` parameters, because their gradients have enough range. Here the parameters
    are ``float16``, so their gradients are ``float16``, too.""",
    fix="Keep the parameters in ``float32``, and let autocast convert.",
    see=("cookbook/07_compile/mixed_precision",),
)
def half_parameters():
    weight = torch.ones(3, dtype=torch.float16, requires_grad=True)
    optimizer, scaler = torch.optim.SGD([weight]), GradScaler("cpu")
    scaler.scale(weight.square().sum()).backward()
    scaler.step(optimizer)


@fixes(half_parameters)
def full_parameters():
    weight = torch.ones(3, dtype=torch.float32, requires_grad=True)
    optimizer, scaler = torch.optim.SGD([weight]), GradScaler("cpu")
    scaler.scale(weight.square().sum()).backward()
    scaler.step(optimizer)


@raises(
    "A GradScaler stepped before it had scaled",
    cause="""The scaler sets up its scale when it scales the first loss. Here ``backward`` ran on a loss that was not
    scaled.""",
    fix="Call ``scaler.scale(loss).backward()``.",
    see=("cookbook/07_compile/mixed_precision",),
)
def step_without_scale():
    weight = torch.ones(3, requires_grad=True)
    optimizer, scaler = torch.optim.SGD([weight]), GradScaler("cpu")
    weight.square().sum().backward()
    scaler.step(optimizer)


@fixes(step_without_scale)
def step_with_scale():
    weight = torch.ones(3, requires_grad=True)
    optimizer, scaler = torch.optim.SGD([weight]), GradScaler("cpu")
    scaler.scale(weight.square().sum()).backward()
    scaler.step(optimizer)


@raises(
    "A GradScaler found no gradient: the loss is cut off from the parameters",
    cause="``scaler.step`` inspects the gradients of this optimizer's parameters, and all of them are ``None``. The "
    "loss that was scaled has no path to them. ``torch.tensor(value, requires_grad=True)`` and "
    "``loss.requires_grad = True`` make a new leaf: backward then runs without an error and reaches no parameter.",
    fix="Compute the loss from the model's output with tensor operations only: no ``torch.tensor(...)``, ``.item()``, "
    "``.detach()`` or ``no_grad`` on the way. It is right when ``loss.grad_fn`` is not ``None`` without setting "
    "``requires_grad`` on the loss. If the model was frozen, unfreeze the part that trains.",
    see=("cookbook/07_compile/mixed_precision", "guide/graph"),
)
def no_inf_checks():
    model = nn.Linear(3, 1)
    optimizer, scaler = torch.optim.SGD(model.parameters()), GradScaler("cpu")
    error = model(torch.randn(4, 3)).square().mean()
    loss = torch.tensor(error.item(), requires_grad=True)
    scaler.scale(loss).backward()
    scaler.step(optimizer)


@fixes(no_inf_checks)
def inf_checked():
    model = nn.Linear(3, 1)
    optimizer, scaler = torch.optim.SGD(model.parameters()), GradScaler("cpu")
    loss = model(torch.randn(4, 3)).square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)


@raises(
    "A GradScaler found no gradient: the optimizer holds other parameters than the model",
    cause="""``scaler.step`` inspects the gradients of this optimizer's parameters, and all of them are ``None``. The
    optimizer was made before the model was copied, converted, wrapped or loaded again, so it holds the old
    parameters. Or this loss does not use its parameters, for example because one scaler steps several optimizers.""",
    fix="Make the optimizer after the model is on its device, wrapped and loaded. With several optimizers, step only "
    "those whose parameters this loss trains.",
    see=("cookbook/07_compile/mixed_precision",),
)
def no_inf_checks_other_parameters():
    model = nn.Linear(3, 1)
    optimizer, scaler = torch.optim.SGD(model.parameters()), GradScaler("cpu")
    model = copy.deepcopy(model)
    scaler.scale(model(torch.randn(4, 3)).square().mean()).backward()
    scaler.step(optimizer)


@fixes(no_inf_checks_other_parameters)
def optimizer_made_last():
    model = copy.deepcopy(nn.Linear(3, 1))
    optimizer, scaler = torch.optim.SGD(model.parameters()), GradScaler("cpu")
    scaler.scale(model(torch.randn(4, 3)).square().mean()).backward()
    scaler.step(optimizer)


@raises(
    "A GradScaler was updated without a step",
    cause="``update`` adjusts the scale from what ``scaler.step`` or ``scaler.unscale_`` found since the last update, "
    "and neither was called. ``optimizer.step()`` does not count. Libraries such as accelerate and Lightning step and "
    "update a scaler of their own.",
    fix="Call ``scaler.step(optimizer)`` and then ``scaler.update()``. If a library runs the scaler, call neither.",
    see=("cookbook/07_compile/mixed_precision",),
)
def updated_without_step():
    model = nn.Linear(3, 1)
    optimizer, scaler = torch.optim.SGD(model.parameters()), GradScaler("cpu")
    scaler.scale(model(torch.randn(4, 3)).square().mean()).backward()
    optimizer.step()
    scaler.update()


@fixes(updated_without_step)
def updated_after_step():
    model = nn.Linear(3, 1)
    optimizer, scaler = torch.optim.SGD(model.parameters()), GradScaler("cpu")
    scaler.scale(model(torch.randn(4, 3)).square().mean()).backward()
    scaler.step(optimizer)
    scaler.update()


@raises(
    "A GradScaler stepped an optimizer twice without an update",
    cause="A scaler allows one step of each optimizer for each ``update``.",
    fix="Call ``scaler.update()`` once at the end of every iteration that steps, also under a condition or in an early "
    "``continue``.",
    see=("cookbook/07_compile/mixed_precision",),
)
def stepped_twice():
    model = nn.Linear(3, 1)
    optimizer, scaler = torch.optim.SGD(model.parameters()), GradScaler("cpu")
    for _ in range(2):
        scaler.scale(model(torch.randn(4, 3)).square().mean()).backward()
        scaler.step(optimizer)


@fixes(stepped_twice)
def stepped_and_updated():
    model = nn.Linear(3, 1)
    optimizer, scaler = torch.optim.SGD(model.parameters()), GradScaler("cpu")
    for _ in range(2):
        scaler.scale(model(torch.randn(4, 3)).square().mean()).backward()
        scaler.step(optimizer)
        scaler.update()


@raises(
    "Gradients were unscaled after the step",
    cause="``scaler.step`` has already unscaled the gradients and changed the weights, so it is too late to clip.",
    fix="Put ``scaler.unscale_(optimizer)`` and the clipping between ``backward()`` and ``scaler.step(optimizer)``.",
    see=("cookbook/07_compile/mixed_precision", "cookbook/02_changing_the_gradient/clipping"),
)
def unscaled_after_step():
    model = nn.Linear(3, 1)
    optimizer, scaler = torch.optim.SGD(model.parameters()), GradScaler("cpu")
    scaler.scale(model(torch.randn(4, 3)).square().mean()).backward()
    scaler.step(optimizer)
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.update()


@fixes(unscaled_after_step)
def unscaled_before_step():
    model = nn.Linear(3, 1)
    optimizer, scaler = torch.optim.SGD(model.parameters()), GradScaler("cpu")
    scaler.scale(model(torch.randn(4, 3)).square().mean()).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()


@raises(
    "The scheduler stepped in an iteration whose optimizer step the GradScaler had skipped",
    cause="``scaler.step`` skips the optimizer when a gradient is infinite or nan. With the large initial scale this "
    "is usual in the first iterations. The scheduler then sees no step of the optimizer and warns.",
    fix="Call ``scheduler.step()`` only if the scale did not go down: compare ``scaler.get_scale()`` before and after "
    "``scaler.update()``. A single warning at the start is harmless.",
    see=("cookbook/07_compile/mixed_precision",),
    warning=True,
)
def scheduler_after_skipped_step():
    model = nn.Linear(3, 1)
    optimizer, scaler = torch.optim.SGD(model.parameters()), GradScaler("cpu", init_scale=2.0**127)
    scheduler = StepLR(optimizer, step_size=1)
    scaler.scale(model(torch.full((4, 3), 10.0)).square().mean()).backward()
    scaler.step(optimizer)
    scaler.update()
    scheduler.step()


@fixes(scheduler_after_skipped_step)
def scheduler_after_real_step():
    model = nn.Linear(3, 1)
    optimizer, scaler = torch.optim.SGD(model.parameters()), GradScaler("cpu", init_scale=2.0**127)
    scheduler = StepLR(optimizer, step_size=1)
    scaler.scale(model(torch.full((4, 3), 10.0)).square().mean()).backward()
    scaler.step(optimizer)
    scale = scaler.get_scale()
    scaler.update()
    if scaler.get_scale() >= scale:
        scheduler.step()


@raises(
    "The scheduler stepped before the optimizer",
    cause="""Since torch 1.1 the scheduler sets the learning rate of the next step. Your loop called it before the
    first step, so the first value of the schedule was skipped.""",
    fix="Call ``optimizer.step()`` first and ``scheduler.step()`` after it. If the optimizer was replaced or wrapped "
    "after the scheduler was made, make the scheduler last.",
    see=("guide/training",),
    warning=True,
)
def scheduler_before_optimizer():
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters())
    scheduler = StepLR(optimizer, step_size=1)
    model(torch.randn(4, 3)).square().mean().backward()
    scheduler.step()
    optimizer.step()


@fixes(scheduler_before_optimizer)
def scheduler_after_optimizer():
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters())
    scheduler = StepLR(optimizer, step_size=1)
    model(torch.randn(4, 3)).square().mean().backward()
    optimizer.step()
    scheduler.step()


@raises(
    "A GradScaler for CUDA was made on a machine without it",
    cause="``GradScaler()`` is for CUDA unless you name another device. Without CUDA it is off: ``scale`` returns the "
    "loss as it is, and ``step`` calls the optimizer.",
    fix="Name the device: ``GradScaler(device)``. Training in ``float32`` or ``bfloat16`` needs no scaler at all.",
    see=("cookbook/07_compile/mixed_precision",),
    warning=True,
)
def scaler_without_cuda():
    scaler = GradScaler()
    scaler.scale(torch.ones(1, requires_grad=True))


@fixes(scaler_without_cuda)
def scaler_of_device():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    scaler = GradScaler(device)
    scaler.scale(torch.ones(1, requires_grad=True))


@raises(
    "A layer in one dtype got its input in another, outside of autocast",
    cause="""Outside of autocast, ``linear`` and ``matmul`` do not convert: the input and the weight must have the
    same dtype. Here one part of the model was loaded or cast to half precision and another was not. Or the forward
    ran outside of ``torch.autocast``, which is frequent in evaluation and generation.""",
    fix="Run the forward under ``torch.autocast``, or convert the input where the part begins: "
    "``x.to(self.layer.weight.dtype)``. For training with a GradScaler keep the parameters in ``float32``.",
    see=("cookbook/07_compile/mixed_precision",),
)
def layer_of_other_dtype():
    encoder = nn.Linear(3, 3, dtype=torch.bfloat16)
    head = nn.Linear(3, 1)
    features = encoder(torch.randn(4, 3, dtype=torch.bfloat16))
    head(features).sum().backward()


@fixes(layer_of_other_dtype)
def layer_under_autocast():
    encoder = nn.Linear(3, 3, dtype=torch.bfloat16)
    head = nn.Linear(3, 1)
    with torch.autocast("cpu"):
        features = encoder(torch.randn(4, 3, dtype=torch.bfloat16))
        head(features).sum().backward()


@raises(
    "An adapter in float32 (LoRA) on a half-precision model ran outside of autocast",
    cause="""The base model has half-precision or quantized weights, so its activations are in half precision, but the
    adapter's weights are ``float32``. Only autocast converts between them. Libraries switch autocast on for training
    (``fp16=True``, ``bf16=True``), but not in a loop, an evaluation or a generation of your own.""",
    fix='Put ``with torch.autocast("cuda"):`` around the forward and the loss, in training, evaluation and generation, '
    "or pass ``fp16=True`` or ``bf16=True`` to the trainer. Leave the adapter in ``float32`` if it trains.",
    see=("cookbook/07_compile/mixed_precision",),
)
def adapter_without_autocast():
    base = nn.Linear(3, 3, dtype=torch.bfloat16).requires_grad_(False)
    adapter = nn.Linear(3, 3)
    x = torch.randn(4, 3, dtype=torch.bfloat16)
    (base(x) + adapter(x)).sum().backward()


@fixes(adapter_without_autocast)
def adapter_under_autocast():
    base = nn.Linear(3, 3, dtype=torch.bfloat16).requires_grad_(False)
    adapter = nn.Linear(3, 3)
    x = torch.randn(4, 3, dtype=torch.bfloat16)
    with torch.autocast("cpu"):
        (base(x) + adapter(x)).sum().backward()


@raises(
    "A checkpoint Function of your own or of a library recomputed the forward without autocast",
    cause="The first forward ran under autocast and left half-precision activations. The recomputation runs in "
    "backward, outside of the autocast block, so nothing converts the weights. ``torch.utils.checkpoint`` stores and "
    "restores the state of autocast; some checkpoint Functions of libraries do not.",
    fix="Use ``torch.utils.checkpoint.checkpoint(function, x, use_reentrant=False)``, or enter ``torch.autocast`` "
    "inside the function that is checkpointed. Do not cast the weights by hand.",
    see=("cookbook/04_memory/checkpointing", "cookbook/07_compile/mixed_precision"),
)
def recomputed_without_autocast():
    class Checkpoint(Function):
        @staticmethod
        def forward(ctx, x, layer):
            ctx.save_for_backward(x)
            ctx.layer = layer
            return layer(x)

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            x = x.detach().requires_grad_()
            with torch.enable_grad():
                output = ctx.layer(x)
            output.backward(grad_output)
            return x.grad, None

    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    with torch.autocast("cpu"):
        loss = Checkpoint.apply(first(torch.randn(4, 3)), second).sum()
    loss.backward()


@fixes(recomputed_without_autocast)
def recomputed_under_autocast():
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    with torch.autocast("cpu"):
        loss = checkpoint(second, first(torch.randn(4, 3)), use_reentrant=False).sum()
    loss.backward()


@raises(
    "Two tensors of a batched product have different dtypes",
    cause="``bmm``, batched ``matmul`` and ``einsum`` do not convert outside of autocast. One operand is often a mask, "
    "a positional encoding or a cache that was made in ``float32``, or it came out of an autocast block and the other "
    "did not.",
    fix="Convert one operand to the dtype of the other right before the product: ``b.to(a.dtype)``, or run the product "
    "under ``torch.autocast``.",
    see=("cookbook/07_compile/mixed_precision",),
)
def products_of_two_dtypes():
    query = torch.randn(2, 4, 3, dtype=torch.bfloat16)
    cache = torch.randn(2, 3, 4)
    torch.bmm(query, cache)


@fixes(products_of_two_dtypes)
def products_of_one_dtype():
    query = torch.randn(2, 4, 3, dtype=torch.bfloat16)
    cache = torch.randn(2, 3, 4)
    torch.bmm(query, cache.to(query.dtype))


@raises(
    "A convolution in one dtype got its input in another",
    cause="""The weight and the bias of the layer have another dtype than the input, and PyTorch converts neither
    outside of autocast. Often the model was cast with ``.half()`` but the data was not, or the data came as
    ``float64`` from NumPy.""",
    fix="Convert the input: ``x.to(self.conv.weight.dtype)``, or run the forward under ``torch.autocast`` with the "
    "model in ``float32``.",
    see=("cookbook/07_compile/mixed_precision",),
)
def convolution_of_other_dtype():
    layer = nn.Conv1d(1, 2, 3)
    layer(torch.randn(1, 1, 8, dtype=torch.bfloat16))


@fixes(convolution_of_other_dtype)
def convolution_of_same_dtype():
    layer = nn.Conv1d(1, 2, 3)
    x = torch.randn(1, 1, 8, dtype=torch.bfloat16)
    layer(x.to(layer.weight.dtype))


@raises(
    "A recurrent layer in one dtype got its input in another",
    cause="""Outside of autocast, ``nn.LSTM``, ``nn.GRU`` and ``nn.RNN`` accept only input in the dtype of their
    weights.""",
    fix="Convert the input: ``x.to(rnn.weight_hh_l0.dtype)``, and the initial state as well.",
    see=("cookbook/07_compile/mixed_precision",),
)
def recurrent_of_other_dtype():
    rnn = nn.LSTM(3, 3)
    rnn(torch.randn(5, 1, 3, dtype=torch.bfloat16))


@fixes(recurrent_of_other_dtype)
def recurrent_of_same_dtype():
    rnn = nn.LSTM(3, 3)
    x = torch.randn(5, 1, 3, dtype=torch.bfloat16)
    rnn(x.to(rnn.weight_hh_l0.dtype))


@raises(
    "Query, key and value of an attention have different dtypes",
    cause="``scaled_dot_product_attention`` does not convert outside of autocast. Usually rotary embeddings or a "
    "normalization in ``float32`` changed the query and the key, and the value stayed in half precision.",
    fix="Convert the query and the key back after the step that changed them: ``q, k = q.to(v.dtype), k.to(v.dtype)``.",
    see=("cookbook/07_compile/mixed_precision",),
)
def attention_of_two_dtypes():
    query = key = torch.randn(1, 2, 4, 3)
    value = torch.randn(1, 2, 4, 3, dtype=torch.bfloat16)
    F.scaled_dot_product_attention(query, key, value)


@fixes(attention_of_two_dtypes)
def attention_of_one_dtype():
    query = key = torch.randn(1, 2, 4, 3)
    value = torch.randn(1, 2, 4, 3, dtype=torch.bfloat16)
    F.scaled_dot_product_attention(query.to(value.dtype), key.to(value.dtype), value)


@raises(
    "A value of another dtype was written by index",
    cause="``output[index] = value`` does not convert the value. Under autocast a layer returns half precision, but a "
    "buffer made by ``torch.zeros`` is ``float32``. With a half-precision model it is the other way round. A value "
    "that comes from NumPy is ``float64``, and a buffer that counts is ``int64``.",
    fix="Convert the value to the buffer's dtype: ``output[index] = value.to(output.dtype)``, or make the buffer in "
    "the value's dtype.",
    see=("cookbook/07_compile/mixed_precision",),
)
def index_put_dtypes():
    layer = nn.Linear(3, 2)
    output, rows = torch.zeros(8, 2), torch.tensor([0, 2, 5, 6])
    with torch.autocast("cpu"):
        output[rows] = layer(torch.randn(4, 3))


@fixes(index_put_dtypes)
def index_put_converted():
    layer = nn.Linear(3, 2)
    output, rows = torch.zeros(8, 2), torch.tensor([0, 2, 5, 6])
    with torch.autocast("cpu"):
        output[rows] = layer(torch.randn(4, 3)).to(output.dtype)


@raises(
    "A tensor of another dtype was scattered into a buffer",
    cause="``scatter``, ``scatter_add``, ``index_add`` and ``index_copy`` do not convert. Under autocast the source "
    "is in half precision and the buffer, made by ``torch.zeros``, in ``float32``.",
    fix="""Convert the source: ``buffer.scatter_add(dim, index, source.to(buffer.dtype))``. Keep the buffer in
    ``float32``, because sums are more accurate there.""",
    see=("cookbook/07_compile/mixed_precision",),
)
def scatter_dtypes():
    layer = nn.Linear(3, 2)
    sums, group = torch.zeros(2, 2), torch.tensor([[0, 0], [0, 0], [1, 1], [1, 1]])
    with torch.autocast("cpu"):
        sums.scatter_add(0, group, layer(torch.randn(4, 3)))


@fixes(scatter_dtypes)
def scatter_converted():
    layer = nn.Linear(3, 2)
    sums, group = torch.zeros(2, 2), torch.tensor([[0, 0], [0, 0], [1, 1], [1, 1]])
    with torch.autocast("cpu"):
        sums.scatter_add(0, group, layer(torch.randn(4, 3)).to(sums.dtype))


@raises(
    "A mask was filled with a number that half precision cannot hold",
    cause="``float16`` ends at 65504, so ``-1e9`` does not fit. ``bfloat16`` holds it.",
    fix='Fill with ``torch.finfo(scores.dtype).min`` or ``float("-inf")``. With ``-inf``, keep at least one '
    "element of each row unmasked, or the softmax of the row is nan.",
    see=("cookbook/07_compile/mixed_precision", "guide/nonfinite"),
)
def mask_value_too_large():
    scores = torch.randn(2, 4, dtype=torch.float16)
    mask = torch.tensor([False, False, True, True])
    scores.masked_fill(mask, -1e9).softmax(-1)


@fixes(mask_value_too_large)
def mask_value_of_dtype():
    scores = torch.randn(2, 4, dtype=torch.float16)
    mask = torch.tensor([False, False, True, True])
    scores.masked_fill(mask, torch.finfo(scores.dtype).min).softmax(-1)


@raises(
    "The target of a loss has another dtype than the prediction",
    cause="""Some losses compute their gradient with a kernel that takes one dtype only. Targets that come from NumPy
    are ``float64``, and labels are integers. The forward converts them, so the message often comes in backward.""",
    fix="Convert the target before the loss: ``loss(prediction, target.to(prediction.dtype))``. Do not convert the "
    "loss.",
    see=("guide/training",),
)
def target_of_other_dtype():
    prediction = torch.rand(4, requires_grad=True)
    target = torch.ones(4, dtype=torch.int64)
    F.huber_loss(prediction, target).backward()


@fixes(target_of_other_dtype)
def target_of_same_dtype():
    prediction = torch.rand(4, requires_grad=True)
    target = torch.ones(4, dtype=torch.int64)
    F.huber_loss(prediction, target.to(prediction.dtype)).backward()


@raises(
    "A result with decimals was written into a tensor of integers",
    cause="An in-place operation keeps the dtype of the tensor it writes to, and integers cannot hold the result. Some "
    "losses write their result that way, into a target of integers.",
    fix="Convert to floating point first: ``target.float()``, or write ``a = a + b`` instead of ``a += b``.",
    see=("guide/training",),
)
def result_into_integers():
    prediction = torch.randn(4, requires_grad=True)
    target = torch.tensor([0, 1, 1, 0])
    F.binary_cross_entropy_with_logits(prediction, target)


@fixes(result_into_integers)
def result_into_floats():
    prediction = torch.randn(4, requires_grad=True)
    target = torch.tensor([0, 1, 1, 0])
    F.binary_cross_entropy_with_logits(prediction, target.float())


@raises(
    "The operation has no kernel for this dtype",
    cause="PyTorch has not compiled this operation for the dtype on this device. For half precision this is usual in "
    "linear algebra and, on the CPU in older releases, even in matrix products and convolutions.",
    fix="Compute this one operation in ``float32``: ``torch.cdist(a.float(), b.float())``, in an autocast block under "
    "``torch.autocast(device_type, enabled=False)``. On the CPU, use ``bfloat16`` or ``float32`` for the model.",
    see=("cookbook/07_compile/mixed_precision",),
)
def no_kernel_for_dtype():
    points = torch.randn(4, 3, dtype=torch.float16, requires_grad=True)
    torch.cdist(points, points).sum().backward()


@fixes(no_kernel_for_dtype)
def kernel_in_float32():
    points = torch.randn(4, 3, dtype=torch.float16, requires_grad=True)
    torch.cdist(points.float(), points.float()).sum().backward()


@raises(
    "A bfloat16 tensor was turned into a NumPy array",
    cause="NumPy has no ``bfloat16``.",
    fix="Convert first: ``x.float().numpy()``, with ``.detach().cpu()`` before it where the tensor has a graph or is "
    "on a GPU.",
    see=("cookbook/07_compile/mixed_precision",),
)
def bfloat16_to_numpy():
    model = nn.Linear(3, 1).to(torch.bfloat16)
    model.weight.detach().numpy()


@fixes(bfloat16_to_numpy)
def bfloat16_as_float_to_numpy():
    model = nn.Linear(3, 1).to(torch.bfloat16)
    model.weight.detach().float().numpy()


@raises(
    "A matrix decomposition or solve got half precision",
    cause="``torch.linalg`` has kernels for ``float32`` and ``float64`` only. Under autocast, or in a model in half "
    "precision, the matrix arrives in ``bfloat16`` or ``float16``.",
    fix="Convert for this operation: ``torch.linalg.inv(a.float()).to(a.dtype)``, under "
    '``with torch.autocast("cuda", enabled=False):`` if autocast is on.',
    see=("cookbook/07_compile/mixed_precision", "cookbook/03_stability/eigenvalues"),
)
def inverse_in_half():
    layer = nn.Linear(3, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        gram = layer(torch.eye(3))
    torch.linalg.inv(gram).sum().backward()


@fixes(inverse_in_half)
def inverse_in_single():
    layer = nn.Linear(3, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        gram = layer(torch.eye(3))
    torch.linalg.inv(gram.float()).sum().backward()


@raises(
    "GradScaler.scale was given something that is not a tensor",
    cause="``scaler.scale`` takes a tensor, or a list of tensors. Here the loss, or one in the list, is a Python "
    "number.",
    fix="Keep losses as tensors: drop ``.item()`` and ``float()`` before ``scaler.scale``. Leave numbers out of the "
    "list.",
    see=("cookbook/07_compile/mixed_precision",),
)
def number_scaled():
    model, scaler = nn.Linear(3, 1), GradScaler("cpu")
    loss = model(torch.randn(4, 3)).square().mean()
    scaler.scale(loss.item())


@fixes(number_scaled)
def loss_scaled():
    model, scaler = nn.Linear(3, 1), GradScaler("cpu")
    loss = model(torch.randn(4, 3)).square().mean()
    scaler.scale(loss).backward()


@raises(
    "GradScaler was stepped with a closure",
    cause="A closure computes the loss and its gradients again within ``step``, maybe several times, and the scaler "
    "could not unscale and check them in between.",
    fix="""Compute the loss and the gradients before the step: ``scaler.scale(loss).backward()``, then
    ``scaler.step(optimizer)`` and ``scaler.update()``. Optimizers that need a closure (LBFGS, SAM) run without a
    scaler: use bfloat16 or float32.""",
    see=("guide/training",),
)
def closure_scaled():
    model = nn.Linear(3, 1)
    x = torch.randn(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = GradScaler("cpu")
    scaler.scale(model(x).square().mean()).backward()
    scaler.step(optimizer, closure=lambda: model(x).square().mean())


@fixes(closure_scaled)
def closure_left_out():
    model = nn.Linear(3, 1)
    x = torch.randn(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = GradScaler("cpu")
    scaler.scale(model(x).square().mean()).backward()
    scaler.step(optimizer)


@raises(
    "The state of a disabled GradScaler was loaded into an enabled one",
    cause="A scaler with ``enabled=False`` has an empty state. The checkpoint was written by a run in float32, in "
    "bfloat16, or without CUDA (which disables the scaler), and this run uses float16.",
    fix="Load the scaler only if its state is there: ``if state['scaler']: scaler.load_state_dict(state['scaler'])``. "
    "Otherwise start with a new scaler: it finds its scale within some steps.",
    see=("guide/training",),
)
def disabled_scaler_loaded():
    written = GradScaler("cpu", enabled=False).state_dict()
    scaler = GradScaler("cpu")
    scaler.load_state_dict(written)


@fixes(disabled_scaler_loaded)
def disabled_scaler_not_loaded():
    written = GradScaler("cpu", enabled=False).state_dict()
    scaler = GradScaler("cpu")
    if written:
        scaler.load_state_dict(written)


@raises(
    "A GradScaler was copied or pickled between two of its steps",
    cause="Within an iteration, the scaler remembers for each optimizer what it has unscaled, and this does not "
    "survive a copy. The copy was made after ``unscale_`` or ``step`` and before ``update``.",
    fix="Copy or save it after ``scaler.update()``, and save ``scaler.state_dict()`` instead of the object.",
    see=("guide/training",),
)
def scaler_copied_within_step():
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = GradScaler("cpu")
    scaler.scale(model(torch.randn(4, 3)).mean()).backward()
    scaler.step(optimizer)
    copy.deepcopy(scaler)


@fixes(scaler_copied_within_step)
def scaler_copied_after_update():
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = GradScaler("cpu")
    scaler.scale(model(torch.randn(4, 3)).mean()).backward()
    scaler.step(optimizer)
    scaler.update()
    copy.deepcopy(scaler)


@raises(
    "The former autocast of CUDA was called",
    cause="``torch.cuda.amp.autocast`` became ``torch.amp.autocast``, which takes the device type as its first "
    "argument.",
    fix="""Write ``torch.amp.autocast('cuda', dtype=torch.float16)``. Both do the same, so the warning is harmless. If
    a library causes it, update the library.""",
    see=("guide/training",),
    warning=True,
)
def former_autocast():
    with torch.cuda.amp.autocast(enabled=False):
        nn.Linear(3, 1)(torch.randn(4, 3))


@fixes(former_autocast)
def new_autocast():
    with torch.amp.autocast("cuda", enabled=False):
        nn.Linear(3, 1)(torch.randn(4, 3))


@raises(
    "The former GradScaler of CUDA was made",
    cause="``torch.cuda.amp.GradScaler`` became ``torch.amp.GradScaler``, which takes the device type as its first "
    "argument.",
    fix="""Write ``torch.amp.GradScaler('cuda')``. Both do the same, so the warning is harmless. If a library causes
    it, update the library.""",
    see=("guide/training",),
    warning=True,
)
def former_scaler():
    torch.cuda.amp.GradScaler(enabled=False)


@fixes(former_scaler)
def new_scaler():
    GradScaler("cuda", enabled=False)


@raises(
    "Under autocast, an operation got both float16 and bfloat16",
    cause="Autocast runs operations with several tensors, such as ``cat``, ``stack`` and ``index_put``, in the widest "
    "dtype of their arguments. It knows its own dtype and ``float32``: a tensor of the other half precision, from "
    "weights or data that were converted by hand, has no place in that order.",
    fix="Convert such tensors to the dtype of autocast or to ``float32``: ``x.float()``. Load the model in the dtype "
    "that autocast has, or keep its parameters in ``float32``.",
    see=("cookbook/07_compile/mixed_precision",),
)
def two_halves_under_autocast():
    x = torch.randn(3, 4, dtype=torch.float16, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = torch.cat([x, torch.randn(3, 4)])
    y.sum().backward()


@fixes(two_halves_under_autocast)
def one_half_under_autocast():
    x = torch.randn(3, 4, dtype=torch.float16, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = torch.cat([x.float(), torch.randn(3, 4)])
    y.sum().backward()


@raises(
    "torch.autocast was called without a device",
    cause="``torch.cuda.amp.autocast()`` knows its device. ``torch.autocast`` and ``torch.amp.autocast`` serve all "
    "devices, so their first argument is the type of the device.",
    fix='Write ``torch.autocast("cuda")``, or ``torch.autocast(device_type=x.device.type, dtype=torch.bfloat16)``.',
    see=("guide/low_precision",),
)
def autocast_without_device():
    model = nn.Linear(3, 1)
    with torch.autocast(dtype=torch.bfloat16):
        model(torch.randn(4, 3)).sum().backward()


@fixes(autocast_without_device)
def autocast_with_device():
    model = nn.Linear(3, 1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(torch.randn(4, 3)).sum()
    loss.backward()


@raises(
    "A GradScaler was made with factors that would not change its scale",
    cause="After a number of good steps, the scaler multiplies its scale by ``growth_factor``, which must exceed 1. "
    "After an overflow, it multiplies by ``backoff_factor``, which must be below 1.",
    fix="Leave both at their defaults, 2.0 and 0.5. For a constant scale, multiply the loss and divide the gradients "
    "by a number yourself. With bfloat16 you need no scaler.",
    see=("guide/low_precision",),
)
def scaler_that_never_grows():
    GradScaler("cpu", growth_factor=1.0)


@fixes(scaler_that_never_grows)
def scaler_that_rarely_grows():
    GradScaler("cpu", growth_interval=100_000)


@raises(
    "GradScaler.update was given a scale that is no single number",
    cause="The new scale is a float, or a float32 tensor of one element on the scaler's device that does not require "
    "grad.",
    fix="Pass a float, ``scaler.update(1024.0)``, or nothing: then the scaler chooses the scale itself.",
    see=("guide/low_precision",),
)
def scale_of_two():
    scaler = GradScaler("cpu")
    scaler.scale(torch.ones(()))
    scaler.update(torch.ones(2))


@fixes(scale_of_two)
def scale_of_one():
    scaler = GradScaler("cpu")
    scaler.scale(torch.ones(()))
    scaler.update(1024.0)


@raises(
    "Half-precision complex numbers are experimental",
    cause="``complex32`` has a half-precision real and imaginary part. Many operations, and many gradients, have no "
    "kernel for it.",
    fix="Use ``torch.complex64``. Under autocast, keep the complex part of the model in float32: "
    '``with torch.autocast("cuda", enabled=False):``. If your operations run, the warning is harmless.',
    see=("cookbook/05_higher_order/complex_numbers",),
    warning=True,
)
def complex_half():
    torch.ones(3, dtype=torch.complex32)


@fixes(complex_half)
def complex_single():
    torch.ones(3, dtype=torch.complex64)
