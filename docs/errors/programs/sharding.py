"""FSDP, ZeRO, DTensor and pipelines."""

import copy

import torch
import torch.distributed as dist
from docs.errors.programs import fixes, raises
from torch import nn
from torch.autograd import Function
from torch.distributed._composable import replicate
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard, register_fsdp_forward_method
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.pipelining._backward import stage_backward
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.experimental import local_map
from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, loss_parallel, parallelize_module


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


@fixes(dtensor_mixed)
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


@fixes(fsdp_method_called)
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


@fixes(clipped_with_dtensors)
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


@fixes(fsdp_backward_twice)
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


@fixes(fsdp_tensor_escaped)
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


@raises(
    "FSDP flattens frozen and trainable parameters into one tensor",
    cause="``FullyShardedDataParallel`` flattens all parameters of a unit into one parameter, which either requires "
    "grad or does not. With ``use_orig_params=False``, a unit that is partly frozen (LoRA, adapters, a frozen backbone "
    "with a new head) does not fit.",
    fix="Pass ``use_orig_params=True`` (``fsdp_use_orig_params: true`` for accelerate): each original parameter then "
    "keeps its own ``requires_grad``. Otherwise wrap so that each unit is frozen as a whole or trained as a whole; "
    "to freeze a layer after you wrap freezes nothing then. ``fully_shard`` (FSDP2) does not flatten.",
    see=("cookbook/08_distributed/data_parallel",),
)
def fsdp_partly_frozen():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    model[0].requires_grad_(False)
    FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=False)


@fixes(fsdp_partly_frozen)
def fsdp_partly_frozen_allowed():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    model[0].requires_grad_(False)
    FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=True)


@raises(
    "FSDP flattens parameters of two dtypes into one tensor",
    cause="``FullyShardedDataParallel`` flattens all parameters of a unit into one tensor, which has one dtype. Here "
    "some are ``float32`` and others ``bfloat16``: a base model in half precision with adapters or norms in full "
    "precision.",
    fix="Give all parameters one dtype before you wrap: ``model.to(torch.float32)``, and let "
    "``MixedPrecision(param_dtype=torch.bfloat16)`` cast them for the computation. ``use_orig_params=True`` does not "
    "help here.",
    see=("cookbook/08_distributed/data_parallel",),
)
def fsdp_two_dtypes():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = nn.Sequential(nn.Linear(3, 3).bfloat16(), nn.Linear(3, 1))
    FullyShardedDataParallel(model, device_id=torch.device("cpu"))


@fixes(fsdp_two_dtypes)
def fsdp_one_dtype():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = nn.Sequential(nn.Linear(3, 3).bfloat16(), nn.Linear(3, 1)).to(torch.float32)
    FullyShardedDataParallel(model, device_id=torch.device("cpu"))


@raises(
    "A parameter of an FSDP model was replaced by one of another shape",
    cause="With ``use_orig_params=True``, FSDP copies parameters that you replaced back into its flat tensor, whose "
    "sizes were fixed when the model was wrapped. Here the new parameter has another number of elements: a layer was "
    "exchanged, or an embedding was resized, after wrapping.",
    fix="Change the architecture before you wrap the model: load the weights, resize the embedding, then call "
    "``FullyShardedDataParallel``. In a training step, write into a parameter with ``copy_``, of the same shape.",
    see=("cookbook/08_distributed/data_parallel",),
)
def fsdp_parameter_replaced():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    net = nn.Sequential(nn.Linear(3, 1))
    model = FullyShardedDataParallel(net, device_id=torch.device("cpu"), use_orig_params=True)
    net[0].weight = nn.Parameter(torch.randn(1, 5))
    model(torch.randn(4, 5)).sum().backward()


@fixes(fsdp_parameter_replaced)
def fsdp_parameter_replaced_before():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    net = nn.Sequential(nn.Linear(3, 1))
    net[0].weight = nn.Parameter(torch.randn(1, 5))
    model = FullyShardedDataParallel(net, device_id=torch.device("cpu"), use_orig_params=True)
    model(torch.randn(4, 5)).sum().backward()


@raises(
    "An FSDP submodule ran before the root of the model",
    cause="The first forward decides which FSDP module is the root. A wrapped submodule was called alone first, so it "
    "took itself for the root, and then the whole model ran.",
    fix="Run the whole model first: ``model(x)``, not ``model.encoder(x)``. If only a part is needed, make a "
    "method of the outer module's ``forward`` choose it.",
    see=("cookbook/08_distributed/data_parallel",),
)
def fsdp_submodule_first():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    cpu = torch.device("cpu")
    encoder = FullyShardedDataParallel(nn.Linear(3, 3), device_id=cpu)
    model = FullyShardedDataParallel(nn.Sequential(encoder, nn.Linear(3, 1)), device_id=cpu)
    encoder(torch.randn(4, 3))
    model(torch.randn(4, 3)).sum().backward()


@fixes(fsdp_submodule_first)
def fsdp_root_first():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    cpu = torch.device("cpu")
    encoder = FullyShardedDataParallel(nn.Linear(3, 3), device_id=cpu)
    model = FullyShardedDataParallel(nn.Sequential(encoder, nn.Linear(3, 1)), device_id=cpu)
    model(torch.randn(4, 3)).sum().backward()


