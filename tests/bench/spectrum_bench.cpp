// Measures the time (ms) per matrix of the singular values of a batch of matrices:
// spectrum_bench FILE COUNT N THREADS [VALUES]. FILE contains COUNT fp32 matrices of N × N; the singular values are
// written to VALUES in fp64.
#include <ATen/Parallel.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "analysis/spectrum.h"
#include "base/file.h"
#include "nn/aten.h"

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  const int64_t count = std::atoll(argv[2]), n = std::atoll(argv[3]);
  at::set_num_threads(std::atoi(argv[4]));
  at::Tensor x = at::empty({count, n, n}, at::kFloat);
  if (!mh::open_source(argv[1])->read_exactly(x.mutable_data_ptr(), x.nbytes())) return 3;
  at::Tensor values = mh::analysis::singular_values(x);  // warm-up
  const auto start_time = std::chrono::steady_clock::now();
  values = mh::analysis::singular_values(x);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_time;
  std::printf("%.4f\n", 1000 * elapsed.count() / static_cast<double>(count));
  if (argc > 5) {
    auto sink = mh::open_sink(argv[5]);
    sink->write(values.const_data_ptr(), values.nbytes());
    sink->close();
  }
}
