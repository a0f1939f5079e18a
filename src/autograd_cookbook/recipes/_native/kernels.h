// What the kernels of all operators share, whatever the device.
#pragma once

#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/util/Exception.h>

#include <cstdint>

// Several versions of a function are compiled, for wider and wider vectors; the processor picks when it loads.
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) && !defined(__CUDACC__)
#define VECTOR_VERSIONS __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define VECTOR_VERSIONS
#endif

namespace kernels {

using torch::stable::Tensor;

// What numbers are computed in: half types are widened, so that only loads and stores round.
template <typename T>
struct Accumulate {
  using type = float;
};
template <>
struct Accumulate<double> {
  using type = double;
};

// Writes the number as T rounds it. A half type is written as the integer that it is: compilers make no vectors of
// assignments of structures.
template <typename T, typename A>
inline void put(T& place, A value) {
  if constexpr (sizeof(T) == 2) {
    place.x = T(value).x;
  } else {
    place = static_cast<T>(value);
  }
}

// Python checks, too; but whoever calls an operator by its name comes here directly, and must not crash.
inline void expect_kind(const Tensor& tensor, const char* name, const Tensor& input) {
  STD_TORCH_CHECK(tensor.scalar_type() == input.scalar_type(), "expected ", name, " to have the dtype of input");
  STD_TORCH_CHECK(tensor.device() == input.device(), "expected ", name, " on the device of input");
}

inline void expect_like(const Tensor& tensor, const char* name, const Tensor& input) {
  bool same = tensor.dim() == input.dim();
  for (int64_t i = 0; same && i < input.dim(); ++i) {
    same = tensor.size(i) == input.size(i);
  }
  STD_TORCH_CHECK(same, "expected ", name, " to have the shape of input");
  expect_kind(tensor, name, input);
}

} // namespace kernels