@raises(
    "summon_full_params was entered during the forward or backward of an FSDP model",
    cause="FSDP gathers and frees the parameters itself while a forward or a backward runs. "
    "``summon_full_params`` gathers them too, and cannot do so inside.",
    fix="Call ``summon_full_params`` between iterations, around what reads or writes parameters. Inside ``forward``, "
    "the parameters of the running module are already whole.",
    see=("cookbook/08_distributed/data_parallel",),
)
def fsdp_summoned_inside():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x):
            with FullyShardedDataParallel.summon_full_params(model):
                penalty = self.layer.weight.square().sum()
            return self.layer(x).sum() + penalty

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = FullyShardedDataParallel(Net(), device_id=torch.device("cpu"))
    model(torch.randn(4, 3)).backward()


@fixes(fsdp_summoned_inside)
def fsdp_read_inside():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x):
            penalty = self.layer.weight.square().sum()
            return self.layer(x).sum() + penalty

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = FullyShardedDataParallel(Net(), device_id=torch.device("cpu"))
    model(torch.randn(4, 3)).backward()


@raises(
    "FSDP was given a parameter without dimensions",
    cause="FSDP divides the first dimension of each parameter among the processes. A scalar, such as a temperature or "
    "a gate, has none.",
    fix="Make it a vector with one element: ``nn.Parameter(torch.ones(1))``. Broadcasting does the rest. Or leave it "
    "out with ``ignored_params``, and average its gradient yourself.",
    see=("cookbook/08_distributed/data_parallel",),
)
def fsdp_scalar_parameter():
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.factor = nn.Parameter(torch.tensor(1.0))

        def forward(self, x):
            return self.factor * x

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = fully_shard(Scale(), mesh=init_device_mesh("cpu", (1,)))
    model(torch.randn(4, 3)).sum().backward()


@fixes(fsdp_scalar_parameter)
def fsdp_vector_parameter():
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.factor = nn.Parameter(torch.ones(1))

        def forward(self, x):
            return self.factor * x

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = fully_shard(Scale(), mesh=init_device_mesh("cpu", (1,)))
    model(torch.randn(4, 3)).sum().backward()


@raises(
    "Tied parameters are in two FSDP2 groups",
    cause="Each call of ``fully_shard`` manages its parameters alone. Here an embedding and an output layer share a "
    "weight and were sharded in two calls, so two groups would gather and free the same parameter.",
    fix="Shard the modules that share the weight in one call: ``fully_shard([model.embedding, model.head])``. Or shard "
    "neither of them, so that both fall to the root.",
    see=("cookbook/08_distributed/data_parallel",),
)
def fsdp_tied_apart():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1,))
    model = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 5, bias=False))
    model[1].weight = model[0].weight
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model(torch.tensor([1, 2])).sum().backward()


@fixes(fsdp_tied_apart)
def fsdp_tied_together():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1,))
    model = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 5, bias=False))
    model[1].weight = model[0].weight
    fully_shard([model[0], model[1]], mesh=mesh)
    fully_shard(model, mesh=mesh)
    model(torch.tensor([1, 2])).sum().backward()


