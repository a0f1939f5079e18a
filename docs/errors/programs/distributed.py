"""DataParallel, DDP, FSDP and DTensor.

The programs run as the only process of their group, with gloo: what is said here is the same with more of them.
"""

import torch
import torch.distributed as dist
from docs.errors.programs import mends, raises
from torch import nn
from torch.autograd import Function
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint


@raises(
    "DDP got a parameter's gradient twice, because of reentrant checkpointing",
    cause="A reentrant checkpoint runs a backward of its own inside backward, so the parameters in it can become ready "
    "at another time than DDP expects, and twice: with ``find_unused_parameters=True``, which marks what it cannot "
    "reach from the outputs, or where several checkpoints share a layer.",
    fix="Pass ``use_reentrant=False`` to ``checkpoint``; with transformers, "
    '``gradient_checkpointing_kwargs={"use_reentrant": False}``. Otherwise drop ``find_unused_parameters=True``, or, '
    "if every iteration uses the same parameters, pass ``static_graph=True`` to ``DistributedDataParallel``.",
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


@mends(ddp_ready_twice)
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


@mends(ddp_parameter_outside)
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
    fix="Freeze or remove the parameters that the loss does not use, before you wrap the model: "
    "``parameter.requires_grad_(False)``. If they differ from step to step, pass ``find_unused_parameters=True`` to "
    "``DistributedDataParallel``. ``TORCH_DISTRIBUTED_DEBUG=DETAIL`` prints their names.",
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


@mends(ddp_unfinished)
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
    "``find_unused_parameters=True`` in place of ``static_graph=True``.",
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


@mends(ddp_static_graph_changed)
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


@mends(ddp_of_frozen)
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


@mends(ddp_of_lazy)
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


@mends(collective_in_graph)
def collective_on_copy():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = nn.Linear(3, 1)
    loss = model(torch.randn(4, 3)).square().mean()
    total = loss.detach().clone()
    dist.all_reduce(total)
    loss.backward()


@raises(
    "An operation got a DTensor and an ordinary tensor that the code made itself",
    cause="A DTensor knows how it is sharded, an ordinary tensor does not, so an operation takes one kind only. Here a "
    "mask, a buffer or a constant was made by ``torch.ones`` and the like, which give ordinary tensors.",
    fix="Make the tensor from the one that it meets, ``torch.ones_like(x)``, or as a DTensor: "
    "``distribute_tensor(constant, x.device_mesh, [Replicate()])``.",
    see=("cookbook/08_distributed/tensor_parallel",),
)
def dtensor_mixed():
    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return torch.full(x.shape, 2.0) * x * grad_output

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1,))
    x = distribute_tensor(torch.randn(4, 3), mesh, [Shard(0)]).requires_grad_()
    Square.apply(x).sum().backward()


@mends(dtensor_mixed)
def dtensor_alike():
    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return torch.full_like(x, 2.0) * x * grad_output

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1,))
    x = distribute_tensor(torch.randn(4, 3), mesh, [Shard(0)]).requires_grad_()
    Square.apply(x).sum().backward()


@raises(
    "A part of an FSDP2 model was called outside of its forward",
    cause="Between the forwards, the parameters of a ``fully_shard``-ed module are sharded DTensors. Only the hooks of "
    "the module that was given to ``fully_shard`` gather them. Calling a submodule, or another method such as "
    "``model.generate`` or ``model.embed``, runs no such hook.",
    fix="Call the wrapped module itself, ``model(x)``, and wrap the root too. For another method that is called from "
    'outside, ``register_fsdp_forward_method(model, "embed")``.',
    see=("cookbook/08_distributed/data_parallel",),
)
def fsdp_method_called():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def embed(self, x):
            return self.layer(x)

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = fully_shard(Net(), mesh=init_device_mesh("cpu", (1,)))
    model.embed(torch.randn(4, 3)).sum().backward()


@mends(fsdp_method_called)
def fsdp_method_registered():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def embed(self, x):
            return self.layer(x)

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = fully_shard(Net(), mesh=init_device_mesh("cpu", (1,)))
    register_fsdp_forward_method(model, "embed")
    model.embed(torch.randn(4, 3)).sum().backward()


@raises(
    "Gradient clipping or an optimizer got sharded and ordinary parameters together",
    cause="Only a part of the model was given to ``fully_shard`` or distributed, so some parameters are DTensors and "
    "some are not. Clipping and optimizers handle all of them in one operation.",
    fix="Call ``fully_shard(model)`` on the root last, so that every parameter is sharded. Otherwise clip the two "
    "kinds apart, and give them to two optimizers.",
    see=("cookbook/08_distributed/data_parallel",),
)
def clipped_with_dtensors():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1,))
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    fully_shard(model[0], mesh=mesh)
    model(torch.randn(4, 3)).sum().backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)


@mends(clipped_with_dtensors)
def clipped_all_sharded():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1,))
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    fully_shard(model[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
    model(torch.randn(4, 3)).sum().backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)


@raises(
    "A second backward ran through an FSDP2 model whose parameters had been freed",
    cause="FSDP2 frees the gathered parameters when backward has passed a module. ``torch.autograd.grad`` with "
    "``create_graph=True`` (a gradient penalty, forces from an energy) counts as that backward, and the second one "
    "needs the parameters again.",
    fix="Gather the parameters again between the two: call ``unshard()`` on every module that was given to "
    "``fully_shard``. ``set_reshard_after_backward(False)`` alone removes the error, but in torch 2.13 the parameters "
    "then get no gradient.",
    see=("cookbook/05_higher_order/double_backward",),
)
def fsdp_backward_twice():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
    fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    x = torch.randn(4, 3, requires_grad=True)
    (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    slope.square().sum().backward()


@mends(fsdp_backward_twice)
def fsdp_gathered_again():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
    fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    x = torch.randn(4, 3, requires_grad=True)
    (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    model.unshard()
    slope.square().sum().backward()
    assert model[0].weight.grad is not None


@raises(
    "A tensor left an FSDP2 module by another way than its return value",
    cause="FSDP2 gathers the parameters for backward when a gradient reaches an output of ``forward``. A tensor that "
    "``forward`` stores on the module, or in a cache, has no such hook, so backward finds the parameters freed.",
    fix="Return the tensor from ``forward`` along with the output, and use the returned one in the loss. "
    "``reshard_after_forward=False`` removes the error, but in torch 2.13 the gradients are then not reduced.",
    see=("cookbook/08_distributed/data_parallel",),
)
def fsdp_tensor_escaped():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x):
            self.hidden = self.second(self.first(x).tanh())
            return self.hidden.sum()

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh, net = init_device_mesh("cpu", (1,)), Net()
    model = nn.Sequential(fully_shard(net, mesh=mesh))
    fully_shard(model, mesh=mesh)
    model(torch.randn(4, 3))
    net.hidden.square().sum().backward()


@mends(fsdp_tensor_escaped)
def fsdp_tensor_returned():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x):
            hidden = self.second(self.first(x).tanh())
            return hidden.sum(), hidden

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh, net = init_device_mesh("cpu", (1,)), Net()
    model = nn.Sequential(fully_shard(net, mesh=mesh))
    fully_shard(model, mesh=mesh)
    _, hidden = model(torch.randn(4, 3))
    hidden.square().sum().backward()
