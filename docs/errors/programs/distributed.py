"""DataParallel, DDP, FSDP and DTensor.

The programs run as the only process of their group, with gloo: what is said here is the same with more of them.
"""

import torch
import torch.distributed as dist
from docs.errors.programs import fixes, raises
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint


@raises(
    "DDP got a parameter's gradient twice, because of reentrant checkpointing",
    cause="DDP expects each gradient once (the parameter is then ready). A reentrant checkpoint runs its own backward "
    "inside backward. If several checkpoints share a layer, its gradient arrives twice. With "
    "``find_unused_parameters=True``, DDP also marks parameters inside the checkpoint as ready before backward.",
    fix="Pass ``use_reentrant=False`` to ``checkpoint``; with transformers, "
    '``gradient_checkpointing_kwargs={"use_reentrant": False}``. Otherwise remove '
    "``find_unused_parameters=True``. If every iteration uses the same parameters, you can also keep the checkpoint "
    "and pass ``static_graph=True`` to ``DistributedDataParallel``.",
    see=("cookbook/04_memory/checkpointing", "cookbook/08_distributed/data_parallel"),
)
def ddp_ready_twice():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x):
            return checkpoint(self.layer, x, use_reentrant=True)

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = DistributedDataParallel(Net(), find_unused_parameters=True)
    model(torch.randn(4, 3, requires_grad=True)).sum().backward()


@fixes(ddp_ready_twice)
def ddp_ready_once():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x):
            return checkpoint(self.layer, x, use_reentrant=False)

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = DistributedDataParallel(Net(), find_unused_parameters=True)
    model(torch.randn(4, 3, requires_grad=True)).sum().backward()


@raises(
    "A gradient is no longer a view of DDP's bucket",
    cause="With ``gradient_as_bucket_view=True`` each ``.grad`` is a view into the memory that DDP reduces. A second "
    "DDP wrapper around the same parameters replaces this view: for example, a trainer wraps a model that a library "
    "has already wrapped.",
    fix="Wrap each parameter in ``DistributedDataParallel`` only once; ``[name for name, m in model.named_modules() if "
    "isinstance(m, DistributedDataParallel)]`` lists the wrappers. Or pass ``gradient_as_bucket_view=False``.",
    see=("cookbook/08_distributed/data_parallel",),
)
def ddp_gradient_no_view():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    layer = nn.Linear(3, 3)
    wrapped = DistributedDataParallel(layer, gradient_as_bucket_view=True)
    model = DistributedDataParallel(wrapped, gradient_as_bucket_view=True)
    for _ in range(2):
        model(torch.randn(4, 3)).sum().backward()


@fixes(ddp_gradient_no_view)
def ddp_gradient_view():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    layer = nn.Linear(3, 3)
    model = DistributedDataParallel(layer, gradient_as_bucket_view=True)
    for _ in range(2):
        model(torch.randn(4, 3)).sum().backward()


@raises(
    "DDP took a parameter for unused that the loss uses",
    cause="With ``find_unused_parameters=True``, DDP marks the parameters that the outputs of ``forward`` do not "
    "depend on as ready. Here the loss uses such a parameter nevertheless: outside of ``forward``, as "
    "``model.module.log_noise`` in the loss, or through another forward of the same iteration.",
    fix="Compute everything that uses parameters inside one ``forward`` of the module that DDP wraps, for example the "
    "loss too, and return it. Several forwards before one backward become one: concatenate their inputs.",
    see=("cookbook/08_distributed/data_parallel",),
)
def ddp_parameter_outside():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 1)
            self.log_noise = nn.Parameter(torch.zeros(1))

        def forward(self, x):
            return self.layer(x)

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = DistributedDataParallel(Net(), find_unused_parameters=True)
    error = model(torch.randn(4, 3)).square()
    loss = (error / model.module.log_noise.exp() + model.module.log_noise).sum()
    loss.backward()


@fixes(ddp_parameter_outside)
def ddp_parameter_inside():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 1)
            self.log_noise = nn.Parameter(torch.zeros(1))

        def forward(self, x):
            error = self.layer(x).square()
            return (error / self.log_noise.exp() + self.log_noise).sum()

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = DistributedDataParallel(Net(), find_unused_parameters=True)
    loss = model(torch.randn(4, 3))
    loss.backward()