@raises(
    "An FSDP2 submodule ran before the root of the model",
    cause="The first forward decides which module is the root, and sets up the others from there. Here a submodule "
    "that was given to ``fully_shard`` was called alone first.",
    fix="Run the root module first: ``model(x)`` before ``model.encoder(x)``. A submodule that always runs alone is a "
    "model of its own: do not put it under the ``fully_shard`` of another.",
    see=("cookbook/08_distributed/data_parallel",),
)
def fsdp2_submodule_first():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1,))
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    fully_shard(model[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
    model[0](torch.randn(4, 3))
    model(torch.randn(4, 3)).sum().backward()


@fixes(fsdp2_submodule_first)
def fsdp2_root_first():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1,))
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    fully_shard(model[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
    model(torch.randn(4, 3)).sum().backward()
    model[0](torch.randn(4, 3))


@raises(
    "The parameters of one FSDP2 module have two dtypes",
    cause="FSDP2 gathers all trainable parameters of a module in one communication, so they need one dtype. Here some "
    "are ``float32`` and others ``bfloat16``, for example adapters in full precision on a model in half precision.",
    fix="Give the parameters one dtype before ``fully_shard``: ``model.to(torch.float32)`` with "
    "``mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16)``. Otherwise call ``fully_shard`` on the modules of "
    "each dtype apart.",
    see=("cookbook/08_distributed/data_parallel",),
)
def fsdp2_two_dtypes():
    class Adapted(nn.Module):
        def __init__(self):
            super().__init__()
            self.base, self.adapter = nn.Linear(3, 3).bfloat16(), nn.Linear(3, 3)

        def forward(self, x):
            return self.base(x.bfloat16()) + self.adapter(x)

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = fully_shard(Adapted(), mesh=init_device_mesh("cpu", (1,)))
    model(torch.randn(4, 3)).sum().backward()


@fixes(fsdp2_two_dtypes)
def fsdp2_one_dtype():
    class Adapted(nn.Module):
        def __init__(self):
            super().__init__()
            self.base, self.adapter = nn.Linear(3, 3).bfloat16(), nn.Linear(3, 3)

        def forward(self, x):
            return self.base(x) + self.adapter(x)

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = fully_shard(Adapted().to(torch.float32), mesh=init_device_mesh("cpu", (1,)))
    model(torch.randn(4, 3)).sum().backward()


@raises(
    "An FSDP2 model was deep-copied",
    cause="The parameters, their shards and the hooks of a ``fully_shard``-ed module belong together, and a copy would "
    "share some of them. An averaged model (EMA) or a reference model is often made so.",
    fix="Copy the model before ``fully_shard``, and shard the copy too: ``copy.deepcopy(model)``, then "
    "``fully_shard(average)``. Afterwards, exchange weights by ``state_dict()``.",
    see=("cookbook/08_distributed/data_parallel",),
)
def fsdp2_copied():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = fully_shard(nn.Linear(3, 1), mesh=init_device_mesh("cpu", (1,)))
    copy.deepcopy(model)


@fixes(fsdp2_copied)
def fsdp2_copied_before():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh, model = init_device_mesh("cpu", (1,)), nn.Linear(3, 1)
    average = copy.deepcopy(model)
    fully_shard(model, mesh=mesh)
    fully_shard(average, mesh=mesh)


@raises(
    "Parameters of an FSDP2 model are still on the meta device",
    cause='The model was made under ``torch.device("meta")``, so its parameters have no values, and nothing gave '
    "them some before the first forward.",
    fix='Call ``model.to_empty(device="cuda")`` after ``fully_shard``, and then initialize or load the weights. '
    "``to_empty`` leaves random memory in parameters and buffers alike, so set the buffers too.",
    see=("cookbook/08_distributed/data_parallel",),
)
def fsdp2_on_meta():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    with torch.device("meta"):
        model = nn.Linear(3, 1)
    fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    model(torch.randn(4, 3)).sum().backward()


@fixes(fsdp2_on_meta)
def fsdp2_materialized():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    with torch.device("meta"):
        model = nn.Linear(3, 1)
    fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    model.to_empty(device="cpu")
    model.reset_parameters()
    model(torch.randn(4, 3)).sum().backward()


@raises(
    "fully_shard was given a ModuleList",
    cause="FSDP2 gathers the parameters in a hook around ``forward``, and a ``ModuleList`` has no forward that runs.",
    fix="Call ``fully_shard`` on each element, ``for block in model.blocks: fully_shard(block)``, and on the model "
    "that holds the list.",
    see=("cookbook/08_distributed/data_parallel",),
)
def fsdp2_of_list():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    blocks = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
    fully_shard(blocks, mesh=init_device_mesh("cpu", (1,)))


@fixes(fsdp2_of_list)
def fsdp2_of_elements():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    blocks = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
    for block in blocks:
        fully_shard(block, mesh=init_device_mesh("cpu", (1,)))


@raises(
    "The output of an FSDP2 module is a view, and may lose its backward hook",
    cause="FSDP2 gathers the parameters for backward by a hook on the output of ``forward``. The output is a view, and "
    "an operation in place on it, such as ``x += y``, gives it another node in the graph and drops the hook.",
    fix="Write the operation on the output out of place, ``x = x + y``, or return a copy: ``return out.clone()``. If "
    "nothing writes into the output, the gradients are right and you can ignore the warning.",
    see=("cookbook/08_distributed/data_parallel", "cookbook/04_memory/in_place"),
    warning=True,
)
def fsdp2_returns_view():
    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 4)

        def forward(self, x):
            return self.layer(x).view(-1, 2, 2)

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = fully_shard(Heads(), mesh=init_device_mesh("cpu", (1,)))
    heads = model(torch.randn(4, 3))
    heads += 1
    heads.sum().backward()


@fixes(fsdp2_returns_view)
def fsdp2_returns_copy():
    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 4)

        def forward(self, x):
            return self.layer(x).view(-1, 2, 2).clone()

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = fully_shard(Heads(), mesh=init_device_mesh("cpu", (1,)))
    heads = model(torch.randn(4, 3))
    heads += 1
    heads.sum().backward()


@raises(
    "FSDP2 was given a parameter that is not contiguous",
    cause="FSDP2 cuts each parameter into contiguous shards. This one is a transposed or otherwise strided tensor: a "
    "weight that was made as ``other.T``, loaded transposed, or converted to ``channels_last``.",
    fix="Make it contiguous before ``fully_shard``: ``layer.weight = nn.Parameter(weight.T.contiguous())``, or "
    "``model.to(memory_format=torch.contiguous_format)``.",
    see=("cookbook/08_distributed/data_parallel",),
)
def fsdp2_not_contiguous():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = nn.Linear(3, 4)
    model.weight = nn.Parameter(torch.randn(3, 4).T)
    fully_shard(model, mesh=init_device_mesh("cpu", (1,)))


@fixes(fsdp2_not_contiguous)
def fsdp2_contiguous():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = nn.Linear(3, 4)
    model.weight = nn.Parameter(torch.randn(3, 4).T.contiguous())
    fully_shard(model, mesh=init_device_mesh("cpu", (1,)))


