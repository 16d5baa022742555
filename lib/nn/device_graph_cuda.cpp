// Implements DeviceGraph with LibTorch's at::cuda::CUDAGraph, whose allocator reserves the memory of each capture. This
// file is built as a separate library, libmultihead-graph.so, because LibTorch's CUDA libraries are not linked but
// loaded at run time if there is a GPU.
#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/StreamGuard.h>  // not CUDAGuard.h, whose inline functions call the CUDA runtime
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include "nn/device_graph.h"

namespace mh::nn {

namespace {

class CudaGraph : public DeviceGraph {
 public:
  std::vector<at::Tensor> capture(const Work& work) override {
    // Captures on a stream from LibTorch's pool, since the default stream cannot be captured. The GPU must be idle when
    // the capture begins.
    c10::cuda::device_synchronize();
    const c10::StreamGuard guard(c10::cuda::getStreamFromPool().unwrap());
    // Thread-local mode: the thread that prefetches batches may allocate pinned memory during the capture, which the
    // global mode forbids.
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
  // Ends a failed capture, since a stream that is still capturing cannot be used for other work. capture_end() throws
  // for a failed capture; the exception is ignored.
  void abort_capture() {
    try {
      graph_.capture_end();
    } catch (const std::exception&) {  // a consequence of the exception that `work` threw and that capture() rethrows
    }
  }
  at::cuda::CUDAGraph graph_;
};

}  // namespace

}  // namespace mh::nn

extern "C" __attribute__((visibility("default"))) mh::nn::DeviceGraph* multihead_device_graph() {
  return new mh::nn::CudaGraph;
}
