// The CUDA library, with and without a GPU: loading, device_problem(), and the compiled head sizes and types.
#include "cuda/cuda_api.h"

#include <dlfcn.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "cuda/compiled.h"
#include "fixtures/device.h"

using namespace mh::kernels;

namespace {

const CudaApi& api() {
  void* library = dlopen("libmultihead-cuda.so", RTLD_NOW);
  if (library == nullptr) throw std::runtime_error(dlerror());
  return *reinterpret_cast<const CudaApi* (*)()>(dlsym(library, kCudaApiSymbol))();
}

}  // namespace

TEST_CASE("the CUDA library opens on a machine without a GPU", "[cuda]") {
  CHECK(api().adam(nullptr, 0, nullptr) == nullptr);
}

TEST_CASE("device_problem reports a problem if and only if the machine has no usable GPU", "[cuda]") {
  const char* problem = api().device_problem();
  INFO((problem != nullptr ? problem : "no problem"));
  CHECK((problem == nullptr) == (test_device() == "cuda"));  // --device cuda is set exactly on machines with a GPU
}

TEST_CASE("the CUDA library has kernels up to the largest compiled head size and refuses larger ones", "[cuda]") {
  int max_head_size = 0;
#define MH_CHECK(type, head_size)                                                     \
  max_head_size = std::max(max_head_size, head_size);                                 \
  REQUIRE(api().attention_kernels(Dtype::type, head_size) != nullptr);                \
  CHECK(api().attention_kernels(Dtype::type, head_size)->max_head_size == head_size); \
  CHECK(api().attention_kernels(Dtype::type, 1)->max_head_size <= head_size);         \
  CHECK(api().missing_kernels(Dtype::type, head_size) == nullptr);
  MH_COMPILED(MH_CHECK)
#undef MH_CHECK
  const std::string dtypes = kCompiledDtypes, sizes = kCompiledHeadSizes, dtype_name = dtypes.substr(0, 4);
  const Dtype dtype = dtype_name == "fp32" ? Dtype::fp32 : dtype_name == "bf16" ? Dtype::bf16 : Dtype::fp16;
  CHECK(api().attention_kernels(dtype, max_head_size + 1) == nullptr);
  CHECK(api().missing_kernels(dtype, 300) ==
        "expected a head size up to the largest compiled size (" + sizes + ") and a compiled type (" + dtypes +
            "); found head size 300 and type " + dtype_name + "; use --attention composed");
  const std::string head_sizes_option = " -Dhead_sizes=" + sizes + ",256",
                    dtypes_option = " -Ddtypes=" + dtypes + ",fp16";
  const auto ends_with_build_options = [](const std::string& options) {
    return Catch::EndsWith("use --attention composed, or run meson configure build" + options + " and ninja -C build");
  };
  if (max_head_size < 256) CHECK_THAT(api().missing_kernels(dtype, 250), ends_with_build_options(head_sizes_option));
  if (dtypes.find("fp16") != std::string::npos) return;
  CHECK_THAT(api().missing_kernels(Dtype::fp16, max_head_size), ends_with_build_options(dtypes_option));
  if (max_head_size < 256)
    CHECK_THAT(api().missing_kernels(Dtype::fp16, 250), ends_with_build_options(head_sizes_option + dtypes_option));
  CHECK_THAT(api().missing_kernels(Dtype::fp16, 300), Catch::EndsWith("use --attention composed"));
}
