// The CUDA half without a GPU: its library opens, and says what it was not compiled for.
#include <dlfcn.h>

#include <catch2/catch.hpp>
#include <string>

#include "cuda/compiled.h"
#include "cuda/table.h"

using namespace mh::kernels;

namespace {

const CudaTable& table() {
  void* library = dlopen("libmultihead-cuda.so", RTLD_NOW);
  if (library == nullptr) throw std::runtime_error(dlerror());
  return *reinterpret_cast<const CudaTable* (*)()>(dlsym(library, kCudaTableSymbol))();
}

}  // namespace

TEST_CASE("the CUDA library opens where there is no GPU", "[cuda]") {
  CHECK(table().adam({}, 0, nullptr, nullptr, nullptr, nullptr) == nullptr);
}

TEST_CASE("the CUDA library says which type and head size it lacks", "[cuda]") {
  auto lacks = table().compiled_for;
  int expected = 0, compiled = 0;
#define MH_COUNT(name, type, size) ++expected, compiled += lacks(Dtype::name, size) == nullptr;
  MH_COMPILED(MH_COUNT)
#undef MH_COUNT
  CHECK(compiled == expected);
  for (Dtype dtype : {Dtype::fp32, Dtype::bf16, Dtype::fp16})
    for (int size = 1; size <= 512; ++size) compiled -= lacks(dtype, size) == nullptr;
  CHECK(compiled == 0);

  const std::string dtypes = kCompiledDtypes, sizes = kCompiledHeadSizes;
  const std::string known = dtypes.substr(0, 4);
  const Dtype dtype = known == "fp32" ? Dtype::fp32 : known == "bf16" ? Dtype::bf16 : Dtype::fp16;
  CHECK(lacks(dtype, 80) == "built without head size 80: expected head sizes " + sizes + " and " + dtypes +
                                "; found 80 and " + known +
                                "; build again after meson configure build -Dhead_sizes=" + sizes + ",80");
  if (dtypes.find("fp16") != std::string::npos) return;
  CHECK_THAT(lacks(Dtype::fp16, 80), Catch::StartsWith("built without head size 80 / fp16: "));
  CHECK_THAT(lacks(Dtype::fp16, 80), Catch::EndsWith(",80 -Ddtypes=" + dtypes + ",fp16"));
}
