// Measures causal attention of one layer for ./run bench: the forward and backward pass or, for decode-a and decode-b,
// the forward pass:
//
//   attention_bench KIND BATCH HEADS LENGTH SIZE fp32|bf16|fp16 THREADS|cuda [baseline|avx2|avx512]
//   attention_bench -       reads these arguments from each line of standard input
//
// KIND:
//   plain                  attention without head mixing
//   cross-head             attention in which each head reads the keys and values of the next head
//   scaled                 attention with outputs scaled per head and batch element (alphas, gates of experts)
//   kernel                 attention without head mixing, by this project's kernel on CPU and GPU
//   mixhead-a, mixhead-b   Mixhead A and B
//   relative               relative positions of Transformer-XL with a memory of LENGTH tokens
//   decode-a, decode-b     Mixhead A and B with one query and LENGTH keys, forward only
//
// On a GPU, plain, cross-head and scaled use PyTorch's attention, as attention layers do. The program prints the time
// of a call (ms, median over about one second, or 0.3 s on a GPU) and the peak memory that a call adds, without its
// output and gradients (MB). On a GPU, times come from events and memory from the statistics of the allocator, after
// warm-up calls. fp16 needs a GPU. The last argument limits the instruction set of this project's kernels on the CPU,
// but not of LibTorch.
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Event.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "attention/fused/attention_spec.h"
#include "attention/fused/fused_cpu.h"
#include "attention/fused/fused_gpu.h"
#include "attention/fused/head_mixing_cpu.h"
#include "base/error.h"
#include "cpu/simd_level.h"
#include "fixtures/aten.h"
#include "fixtures/peak_memory.h"
#include "nn/device.h"
#include "nn/ops.h"

using namespace mh;

namespace {

struct Measurement {
  double ms, mb;  // median time of a call; peak memory that a call adds, with its output and gradients
};

double median(std::vector<double> x) {
  std::nth_element(x.begin(), x.begin() + static_cast<int64_t>(x.size() / 2), x.end());
  return x[x.size() / 2];
}

// Measures call() on the CPU, for at least 3 calls and 1 s. clear() drops the gradients before each timed call.
template <class Call, class Clear>
Measurement measure_cpu(const Call& call, const Clear& clear) {
  Measurement measurement{};
  reset_peak_memory();
  const int64_t kb_before = peak_memory_kb();
  call();
  measurement.mb = static_cast<double>(peak_memory_kb() - kb_before) / 1024;
  std::vector<double> times;
  const auto start_time = std::chrono::steady_clock::now();
  for (double elapsed_s = 0; times.size() < 3 || elapsed_s < 1;) {
    const auto call_start = std::chrono::steady_clock::now();
    clear();
    call();
    const auto call_end = std::chrono::steady_clock::now();
    times.push_back(std::chrono::duration<double, std::milli>(call_end - call_start).count());
    elapsed_s = std::chrono::duration<double>(call_end - start_time).count();
  }
  measurement.ms = median(times);
  return measurement;
}

// Measures call() on a GPU, for at least 20 calls and 300 ms. clear() drops the gradients before each call.
template <class Call, class Clear>
Measurement measure_gpu(at::Device gpu, const Call& call, const Clear& clear) {
  Measurement measurement{};
  const c10::impl::VirtualGuardImpl guard(gpu.type());
  const c10::Stream stream = guard.getStream(gpu);
  for (int i = 0; i < 5; ++i) clear(), call();
  clear();
  guard.synchronizeDevice(gpu.index());
  auto& allocator = *c10::getDeviceAllocator(gpu.type());
  const auto bytes = [&] { return allocator.getDeviceStats(gpu.index()).allocated_bytes[0]; };
  allocator.resetPeakStats(gpu.index());
  const int64_t bytes_before = bytes().current;
  call();
  measurement.mb = static_cast<double>(bytes().peak - bytes_before) / (1 << 20);
  std::vector<double> times;
  for (double elapsed_ms = 0; times.size() < 20 || elapsed_ms < 300;) {
    std::vector<c10::Event> events;
    for (int i = 0; i <= 10; ++i) {
      clear();
      if (i > 0) call();
      events.emplace_back(gpu.type(), c10::EventFlag::BACKEND_DEFAULT);
      events.back().record(stream);
    }
    guard.synchronizeDevice(gpu.index());
    for (size_t i = 1; i < events.size(); ++i) {
      times.push_back(events[i - 1].elapsedTime(events[i]));
      elapsed_ms += times.back();
    }
  }
  measurement.ms = median(times);
  return measurement;
}

// Computes attention with this project's kernels, with head mixing if the mixing matrix m (heads, heads) or
// (batch, queries, heads, heads) is defined. On a GPU, throws Error(usage) if the build has no kernel for the type or
// head size.
at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& m,
                  const attention::AttentionSpec& spec) {
  if (q.is_cpu())
    return m.defined() ? attention::head_mixing_cpu(q, k, v, m, spec) : attention::fused_cpu(q, k, v, spec);
  const attention::GpuKernels gpu = attention::gpu_kernels(q, k, v);
  if (gpu.kernels == nullptr)
    throw Error(
        Exit::usage,
        "expected kernels for this type and head size; found none; add the type to -Ddtypes or the head size to "
        "-Dhead_sizes and build again");
  return m.defined() ? attention::head_mixing_gpu(gpu, q, k, v, m, spec) : attention::fused_gpu(gpu, q, k, v, spec);
}

