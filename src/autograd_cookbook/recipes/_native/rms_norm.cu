// The kernels for CUDA; the schema is in rms_norm.cpp, with which this file is linked.
#include "device.cuh"

namespace {

using kernels::Accumulate;
using kernels::current_stream;
using kernels::group_sum;
using kernels::kThreads;
using kernels::kWarp;
using torch::stable::Tensor;

constexpr int64_t kForwardBlocks = 1 << 16;
// Each block of the backward leaves a sum for each column: enough blocks to fill any device, and always as many, so
// that every device adds in the same order.
constexpr int64_t kBackwardBlocks = 512;
constexpr int64_t kNarrow = 1024; // numbers; a row up to this has one warp, a wider one the whole block
constexpr size_t kShared = 40 << 10; // bytes; a block has 48 KB without asking for more, and needs some elsewhere

void check(const Tensor& input, const Tensor& weight) {
  STD_TORCH_CHECK(input.dim() > 0, "expected input to have a dimension at least");
  STD_TORCH_CHECK(
      weight.dim() == 1 && weight.size(0) == input.size(input.dim() - 1), "expected weight to have the width of input");
  kernels::expect_kind(weight, "weight", input);
}

// Numbers that are loaded and stored at once.
template <typename T, int count>
struct alignas(sizeof(T) * count) Pack {
  T item[count];
};

template <typename T, int count>
__device__ Pack<T, count> load(const T* from, int64_t pack) {
  return reinterpret_cast<const Pack<T, count>*>(from)[pack];
}

template <typename T, int count>
__device__ void store(T* to, int64_t pack, const Pack<T, count>& value) {
  reinterpret_cast<Pack<T, count>*>(to)[pack] = value;
}

// How many numbers a thread may move at once: 16 bytes of them, if that divides the row and all addresses.
template <typename T, typename... Tensors>
int numbers_at_once(int64_t width, const Tensors&... tensors) {
  constexpr int most = 16 / sizeof(T);
  const bool aligned = ((reinterpret_cast<uintptr_t>(tensors.data_ptr()) % 16 == 0) && ...);
  return aligned && width % most == 0 ? most : 1;
}

// Sums over the numbers of a row: of x^2, and of g w x.
template <typename A>
struct Sums {
  A squares, dot;
};

// In S, which the caller chooses; g is null if there is no second sum to take.
template <int group, int count, typename S, typename T>
__device__ Sums<S> row_sums(const T* g, const T* x, const T* w, int64_t packs, int lane) {
  using A = typename Accumulate<T>::type;
  Sums<S> sums = {0, 0};
  for (int64_t pack = lane; pack < packs; pack += group) {
    const auto xs = load<T, count>(x, pack);
    for (int i = 0; i < count; ++i) {
      const S value = static_cast<A>(xs.item[i]);
      sums.squares += value * value;
    }
    if (g != nullptr) {
      const auto gs = load<T, count>(g, pack);
      const auto ws = load<T, count>(w, pack);
      for (int i = 0; i < count; ++i) {
        const S up = static_cast<S>(static_cast<A>(gs.item[i])) * static_cast<S>(static_cast<A>(ws.item[i]));
        sums.dot += up * static_cast<S>(static_cast<A>(xs.item[i]));
      }
    }
  }
  sums.squares = group_sum<group>(sums.squares);
  if (g != nullptr) {
    sums.dot = group_sum<group>(sums.dot);
  }
  return sums;
}

// What a row is multiplied by, and for the backward the mean of g w x in these units.
template <typename A>
struct Factors {
  A scale, pull;
};

template <int group, int count, typename T>
__device__ auto row_factors(const T* g, const T* x, const T* w, int64_t width, int lane, double eps) {
  using A = typename Accumulate<T>::type;
  const auto factors = [&](const auto& sums) {
    using S = std::remove_cv_t<std::remove_reference_t<decltype(sums.squares)>>;
    const S scale = 1 / sqrt(sums.squares / static_cast<S>(width) + static_cast<S>(eps));
    return Factors<A>{static_cast<A>(scale), static_cast<A>(sums.dot * scale / static_cast<S>(width))};
  };
  const auto sums = row_sums<group, count, A>(g, x, w, width / count, lane);
  if constexpr (std::is_same_v<A, float>) {
    // Squares that leave the range of float32 are taken again in double, which is slow on a GPU and never needed
    // in a healthy network. All threads of the group agree on this.
    if (!(sums.squares > 1e-30f && sums.squares < 3e38f)) {
      return factors(row_sums<group, count, double>(g, x, w, width / count, lane));
    }
  }
  return factors(sums);
}

// A group of threads to a row: a warp, of which a block has several, or the block.
template <int group, int count, typename T>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(const T* x, const T* w, T* y, int64_t rows, int64_t width, double eps) {
  using A = typename Accumulate<T>::type;
  constexpr int groups = kThreads / group;
  const int lane = threadIdx.x % group;
  const int64_t step = static_cast<int64_t>(gridDim.x) * groups;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * groups + threadIdx.x / group; row < rows; row += step) {
    const T* from = x + row * width;
    const A scale = row_factors<group, count, T>(nullptr, from, w, width, lane, eps).scale;
    for (int64_t pack = lane; pack < width / count; pack += group) {
      const auto xs = load<T, count>(from, pack);
      const auto ws = load<T, count>(w, pack);
      Pack<T, count> ys;
      for (int i = 0; i < count; ++i) {
        ys.item[i] = static_cast<T>(static_cast<A>(xs.item[i]) * scale * static_cast<A>(ws.item[i]));
      }
      store<T, count>(y + row * width, pack, ys);
    }
  }
}