@raises(
    "Gradient clipping got parameters on two device meshes",
    cause="Tensor parallelism and FSDP2 are combined, so some parameters are sharded over both dimensions of the mesh "
    "and others over one only. Clipping stacks the norms of all of them, which one operation cannot do.",
    fix="Clip the parameters of each mesh apart: group them by ``parameter.device_mesh``, compute "
    "``get_total_norm`` of each group, combine the norms, and scale. Or distribute the remaining layers as well, so "
    "that all parameters have one mesh.",
    see=("cookbook/08_distributed/tensor_parallel",),
)
def clipped_on_two_meshes():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("dp", "tp"))
    model = nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 4))
    parallelize_module(model, mesh["tp"], {"1": ColwiseParallel()})
    fully_shard(model, mesh=mesh["dp"])
    model(torch.randn(3, 4)).sum().backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)


@fixes(clipped_on_two_meshes)
def clipped_mesh_by_mesh():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("dp", "tp"))
    model = nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 4))
    parallelize_module(model, mesh["tp"], {"1": ColwiseParallel()})
    fully_shard(model, mesh=mesh["dp"])
    model(torch.randn(3, 4)).sum().backward()
    meshes = {parameter.device_mesh for parameter in model.parameters()}
    groups = [[p for p in model.parameters() if p.device_mesh == each] for each in meshes]
    norms = [nn.utils.get_total_norm([p.grad for p in group]).full_tensor() for group in groups]
    total = torch.stack(norms).norm()
    for group in groups:
        nn.utils.clip_grads_with_norm_(group, 1.0, total)


@raises(
    "An operation got DTensors on two device meshes",
    cause="A DTensor belongs to a mesh of devices, and an operation takes tensors of one mesh only. Here one was made "
    "on a mesh with one dimension and the other on a mesh with two, or by two calls of ``init_device_mesh``.",
    fix="Make both on the same mesh, from one ``init_device_mesh``: a tensor that is not sharded over the second "
    "dimension gets ``Replicate()`` there.",
    see=("cookbook/08_distributed/tensor_parallel",),
)
def dtensors_on_two_meshes():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh, data = init_device_mesh("cpu", (1, 1)), init_device_mesh("cpu", (1,))
    weight = distribute_tensor(torch.randn(4, 4), mesh, [Replicate(), Shard(0)]).requires_grad_()
    x = distribute_tensor(torch.randn(4, 4), data, [Shard(0)])
    (x * weight).sum().backward()


@fixes(dtensors_on_two_meshes)
def dtensors_on_one_mesh():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1, 1))
    weight = distribute_tensor(torch.randn(4, 4), mesh, [Replicate(), Shard(0)]).requires_grad_()
    x = distribute_tensor(torch.randn(4, 4), mesh, [Shard(0), Replicate()])
    (x * weight).sum().backward()


@raises(
    "distribute_tensor was given a result of an operation",
    cause="``distribute_tensor`` makes a new leaf from values, without a gradient to what it was given. It refuses a "
    "result of an operation, whose gradient would be lost silently.",
    fix="Use ``DTensor.from_local(x, mesh, [Replicate()])`` for an activation: it is differentiable. "
    "``distribute_tensor`` is for parameters, before training.",
    see=("cookbook/08_distributed/tensor_parallel",),
)
def result_distributed():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1,))
    hidden = nn.Linear(3, 3)(torch.randn(4, 3))
    x = distribute_tensor(hidden, mesh, [Replicate()])
    x.sum().backward()


@fixes(result_distributed)
def result_from_local():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1,))
    hidden = nn.Linear(3, 3)(torch.randn(4, 3))
    x = DTensor.from_local(hidden, mesh, [Replicate()])
    x.sum().backward()


@raises(
    "parallelize_module came after fully_shard",
    cause="Tensor parallelism distributes the parameters of a layer, and FSDP2 shards what is there. Here FSDP2 came "
    "first, so the parameters are already DTensors on another mesh.",
    fix="Call ``parallelize_module`` first and ``fully_shard`` afterwards, both with dimensions of one mesh: "
    '``mesh["tp"]`` and ``mesh["dp"]``.',
    see=("cookbook/08_distributed/tensor_parallel",),
)
def parallelized_after_sharding():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("dp", "tp"))
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    fully_shard(model, mesh=mesh["dp"])
    parallelize_module(model, mesh["tp"], {"1": ColwiseParallel()})


@fixes(parallelized_after_sharding)
def parallelized_before_sharding():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("dp", "tp"))
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    parallelize_module(model, mesh["tp"], {"1": ColwiseParallel()})
    fully_shard(model, mesh=mesh["dp"])


@raises(
    "backward was called with create_graph=True on an FSDP model",
    cause="With ``create_graph=True``, the gradients of the parameters have a graph of their own. "
    "``FullyShardedDataParallel`` reduces and shards gradients in a hook that PyTorch does not record, so FSDP "
    "raises.",
    fix="Call ``backward()`` without ``create_graph=True``. A penalty on the gradient with respect to the input works "
    "with ``fully_shard`` (FSDP2): compute it with ``torch.autograd.grad(..., create_graph=True)``, gather the "
    "parameters again with ``unshard()``, and call ``backward()`` once. If your loss contains gradients of parameters, "
    "do not shard the model.",
    see=("cookbook/05_higher_order/double_backward",),
)
def fsdp_create_graph():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
    model = FullyShardedDataParallel(net, device_id=torch.device("cpu"))
    model(torch.randn(4, 3)).square().sum().backward(create_graph=True)


@fixes(fsdp_create_graph)
def fsdp2_input_penalty():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
    fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    x = torch.randn(4, 3, requires_grad=True)
    loss = model(x).square().sum()
    (slope,) = torch.autograd.grad(loss, x, create_graph=True)
    model.unshard()
    (loss + slope.square().sum()).backward()


