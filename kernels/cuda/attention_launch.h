// Attention kernels of one type and head size, as attention.cu.in and mixed.cu.in make them for each.
#pragma once

#include "cuda/attention.h"
#include "cuda/launch.h"
#include "cuda/thread.h"

namespace mh::kernels {

template <class T>
Rows<T> rows_of(const AnyRows& rows) {
  return {static_cast<T*>(rows.data), rows.batch, rows.head, rows.position};
}

inline unsigned tiles_of(int64_t length, int of) { return static_cast<unsigned>((length + of - 1) / of); }

}  // namespace mh::kernels
