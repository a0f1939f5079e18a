"""Spectra, filters, audio and complex numbers."""

import math

import numpy as np
import torch
from docs.pitfalls.programs import broken, right
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from tests.auditing.corpus.shared import FULL, REAL, between, leaf, only, only_real, same_shapes, to_numpy

# --- broken ---


@broken("first_order", inputs=lambda: (leaf(2, 8), torch.randn(5, dtype=torch.complex128)))
class SpectralFilterNotConjugated(Function):
    """Filters in the frequency domain; the adjoint multiplies by the response itself and not by its conjugate."""

    @staticmethod
    def forward(x, response):
        return torch.fft.irfft(torch.fft.rfft(x) * response, n=x.shape[-1])

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx, g):
        (response,) = ctx.saved_tensors
        return torch.fft.irfft(torch.fft.rfft(g) * response, n=g.shape[-1]), None


@broken("first_order", inputs=lambda: (between(-0.9, 0.9, 5, 3),))
class MuLawCompanding(Function):
    """The derivative divides by log(mu) where the forward divides by log(1 + mu): 0.07 % too large at mu = 255."""

    MU = 255.0

    @staticmethod
    def forward(x):
        return x.sign() * torch.log1p(MuLawCompanding.MU * x.abs()) / math.log1p(MuLawCompanding.MU)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        mu = MuLawCompanding.MU
        return g * mu / ((1 + mu * x.abs()) * math.log(mu))


@broken("grad_output_unchanged", inputs=lambda: (between(-1.5, 1.5, 3, 6), between(0.2, 0.8)))
class OnePoleFilter(Function):
    """The adjoint recursion of y[t] = x[t] + a y[t - 1] runs in place on grad_output, which belongs to the engine."""

    @staticmethod
    def forward(x, a):
        rows = [x[:, 0]]
        for t in range(1, x.shape[1]):
            rows.append(x[:, t] + a * rows[-1])
        return torch.stack(rows, dim=1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1], output)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        a, y = ctx.saved_tensors
        adjoint = g.contiguous()
        for t in range(g.shape[1] - 2, -1, -1):
            adjoint[:, t] += a * adjoint[:, t + 1]
        return adjoint, (adjoint[:, 1:] * y[:, :-1]).sum()


def rand_complex(*shape):
    return torch.complex(
        between(-1.5, 1.5, *shape, grad=False), between(-1.5, 1.5, *shape, grad=False)
    ).requires_grad_()


@broken("first_order", "second_order", inputs=lambda: (rand_complex(3, 4), rand_complex(4)))
class EqualizeSubcarriers(Function):
    """The gradient of the response is conjugated as it must be, that of the received symbols is not."""

    @staticmethod
    def forward(received, response):
        return received / response

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1], output)

    @staticmethod
    def backward(ctx, g):
        response, symbols = ctx.saved_tensors
        grad_response = -(g * (symbols / response).conj()).sum(0)
        return g / response, grad_response


@broken("input_layouts", "inputs_unchanged", inputs=lambda: (between(-9.0, 9.0, 5).clone(),))
class WrapPhaseInPlace(Function):
    """Wraps the phase in place and returns the same tensor without mark_dirty."""

    @staticmethod
    def forward(ctx, phase):
        return phase.add_(math.pi).remainder_(2 * math.pi).sub_(math.pi)

    @staticmethod
    def backward(ctx, g):
        return g