@raises(
    "An ordinary checkpoint was loaded into an FSDP2 model",
    cause="The parameters of a ``fully_shard``-ed model are DTensors, and ``load_state_dict`` copies into them. The "
    "checkpoint holds ordinary tensors: it was saved from a model that was not sharded.",
    fix="Load it with ``set_model_state_dict(model, state, options=StateDictOptions(full_state_dict=True))`` from "
    "``torch.distributed.checkpoint.state_dict``, or load the weights before ``fully_shard``.",
    see=("cookbook/08_distributed/data_parallel",),
)
def fsdp2_full_checkpoint():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    state = nn.Linear(3, 1).state_dict()
    model = fully_shard(nn.Linear(3, 1), mesh=init_device_mesh("cpu", (1,)))
    model.load_state_dict(state)


@fixes(fsdp2_full_checkpoint)
def fsdp2_full_checkpoint_distributed():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    state = nn.Linear(3, 1).state_dict()
    model = fully_shard(nn.Linear(3, 1), mesh=init_device_mesh("cpu", (1,)))
    set_model_state_dict(model, state, options=StateDictOptions(full_state_dict=True))


@raises(
    "A lazy layer was given to FSDP2 before it had run",
    cause="The parameters of a lazy module (``nn.LazyLinear``) have no shape before the first forward, so FSDP2 cannot "
    "shard them.",
    fix="Run one forward with an example before ``fully_shard``: ``model(example)``.",
    see=("cookbook/08_distributed/data_parallel",),
)
def fsdp2_of_lazy():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = fully_shard(nn.LazyLinear(1), mesh=init_device_mesh("cpu", (1,)))
    model(torch.randn(4, 3)).sum().backward()


@fixes(fsdp2_of_lazy)
def fsdp2_of_initialized():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = nn.LazyLinear(1)
    model(torch.randn(4, 3))
    fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    model(torch.randn(4, 3)).sum().backward()


@raises(
    "FSDP was given parameters of integers",
    cause="FSDP joins the parameters of a module to one flat parameter that gets one gradient, and integers have none. "
    "Quantized weights (8 or 4 bits) are stored as integers.",
    fix="Store the quantized weights in tensors of the dtype in which the model computes: load with "
    "``bnb_4bit_quant_storage=torch.bfloat16``. Or register the weights as buffers, or pass their modules to "
    "``ignored_modules``.",
    see=("cookbook/08_distributed/data_parallel",),
)
def fsdp_of_integers():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    quantized = nn.Module()
    quantized.packed = nn.Parameter(torch.zeros(3, dtype=torch.uint8), requires_grad=False)
    FullyShardedDataParallel(quantized, device_id=torch.device("cpu"))


@fixes(fsdp_of_integers)
def fsdp_with_buffer_of_integers():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    quantized = nn.Linear(3, 3)
    quantized.register_buffer("packed", torch.zeros(3, dtype=torch.uint8))
    FullyShardedDataParallel(quantized, device_id=torch.device("cpu"))


@raises(
    "FSDP found no GPU",
    cause="``FullyShardedDataParallel`` runs on an accelerator, and torch sees none in this process: a build of torch "
    "without CUDA, a missing driver, or an empty ``CUDA_VISIBLE_DEVICES``.",
    fix="Print ``torch.cuda.is_available()``. For a test on the CPU, pass ``device_id=torch.device('cpu')``, or use "
    "``fully_shard`` with ``init_device_mesh('cpu', (1,))``.",
    see=("cookbook/08_distributed/data_parallel",),
)
def fsdp_without_gpu():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = FullyShardedDataParallel(nn.Linear(3, 1))
    model(torch.randn(4, 3)).sum().backward()


@fixes(fsdp_without_gpu)
def fsdp_on_cpu():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = FullyShardedDataParallel(nn.Linear(3, 1), device_id=torch.device("cpu"))
    model(torch.randn(4, 3)).sum().backward()


@raises(
    "Gradients of an inner FSDP module were clipped",
    cause="Clipping uses a single norm of all parameters of the model, on all ranks. Only the outermost FSDP module "
    "computes this norm.",
    fix="Clip on the whole model: ``model.clip_grad_norm_(1.0)``, not on a wrapped layer in it.",
    see=("cookbook/08_distributed/data_parallel",),
)
def fsdp_inner_clipped():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    cpu = torch.device("cpu")
    inner = FullyShardedDataParallel(nn.Linear(3, 3), device_id=cpu)
    model = FullyShardedDataParallel(nn.Sequential(inner, nn.Linear(3, 1)), device_id=cpu)
    model(torch.randn(4, 3)).sum().backward()
    inner.clip_grad_norm_(1.0)


@fixes(fsdp_inner_clipped)
def fsdp_clipped():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    cpu = torch.device("cpu")
    inner = FullyShardedDataParallel(nn.Linear(3, 3), device_id=cpu)
    model = FullyShardedDataParallel(nn.Sequential(inner, nn.Linear(3, 1)), device_id=cpu)
    model(torch.randn(4, 3)).sum().backward()
    model.clip_grad_norm_(1.0)


