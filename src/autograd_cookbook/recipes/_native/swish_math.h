// The mathematics of swish, once for all devices: y = x s(b x), with s the logistic function.
#pragma once

#include <cmath>

#ifdef __CUDACC__
#define SWISH_INLINE __host__ __device__ __forceinline__
#else
#define SWISH_INLINE inline
#endif

#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) && !defined(__CUDACC__)
// glibc has vector versions of these two, and tells compilers so under -ffast-math only, which this code must do
// without: it relies on infinities.
extern "C" {
__attribute__((__simd__("notinbranch"))) float expf(float) noexcept;
__attribute__((__simd__("notinbranch"))) double exp(double) noexcept;
}
#endif

namespace swish {

template <typename A>
SWISH_INLINE A logistic(A z) {
  // exp(-z) would overflow where the result is small, but not yet zero.
  const A e = std::exp(z < A(0) ? z : -z);
  return (z < A(0) ? e : A(1)) / (A(1) + e);
}

template <typename A>
SWISH_INLINE A value(A x, A beta) {
  return x * logistic(beta * x);
}

// Derivatives with respect to x and to beta.
template <typename A>
SWISH_INLINE void slopes(A x, A beta, A& by_input, A& by_beta) {
  // Both the gate and what it lacks to 1, which has no digits as a difference. x * x and beta * x alone may overflow.
  const A z = beta * x;
  const A e = std::exp(z < A(0) ? z : -z);
  const A larger = A(1) / (A(1) + e), smaller = e * larger;
  const A gate = z < A(0) ? smaller : larger, rest = z < A(0) ? larger : smaller;
  by_input = gate + (beta * gate) * (x * rest);
  by_beta = (x * gate) * (x * rest);
}

} // namespace swish
