// DeviceGraph with LibTorch's CUDA graphs, whose allocator reserves the memory of each capture. A library of its own,
// libmultihead-graph.so, since LibTorch's CUDA libraries are not linked but loaded if there is a GPU.
#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/StreamGuard.h>  // not CUDAGuard.h, whose inline functions call the CUDA runtime
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include "nn/device_graph.h"

namespace mh::nn {

namespace {

class CudaGraph : public DeviceGraph {
 public:
  std::vector<at::Tensor> record(const Work& work) override {
    // Captures on a stream from the pool, since the default stream cannot be captured. The device must be idle when
    // capture begins.
    c10::cuda::device_synchronize();
    const c10::StreamGuard guard(c10::cuda::getStreamFromPool().unwrap());
    // Thread-local mode, since another thread allocates pinned memory for the next batches meanwhile.
    graph_.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
    std::vector<at::Tensor> results;
    try {
      results = work();
    } catch (...) {
      abort_capture();
      throw;
    }
    graph_.capture_end();
    return results;
  }

  void launch() override { graph_.replay(); }

 private:
  // Ends a failed capture, since a stream that is still capturing cannot be used again. Ending it reports an error.
  void abort_capture() {
    try {
      graph_.capture_end();
    } catch (const std::exception&) {  // caused by the failure of `work`, which the caller rethrows
    }
  }
  at::cuda::CUDAGraph graph_;
};

}  // namespace

}  // namespace mh::nn

extern "C" __attribute__((visibility("default"))) mh::nn::DeviceGraph* multihead_device_graph() {
  return new mh::nn::CudaGraph;
}