@raises(
    "FSDP has a single process and does not shard",
    cause="With one process there is nothing to divide, so FSDP keeps the whole parameters (``NO_SHARD``).",
    fix="Start one process for each GPU: ``torchrun --nproc-per-node=N script.py``. On one GPU the warning is "
    "harmless, and FSDP saves no memory there.",
    see=("cookbook/08_distributed/data_parallel",),
    warning=True,
)
def fsdp_alone():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    FullyShardedDataParallel(nn.Linear(3, 1), device_id=torch.device("cpu"))


@fixes(fsdp_alone)
def module_alone():
    model = nn.Linear(3, 1)
    model(torch.randn(4, 3)).sum().backward()


@raises(
    "The number of outputs of a pipeline stage differs from the number of gradients",
    cause="A stage of ``torch.distributed.pipelining`` sends tensors on and gets one gradient for each. Here it has "
    "an output that the next stage does not differentiate: a mask, a length, the whole output object of a model with "
    "logits and loss. The message says only that the stage failed; above it stands ``assert len(output_val) == "
    "len(grad_val)``.",
    fix="Let each stage return only the tensors that the next stage uses. Let the last stage return only the "
    "input of the loss: ``return output.logits``. Compute masks and positions in each stage again.",
    see=("guide/ranks",),
)
def stage_of_more_outputs():
    x = torch.randn(3, requires_grad=True)
    outputs = x * 2, x * 3
    stage_backward(outputs, (torch.ones(3),), (x,))


@fixes(stage_of_more_outputs)
def stage_of_one_output():
    x = torch.randn(3, requires_grad=True)
    outputs = (x * 2,)
    stage_backward(outputs, (torch.ones(3),), (x,))


@raises(
    "fully_shard, replicate or checkpoint was applied to a module twice",
    cause="Each of these functions changes the module itself, so you can apply a function only once to the same "
    "module. A module that appears twice in the model, or code that runs twice, applies the function again.",
    fix="Collect the modules first, each once: ``for block in dict.fromkeys(model.blocks): fully_shard(block)``. To "
    "start again with other options, make the model anew.",
    see=("cookbook/08_distributed/data_parallel",),
)
def fsdp2_twice():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1,))
    block = nn.Linear(3, 3)
    for layer in [block, block]:  # the same layer, used twice in the model
        fully_shard(layer, mesh=mesh)


@fixes(fsdp2_twice)
def fsdp2_once():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1,))
    block = nn.Linear(3, 3)
    for layer in dict.fromkeys([block, block]):
        fully_shard(layer, mesh=mesh)


@raises(
    "replicate was applied to a module that fully_shard manages",
    cause="``replicate`` keeps the whole parameters on each rank, ``fully_shard`` cuts them into shards. One module "
    "can be under one of them only.",
    fix="Choose one. For replicas of shards (HSDP), give ``fully_shard`` a mesh of two dimensions: "
    '``init_device_mesh("cuda", (2, 4), mesh_dim_names=("replicate", "shard"))``.',
    see=("cookbook/08_distributed/data_parallel",),
)
def replicated_after_sharding():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    layer = nn.Linear(3, 3)
    fully_shard(layer, mesh=init_device_mesh("cpu", (1,)))
    replicate(layer)


@fixes(replicated_after_sharding)
def replicas_of_shards():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("replicate", "shard"))
    fully_shard(nn.Linear(3, 3), mesh=mesh)


@raises(
    "The mesh of fully_shard has the wrong number of dimensions, or no names",
    cause="``fully_shard`` takes a mesh of one dimension, or one of two for replicas of shards (HSDP). The two need "
    "names.",
    fix='Give the part of the mesh that is for data: ``fully_shard(model, mesh=mesh["dp"])``, with '
    '``init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp"))``.',
    see=("cookbook/08_distributed/data_parallel", "cookbook/08_distributed/tensor_parallel"),
)
def sharded_over_unnamed_mesh():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    fully_shard(nn.Linear(3, 3), mesh=init_device_mesh("cpu", (1, 1)))


@fixes(sharded_over_unnamed_mesh)
def sharded_over_named_mesh():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("dp", "tp"))
    fully_shard(nn.Linear(3, 3), mesh=mesh["dp"])


@raises(
    "reshard_after_forward is no factor of the number of ranks",
    cause="``reshard_after_forward`` is ``True``, ``False``, or a group size: after the forward, the parameters stay "
    "sharded over groups of so many ranks. These groups must divide the mesh evenly.",
    fix="Pass ``True`` to save memory, ``False`` to save communication, or a divisor of the size of the mesh, mostly "
    "the number of GPUs in a node.",
    see=("cookbook/08_distributed/data_parallel",),
)
def resharded_over_three():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    fully_shard(nn.Linear(3, 3), mesh=init_device_mesh("cpu", (1,)), reshard_after_forward=3)


@fixes(resharded_over_three)
def resharded_over_all():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    fully_shard(nn.Linear(3, 3), mesh=init_device_mesh("cpu", (1,)), reshard_after_forward=True)


