// Schema of the operators, and their kernels for the CPU. Only headers of torch's stable ABI are used, so one
// binary serves every torch from the TORCH_TARGET_VERSION that it is compiled with.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/Dispatch_v2.h>
#include <torch/headeronly/core/ScalarType.h>

#include <algorithm>
#include <numeric>
#include <tuple>

#include "kernels.h"
#include "swish_math.h"

namespace {

using torch::stable::Tensor;

// The work is cut into parts of one size, whatever the number of threads: then the last bits do not depend on it.
constexpr int64_t kPart = 1 << 15; // numbers; with fewer, a second thread costs more than it saves

int64_t parts_of(int64_t count) {
  return (count + kPart - 1) / kPart;
}

void check(const Tensor& input, const Tensor& beta) {
  STD_TORCH_CHECK(beta.dim() == 0, "expected beta to be a 0-dim tensor");
  kernels::expect_kind(beta, "beta", input);
}

// The loops are functions of plain pointers: that is what a compiler can turn into vector instructions.
template <typename T, typename A>
VECTOR_VERSIONS void forward_loop(const T* x, A beta, T* y, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    kernels::put(y[i], swish::value(static_cast<A>(x[i]), beta));
  }
}

template <typename T, typename A>
VECTOR_VERSIONS double backward_loop(const T* g, const T* x, A beta, T* dx, int64_t begin, int64_t end) {
  double sum = 0;
#pragma omp simd reduction(+ : sum) // the order of the terms may change, in the same way every time
  for (int64_t i = begin; i < end; ++i) {
    const A up = static_cast<A>(g[i]);
    A by_input, by_beta;
    swish::slopes(static_cast<A>(x[i]), beta, by_input, by_beta);
    kernels::put(dx[i], up * by_input);
    sum += static_cast<double>(up * by_beta);
  }
  return sum;
}

Tensor forward(const Tensor& input, const Tensor& beta) {
  check(input, beta);
  // Kernels walk through memory in order, so the layout is settled here, for every caller.
  const Tensor source = torch::stable::contiguous(input);
  Tensor output = torch::stable::empty_like(source);
  const int64_t count = source.numel();
  THO_DISPATCH_V2(
      input.scalar_type(),
      "swish_forward",
      AT_WRAP(([&] {
        using A = typename kernels::Accumulate<scalar_t>::type;
        const scalar_t* x = source.const_data_ptr<scalar_t>();
        scalar_t* y = output.mutable_data_ptr<scalar_t>();
        const A b = static_cast<A>(*beta.const_data_ptr<scalar_t>());
        torch::stable::parallel_for(0, parts_of(count), 1, [&](int64_t begin, int64_t end) {
          for (int64_t part = begin; part < end; ++part) {
            forward_loop(x, b, y, part * kPart, std::min(count, (part + 1) * kPart));
          }
        });
      })),
      AT_EXPAND(AT_FLOATING_TYPES),
      torch::headeronly::ScalarType::Half,
      torch::headeronly::ScalarType::BFloat16);
  return output;
}

std::tuple<Tensor, Tensor> backward(const Tensor& grad_output, const Tensor& input, const Tensor& beta) {
  check(input, beta);
  kernels::expect_like(grad_output, "grad_output", input);
  // The gradient of a sum arrives expanded, with strides of 0: never read it as if it were contiguous.
  const Tensor upstream = torch::stable::contiguous(grad_output);
  const Tensor source = torch::stable::contiguous(input);
  Tensor grad_input = torch::stable::empty_like(source);
  Tensor grad_beta = torch::stable::empty_like(beta);
  const int64_t count = source.numel(), parts = parts_of(count);
  const Tensor sums = torch::stable::new_empty(source, {parts}, torch::headeronly::ScalarType::Double);
  THO_DISPATCH_V2(
      input.scalar_type(),
      "swish_backward",
      AT_WRAP(([&] {
        using A = typename kernels::Accumulate<scalar_t>::type;
        const scalar_t* g = upstream.const_data_ptr<scalar_t>();
        const scalar_t* x = source.const_data_ptr<scalar_t>();
        scalar_t* dx = grad_input.mutable_data_ptr<scalar_t>();
        const A b = static_cast<A>(*beta.const_data_ptr<scalar_t>());
        double* partial = sums.mutable_data_ptr<double>();
        torch::stable::parallel_for(0, parts, 1, [&](int64_t begin, int64_t end) {
          for (int64_t part = begin; part < end; ++part) {
            partial[part] = backward_loop(g, x, b, dx, part * kPart, std::min(count, (part + 1) * kPart));
          }
        });
        const double total = std::accumulate(partial, partial + parts, 0.0);
        *grad_beta.mutable_data_ptr<scalar_t>() = static_cast<scalar_t>(static_cast<A>(total));
      })),
      AT_EXPAND(AT_FLOATING_TYPES),
      torch::headeronly::ScalarType::Half,
      torch::headeronly::ScalarType::BFloat16);
  return {grad_input, grad_beta};
}

} // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(autograd_cookbook, library) {
  library.def("swish_forward(Tensor input, Tensor beta) -> Tensor");
  library.def("swish_backward(Tensor grad_output, Tensor input, Tensor beta) -> (Tensor, Tensor)");
}

STABLE_TORCH_LIBRARY_IMPL(autograd_cookbook, CPU, library) {
  library.impl("swish_forward", TORCH_BOX(&forward));
  library.impl("swish_backward", TORCH_BOX(&backward));
}