std::optional<at::ScalarType> parse_type(const std::string& name) {
  if (name == "fp32") return at::kFloat;
  if (name == "bf16") return at::kBFloat16;
  if (name == "fp16") return at::kHalf;
  return std::nullopt;
}

at::Device default_gpu() {
  static const at::Device gpu = nn::choose_device("cuda");
  return gpu;
}

int measure_arguments(std::istream& arguments) {
  std::string kind, type_name, threads_or_cuda, level_name;
  int64_t batch = 0, heads = 0, n = 0, d = 0;
  arguments >> kind >> batch >> heads >> n >> d >> type_name >> threads_or_cuda;
  const bool is_complete = static_cast<bool>(arguments);
  kernels::set_simd_level(kernels::best_simd_level());
  if (arguments >> level_name) {
    const std::map<std::string, kernels::SimdLevel> levels{{"baseline", kernels::SimdLevel::baseline},
                                                           {"avx2", kernels::SimdLevel::avx2},
                                                           {"avx512", kernels::SimdLevel::avx512}};
    const auto level = levels.find(level_name);
    if (level == levels.end() || level->second > kernels::best_simd_level()) return 2;
    kernels::set_simd_level(level->second);
  }
  const auto type = parse_type(type_name);
  const bool decodes = kind.starts_with("decode"), has_relative_positions = kind == "relative",
             mixes_per_query = kind.ends_with("-b"), mixes = kind.starts_with("mixhead") || decodes,
             uses_gpu = threads_or_cuda == "cuda";
  const std::vector<std::string> kinds{"plain",     "kernel",   "cross-head", "scaled",  "mixhead-a",
                                       "mixhead-b", "relative", "decode-a",   "decode-b"};
  if (!is_complete || !type || std::find(kinds.begin(), kinds.end(), kind) == kinds.end() ||
      (!uses_gpu && *type == at::kHalf))
    return 2;
  const at::Device device = uses_gpu ? default_gpu() : at::Device(at::kCPU);
  if (!uses_gpu) nn::prepare_cpu(std::atoi(threads_or_cuda.c_str()));
  // Returns a random tensor (batch, heads, length, size) that requires a gradient, as a view of (batch, length, heads,
  // size), the layout of a projection.
  const auto random_leaf = [&](int64_t length) {
    return at::randn({batch, length, heads, d}, device).to(*type).transpose(1, 2).detach().requires_grad_();
  };
  const int64_t queries = decodes ? 1 : n, keys = has_relative_positions ? 2 * n : n;
  const at::Tensor q = random_leaf(queries), k = decodes ? random_leaf(keys).detach().contiguous() : random_leaf(keys),
                   v = decodes ? random_leaf(keys).detach().contiguous() : random_leaf(keys),
                   dout = random_leaf(queries).detach();
  at::Tensor m;
  if (mixes) {
    m = (at::eye(heads) + 0.1 * at::randn({heads, heads})).to(device);
    if (mixes_per_query) m = m.expand({batch, queries, heads, heads}).contiguous();
    m.requires_grad_();
  }
  attention::AttentionSpec spec;
  spec.causal = !decodes;
  attention::RelativePositions& positions = spec.relative_positions;
  if (has_relative_positions) {
    const auto random_parameter = [&](const std::vector<int64_t>& sizes, at::ScalarType dtype) {
      return at::randn(sizes).to(device, dtype).requires_grad_();
    };
    positions = {random_parameter({heads, d}, at::kFloat),
                 random_parameter({heads, d}, at::kFloat),
                 random_parameter({heads, keys, d}, *type),
                 {{0, keys, 0}}};
  }
  const bool reads_next_head = kind == "cross-head",
             uses_torch_attention = uses_gpu && (kind == "plain" || reads_next_head || kind == "scaled");
  if (reads_next_head)
    for (int64_t i = 0; i < heads; ++i) spec.kv_head_of.push_back((i + 1) % heads);
  const at::Tensor next_heads = reads_next_head ? nn::cached_constant(device, spec.kv_head_of) : at::Tensor();
  if (kind == "scaled") spec.head_scales = at::rand({batch, heads}).to(device).requires_grad_();
  const auto clear = [&] {
    for (const at::Tensor& t : {q, k, v, m, positions.u, positions.v, positions.r, spec.head_scales})
      if (t.defined()) t.mutable_grad() = at::Tensor();
  };
  const auto call = [&] {
    const c10::AutoGradMode gradient(!decodes);
    const auto select_heads = [&](const at::Tensor& x) { return reads_next_head ? x.index_select(1, next_heads) : x; };
    at::Tensor out = uses_torch_attention
                         ? at::scaled_dot_product_attention(q, select_heads(k), select_heads(v), {}, 0.0, true)
                         : attend(q, k, v, m, spec);
    if (uses_torch_attention && spec.head_scales.defined())
      out = out * spec.head_scales.to(*type).unsqueeze(-1).unsqueeze(-1);
    if (!decodes) out.backward(dout);
  };
  const Measurement measurement = uses_gpu ? measure_gpu(device, call, clear) : measure_cpu(call, clear);
  const size_t gradient_bytes = decodes ? 0 : q.nbytes() + k.nbytes() + v.nbytes();
  const double results_mb = static_cast<double>(q.nbytes() + gradient_bytes) / (1 << 20);
  std::printf("%.3f %.1f\n", measurement.ms, measurement.mb - results_mb);
  std::fflush(stdout);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc == 2 && argv[1] == std::string("-")) {
      int status = 0;
      for (std::string line; status == 0 && std::getline(std::cin, line);) {
        std::istringstream words(line);
        status = measure_arguments(words);
        if (line.ends_with("cuda"))
          c10::getDeviceAllocator(at::kCUDA)->emptyCache();  // peers/attention.py uses the GPU between measurements
      }
      return status;
    }
    if (argc != 8 && argc != 9) return 2;
    std::string line;
    for (int i = 1; i < argc; ++i) line += std::string(argv[i]) + " ";
    std::istringstream words(line);
    return measure_arguments(words);
  } catch (const Error& error) {
    std::fprintf(stderr, "attention-bench: %s\n", error.what());
    return static_cast<int>(error.exit());
  }
}