@raises(
    "An FSDP unit has frozen and trained parameters",
    cause="FSDP keeps the parameters of one unit in one flat tensor, with one gradient for all of them. The gradient "
    "of the frozen parameters takes memory too.",
    fix="Wrap so that frozen and trained layers are separate units, for example each adapter alone. Or use "
    "``fully_shard`` (FSDP2), which shards each parameter alone. The gradients are right, so you may ignore the "
    "warning if memory suffices.",
    see=("cookbook/08_distributed/data_parallel",),
    warning=True,
)
def fsdp_frozen_with_trained():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    layer = nn.Linear(3, 3)
    layer.bias.requires_grad_(False)
    policy = ModuleWrapPolicy({nn.Linear})
    FullyShardedDataParallel(
        nn.Sequential(layer), auto_wrap_policy=policy, use_orig_params=True, device_id=torch.device("cpu")
    )


@fixes(fsdp_frozen_with_trained)
def fsdp2_frozen_with_trained():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    layer = nn.Linear(3, 3)
    layer.bias.requires_grad_(False)
    model = fully_shard(layer, mesh=init_device_mesh("cpu", (1,)))
    model(torch.randn(4, 3)).sum().backward()


@raises(
    "FSDP was told to ignore parameters under the name of modules",
    cause="``ignored_modules`` takes modules, ``ignored_states`` takes parameters or modules, and FSDP takes one of "
    "the two arguments.",
    fix="Pass ``ignored_states=[parameter, …]`` for parameters, and leave ``ignored_modules`` out.",
    see=("cookbook/08_distributed/data_parallel",),
)
def fsdp_ignores_parameter():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = nn.Linear(3, 3)
    FullyShardedDataParallel(model, ignored_modules=[model.bias], device_id=torch.device("cpu"))


@fixes(fsdp_ignores_parameter)
def fsdp_ignores_state():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = nn.Linear(3, 3)
    FullyShardedDataParallel(model, ignored_states=[model.bias], device_id=torch.device("cpu"))


@raises(
    "The number of placements differs from the dimensions of the mesh",
    cause="A placement says how a tensor lies over one dimension of the mesh, so there is one for each. With a mesh of "
    "two dimensions, ``[Shard(0)]`` says nothing about the second; ``ColwiseParallel`` and similar styles give one.",
    fix="Add one for each dimension: ``[Replicate(), Shard(0)]``. For tensor parallelism, pass one dimension of the "
    'mesh: ``parallelize_module(model, mesh["tp"], plan)``.',
    see=("cookbook/08_distributed/tensor_parallel",),
)
def placements_too_few():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("dp", "tp"))
    parallelize_module(nn.Linear(3, 3), mesh, ColwiseParallel())


@fixes(placements_too_few)
def placement_for_each():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("dp", "tp"))
    parallelize_module(nn.Linear(3, 3), mesh["tp"], ColwiseParallel())


@raises(
    "A layer of another kind was parallelized by columns or rows",
    cause="``ColwiseParallel`` and ``RowwiseParallel`` know how to shard ``nn.Linear`` and ``nn.Embedding``. A "
    "convolution, an activation, a norm or a class of your own, also one that wraps a linear layer, is none of them.",
    fix="Name the linear layers themselves in the plan. For a norm or a dropout, use ``SequenceParallel``; for another "
    "module, write a ``ParallelStyle`` with ``distribute_module``.",
    see=("cookbook/08_distributed/tensor_parallel",),
)
def activation_by_columns():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1,))
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    parallelize_module(model, mesh, {"1": ColwiseParallel()})


@fixes(activation_by_columns)
def linear_by_columns():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1,))
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    parallelize_module(model, mesh, {"0": ColwiseParallel()})


@raises(
    "A key of the parallelization plan names no module",
    cause="The keys are the names of submodules as ``named_modules()`` has them, with ``*`` as a wildcard. This key "
    "fits none, so PyTorch skips its entry and the layer stays whole on each rank.",
    fix="Print ``[n for n, _ in model.named_modules()]`` and correct the key. A wrapper (compile, checkpoint, DDP) "
    "adds a prefix such as ``_orig_mod.``: parallelize before you wrap.",
    see=("cookbook/08_distributed/tensor_parallel",),
    warning=True,
)
def plan_of_unknown_name():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = nn.Sequential(nn.Linear(3, 3))
    parallelize_module(model, init_device_mesh("cpu", (1,)), {"linear": ColwiseParallel()})


@fixes(plan_of_unknown_name)
def plan_of_known_name():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = nn.Sequential(nn.Linear(3, 3))
    parallelize_module(model, init_device_mesh("cpu", (1,)), {"0": ColwiseParallel()})


@raises(
    "The layouts that prepare a module's inputs are of another number than its inputs",
    cause="``PrepareModuleInput`` takes one layout for each positional input, before and after, with ``None`` for an "
    "input that is no tensor or stays as it is.",
    fix="Give both tuples the length of the inputs: ``input_layouts=(Shard(1), None)``, "
    "``desired_input_layouts=(Replicate(), None)``. For keyword arguments there are ``input_kwarg_layouts``.",
    see=("cookbook/08_distributed/tensor_parallel",),
)
def layouts_too_many():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    prepare = PrepareModuleInput(
        input_layouts=(Shard(0), None),
        desired_input_layouts=(Replicate(), None),
    )
    layer = parallelize_module(nn.Linear(3, 3), init_device_mesh("cpu", (1,)), prepare)
    layer(torch.randn(4, 3))


@fixes(layouts_too_many)
def layout_for_each_input():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    prepare = PrepareModuleInput(
        input_layouts=(Shard(0),),
        desired_input_layouts=(Replicate(),),
        use_local_output=True,
    )
    layer = parallelize_module(nn.Linear(3, 3), init_device_mesh("cpu", (1,)), prepare)
    layer(torch.randn(4, 3))


