// Tables of the cosines and sines of rotary positions. All layers of the process with equal options share a table,
// which grows by doubling to the positions that forward passes use.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "attention/methods/rotary/rotary_options.h"

namespace mh::attention {

// Cosines and sines (T, r / 2) of the angles of T positions, fp32, contiguous, multiplied by attention_factor().
struct RotaryRows {
  at::Tensor cosines, sines;
};

// The positions [begin, end), which may be negative, in a forward pass whose input has `length` positions up to its
// last position. `is_training`: whether the pass belongs to training, which a CUDA graph may capture.
struct RotaryRange {
  int64_t begin = 0, end = 0;
  int64_t length = 0;
  bool is_training = false;
};

// The table of one set of options on one device. All functions may be called by several threads at once; a call that
// finds its rows holds a lock only while it copies a pointer.
class RotaryTable {
 public:
  RotaryTable(const RotaryOptions& options, int64_t rotary_size, at::Device device);
  // Returns views of the rows of the table.
  RotaryRows rows(const RotaryRange& range);
  // Returns the number of positions in the tables of all lengths (frequency_length()). Used by tests.
  int64_t num_positions() const;

 private:
  struct Table {
    int64_t begin = 0, end = 0;
    RotaryRows rows;
  };
  struct Entry {
    std::shared_ptr<const Table> table;
    bool is_permanent = false;  // false: the table of the next length replaces this table
  };
  bool may_be_captured(const RotaryRange& range) const;
  std::shared_ptr<const Table> find(const RotaryRange& range, int64_t frequency_length) const;
  std::shared_ptr<const Table> grow(const RotaryRange& range, int64_t frequency_length);
  Table compute(int64_t begin, int64_t end, int64_t frequency_length) const;

  const RotaryOptions options_;
  const int64_t rotary_size_;
  const at::Device device_;
  std::mutex growth_mutex_;           // held while a table is computed
  mutable std::mutex mutex_;          // guards the entries
  std::map<int64_t, Entry> entries_;  // by frequency_length()
  // Former tables on a GPU, of which captured CUDA graphs may read rows; at most as large as the present tables.
  std::vector<std::shared_ptr<const Table>> replaced_tables_;
};

// Returns the table of all layers with these options and this size on this device.
std::shared_ptr<RotaryTable> shared_rotary_table(const RotaryOptions& options, int64_t rotary_size, at::Device device);

}  // namespace mh::attention
