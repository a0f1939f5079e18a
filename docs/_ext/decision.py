"""The guide "Do I need a custom function?": questions whose every branch ends at a recipe, or at "no"."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


@dataclass(frozen=True)
class No:
    """No custom function is needed: why, what to use instead, and pages that show it."""

    reason: str
    instead: str
    pages: tuple[str, ...] = ()


@dataclass(frozen=True)
class Yes:
    """One is worth writing: why, and the recipes."""

    reason: str
    pages: tuple[str, ...]


@dataclass(frozen=True)
class Question:
    """What is asked, and where each answer leads."""

    text: str
    answers: "dict[str, Question | Yes | No]" = field(hash=False)


SLOW = Question(
    "Has it been compiled?",
    {
        "Not yet": No(
            "A function of one's own does not make the same arithmetic faster. The compiler can.",
            "`torch.compile` of the composition.",
            ("cookbook/07_compile/torch_compile",),
        ),
        "It does not compile whole": No(
            "Graph breaks have causes, and most can be removed.",
            "see where the graph breaks, and why.",
            ("cookbook/07_compile/graph_breaks",),
        ),
        "Yes, and a profile says that this function is still the bottleneck": Yes(
            "A kernel of your own, forward and backward.",
            ("cookbook/06_beyond_autograd/triton_kernel", "cookbook/06_beyond_autograd/cuda_extension"),
        ),
    },
)

MEMORY = Question(
    "What takes the memory?",
    {
        "A composition of something that torch has": No(
            "`x * sigmoid(x)` keeps a tensor that `silu` does not keep. A custom function only undoes that.",
            "the built-in; or `torch.compile`, which finds out what need not be kept.",
            ("cookbook/04_memory/selective_saving",),
        ),
        "The activations of whole layers": No(
            "Torch can compute them again in backward.",
            "`torch.utils.checkpoint`. The recipe shows what it does, how often to use it, and what it has to restore.",
            ("cookbook/04_memory/checkpointing", "cookbook/07_compile/selective_checkpointing"),
        ),
        "Tensors that could wait elsewhere, or in fewer bits": No(
            "Hooks reach every saved tensor, in any model.",
            "`saved_tensors_hooks`.",
            ("cookbook/04_memory/saved_tensor_hooks",),
        ),
        "Intermediates of one function, or a mask": Yes(
            "Save the cheapest thing from which backward can be computed: a byte, or a bit.",
            ("cookbook/04_memory/selective_saving", "cookbook/04_memory/masks", "cookbook/04_memory/in_place"),
        ),
        "The logits of a large vocabulary": Yes(
            "Compute the loss and its gradient in chunks. Where torch has `F.linear_cross_entropy`, try that first.",
            ("cookbook/04_memory/linear_cross_entropy",),
        ),
        "Attention scores": No(
            "Torch has the tiled version.",
            "`F.scaled_dot_product_attention`. Write your own for scores that it cannot express.",
            ("cookbook/06_beyond_autograd/flash_attention",),
        ),
        "The iterations of a solver": Yes(
            "Differentiate the solution and not the way there.",
            ("cookbook/05_higher_order/implicit", "cookbook/05_higher_order/neural_ode"),
        ),
        "Layers that can be inverted": Yes(
            "Compute inputs again from outputs, and keep nothing.",
            ("cookbook/04_memory/reversible",),
        ),
    },
)

NUMERICS = Question(
    "Where does it fail?",
    {
        "In a softmax, a log-sum-exp or a cross-entropy": No(
            "Torch's own are stable, compositions of `exp` and `log` are not.",
            "the built-in that takes logits. The recipes are for its gaps, such as rows that are fully masked.",
            ("cookbook/03_stability/cross_entropy", "cookbook/01_first_steps/reductions"),
        ),
        "At elements that `torch.where` throws away": No(
            "Zero times infinity is NaN, also in backward.",
            "a second `where`, on the input.",
            ("cookbook/03_stability/safe_functions",),
        ),
        "In a root, a quotient or a logarithm at 0": Yes(
            "Its derivative is infinite there. Say what it is to be.",
            ("cookbook/03_stability/safe_functions",),
        ),
        "In eigenvalues or singular values that nearly coincide": Yes(
            "Their gradient divides by differences. Bound it.",
            ("cookbook/03_stability/eigenvalues",),
        ),
        "In half precision only": Yes(
            "Fix the precision that forward and backward compute in.",
            ("cookbook/07_compile/mixed_precision",),
        ),
    },
)

ON_PURPOSE = Question(
    "What is it to be?",
    {
        "Zero": No("That is a constant.", "`x.detach()`.", ("cookbook/04_memory/detaching",)),
        "Logged, clipped or changed, for a tensor at hand": No(
            "A hook sees the gradient of any tensor and may replace it.",
            "`tensor.register_hook`.",
            ("cookbook/02_changing_the_gradient/hooks",),
        ),
        "Clipped, as a part of the model": Yes(
            "A function that is the identity forward.", ("cookbook/02_changing_the_gradient/clipping",)
        ),
        "Scaled or reversed": Yes(
            "Identity forward, a factor backward, in one node. `x.detach() + c * (x - x.detach())` takes several, and "
            "gives NaN at infinity.",
            ("cookbook/02_changing_the_gradient/reversal",),
        ),
        "That of the identity, through rounding or a sign": Yes(
            "A straight-through estimator.",
            (
                "cookbook/02_changing_the_gradient/straight_through",
                "cookbook/02_changing_the_gradient/fake_quantization",
            ),
        ),
        "That of a smooth stand-in for a step": Yes(
            "A surrogate gradient.", ("cookbook/02_changing_the_gradient/surrogate_gradients",)
        ),
    },
)

FOREIGN = Question(
    "What is it?",
    {
        "NumPy or SciPy": Yes(
            "Autograd does not see into it. Give it the gradient, often one more call of the library.",
            ("cookbook/06_beyond_autograd/scipy_functions",),
        ),
        "A simulator or a service, with no gradient": Yes(
            "Estimate one, and measure how good it is.", ("cookbook/06_beyond_autograd/approximate_gradients",)
        ),
        "A kernel in Triton": Yes("Two kernels and a function.", ("cookbook/06_beyond_autograd/triton_kernel",)),
        "C++ or CUDA": Yes(
            "Forward and backward, registered as operators.", ("cookbook/06_beyond_autograd/cuda_extension",)
        ),
        "Anything that `torch.compile` or `torch.export` must take as one piece": Yes(
            "Register it as an operator.",
            ("cookbook/06_beyond_autograd/custom_operator", "cookbook/07_compile/export"),
        ),
        "Communication between processes": Yes(
            "Forward and backward communicate differently. Data parallelism alone needs none.",
            ("cookbook/08_distributed/tensor_parallel", "cookbook/08_distributed/data_parallel"),
        ),
    },
)

HIGHER = Question(
    "Which derivative?",
    {
        "A Hessian, a Jacobian, or a product with one": No(
            "Torch differentiates compositions as often as you like.",
            "`torch.func`, or two calls of `torch.autograd.grad`.",
            ("cookbook/05_higher_order/hessian",),
        ),
        "One gradient for each sample": No(
            "Gradients can be batched.",
            "`torch.func.vmap` of `torch.func.grad`.",
            ("cookbook/05_higher_order/per_sample_gradients",),
        ),
        "Forward mode": No(
            "Compositions of operations that have forward mode have it, too.",
            "`torch.func.jvp`. Only a custom function needs a rule for it.",
            ("guide/directions", "cookbook/05_higher_order/forward_mode"),
        ),
        "Through an optimizer's steps": No(
            "The steps are a composition.", "`create_graph=True`.", ("cookbook/05_higher_order/maml",)
        ),
        "With respect to complex numbers": No(
            "Autograd knows them.",
            "the composition. Only a custom backward has to mind the conjugate.",
            ("cookbook/05_higher_order/complex_numbers",),
        ),
        "The second, of a custom function that exists": Yes(
            "Its backward must be made of what can be differentiated.", ("cookbook/05_higher_order/double_backward",)
        ),
    },
)

TREE = Question(
    "What brings you here?",
    {
        "Torch lacks the function, but its operations can compose it": Question(
            "What is wrong with the composition?",
            {
                "Nothing": No(
                    "Autograd differentiates it, to any order, and nobody has to verify that.",
                    "a Python function, or a module.",
                ),
                "It is slow": SLOW,
                "It takes too much memory": MEMORY,
                "Its gradient is NaN, infinite or inexact": NUMERICS,
                "Its gradient is right, and another one is wanted": ON_PURPOSE,
            },
        ),
        "Torch has the function": Question(
            "What is to be different?",
            {
                "Nothing, a wrapper would be neater": No(
                    "A wrapper runs slower and saves no byte, as measured below.",
                    "a Python function that calls the built-in.",
                ),
                "The speed": SLOW,
                "The memory": MEMORY,
                "The numbers": NUMERICS,
                "The gradient": ON_PURPOSE,
            },
        ),
        "The code is not torch's": FOREIGN,
        "A derivative beyond the usual gradient is needed": HIGHER,
        "Curiosity": Yes(
            "Write one, and have it audited. It is the best way to learn what autograd does.",
            ("cookbook/01_first_steps/template", "guide/audit"),
        ),
    },
)


def leaves(node: Question | Yes | No = TREE, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Yes | No]]:
    """Where each sequence of answers ends."""
    if isinstance(node, Question):
        for answer, following in node.answers.items():
            yield from leaves(following, (*path, answer))
    else:
        yield path, node


class Details(nodes.General, nodes.Element):
    """An answer and what follows from it, hidden until it is chosen. Browsers open it without a script."""


class Summary(nodes.General, nodes.TextElement):
    """What is always seen of it."""


class DecisionDirective(SphinxDirective):
    """``{decision}``: the whole tree, as nested disclosures."""

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(__file__)
        return [nodes.container("", *self.rendered(TREE, "decision"), is_div=True, classes=["decision"])]

    def rendered(self, node: Question | Yes | No, name: str) -> list[nodes.Node]:
        if isinstance(node, Question):
            question = nodes.paragraph("", "", *self.parse_inline(node.text)[0], classes=["decision-question"])
            return [question, *(self.answer(a, n, name, i) for i, (a, n) in enumerate(node.answers.items()))]
        text = f"**Yes.** {node.reason}" if isinstance(node, Yes) else f"**No.** {node.reason} Instead: {node.instead}"
        text += "\n" + "".join(f"\n- {{doc}}`/{page}`" for page in node.pages)
        kind = "yes" if isinstance(node, Yes) else "no"
        return [nodes.container("", *self.parse_text_to_nodes(text), is_div=True, classes=[f"decision-{kind}"])]

    def answer(self, answer: str, following: Question | Yes | No, name: str, index: int) -> Details:
        """Answers to one question share a name: to open one closes the others."""
        label = Summary("", "", *self.parse_inline(answer)[0])
        return Details("", label, *self.rendered(following, f"{name}-{index}"), group=name)


def visit_details(translator: Any, node: Details) -> None:
    translator.body.append(translator.starttag(node, "details", name=node["group"]))


def depart_details(translator: Any, node: Details) -> None:
    translator.body.append("</details>\n")


def visit_summary(translator: Any, node: Summary) -> None:
    translator.body.append(translator.starttag(node, "summary", ""))


def depart_summary(translator: Any, node: Summary) -> None:
    translator.body.append("</summary>\n")


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_node(Details, html=(visit_details, depart_details))
    app.add_node(Summary, html=(visit_summary, depart_summary))
    app.add_directive("decision", DecisionDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