@broken("input_layouts", inputs=lambda: (between(-1.5, 1.5, 11),))
class FrameSignal(Function):
    """Cuts overlapping frames with as_strided and unit strides, so every second sample of a stereo file is wrong."""

    SIZE, HOP = 4, 2

    @staticmethod
    def forward(signal):
        size, hop = FrameSignal.SIZE, FrameSignal.HOP
        return signal.as_strided(((signal.shape[0] - size) // hop + 1, size), (hop, 1)).clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.length = inputs[0].shape[0]

    @staticmethod
    def backward(ctx, g):
        size, hop = FrameSignal.SIZE, FrameSignal.HOP
        index = torch.arange(g.shape[0])[:, None] * hop + torch.arange(size)
        return g.new_zeros(ctx.length).index_add(0, index.flatten(), g.reshape(-1))


_SPECTRA = {}


@broken("grad_output_layouts", "empty", "repeatable", inputs=lambda: (between(-1.5, 1.5, 3, 16), between(-1.5, 1.5, 5)))
class CachedSpectrumFilter(Function):
    """Caches the spectrum of the taps by address and shape, so taps changed in place keep filtering as before."""

    @staticmethod
    def forward(x, taps):
        size = x.shape[-1] + taps.shape[0] - 1
        key = (taps.data_ptr(), taps.shape[0], taps.stride(), taps.dtype, size)
        if key not in _SPECTRA:
            _SPECTRA[key] = torch.fft.rfft(taps.detach(), size)
        return torch.fft.irfft(torch.fft.rfft(x, size) * _SPECTRA[key], size)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, taps = ctx.saved_tensors
        size = g.shape[-1]
        spectrum = torch.fft.rfft(g, size)
        grad_x = torch.fft.irfft(spectrum * torch.fft.rfft(taps, size).conj(), size)[..., : x.shape[-1]]
        grad_taps = torch.fft.irfft(spectrum * torch.fft.rfft(x, size).conj(), size)[..., : taps.shape[0]].sum(0)
        return grad_x, grad_taps


# --- right ---


@right(inputs=lambda: (leaf(2, 6),))
def real_spectrum(x):
    """Real input and complex output, of which two imaginary parts are always zero."""
    return torch.fft.rfft(x)


@right(inputs=lambda: (leaf(4, dtype=torch.complex128),))
def complex_modulus(z):
    """Complex input and real output, not holomorphic, with a kink at zero."""
    return z.abs()


@right(inputs=lambda: (leaf(3, 2, dtype=torch.complex128), leaf(3, 2, dtype=torch.complex128)))
class ComplexProduct(Function):
    """The gradients hold conjugates, which a verifier of the plain derivative would call wrong."""

    @staticmethod
    def forward(z, w):
        same_shapes(z, w)
        if z.dtype != w.dtype:
            raise TypeError(f"dtypes differ: {z.dtype} and {w.dtype}")
        return z * w

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        z, w = ctx.saved_tensors
        return g * w.conj(), g * z.conj()


@right(inputs=lambda: (leaf(4, dtype=torch.complex128), leaf(4)))
class PhaseRotation(Function):
    """One input is complex and the other real, whose gradient is the real part only."""

    @staticmethod
    def forward(z, angle):
        if not z.is_complex() or angle.is_complex() or z.shape != angle.shape:
            raise ValueError("needs a complex tensor and real angles of its shape")
        return z * torch.polar(torch.ones_like(angle), angle)

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, angle = inputs
        ctx.save_for_backward(angle, output)

    @staticmethod
    def backward(ctx, g):
        angle, y = ctx.saved_tensors
        grad_z = g * torch.polar(torch.ones_like(angle), -angle)
        return grad_z, (g * (1j * y).conj()).real


def decaying_scan(t, decay, backwards):
    """Runs over the memory of a contiguous copy, row by row."""
    rows = np.array(to_numpy(t), order="C").reshape(-1, t.shape[-1])
    if backwards:
        rows = rows[:, ::-1]
    out = np.empty_like(rows, order="C")
    state = np.zeros(len(rows))
    for step in range(rows.shape[1]):
        state = decay * state + (1 - decay) * rows[:, step]
        out[:, step] = state
    if backwards:
        out = out[:, ::-1].copy()
    return torch.from_numpy(out.reshape(t.shape)).to(t)


@right(inputs=lambda: (leaf(2, 5), 0.8))
class NumpyMovingAverage(Function):
    """Reads bare memory in order, after a copy that is contiguous, in either direction."""

    @staticmethod
    def forward(x, decay):
        only_real(x)
        if not x.ndim:
            raise ValueError("needs an axis to run along")
        return decaying_scan(x, decay, backwards=False)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.decay = inputs[1]

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        return decaying_scan(g, ctx.decay, backwards=True), None


@right(inputs=lambda: (leaf(2, 9), 0.8))
class ExponentialAverage(Function):
    """A recursive filter in NumPy; its adjoint is the same filter run backward in time, and nothing is saved."""

    @staticmethod
    def _run(x, decay):
        values = x.detach().numpy()
        result, state = np.empty_like(values, order="C"), 0.0
        for t in range(values.shape[-1]):
            state = decay * state + (1 - decay) * values[..., t]
            result[..., t] = state
        return torch.from_numpy(result)

    @staticmethod
    def forward(x, decay):
        return ExponentialAverage._run(x, decay)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.decay = inputs[1]

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        return ExponentialAverage._run(g.flip(-1), ctx.decay).flip(-1), None


@right(inputs=lambda: (leaf(4, dtype=torch.complex128), leaf(4)))
class PhaseTurn(Function):
    """Rotates a complex tensor by a real angle, so one gradient is complex and the other one real."""

    @staticmethod
    def forward(z, angle):
        if z.shape != angle.shape or not z.is_complex() or angle.is_complex():
            raise ValueError("expected one real angle for each complex number")
        return z * torch.polar(torch.ones_like(angle), angle)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1], output)

    @staticmethod
    def backward(ctx, g):
        angle, result = ctx.saved_tensors
        grad_z = g * torch.polar(torch.ones_like(angle), -angle)
        return grad_z, (g * result.conj()).imag