@raises(
    "Parameters of a DDP model got no gradient in the iteration before",
    cause="DDP waits for a gradient of every parameter that requires one. In the iteration before, some took no part "
    "in the loss: layers that are not called, an output that the loss ignores, a branch, or a part that was frozen "
    "after DDP was made.",
    fix="Pass ``find_unused_parameters=True`` to ``DistributedDataParallel``, or, for parameters that no step uses, "
    "freeze or remove them before you wrap the model: ``parameter.requires_grad_(False)``. The first costs some time "
    "in each step, so it is for parameters that are used in some steps. ``TORCH_DISTRIBUTED_DEBUG=DETAIL`` prints "
    "their names.",
    see=("cookbook/08_distributed/data_parallel",),
)
def ddp_unfinished():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.unused = nn.Linear(3, 1), nn.Linear(3, 1)

        def forward(self, x):
            return self.layer(x)

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = DistributedDataParallel(Net())
    for _ in range(2):
        model(torch.randn(4, 3)).sum().backward()


@fixes(ddp_unfinished)
def ddp_finished():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.unused = nn.Linear(3, 1), nn.Linear(3, 1)

        def forward(self, x):
            return self.layer(x)

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    net = Net()
    net.unused.requires_grad_(False)
    model = DistributedDataParallel(net)
    for _ in range(2):
        model(torch.randn(4, 3)).sum().backward()


@raises(
    "A parameter of a DDP model with static_graph=True got no gradient",
    cause="``static_graph=True`` promises that every iteration uses the parameters of the first one. A branch broke "
    "the promise, or ``forward`` returns an output that never enters the loss: with a static graph, DDP counts its "
    "parameters as used.",
    fix="Return from ``forward`` only what the loss uses. If the parameters really differ from step to step, pass "
    "``find_unused_parameters=True`` instead of ``static_graph=True``.",
    see=("cookbook/08_distributed/data_parallel",),
)
def ddp_static_graph_changed():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.extra = nn.Linear(3, 1), nn.Linear(3, 1)

        def forward(self, x):
            return self.layer(x), self.extra(x)

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = DistributedDataParallel(Net(), static_graph=True)
    for _ in range(3):
        output, _ = model(torch.randn(4, 3))
        output.sum().backward()


@fixes(ddp_static_graph_changed)
def ddp_static_graph_kept():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 1)

        def forward(self, x):
            return self.layer(x)

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = DistributedDataParallel(Net(), static_graph=True)
    for _ in range(3):
        output = model(torch.randn(4, 3))
        output.sum().backward()


@raises(
    "DDP was given a module without a parameter that requires grad",
    cause="DDP only averages gradients, and this module has none: it is frozen, or has no parameters at all.",
    fix="Do not wrap it: call the module itself. If it should train, unfreeze it before wrapping.",
    see=("cookbook/08_distributed/data_parallel",),
)
def ddp_of_frozen():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    teacher = DistributedDataParallel(nn.Linear(3, 1).requires_grad_(False))
    teacher(torch.randn(4, 3))


@fixes(ddp_of_frozen)
def frozen_without_ddp():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    teacher = nn.Linear(3, 1).requires_grad_(False)
    teacher(torch.randn(4, 3))


@raises(
    "DDP was given a lazy module that has not run yet",
    cause="The parameters of a lazy module have no shape before its first forward, so DDP cannot make buckets of them.",
    fix="Run one forward with an example before wrapping: ``model(example)``.",
    see=("cookbook/08_distributed/data_parallel",),
)
def ddp_of_lazy():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = DistributedDataParallel(nn.LazyLinear(1))
    model(torch.randn(4, 3)).sum().backward()


@fixes(ddp_of_lazy)
def ddp_of_initialized():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    net = nn.LazyLinear(1)
    net(torch.randn(4, 3))
    model = DistributedDataParallel(net)
    model(torch.randn(4, 3)).sum().backward()


@raises(
    "A collective was called on a tensor of the graph",
    cause="``dist.all_reduce`` and the other collectives of ``torch.distributed`` write in place and have no backward. "
    "The gradient passes as if nothing had been communicated.",
    fix="To log a sum, reduce a copy: ``dist.all_reduce(loss.detach().clone())``. To differentiate through the "
    "communication, use a Function whose backward communicates too, like those of the recipe.",
    see=("cookbook/08_distributed/data_parallel", "cookbook/08_distributed/tensor_parallel"),
    warning=True,
)
def collective_in_graph():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = nn.Linear(3, 1)
    loss = model(torch.randn(4, 3)).square().mean()
    dist.all_reduce(loss)
    loss.backward()


@fixes(collective_in_graph)
def collective_on_copy():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = nn.Linear(3, 1)
    loss = model(torch.randn(4, 3)).square().mean()
    total = loss.detach().clone()
    dist.all_reduce(total)
    loss.backward()