@raises(
    "loss_parallel got logits that are not sharded over the classes",
    cause="``loss_parallel`` computes the cross entropy of logits whose class dimension is cut over the ranks. These "
    "logits are sharded over another dimension, or whole.",
    fix="Let the last layer return them so: ``ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)``. For "
    "whole logits, leave ``loss_parallel`` out.",
    see=("cookbook/08_distributed/tensor_parallel",),
)
def parallel_loss_of_rows():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1,))
    logits = distribute_tensor(torch.randn(4, 3, requires_grad=True), mesh, [Shard(0)])
    with loss_parallel():
        nn.functional.cross_entropy(logits, torch.tensor([0, 1, 2, 0])).backward()


@fixes(parallel_loss_of_rows)
def parallel_loss_of_columns():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1,))
    logits = distribute_tensor(torch.randn(4, 3, requires_grad=True), mesh, [Shard(1)])
    with loss_parallel():
        nn.functional.cross_entropy(logits, torch.tensor([0, 1, 2, 0])).backward()


@raises(
    "local_map has another number of placements than the function has inputs or outputs",
    cause="``in_placements`` and ``out_placements`` have one entry for each argument and each result of the function. "
    "An argument that is no tensor has ``None``.",
    fix="Write ``in_placements=([Shard(0)], None)`` for a tensor and a number, and ``out_placements=([Shard(0)], "
    "[Replicate()])`` for two results.",
    see=("cookbook/08_distributed/tensor_parallel",),
)
def local_map_of_other_number():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1,))
    x = distribute_tensor(torch.randn(4, 3), mesh, [Shard(0)])
    scale = local_map(
        lambda x, factor: x * factor, out_placements=[Shard(0)], in_placements=([Shard(0)],), device_mesh=mesh
    )
    scale(x, 2)


@fixes(local_map_of_other_number)
def local_map_of_same_number():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1,))
    x = distribute_tensor(torch.randn(4, 3), mesh, [Shard(0)])
    scale = local_map(
        lambda x, factor: x * factor, out_placements=[Shard(0)], in_placements=([Shard(0)], None), device_mesh=mesh
    )
    scale(x, 2)


@raises(
    "redistribute was not told how",
    cause="``redistribute`` moves a DTensor to other placements, so it needs them.",
    fix="Write ``x.redistribute(placements=[Replicate()])``, or ``x.full_tensor()`` for the whole tensor.",
    see=("cookbook/08_distributed/tensor_parallel",),
)
def redistributed_to_nothing():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1,))
    distribute_tensor(torch.randn(4, 3), mesh, [Shard(0)]).redistribute(mesh)


@fixes(redistributed_to_nothing)
def redistributed_to_replicas():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1,))
    distribute_tensor(torch.randn(4, 3), mesh, [Shard(0)]).redistribute(mesh, [Replicate()])


@raises(
    "The state of a ZeroRedundancyOptimizer was saved without collecting it",
    cause="Each rank has the state of its own part of the parameters. ``state_dict`` returns the whole state on the "
    "rank that collected it.",
    fix="Call ``optimizer.consolidate_state_dict(to=0)`` on all ranks first, then ``optimizer.state_dict()`` on rank 0 "
    "only.",
    see=("cookbook/08_distributed/data_parallel",),
)
def zero_state_scattered():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = nn.Linear(3, 1)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)
    optimizer.state_dict()


@fixes(zero_state_scattered)
def zero_state_collected():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = nn.Linear(3, 1)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)
    optimizer.consolidate_state_dict(to=0)
    optimizer.state_dict()


@raises(
    "A ZeroRedundancyOptimizer got parameters of two dtypes or devices",
    cause="It packs the parameters of a rank into one buffer, so all must be of one dtype and on one kind of device.",
    fix="Make one ``ZeroRedundancyOptimizer`` for each dtype, or convert the model to one dtype and use autocast. "
    "``fully_shard`` shards the optimizer's state as well.",
    see=("cookbook/08_distributed/data_parallel",),
)
def zero_of_two_dtypes():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1).bfloat16())
    ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)


@fixes(zero_of_two_dtypes)
def zero_of_one_dtype():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)


@raises(
    "A batch is smaller than the number of microbatches",
    cause="A pipeline schedule cuts the batch along its first dimension into ``n_microbatches`` parts. Here there are "
    "fewer samples than parts, as in the last batch of an epoch.",
    fix="Drop the last batch, ``DataLoader(..., drop_last=True)``, or use a smaller ``n_microbatches``. If the batch "
    "is another dimension, pass ``args_chunk_spec``.",
    see=("cookbook/08_distributed/data_parallel",),
)
def microbatches_too_many():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    stage = PipelineStage(nn.Linear(3, 1), 0, 1, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, n_microbatches=8, loss_fn=nn.functional.mse_loss)
    schedule.step(torch.randn(4, 3), target=torch.randn(4, 1))


@fixes(microbatches_too_many)
def microbatches_enough():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    stage = PipelineStage(nn.Linear(3, 1), 0, 1, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, n_microbatches=4, loss_fn=nn.functional.mse_loss)
    schedule.step(torch.randn(4, 3), target=torch.randn(4, 1))
