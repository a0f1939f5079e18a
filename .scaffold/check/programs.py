

# --- newname ---


@broken("newname", inputs=lambda: (leaf(3),))
class NewNameBroken(Function):
    """WRITE(newname): what is wrong with it; and code that a reader might have written."""

    @staticmethod
    def forward(x):
        return x.exp()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        return grad_output * y


@fixes(NewNameBroken)
class NewNameFixed(Function):
    """WRITE(newname): what was changed; and the code, otherwise the same."""

    @staticmethod
    def forward(x):
        return x.exp()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        return grad_output * y