@raises(
    "The gradients of a DDP model have another memory layout than its buckets",
    cause="DDP made its buckets for the strides that the parameters had when it wrapped the model. The gradients have "
    "others: the model was converted to ``channels_last`` afterwards, or a weight is a transposed tensor. The "
    "gradients are right; each step copies them once more.",
    fix="Convert the model before you wrap it: ``model.to(memory_format=torch.channels_last)``, then "
    "``DistributedDataParallel(model)``. In a backward of your own, return the gradient of a weight with the strides "
    "of the weight.",
    see=("cookbook/08_distributed/data_parallel",),
    warning=True,
)
def ddp_layout_changed():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    net = nn.Conv2d(3, 3, 1)
    model = DistributedDataParallel(net)
    net.to(memory_format=torch.channels_last)
    images = torch.randn(4, 3, 5, 5).to(memory_format=torch.channels_last)
    model(images).sum().backward()


@fixes(ddp_layout_changed)
def ddp_layout_first():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    net = nn.Conv2d(3, 3, 1).to(memory_format=torch.channels_last)
    model = DistributedDataParallel(net)
    images = torch.randn(4, 3, 5, 5).to(memory_format=torch.channels_last)
    model(images).sum().backward()


@raises(
    "A communication hook of DDP returned a tensor instead of a future",
    cause="DDP starts the communication of a bucket and goes on with backward, so a hook returns a "
    "``torch.futures.Future`` for the reduced bucket, not the tensor itself.",
    fix="Return the future of an asynchronous collective, "
    "``dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda f: f.value()[0])``, or wrap a finished "
    "tensor: ``future = torch.futures.Future(); future.set_result(tensor)``.",
    see=("cookbook/08_distributed/data_parallel",),
)
def ddp_hook_returns_tensor():
    def average(state, bucket):
        dist.all_reduce(bucket.buffer())
        return bucket.buffer() / dist.get_world_size()

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = DistributedDataParallel(nn.Linear(3, 1))
    model.register_comm_hook(None, average)
    model(torch.randn(4, 3)).sum().backward()


@fixes(ddp_hook_returns_tensor)
def ddp_hook_returns_future():
    def average(state, bucket):
        work = dist.all_reduce(bucket.buffer() / dist.get_world_size(), async_op=True)
        return work.get_future().then(lambda future: future.value()[0])

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = DistributedDataParallel(nn.Linear(3, 1))
    model.register_comm_hook(None, average)
    model(torch.randn(4, 3)).sum().backward()


@raises(
    "A DDP model got a second communication hook",
    cause="A DDP model can have one communication hook, which replaces the all-reduce. This model already has a hook, "
    "perhaps from a trainer or from a library that compresses gradients.",
    fix="Register one hook, once after wrapping. To combine compression with another hook, wrap one in the other: "
    "``default_hooks.fp16_compress_wrapper(powerSGD_hook)``.",
    see=("cookbook/08_distributed/data_parallel",),
)
def ddp_two_hooks():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = DistributedDataParallel(nn.Linear(3, 1))
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    model.register_comm_hook(None, default_hooks.allreduce_hook)


@fixes(ddp_two_hooks)
def ddp_one_hook():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = DistributedDataParallel(nn.Linear(3, 1))
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)


@raises(
    "The code read an attribute of the wrapped model from DDP",
    cause="``DistributedDataParallel`` is a module of its own. Your model, with its layers, parameters and methods, is "
    "its attribute ``module``.",
    fix="Write ``model.module.weight`` instead of ``model.weight``. Compute the loss with ``model(...)``, because DDP "
    "does not average gradients across processes if you call ``model.module`` directly.",
    see=("cookbook/08_distributed/data_parallel",),
)
def ddp_attribute():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = DistributedDataParallel(nn.Linear(3, 1))
    model(torch.randn(4, 3)).sum().backward()
    model.weight.grad.norm()


@fixes(ddp_attribute)
def ddp_attribute_of_module():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = DistributedDataParallel(nn.Linear(3, 1))
    model(torch.randn(4, 3)).sum().backward()
    model.module.weight.grad.norm()