// As above. Each group sums the weight's gradient over its rows, in shared memory if that has room; a column is
// always the same thread's, so nothing is atomic. partial has a row for each group of each block.
template <int group, int count, typename T, typename A>
__global__ void __launch_bounds__(kThreads) backward_kernel(
    const T* g, const T* x, const T* w, T* dx, A* partial, bool shared, int64_t rows, int64_t width, double eps) {
  extern __shared__ __align__(16) unsigned char memory[];
  constexpr int groups = kThreads / group;
  const int lane = threadIdx.x % group, member = threadIdx.x / group;
  const int64_t step = static_cast<int64_t>(gridDim.x) * groups;
  A* const place = partial + (static_cast<int64_t>(blockIdx.x) * groups + member) * width;
  A* const sum = shared ? reinterpret_cast<A*>(memory) + member * width : place;
  for (int64_t pack = lane; pack < width / count; pack += group) {
    for (int i = 0; i < count; ++i) {
      sum[pack * count + i] = 0;
    }
  }
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * groups + member; row < rows; row += step) {
    const T *up = g + row * width, *from = x + row * width;
    const auto [scale, pull] = row_factors<group, count, T>(up, from, w, width, lane, eps);
    for (int64_t pack = lane; pack < width / count; pack += group) {
      const auto gs = load<T, count>(up, pack);
      const auto xs = load<T, count>(from, pack);
      const auto ws = load<T, count>(w, pack);
      Pack<T, count> dxs;
      for (int i = 0; i < count; ++i) {
        const A u = static_cast<A>(gs.item[i]), normal = static_cast<A>(xs.item[i]) * scale;
        dxs.item[i] = static_cast<T>(scale * (u * static_cast<A>(ws.item[i]) - normal * pull));
        sum[pack * count + i] += u * normal;
      }
      store<T, count>(dx + row * width, pack, dxs);
    }
  }
  if (shared) {
    for (int64_t pack = lane; pack < width / count; pack += group) {
      for (int i = 0; i < count; ++i) {
        place[pack * count + i] = sum[pack * count + i];
      }
    }
  }
}

// The second stage: a block of 32 columns adds what the groups have left, in a fixed order.
template <typename T, typename A>
__global__ void finish_kernel(const A* partial, int64_t parts, int64_t width, T* dw) {
  constexpr int lines = kThreads / kWarp;
  __shared__ double sums[lines][kWarp];
  const int column = threadIdx.x % kWarp, line = threadIdx.x / kWarp;
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kWarp + column;
  double sum = 0;
  for (int64_t part = line; at < width && part < parts; part += lines) {
    sum += static_cast<double>(partial[part * width + at]);
  }
  sums[line][column] = sum;
  __syncthreads();
  if (line == 0 && at < width) {
    for (int other = 1; other < lines; ++other) {
      sum += sums[other][column];
    }
    dw[at] = static_cast<T>(static_cast<A>(sum));
  }
}

// Calls body with the group and the count that a problem wants, as compile-time constants.
template <typename T, typename F>
void choose(int64_t width, int at_once, const F& body) {
  using std::integral_constant;
  using One = integral_constant<int, 1>;
  using Most = integral_constant<int, 16 / sizeof(T)>;
  using Warp = integral_constant<int, kWarp>;
  using Block = integral_constant<int, kThreads>;
  if (width <= kNarrow) {
    at_once > 1 ? body(Warp{}, Most{}) : body(Warp{}, One{});
  } else {
    at_once > 1 ? body(Block{}, Most{}) : body(Block{}, One{});
  }
}

