// Selects the compiled attention kernels for an element type and a head size, or describes the combination that the
// build lacks.
#include <string>

#include "cuda/compiled.h"
#include "cuda/cuda_api.h"

namespace mh::kernels {

#define MH_DECLARE(name, size) const AttentionKernels* attention_##name##_##size();
MH_COMPILED(MH_DECLARE)
#undef MH_DECLARE

const AttentionKernels* cuda_attention_kernels(Dtype dtype, int size) {
  const AttentionKernels* best_kernels = nullptr;
#define MH_COMPARE(name, compiled_size)                                         \
  if (dtype == Dtype::name && size <= compiled_size &&                          \
      (best_kernels == nullptr || compiled_size < best_kernels->max_head_size)) \
    best_kernels = attention_##name##_##compiled_size();
  MH_COMPILED(MH_COMPARE)
#undef MH_COMPARE
  return best_kernels;
}

const char* cuda_missing_kernels(Dtype dtype, int size) {
  if (cuda_attention_kernels(dtype, size) != nullptr) return nullptr;
  bool has_dtype = false;
  int max_size = 0;
#define MH_COMPARE(name, compiled_size) \
  has_dtype |= dtype == Dtype::name;    \
  max_size = max_size < compiled_size ? compiled_size : max_size;
  MH_COMPILED(MH_COMPARE)
#undef MH_COMPARE
  const std::string sizes = kCompiledHeadSizes, dtypes = kCompiledDtypes;
  const char* name = dtype == Dtype::fp32 ? "fp32" : dtype == Dtype::bf16 ? "bf16" : "fp16";
  // All options that the build lacks, so that one new build suffices; none for a size that no build supports.
  std::string options;
  for (const int larger : {16, 32, 64, 96, 128, 192, 256})
    if (options.empty() && size > max_size && size <= larger)
      options = " -Dhead_sizes=" + sizes + "," + std::to_string(larger);
  if (!has_dtype && (size <= max_size || !options.empty())) options += " -Ddtypes=" + dtypes + "," + name;
  thread_local std::string problem;
  problem = "expected a head size up to the largest compiled size (" + sizes + ") and a compiled type (" + dtypes +
            "); found head size " + std::to_string(size) + " and type " + name + "; use --attention composed" +
            (options.empty() ? "" : ", or run meson configure build" + options + " and ninja -C build");
  return problem.c_str();
}

}  // namespace mh::kernels