@right(inputs=lambda: (leaf(3, 4, dtype=torch.complex128),))
class TotalPower(Function):
    """A real 0-dim output of a complex input; by the convention of PyTorch its gradient is 2z, not 2 conj z."""

    @staticmethod
    def forward(ctx, z):
        ctx.save_for_backward(z)
        return (z.real.square() + z.imag.square()).sum()

    @staticmethod
    def backward(ctx, g):
        (z,) = ctx.saved_tensors
        return 2 * g * z


@right(inputs=lambda: (leaf(2, 8),))
class AnalyticSignal(Function):
    """A real input and a complex output by FFT; the adjoint keeps only the real part, and nothing is saved."""

    @staticmethod
    def _one_sided(length, like):
        gain = torch.zeros(length, dtype=like.real.dtype, device=like.device)
        gain[1 : (length + 1) // 2] = 2
        gain[0] = 1
        if length % 2 == 0:
            gain[length // 2] = 1
        return gain

    @staticmethod
    def forward(x):
        if x.is_complex():
            raise TypeError("expected a real signal")
        gain = AnalyticSignal._one_sided(x.shape[-1], x)
        return torch.fft.ifft(torch.fft.fft(x) * gain)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        gain = AnalyticSignal._one_sided(g.shape[-1], g)
        return torch.fft.ifft(torch.fft.fft(g) * gain).real


@right(inputs=lambda: (leaf(2, 9), (0.3, 0.2), (1.0, -0.5, 0.1)))
class RecursiveFilter(Function):
    """NumPy filter that runs backward in time for the gradient, with the coefficients as plain tuples."""

    @staticmethod
    def _filter(x, b, a):
        source = x.detach().cpu().numpy().astype(np.float64)
        y = np.zeros_like(source)
        for t in range(source.shape[-1]):
            for k, tap in enumerate(b[: t + 1]):
                y[..., t] += tap * source[..., t - k]
            for k, tap in enumerate(a[1 : t + 1], 1):
                y[..., t] -= tap * y[..., t - k]
        return torch.from_numpy(y).to(x)

    @staticmethod
    def forward(x, b, a):
        only(FULL, x)
        return RecursiveFilter._filter(x, b, a)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.b, ctx.a = inputs[1:]

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        return RecursiveFilter._filter(g.flip(-1), ctx.b, ctx.a).flip(-1), None, None


@right(inputs=lambda: (leaf(7), 255.0))
class MuLawCompress(Function):
    """Built from sign and abs, yet its first derivative is continuous at zero."""

    @staticmethod
    def forward(x, mu):
        only(REAL, x)
        return x.sign() * (mu * x.abs()).log1p() / math.log1p(mu)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.mu = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (ctx.mu / math.log1p(ctx.mu)) / (1 + ctx.mu * x.abs()), None


@right(inputs=lambda: (leaf(2, 7),))
class HilbertPair(Function):
    """Real input and complex output: the gradient is the real part of the adjoint, and the length may be odd."""

    @staticmethod
    def _one_sided(n, like):
        gain = torch.zeros(n, dtype=like.dtype, device=like.device)
        gain[0] = 1
        gain[1 : (n + 1) // 2] = 2
        if n % 2 == 0:
            gain[n // 2] = 1
        return gain

    @staticmethod
    def forward(x):
        only(FULL, x)
        if x.dim() == 0 or x.shape[-1] == 0:
            raise ValueError("expects one sample at least")
        if x.numel() == 0:
            return torch.complex(x, torch.zeros_like(x))
        return torch.fft.ifft(torch.fft.fft(x) * HilbertPair._one_sided(x.shape[-1], x))

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        if g.numel() == 0:
            return g.real
        return torch.fft.ifft(torch.fft.fft(g) * HilbertPair._one_sided(g.shape[-1], g.real)).real


@right(inputs=lambda: ((1.5 * torch.randn(6, dtype=torch.complex128)).requires_grad_(),))
class ComplexLimiter(Function):
    """Not holomorphic: above the ceiling only the tangential part of the gradient passes, below it all of it."""

    @staticmethod
    def forward(z):
        only((torch.complex64, torch.complex128), z)
        return z / z.abs().clamp(min=1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (z,) = ctx.saved_tensors
        size = z.abs().clamp(min=1)
        unit_z = z / size
        radial = (unit_z.conj() * g).real
        return (g - (size > 1) * unit_z * radial) / size
