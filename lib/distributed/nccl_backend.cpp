// Loads libmultihead-nccl.so, which creates the backend.
#include "distributed/nccl_backend.h"

#include "nn/device.h"

namespace mh::distributed {

c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                                    std::chrono::milliseconds timeout) {
  static auto* const make = reinterpret_cast<MakeNcclBackend*>(
      nn::open_symbol("libmultihead-nccl.so", kNcclBackendSymbol,
                      "install the headers of NCCL (pip install nvidia-nccl-cu13==2.28.9) beside LibTorch, run ./run "
                      "build on a machine with a GPU, or pass --device cpu"));
  return c10::intrusive_ptr<c10d::Backend>::reclaim(make(store, rank, size, timeout));
}

}  // namespace mh::distributed
