// The CUDA half without a GPU: its library opens, and says what it was not compiled for.
#include "cuda/cuda_api.h"

#include <dlfcn.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "cuda/compiled.h"

using namespace mh::kernels;

namespace {

const CudaApi& table() {
  void* library = dlopen("libmultihead-cuda.so", RTLD_NOW);
  if (library == nullptr) throw std::runtime_error(dlerror());
  return *reinterpret_cast<const CudaApi* (*)()>(dlsym(library, kCudaApiSymbol))();
}

}  // namespace

TEST_CASE("the CUDA library opens where there is no GPU", "[cuda]") {
  CHECK(table().adam(nullptr, 0, nullptr) == nullptr);
}

TEST_CASE("the CUDA library has kernels for all head sizes up to those it was built for, or says what it lacks",
          "[cuda]") {
  int most = 0;
#define MH_CHECK(name, compiled)                                     \
  most = std::max(most, compiled);                                   \
  REQUIRE(table().attention(Dtype::name, compiled) != nullptr);      \
  CHECK(table().attention(Dtype::name, compiled)->size == compiled); \
  CHECK(table().attention(Dtype::name, 1)->size <= compiled);        \
  CHECK(table().missing(Dtype::name, compiled) == nullptr);
  MH_COMPILED(MH_CHECK)
#undef MH_CHECK
  const std::string dtypes = kCompiledDtypes, sizes = kCompiledHeadSizes, known = dtypes.substr(0, 4);
  const Dtype dtype = known == "fp32" ? Dtype::fp32 : known == "bf16" ? Dtype::bf16 : Dtype::fp16;
  CHECK(table().attention(dtype, most + 1) == nullptr);
  CHECK(table().missing(dtype, 300) == "expected a head size of at most one of " + sizes + " in " + dtypes +
                                           "; found 300 in " + known + "; use --attention composed");
  if (most < 256)
    CHECK_THAT(table().missing(dtype, 250),
               Catch::EndsWith("build again after meson configure build -Dhead_sizes=" + sizes + ",256"));
}
