// DeviceGraph by the tensor library's graphs, whose allocator keeps the memory of a recording apart. A library of its
// own, libmultihead-graph.so, as the tensor library's CUDA half is not linked but opened where there is a GPU.
#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/StreamGuard.h>  // not CUDAGuard.h, which calls the CUDA runtime in place
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include "nn/device_graph.h"

namespace mh::nn {

namespace {

class CudaGraph : public DeviceGraph {
 public:
  std::vector<at::Tensor> record(const Work& work) override {
    // Not on the default stream, which cannot record; nothing may be under way when it begins.
    c10::cuda::device_synchronize();
    const c10::StreamGuard guard(c10::cuda::getStreamFromPool().unwrap());
    // Other threads may go on: one of them makes the next batches in pinned memory.
    graph_.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
    std::vector<at::Tensor> results;
    try {
      results = work();
    } catch (...) {
      end_broken();
      throw;
    }
    graph_.capture_end();
    return results;
  }

  void launch() override { graph_.replay(); }

 private:
  // A stream that goes on recording could not be used again. What ends a broken recording complains of it.
  void end_broken() {
    try {
      graph_.capture_end();
    } catch (const std::exception&) {  // of the work's failure, which is about to be thrown
    }
  }
  at::cuda::CUDAGraph graph_;
};

}  // namespace

}  // namespace mh::nn

extern "C" __attribute__((visibility("default"))) mh::nn::DeviceGraph* multihead_device_graph() {
  return new mh::nn::CudaGraph;
}
