// The kernels for CUDA; the schema is in swish.cpp, with which this file is linked.
#include <cuda_runtime.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/macros.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/Dispatch_v2.h>
#include <torch/headeronly/core/ScalarType.h>

#include <algorithm>
#include <tuple>
#include <type_traits>

#include "swish_math.h"

namespace {

using torch::stable::Tensor;

constexpr int kThreads = 256; // a multiple of the warp size, which block_sum relies on
constexpr int64_t kMaxBlocks = 4096; // enough to fill any device; threads step on from there

int blocks_for(int64_t count) {
  return static_cast<int>(std::min((count + kThreads - 1) / kThreads, kMaxBlocks));
}

cudaStream_t current_stream(const Tensor& tensor) {
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(tensor.get_device_index(), &stream));
  return static_cast<cudaStream_t>(stream);
}

void check(const Tensor& input, const Tensor& beta) {
  STD_TORCH_CHECK(beta.numel() == 1 && beta.dim() == 0, "expected beta to be a 0-dim tensor");
  STD_TORCH_CHECK(beta.scalar_type() == input.scalar_type(), "expected beta to have the dtype of input");
  STD_TORCH_CHECK(
      beta.is_cuda() && beta.get_device_index() == input.get_device_index(), "expected beta on the device of input");
}

// The sum over all threads of a block; only thread 0 gets it.
template <typename A>
__device__ A block_sum(A value) {
  __shared__ A by_warp[kThreads / 32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int offset = 16; offset > 0; offset /= 2) {
    value += __shfl_down_sync(0xffffffffu, value, offset);
  }
  if (lane == 0) {
    by_warp[warp] = value;
  }
  __syncthreads();
  value = threadIdx.x < kThreads / 32 ? by_warp[lane] : A(0);
  if (warp == 0) {
    for (int offset = 16; offset > 0; offset /= 2) {
      value += __shfl_down_sync(0xffffffffu, value, offset);
    }
  }
  return value;
}

template <typename T>
__global__ void forward_kernel(const T* x, const T* beta, T* y, int64_t count) {
  using A = typename swish::Accumulate<T>::type;
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
  sum = block_sum(sum);
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
  sum = block_sum(sum);
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
  STD_TORCH_CHECK(grad_output.numel() == input.numel(), "expected grad_output to have the shape of input");
  STD_TORCH_CHECK(grad_output.scalar_type() == input.scalar_type(), "expected grad_output to have the dtype of input");
  STD_TORCH_CHECK(
      grad_output.is_cuda() && grad_output.get_device_index() == input.get_device_index(),
      "expected grad_output on the device of input");
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
        using A = typename swish::Accumulate<scalar_t>::type;
        const Tensor partial = torch::stable::new_empty(
            source,
            {std::max(blocks, 1)},
            std::is_same_v<A, double> ? torch::headeronly::ScalarType::Double : torch::headeronly::ScalarType::Float);
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
