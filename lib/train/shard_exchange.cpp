#include "train/shard_exchange.h"

#include <algorithm>
#include <cstring>

#include "nn/aten.h"

namespace mh::train {

namespace {

// The bytes of a shard, which are not contiguous, as one sequence that is read or written from its start to its end.
class ShardBytes {
 public:
  void append(char* data, int64_t num_bytes) {
    if (num_bytes > 0) segments_.push_back({data, num_bytes});
    num_bytes_ += num_bytes;
  }
  int64_t num_bytes() const { return num_bytes_; }

  // Copies the next `num_bytes` bytes to `destination`, or fewer at the end.
  void read(int64_t num_bytes, char* destination) {
    advance(num_bytes, [&](char* data, int64_t n) { std::memcpy(destination, data, n), destination += n; });
  }
  // Replaces the next `num_bytes` bytes, or fewer at the end, by the bytes of `source`.
  void write(int64_t num_bytes, const char* source) {
    advance(num_bytes, [&](char* data, int64_t n) { std::memcpy(data, source, n), source += n; });
  }

 private:
  struct Segment {
    char* data;
    int64_t num_bytes;
  };
  template <class Copy>
  void advance(int64_t num_bytes, const Copy& copy) {
    while (num_bytes > 0 && segment_index_ < segments_.size()) {
      const Segment& segment = segments_[segment_index_];
      const int64_t n = std::min(num_bytes, segment.num_bytes - offset_);
      copy(segment.data + offset_, n);
      num_bytes -= n, offset_ += n;
      if (offset_ == segment.num_bytes) ++segment_index_, offset_ = 0;
    }
  }
  std::vector<Segment> segments_;
  int64_t num_bytes_ = 0;
  size_t segment_index_ = 0;
  int64_t offset_ = 0;  // bytes of the current segment that are already copied
};

}  // namespace

void ShardExchange::all_gather(const OptimizerShards& shards, const std::vector<Values>& values) const {
  if (group_.is_single()) return;
  std::vector<ShardBytes> bytes(static_cast<size_t>(group_.size()));
  int64_t max_bytes = 0;
  for (int rank = 0; rank < group_.size(); ++rank) {
    ShardBytes& shard_bytes = bytes[static_cast<size_t>(rank)];
    for (const Values& v : values) {
      const ElementRange range = shards.of(v.parameter_index, rank);
      const auto element_bytes = static_cast<int64_t>(v.tensor.element_size());
      shard_bytes.append(static_cast<char*>(v.tensor.mutable_data_ptr()) + range.begin * element_bytes,
                         range.size() * element_bytes);
    }
    max_bytes = std::max(max_bytes, shard_bytes.num_bytes());
  }
  if (max_bytes == 0) return;
  // The own piece, the pieces of all processes, and the copy of these that Gloo makes.
  const int64_t num_pieces = 2 * group_.size() + 1;
  const int64_t max_piece_bytes = std::clamp<int64_t>(max_buffer_bytes_ / num_pieces, 1, max_bytes);
  const at::Tensor own_piece = at::empty({max_piece_bytes}, at::kByte),
                   all_pieces = at::empty({group_.size() * max_piece_bytes}, at::kByte);
  for (int64_t offset = 0; offset < max_bytes; offset += max_piece_bytes) {
    const int64_t piece_bytes = std::min(max_piece_bytes, max_bytes - offset);
    bytes[static_cast<size_t>(group_.rank())].read(piece_bytes, static_cast<char*>(own_piece.mutable_data_ptr()));
    group_.all_gather(own_piece.narrow(0, 0, piece_bytes), all_pieces.narrow(0, 0, group_.size() * piece_bytes));
    for (int rank = 0; rank < group_.size(); ++rank)
      if (rank != group_.rank())
        bytes[static_cast<size_t>(rank)].write(
            piece_bytes, static_cast<const char*>(all_pieces.const_data_ptr()) + rank * piece_bytes);
  }
}

void gather_shards(const distributed::Group& group, const OptimizerShards& shards, size_t parameter_index,
                   const at::Tensor& own_elements, std::chrono::milliseconds wait_timeout, at::Tensor& whole) {
  // A long wait for rank 0 happens here and not in send(), which does not notice that rank 0 is stopped or
  // disconnected.
  group.barrier(group.is_main() ? std::chrono::milliseconds{} : wait_timeout);
  if (!group.is_main()) return group.send(own_elements, 0);
  whole.resize_({shards.size(parameter_index)});
  for (int rank = 0; rank < group.size(); ++rank) {
    const ElementRange range = shards.of(parameter_index, rank);
    const at::Tensor elements = whole.narrow(0, range.begin, range.size());
    if (rank == 0) elements.copy_(own_elements);
    else group.receive(elements, rank);
  }
}

}  // namespace mh::train