int64_t blocks_for(int64_t rows, int64_t groups, int64_t most) {
  return std::min((rows + groups - 1) / groups, most);
}

Tensor forward(const Tensor& input, const Tensor& weight, double eps) {
  check(input, weight);
  const torch::stable::accelerator::DeviceGuard guard(input.get_device_index());
  const Tensor source = torch::stable::contiguous(input), factor = torch::stable::contiguous(weight);
  Tensor output = torch::stable::empty_like(source);
  if (source.numel() == 0) {
    return output; // a grid of no blocks is an error
  }
  const int64_t width = factor.numel(), rows = source.numel() / width;
  THO_DISPATCH_V2(
      input.scalar_type(),
      "rms_norm_forward",
      AT_WRAP(([&] {
        choose<scalar_t>(
            width, numbers_at_once<scalar_t>(width, source, factor, output), [&](auto group, auto count) {
              const auto blocks = static_cast<unsigned>(blocks_for(rows, kThreads / group(), kForwardBlocks));
              forward_kernel<group(), count()><<<blocks, kThreads, 0, current_stream(source)>>>(
                  source.const_data_ptr<scalar_t>(),
                  factor.const_data_ptr<scalar_t>(),
                  output.mutable_data_ptr<scalar_t>(),
                  rows,
                  width,
                  eps);
              STD_CUDA_KERNEL_LAUNCH_CHECK();
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
  const torch::stable::accelerator::DeviceGuard guard(input.get_device_index());
  const Tensor upstream = torch::stable::contiguous(grad_output);
  const Tensor source = torch::stable::contiguous(input), factor = torch::stable::contiguous(weight);
  Tensor grad_input = torch::stable::empty_like(source);
  Tensor grad_weight = torch::stable::empty_like(factor);
  const int64_t width = factor.numel(), rows = width == 0 ? 0 : source.numel() / width;
  if (width == 0) {
    return {grad_input, grad_weight};
  }
  THO_DISPATCH_V2(
      input.scalar_type(),
      "rms_norm_backward",
      AT_WRAP(([&] {
        using A = typename Accumulate<scalar_t>::type;
        const cudaStream_t stream = current_stream(source);
        const int at_once = numbers_at_once<scalar_t>(width, upstream, source, factor, grad_input);
        choose<scalar_t>(width, at_once, [&](auto group, auto count) {
          constexpr int64_t groups = kThreads / group();
          const int64_t blocks = blocks_for(rows, groups, kBackwardBlocks), parts = blocks * groups;
          const Tensor partial =
              torch::stable::new_empty(source, {std::max<int64_t>(parts, 1), width}, kernels::scalar_type_of<A>);
          A* sums = partial.mutable_data_ptr<A>();
          if (blocks > 0) {
            const size_t bytes = groups * width * sizeof(A);
            const bool shared = bytes <= kShared;
            backward_kernel<group(), count()><<<static_cast<unsigned>(blocks), kThreads, shared ? bytes : 0, stream>>>(
                upstream.const_data_ptr<scalar_t>(),
                source.const_data_ptr<scalar_t>(),
                factor.const_data_ptr<scalar_t>(),
                grad_input.mutable_data_ptr<scalar_t>(),
                sums,
                shared,
                rows,
                width,
                eps);
            STD_CUDA_KERNEL_LAUNCH_CHECK();
          }
          // Of no rows the sum is 0: an empty input gives the weight a gradient, too.
          const auto columns = static_cast<unsigned>((width + kWarp - 1) / kWarp);
          finish_kernel<scalar_t, A>
              <<<columns, kThreads, 0, stream>>>(sums, parts, width, grad_weight.mutable_data_ptr<scalar_t>());
          STD_CUDA_KERNEL_LAUNCH_CHECK();
        });
      })),
      AT_EXPAND(AT_FLOATING_TYPES),
      torch::headeronly::ScalarType::Half,
      torch::headeronly::ScalarType::BFloat16);
  return {grad_input, grad_weight};
}

} // namespace

STABLE_TORCH_LIBRARY_IMPL(autograd_cookbook, CUDA, library) {
  library.impl("rms_norm_forward", TORCH_BOX(&forward));
  library.impl("rms_norm_backward", TORCH_BOX(&backward));
}
