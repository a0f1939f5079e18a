// What the CUDA kernels of all operators share.
#pragma once

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
#include <cstdint>
#include <tuple>
#include <type_traits>

#include "kernels.h"

namespace kernels {

constexpr int kWarp = 32;
constexpr int kThreads = 256; // of a block: a multiple of the warp, which group_sum relies on

inline cudaStream_t current_stream(const Tensor& tensor) {
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(tensor.get_device_index(), &stream));
  return static_cast<cudaStream_t>(stream);
}

template <typename A>
constexpr auto scalar_type_of =
    std::is_same_v<A, double> ? torch::headeronly::ScalarType::Double : torch::headeronly::ScalarType::Float;

// The sum over a group of threads, a warp or a block, in an order that never changes. Every thread gets it, and
// every thread of the group must call it.
template <int group, typename A>
__device__ A group_sum(A value) {
  static_assert(group == kWarp || group == kThreads);
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, offset);
  }
  if constexpr (group == kThreads) {
    __shared__ A by_warp[kThreads / kWarp];
    __syncthreads(); // what a call before has left there may still be read
    if (threadIdx.x % kWarp == 0) {
      by_warp[threadIdx.x / kWarp] = value;
    }
    __syncthreads();
    value = 0;
    for (int warp = 0; warp < kThreads / kWarp; ++warp) {
      value += by_warp[warp];
    }
  }
  return value;
}

} // namespace kernels
