// Scratch memory of a kernel call, aligned to a cache line of 64 bytes.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

#include "ceil_div.h"

namespace mh::attention {

class Scratch {
 public:
  explicit Scratch(int64_t floats)
      : data_(static_cast<float*>(std::aligned_alloc(64, round_up(static_cast<size_t>(floats) * sizeof(float), 64)))) {
    if (data_ == nullptr) throw std::bad_alloc();
  }
  float* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(float* p) const { std::free(p); }
  };
  std::unique_ptr<float, Free> data_;
};

}  // namespace mh::attention
