#include <string>

#include "cuda/compiled.h"
#include "cuda/table.h"

namespace mh::kernels {

const char* cuda_compiled_for(Dtype dtype, int head_size) {
  bool has_size = false, has_dtype = false;
#define MH_COMPARE(name, type, size) has_size |= head_size == size, has_dtype |= dtype == Dtype::name;
  MH_COMPILED(MH_COMPARE)
#undef MH_COMPARE
  if (has_size && has_dtype) return nullptr;
  const std::string size = std::to_string(head_size), sizes = kCompiledHeadSizes, dtypes = kCompiledDtypes;
  const char* name = dtype == Dtype::fp32 ? "fp32" : dtype == Dtype::bf16 ? "bf16" : "fp16";
  std::string missing, next;
  if (!has_size) missing = "head size " + size, next = " -Dhead_sizes=" + sizes + "," + size;
  if (!has_dtype) missing += (has_size ? "" : " / ") + std::string(name), next += " -Ddtypes=" + dtypes + "," + name;
  thread_local std::string problem;
  problem = "built without " + missing + ": expected head sizes " + sizes + " and " + dtypes + "; found " + size +
            " and " + name + "; build again after meson configure build" + next;
  return problem.c_str();
}

}  // namespace mh::kernels