@raises(
    "A distributed wrapper was made before the processes were connected",
    cause="DDP, FSDP and collectives send data in a process group, but ``init_process_group`` has not run in this "
    "process. The script was started with ``python`` instead of ``torchrun``, or the call comes later. If you spawn "
    "processes, perhaps only the parent called it.",
    fix="Call ``torch.distributed.init_process_group(backend)`` first in each process, and start the script with "
    "``torchrun --nproc-per-node=N script.py``. For a run on one device, leave the wrapper (and ``SyncBatchNorm``) "
    "out.",
    see=("cookbook/08_distributed/data_parallel",),
)
def group_not_initialized():
    model = nn.Linear(3, 1)
    DistributedDataParallel(model)


@fixes(group_not_initialized)
def group_initialized():
    model = nn.Linear(3, 1)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    DistributedDataParallel(model)


@raises(
    "DDP was told the device of a module that is on the CPU",
    cause="With ``device_ids``, the module must already be on that GPU. Here the parameters are on the CPU: the model "
    "was not moved before it was wrapped, or is meant to be trained on the CPU. A module that is spread over several "
    "GPUs raises the same error.",
    fix="Move the model first, ``model.to(local_rank)``, and then wrap it with ``device_ids=[local_rank]``. On the "
    "CPU, and for a model on several GPUs, leave ``device_ids`` and ``output_device`` out.",
    see=("cookbook/08_distributed/data_parallel",),
)
def ddp_device_of_cpu():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = nn.Linear(3, 1)
    DistributedDataParallel(model, device_ids=[0])


@fixes(ddp_device_of_cpu)
def ddp_on_cpu():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = nn.Linear(3, 1)
    DistributedDataParallel(model)


@raises(
    "SyncBatchNorm ran on the CPU",
    cause="The statistics of a synchronized batch norm are computed by kernels that exist for GPUs only.",
    fix="Move model and data to the GPU, or convert to ``SyncBatchNorm`` only when training on GPUs. For a test on "
    "the CPU, use plain batch norm, or call ``model.eval()``.",
    see=("cookbook/08_distributed/data_parallel",),
)
def synchronized_on_cpu():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)))
    model(torch.randn(8, 3)).sum().backward()


@fixes(synchronized_on_cpu)
def plain_norm_on_cpu():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    model(torch.randn(8, 3)).sum().backward()


@raises(
    "No backend of the process group can send tensors of this device",
    cause="A process group has a backend for each device type, and here a collective got a tensor of a type that has "
    "none. Usually the backend is NCCL, which sends only CUDA tensors, and the tensor is on the CPU. Examples are a "
    "loss that was moved with ``.cpu()``, and ``clip_grad_norm_`` under the CPU offload of FSDP.",
    fix="Make a group for both: ``init_process_group('cpu:gloo,cuda:nccl')``. Or move the tensor to the GPU before the "
    "collective.",
    see=("cookbook/08_distributed/data_parallel",),
)
def backend_of_other_device():
    dist.init_process_group("cuda:gloo", store=dist.HashStore(), rank=0, world_size=1)
    loss = torch.randn(3, requires_grad=True).sum()
    dist.all_reduce(loss.detach())


@fixes(backend_of_other_device)
def backend_of_both_devices():
    dist.init_process_group("cpu:gloo,cuda:gloo", store=dist.HashStore(), rank=0, world_size=1)
    loss = torch.randn(3, requires_grad=True).sum()
    dist.all_reduce(loss.detach())


@raises(
    "Compiled autograd met DDP's own reducer",
    cause="DDP reduces gradients in hooks written in C++, which compiled autograd cannot trace. A reducer in Python "
    "does the same and can be traced.",
    fix='Set ``torch._dynamo.config.optimize_ddp = "python_reducer"`` before you wrap the model, or switch compiled '
    "autograd off under DDP.",
    see=("cookbook/08_distributed/data_parallel", "cookbook/07_compile/torch_compile"),
)
def ddp_under_compiled_autograd():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = DistributedDataParallel(nn.Linear(3, 1))
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
        model(torch.randn(4, 3)).sum().backward()


@fixes(ddp_under_compiled_autograd)
def ddp_under_engine():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = DistributedDataParallel(nn.Linear(3, 1))
    model(torch.randn(4, 3)).sum().backward()


@raises(
    "A communication hook of DDP is no function",
    cause="``register_comm_hook(state, hook)`` takes the state first and the function second.",
    fix="Write ``model.register_comm_hook(None, default_hooks.fp16_compress_hook)``.",
    see=("cookbook/08_distributed/data_parallel",),
)
def ddp_hook_first():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = DistributedDataParallel(nn.Linear(3, 1))
    model.register_comm_hook(default_hooks.fp16_compress_hook, None)


@fixes(ddp_hook_first)
def ddp_hook_second():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = DistributedDataParallel(nn.Linear(3, 1))
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)
