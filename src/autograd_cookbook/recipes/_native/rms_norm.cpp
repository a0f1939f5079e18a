// Schema of the operators, and their kernels for the CPU. Only headers of torch's stable ABI are used, so one
// binary serves every torch from the TORCH_TARGET_VERSION that it is compiled with.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/Dispatch_v2.h>
#include <torch/headeronly/core/ScalarType.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "kernels.h"

namespace {

using kernels::Accumulate;
using torch::stable::Tensor;

constexpr int64_t kGrain = 1 << 15; // numbers; below this, a second thread costs more than it saves

void check(const Tensor& input, const Tensor& weight) {
  STD_TORCH_CHECK(input.dim() > 0, "expected input to have a dimension at least");
  STD_TORCH_CHECK(
      weight.dim() == 1 && weight.size(0) == input.size(input.dim() - 1), "expected weight to have the width of input");
  kernels::expect_kind(weight, "weight", input);
}

// Sums are taken in double: squares of float32 overflow at 1e19 in their own type, and torch then returns zeros.
template <typename A>
A scale_of(double squares, int64_t width, double eps) {
  return static_cast<A>(1 / std::sqrt(squares / static_cast<double>(width) + eps));
}

// The loops are functions of plain pointers: that is what a compiler can turn into vector instructions.
template <typename T>
VECTOR_VERSIONS void forward_rows(const T* x, const T* w, T* y, int64_t rows, int64_t width, double eps) {
  using A = typename Accumulate<T>::type;
  for (int64_t row = 0; row < rows; ++row, x += width, y += width) {
    double squares = 0;
#pragma omp simd reduction(+ : squares) // the order of the terms may change, in the same way every time
    for (int64_t i = 0; i < width; ++i) {
      const double value = static_cast<A>(x[i]);
      squares += value * value;
    }
    const A scale = scale_of<A>(squares, width, eps);
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) {
      kernels::put(y[i], static_cast<A>(x[i]) * scale * static_cast<A>(w[i]));
    }
  }
}

// Adds to dw, one sum for each column.
template <typename T>
VECTOR_VERSIONS void backward_rows(
    const T* g, const T* x, const T* w, T* dx, double* dw, int64_t rows, int64_t width, double eps) {
  using A = typename Accumulate<T>::type;
  for (int64_t row = 0; row < rows; ++row, g += width, x += width, dx += width) {
    double squares = 0, dot = 0;
#pragma omp simd reduction(+ : squares, dot)
    for (int64_t i = 0; i < width; ++i) {
      const double value = static_cast<A>(x[i]);
      squares += value * value;
      dot += static_cast<double>(static_cast<A>(g[i]) * static_cast<A>(w[i])) * value;
    }
    const A scale = scale_of<A>(squares, width, eps);
    const A pull = static_cast<A>(dot * scale / static_cast<double>(width));
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) {
      const A up = static_cast<A>(g[i]), normal = static_cast<A>(x[i]) * scale;
      kernels::put(dx[i], scale * (up * static_cast<A>(w[i]) - normal * pull));
      dw[i] += static_cast<double>(up * normal);
    }
  }
}

Tensor forward(const Tensor& input, const Tensor& weight, double eps) {
  check(input, weight);
  // Kernels walk through memory in order, so the layout is settled here, for every caller.
  const Tensor source = torch::stable::contiguous(input), factor = torch::stable::contiguous(weight);
  Tensor output = torch::stable::empty_like(source);
  const int64_t width = factor.numel();
  if (source.numel() == 0) {
    return output;
  }
  THO_DISPATCH_V2(
      input.scalar_type(),
      "rms_norm_forward",
      AT_WRAP(([&] {
        const scalar_t* x = source.const_data_ptr<scalar_t>();
        const scalar_t* w = factor.const_data_ptr<scalar_t>();
        scalar_t* y = output.mutable_data_ptr<scalar_t>();
        const int64_t grain = std::max<int64_t>(1, kGrain / width);
        torch::stable::parallel_for(0, source.numel() / width, grain, [&](int64_t begin, int64_t end) {
          forward_rows(x + begin * width, w, y + begin * width, end - begin, width, eps);
        });
      })),
      AT_EXPAND(AT_FLOATING_TYPES),
      torch::headeronly::ScalarType::Half,
      torch::headeronly::ScalarType::BFloat16);
  return output;
}

std::tuple<Tensor, Tensor> backward(
    const Tensor& grad_output, const Tensor& input, const Tensor& weight, double eps) {
  check(input, weight);
  kernels::expect_like(grad_output, "grad_output", input);
  // The gradient of a sum arrives expanded, with strides of 0: never read it as if it were contiguous.
  const Tensor upstream = torch::stable::contiguous(grad_output);
  const Tensor source = torch::stable::contiguous(input), factor = torch::stable::contiguous(weight);
  Tensor grad_input = torch::stable::empty_like(source);
  Tensor grad_weight = torch::stable::empty_like(factor);
  const int64_t width = factor.numel(), rows = width == 0 ? 0 : source.numel() / width;
  // The weight's gradient is a sum over rows. Each part has a sum of its own, and there are as many parts on every
  // machine: the same bits, whatever the number of threads. A part has rows enough to be worth its memory.
  const int64_t parts = std::clamp<int64_t>(std::min(rows / 4, rows * width / kGrain), 1, 64);
  const Tensor sums = torch::stable::new_empty(source, {parts, width}, torch::headeronly::ScalarType::Double);
  THO_DISPATCH_V2(
      input.scalar_type(),
      "rms_norm_backward",
      AT_WRAP(([&] {
        const scalar_t* g = upstream.const_data_ptr<scalar_t>();
        const scalar_t* x = source.const_data_ptr<scalar_t>();
        const scalar_t* w = factor.const_data_ptr<scalar_t>();
        scalar_t* dx = grad_input.mutable_data_ptr<scalar_t>();
        scalar_t* dw = grad_weight.mutable_data_ptr<scalar_t>();
        double* partial = sums.mutable_data_ptr<double>();
        torch::stable::parallel_for(0, parts, 1, [&](int64_t begin, int64_t end) {
          for (int64_t part = begin; part < end; ++part) {
            const int64_t first = rows * part / parts, last = rows * (part + 1) / parts, start = first * width;
            double* sum = partial + part * width;
            std::fill_n(sum, width, 0.0);
            backward_rows(g + start, x + start, w, dx + start, sum, last - first, width, eps);
          }
        });
        torch::stable::parallel_for(0, width, std::max<int64_t>(1, kGrain / parts), [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            double sum = 0;
            for (int64_t part = 0; part < parts; ++part) {
              sum += partial[part * width + i];
            }
            using A = typename Accumulate<scalar_t>::type;
            dw[i] = static_cast<scalar_t>(static_cast<A>(sum));
          }
        });
      })),
      AT_EXPAND(AT_FLOATING_TYPES),
      torch::headeronly::ScalarType::Half,
      torch::headeronly::ScalarType::BFloat16);
  return {grad_input, grad_weight};
}

} // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(autograd_cookbook, library) {
  library.def("rms_norm_forward(Tensor input, Tensor weight, float eps) -> Tensor");
  library.def("rms_norm_backward(Tensor grad_output, Tensor input, Tensor weight, float eps) -> (Tensor, Tensor)");
}

STABLE_TORCH_LIBRARY_IMPL(autograd_cookbook, CPU, library) {
  library.impl("rms_norm_forward", TORCH_BOX(&forward));
  library.impl("rms_norm_backward", TORCH_BOX(&backward));
}
