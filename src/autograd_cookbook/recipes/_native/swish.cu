// The kernels for CUDA; the schema is in swish.cpp, with which this file is linked.
#include "device.cuh"
#include "swish_math.h"

namespace {

using kernels::current_stream;
using kernels::group_sum;
using kernels::kThreads;
using torch::stable::Tensor;

constexpr int64_t kMaxBlocks = 4096; // enough to fill any device; threads step on from there

int blocks_for(int64_t count) {
  return static_cast<int>(std::min((count + kThreads - 1) / kThreads, kMaxBlocks));
}

void check(const Tensor& input, const Tensor& beta) {
  STD_TORCH_CHECK(beta.dim() == 0, "expected beta to be a 0-dim tensor");
  kernels::expect_kind(beta, "beta", input);
}

template <typename T>
__global__ void forward_kernel(const T* x, const T* beta, T* y, int64_t count) {
  using A = typename kernels::Accumulate<T>::type;
  const A b = static_cast<A>(*beta);
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += step) {
    y[i] = static_cast<T>(swish::value(static_cast<A>(x[i]), b));
  }
}

template <typename T, typename A>
__global__ void backward_kernel(const T* g, const T* x, const T* beta, T* dx, A* partial, int64_t count) {
  const A b = static_cast<A>(*beta);
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  A sum = 0;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += step) {
    const A up = static_cast<A>(g[i]);
    A by_input, by_beta;
    swish::slopes(static_cast<A>(x[i]), b, by_input, by_beta);
    dx[i] = static_cast<T>(up * by_input);
    sum += up * by_beta;
  }
  sum = group_sum<kThreads>(sum);
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = sum;
  }
}

// One block adds what the blocks before have left, in a fixed order: the same bits in every run, as atomics are not.
template <typename T, typename A>
__global__ void finish_kernel(const A* partial, int blocks, T* grad_beta) {
  double sum = 0;
  for (int i = threadIdx.x; i < blocks; i += kThreads) {
    sum += static_cast<double>(partial[i]);
  }
  sum = group_sum<kThreads>(sum);
  if (threadIdx.x == 0) {
    *grad_beta = static_cast<T>(static_cast<A>(sum));
  }
}

Tensor forward(const Tensor& input, const Tensor& beta) {
  check(input, beta);
  const torch::stable::accelerator::DeviceGuard guard(input.get_device_index());
  const Tensor source = torch::stable::contiguous(input);
  Tensor output = torch::stable::empty_like(source);
  const int64_t count = source.numel();
  if (count == 0) {
    return output; // a grid of no blocks is an error
  }
  THO_DISPATCH_V2(
      input.scalar_type(),
      "swish_forward",
      AT_WRAP(([&] {
        forward_kernel<scalar_t><<<blocks_for(count), kThreads, 0, current_stream(source)>>>(
            source.const_data_ptr<scalar_t>(),
            beta.const_data_ptr<scalar_t>(),
            output.mutable_data_ptr<scalar_t>(),
            count);
        STD_CUDA_KERNEL_LAUNCH_CHECK();
      })),
      AT_EXPAND(AT_FLOATING_TYPES),
      torch::headeronly::ScalarType::Half,
      torch::headeronly::ScalarType::BFloat16);
  return output;
}

std::tuple<Tensor, Tensor> backward(const Tensor& grad_output, const Tensor& input, const Tensor& beta) {
  check(input, beta);
  kernels::expect_like(grad_output, "grad_output", input);
  const torch::stable::accelerator::DeviceGuard guard(input.get_device_index());
  const Tensor upstream = torch::stable::contiguous(grad_output);
  const Tensor source = torch::stable::contiguous(input);
  Tensor grad_input = torch::stable::empty_like(source);
  Tensor grad_beta = torch::stable::empty_like(beta);
  const int64_t count = source.numel();
  const int blocks = blocks_for(count);
  THO_DISPATCH_V2(
      input.scalar_type(),
      "swish_backward",
      AT_WRAP(([&] {
        using A = typename kernels::Accumulate<scalar_t>::type;
        const Tensor partial = torch::stable::new_empty(source, {std::max(blocks, 1)}, kernels::scalar_type_of<A>);
        const cudaStream_t stream = current_stream(source);
        if (blocks > 0) {
          backward_kernel<scalar_t, A><<<blocks, kThreads, 0, stream>>>(
              upstream.const_data_ptr<scalar_t>(),
              source.const_data_ptr<scalar_t>(),
              beta.const_data_ptr<scalar_t>(),
              grad_input.mutable_data_ptr<scalar_t>(),
              partial.mutable_data_ptr<A>(),
              count);
          STD_CUDA_KERNEL_LAUNCH_CHECK();
        }
        // Of no blocks the sum is 0: an empty input gives beta a gradient, too.
        finish_kernel<scalar_t, A>
            <<<1, kThreads, 0, stream>>>(partial.const_data_ptr<A>(), blocks, grad_beta.mutable_data_ptr<scalar_t>());
        STD_CUDA_KERNEL_LAUNCH_CHECK();
      })),
      AT_EXPAND(AT_FLOATING_TYPES),
      torch::headeronly::ScalarType::Half,
      torch::headeronly::ScalarType::BFloat16);
  return {grad_input, grad_beta};
}

} // namespace

STABLE_TORCH_LIBRARY_IMPL(autograd_cookbook, CUDA, library) {
  library.impl("swish_forward", TORCH_BOX(&forward));
  library.impl("swish_backward", TORCH_BOX(&backward));
}
