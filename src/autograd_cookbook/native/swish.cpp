// Schema of the operators, and their kernels for the CPU. Only headers of torch's stable ABI are used, so one
// binary serves every torch from the TORCH_TARGET_VERSION that it is compiled with.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/Dispatch_v2.h>
#include <torch/headeronly/core/ScalarType.h>

#include <mutex>
#include <tuple>

#include "swish_math.h"

namespace {

using torch::stable::Tensor;

constexpr int64_t kGrain = 1 << 15; // below this, a second thread costs more than it saves

void check(const Tensor& input, const Tensor& beta) {
  STD_TORCH_CHECK(beta.numel() == 1 && beta.dim() == 0, "expected beta to be a 0-dim tensor");
  STD_TORCH_CHECK(beta.scalar_type() == input.scalar_type(), "expected beta to have the dtype of input");
  STD_TORCH_CHECK(beta.is_cpu(), "expected beta on the device of input, the CPU");
}

// Several versions of a function are compiled, for wider and wider vectors; the processor picks when it loads.
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define SWISH_VECTOR __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define SWISH_VECTOR
#endif

// The loops are functions of plain pointers: that is what a compiler can turn into vector instructions.
template <typename T, typename A>
SWISH_VECTOR void forward_loop(const T* x, A beta, T* y, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    y[i] = static_cast<T>(swish::value(static_cast<A>(x[i]), beta));
  }
}

template <typename T, typename A>
SWISH_VECTOR double backward_loop(const T* g, const T* x, A beta, T* dx, int64_t begin, int64_t end) {
  double sum = 0;
#pragma omp simd reduction(+ : sum) // the order of the terms may change, in the same way every time
  for (int64_t i = begin; i < end; ++i) {
    const A up = static_cast<A>(g[i]);
    A by_input, by_beta;
    swish::slopes(static_cast<A>(x[i]), beta, by_input, by_beta);
    dx[i] = static_cast<T>(up * by_input);
    sum += static_cast<double>(up * by_beta);
  }
  return sum;
}

Tensor forward(const Tensor& input, const Tensor& beta) {
  check(input, beta);
  // Kernels walk through memory in order, so the layout is settled here, for every caller.
  const Tensor source = torch::stable::contiguous(input);
  Tensor output = torch::stable::empty_like(source);
  THO_DISPATCH_V2(
      input.scalar_type(),
      "swish_forward",
      AT_WRAP(([&] {
        using A = typename swish::Accumulate<scalar_t>::type;
        const scalar_t* x = source.const_data_ptr<scalar_t>();
        scalar_t* y = output.mutable_data_ptr<scalar_t>();
        const A b = static_cast<A>(*beta.const_data_ptr<scalar_t>());
        torch::stable::parallel_for(0, source.numel(), kGrain, [&](int64_t begin, int64_t end) {
          forward_loop(x, b, y, begin, end);
        });
      })),
      AT_EXPAND(AT_FLOATING_TYPES),
      torch::headeronly::ScalarType::Half,
      torch::headeronly::ScalarType::BFloat16);
  return output;
}

std::tuple<Tensor, Tensor> backward(const Tensor& grad_output, const Tensor& input, const Tensor& beta) {
  check(input, beta);
  STD_TORCH_CHECK(grad_output.numel() == input.numel(), "expected grad_output to have the shape of input");
  STD_TORCH_CHECK(grad_output.scalar_type() == input.scalar_type(), "expected grad_output to have the dtype of input");
  // The gradient of a sum arrives expanded, with strides of 0: never read it as if it were contiguous.
  const Tensor upstream = torch::stable::contiguous(grad_output);
  const Tensor source = torch::stable::contiguous(input);
  Tensor grad_input = torch::stable::empty_like(source);
  Tensor grad_beta = torch::stable::empty_like(beta);
  THO_DISPATCH_V2(
      input.scalar_type(),
      "swish_backward",
      AT_WRAP(([&] {
        using A = typename swish::Accumulate<scalar_t>::type;
        const scalar_t* g = upstream.const_data_ptr<scalar_t>();
        const scalar_t* x = source.const_data_ptr<scalar_t>();
        scalar_t* dx = grad_input.mutable_data_ptr<scalar_t>();
        const A b = static_cast<A>(*beta.const_data_ptr<scalar_t>());
        double total = 0;
        std::mutex guard;
        torch::stable::parallel_for(0, source.numel(), kGrain, [&](int64_t begin, int64_t end) {
          const double partial = backward_loop(g, x, b, dx, begin, end);
          const std::lock_guard<std::mutex> lock(guard);
          total += partial;
        });
        *grad_beta.mutable_data_ptr<scalar_t>() = static_cast<scalar_t>(static_cast<A>(total));
      })),
      AT_EXPAND(AT_FLOATING_TYPES),
      torch::headeronly::ScalarType::Half,
      torch::headeronly::ScalarType::BFloat16);
  return {grad_input, grad_beta};
}

} // namespace

STABLE_TORCH_LIBRARY(autograd_cookbook, library) {
  library.def("swish_forward(Tensor input, Tensor beta) -> Tensor");
  library.def("swish_backward(Tensor grad_output, Tensor input, Tensor beta) -> (Tensor, Tensor)");
}

STABLE_TORCH_LIBRARY_IMPL(autograd_cookbook, CPU, library) {
  library.impl("swish_forward", TORCH_BOX(&forward));
  library.impl("swish_backward", TORCH_BOX(&backward));
}
