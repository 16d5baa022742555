// The mainloop of the head-mixing kernels: streams tiles of 16 rows from global memory through a multi-stage pipeline
// in shared memory.
//
// Tiling: a block computes one or more row tiles of 16 resident rows, of all heads. The warps of a row tile divide the
// heads among them. Tiles of 16 streamed rows of each head are copied into the stages of the pipeline with cp.async
// while another stage is read. If a stage has no room for all heads, a tile is streamed in several groups of heads.
#pragma once

#include "cuda/attention_forward.h"
#include "cuda/head_mixing/plan.h"

namespace mh::kernels {

// A ring buffer of pipeline stages in shared memory. The sequence is fill() once, then acquire(), work on current(),
// and release() for each stage. After the barrier of acquire() the previous stage is free, and acquire() starts to fill
// the previous stage. With a single stage, acquire() fills this stage and waits.
template <class T>
struct SmemPipeline {
  T* memory;
  int num_stages, stage_size;  // number of stages; elements of a stage
  int stage = 0;               // index of the stage that is read

  MH_DEVICE T* current() const { return memory + stage * stage_size; }
  // Returns the address after the last stage.
  MH_DEVICE T* end() const { return memory + num_stages * stage_size; }
  // Starts to fill all stages but one, with load(stage memory). Copies of resident rows that started earlier are
  // complete when the first stage is: they belong to its cp.async group or, with a single stage, to an earlier group.
  template <class Thread, class Load>
  MH_DEVICE void fill(const Thread& thread, const Load& load) const {
    if (num_stages == 1) thread.commit_group();
    MH_ROLLED
    for (int i = 0; i < num_stages - 1; ++i) load(memory + i * stage_size);
  }
  // Waits until the current stage is complete and all threads have read the previous stage, and starts to fill the
  // previous stage with load(stage memory).
  template <class Thread, class Load>
  MH_DEVICE void acquire(const Thread& thread, const Load& load) const {
    if (num_stages <= 2) thread.template wait_group<0>();
    else if (num_stages == 3) thread.template wait_group<1>();
    else thread.template wait_group<2>();
    thread.barrier();
    load(memory + (stage > 0 ? stage - 1 : num_stages - 1) * stage_size);
    if (num_stages > 1) return;
    thread.template wait_group<0>();
    thread.barrier();
  }
  MH_DEVICE void release() { stage = stage + 1 < num_stages ? stage + 1 : 0; }
};

// Rows of a tensor from row `first` on. Rows before row 0 and from row `end` on are loaded as zeros.
struct TileRowRange {
  int first, end;
};

// The heads `first` … `end` - 1.
struct HeadRange {
  int first, end;
  MH_DEVICE int count() const { return end - first; }
};

// The heads `first` … `end` - 1, whose rows are in a pipeline stage. stage: the memory of the stage.
template <class T>
struct HeadGroup {
  int first, end;
  const T* stage;
};

// A streamed tile of 16 rows, and, with relative positions, its row window: rows of another tensor.
struct StreamedTile {
  int first = 0, end = 0;              // first row of the tile; rows from `end` on are loaded as zeros
  int window_row = 0, window_end = 0;  // first row of the window; rows from window_end on are loaded as zeros
  int first_unmasked_row = 0;          // rows of the window before row first_unmasked_row are masked
  MH_DEVICE bool valid() const { return first < end; }
};

// The tiles of a range, without windows: operator()(n) returns tile n.
struct RangeTiles {
  IndexRange range;
  MH_DEVICE StreamedTile operator()(int n) const { return {range.first + 16 * n, range.end}; }
};

// The operands of the product of streamed rows with resident rows, for a range of heads. With relative positions
// (head_mixing/relative.h) there may be a second streamed or resident tensor (kNumStreamed, kNumResident: 2), and a row
// window (kHasWindow), which is loaded with each tile and has 16 rows more than the block has resident rows. A tensor
// without data is not loaded.
template <class T, int kSize, int kNumStreamed = 1, int kNumResident = 1, bool kHasWindow = false>
struct GemmOperands {
  static constexpr int kStride = kSize + kPad;
  // A tensor (heads, length, size) of one batch row.
  struct Operand {
    const T* data = nullptr;
    int64_t head_stride = 0;
    int row_stride = 0;                // in elements
    const int64_t* head_of = nullptr;  // head h of the product reads head head_of[h] of the tensor; null: head h
    Operand() = default;
    MH_DEVICE Operand(const StridedTensor<const T>& tensor, int64_t b, const int64_t* heads)
        : data(tensor.data + b * tensor.batch_stride),
          head_stride(tensor.head_stride),
          row_stride(static_cast<int>(tensor.row_stride)),
          head_of(heads) {}
    MH_DEVICE void select(const Operand& x, bool condition) {
      data = condition ? x.data : data, head_stride = condition ? x.head_stride : head_stride;
      row_stride = condition ? x.row_stride : row_stride, head_of = condition ? x.head_of : head_of;
    }
  };
  struct NoOperand {
    MH_DEVICE void select(const NoOperand&, bool) {}
  };
  Operand streamed, resident;
  HeadRange heads;
  int size;                // elements of a row
  const T* resident_smem;  // (kNumResident, heads.count(), rows of the block, kStride), if plan.num_resident_tiles > 0
  std::conditional_t<kNumStreamed == 2, Operand, NoOperand> streamed_2{};
  std::conditional_t<kNumResident == 2, Operand, NoOperand> resident_2{};
  std::conditional_t<kHasWindow, Operand, NoOperand> window{};

  // Assigns x to this object if `condition` is true, member by member, since a choice between structs would go through
  // local memory.
  MH_DEVICE void select(const GemmOperands& x, bool condition) {
    streamed.select(x.streamed, condition), resident.select(x.resident, condition);
    streamed_2.select(x.streamed_2, condition), resident_2.select(x.resident_2, condition);
    window.select(x.window, condition);
    heads.first = condition ? x.heads.first : heads.first, heads.end = condition ? x.heads.end : heads.end;
    size = condition ? x.size : size;
    resident_smem = condition ? x.resident_smem : resident_smem;
  }

  // Return addresses in shared memory for a head of a group: streamed_rows() of the streamed rows (16, kStride),
  // resident_rows() of the resident rows (rows of the block, kStride), and window_of() of the window (rows of the
  // block + 16, kStride). n: 0, or 1 for the second streamed or resident tensor.
  MH_DEVICE const T* streamed_rows(const HeadMixingPlan& plan, HeadGroup<T> group, int head, int n = 0) const {
    return group.stage + (n * plan.heads_per_stage + head - group.first) * 16 * kStride;
  }
  MH_DEVICE const T* resident_rows(const HeadMixingPlan& plan, HeadGroup<T> group, int head, int n = 0) const {
    const int head_elements = 16 * plan.num_row_tiles * kStride;
    return plan.num_resident_tiles > 0
               ? resident_smem + (n * heads.count() + head - heads.first) * head_elements
               : group.stage + resident_offset(plan) + (n * plan.heads_per_stage + head - group.first) * head_elements;
  }
  MH_DEVICE const T* window_of(const HeadMixingPlan& plan, HeadGroup<T> group, int head) const {
    return group.stage +
           (kNumStreamed * plan.heads_per_stage * 16 + (head - group.first) * (16 * plan.num_row_tiles + 16)) * kStride;
  }

  // Loads the resident rows of all heads to `to`. Called by all threads of a block.
  template <class Thread>
  MH_DEVICE void load_all_resident_rows(const Thread& thread, const AttentionParams& params, const HeadMixingPlan& plan,
                                        T* to, TileRowRange rows) const {
    load_resident_rows(thread, params, plan, to, heads.count(), heads, rows);
  }
  // Loads the streamed rows and the window of a tile into a stage, for the heads of `group`. Called by all threads of a
  // block.
  template <class Thread>
  MH_DEVICE void load_streamed_rows(const Thread& thread, const AttentionParams& params, const HeadMixingPlan& plan,
                                    T* stage, HeadRange group, StreamedTile tile) const {
    // If there is only one streamed tensor, it always has data; the check would cost registers.
    if (kNumStreamed == 1 || has_data(streamed))
      load_operand(thread, params, stage, streamed, group, {tile.first, tile.end}, 16);
    if constexpr (kNumStreamed == 2)
      if (has_data(streamed_2))
        load_operand(thread, params, stage + plan.heads_per_stage * 16 * kStride, streamed_2, group,
                     {tile.first, tile.end}, 16);
    if constexpr (kHasWindow)
      if (has_data(window))
        load_operand(thread, params, stage + kNumStreamed * plan.heads_per_stage * 16 * kStride, window, group,
                     {tile.window_row, tile.window_end}, 16 * plan.num_row_tiles + 16);
  }
  // Loads the resident rows of the heads of `group` into the part of a stage after its streamed rows and window.
  template <class Thread>
  MH_DEVICE void load_resident_rows_to_stage(const Thread& thread, const AttentionParams& params,
                                             const HeadMixingPlan& plan, T* stage, HeadRange group,
                                             TileRowRange rows) const {
    load_resident_rows(thread, params, plan, stage + resident_offset(plan), plan.heads_per_stage, group, rows);
  }

 private:
  static MH_DEVICE int resident_offset(const HeadMixingPlan& plan) {
    return plan.heads_per_stage * (kNumStreamed + (kHasWindow ? 1 + plan.num_row_tiles : 0)) * 16 * kStride;
  }
  // Loads the resident rows of the heads of `group` to `to` (kNumResident, max_group_heads, rows of the block,
  // kStride).
  template <class Thread>
  MH_DEVICE void load_resident_rows(const Thread& thread, const AttentionParams& params, const HeadMixingPlan& plan,
                                    T* to, int max_group_heads, HeadRange group, TileRowRange rows) const {
    if (has_data(resident)) load_operand(thread, params, to, resident, group, rows, 16 * plan.num_row_tiles);
    if constexpr (kNumResident == 2)
      if (has_data(resident_2))
        load_operand(thread, params, to + max_group_heads * 16 * plan.num_row_tiles * kStride, resident_2, group, rows,
                     16 * plan.num_row_tiles);
  }
  static MH_DEVICE bool has_data(const Operand& x) { return x.data != nullptr; }
  // Loads `count` rows of the heads of `group` to `to` (group.count(), count, kStride); `count` is a multiple of 16,
  // and a warp loads 16 rows of a head at a time.
  template <class Thread>
  MH_DEVICE void load_operand(const Thread& thread, const AttentionParams& params, T* to, const Operand& x,
                              HeadRange group, TileRowRange rows, int count) const {
    const int num_row_tiles = count / 16;
    MH_ROLLED
    for (int i = thread.warp(); i < group.count() * num_row_tiles; i += thread.threads() / 32) {
      const int h = group.first + (num_row_tiles == 1 ? i : i / num_row_tiles),
                row = num_row_tiles == 1 ? 0 : i % num_row_tiles * 16;
      const T* const data = x.data + x.head_stride * kv_head(x.head_of, h);
      load_rows<kSize>(thread, warp_of(thread), to + i * 16 * kStride,
                       {data, x.row_stride, rows.end, size, params.has_aligned_rows}, rows.first + row, 16,
                       [](int r) { return r * kStride; });
    }
  }
};

// Number of 16-column fragments that a product loads in advance (kMaxPrefetch of multiply_transposed), limited by the
// registers that the accumulators of several heads leave free. With relative positions each kernel sets its own number.
template <class T, int kSize>
constexpr int kHeadMixingPrefetch = kHasWideRows<T, kSize>                       ? 1
                                    : kSize * sizeof(T) >= 512 || sizeof(T) == 4 ? 2
                                                                                 : 4;

// The order of loads. For each tile of 16 rows, the operands of kNumOperands products are loaded one after another,
// each in groups of plan.heads_per_stage heads. At least one of the products has heads. tile_of(n) returns tile n as a
// StreamedTile; past the last tile, its valid() is false.
template <class Operands, int kNumOperands, class TileOf>
struct LoadSchedule {
  Operands operands[kNumOperands];
  TileRowRange resident_range;  // resident rows of the block
  TileOf tile_of;
  // The next group of heads to load: the index of its tile, the index of its operands, and its first head.
  int tile_index = 0, operand_index = -1, head = 0;
  MH_DEVICE LoadSchedule(const Operands (&x)[kNumOperands], TileRowRange resident_rows, const TileOf& tiles)
      : resident_range(resident_rows), tile_of(tiles) {
    MH_FOR (n, kNumOperands) operands[n] = x[n];
    advance_operands();
  }

  // Starts to copy the next group of heads to a stage; after the last group it only commits an empty cp.async group.
  template <class Thread, class T>
  MH_DEVICE void load(const Thread& thread, const AttentionParams& params, const HeadMixingPlan& plan, T* stage) {
    if (const StreamedTile tile = tile_of(tile_index); tile.valid()) {
      const Operands x = current();
      const int count = x.heads.end - head < plan.heads_per_stage ? x.heads.end - head : plan.heads_per_stage;
      const HeadRange group{head, head + count};
      x.load_streamed_rows(thread, params, plan, stage, group, tile);
      if (plan.num_resident_tiles == 0)
        x.load_resident_rows_to_stage(thread, params, plan, stage, group, resident_range);
      head += plan.heads_per_stage;
      if (head >= x.heads.end) advance_operands();
    }
    thread.commit_group();
  }

 private:
  MH_DEVICE Operands current() const {
    Operands x = operands[0];
    MH_FOR (n, kNumOperands - 1) x.select(operands[n + 1], n + 1 == operand_index);
    return x;
  }
  MH_DEVICE void advance_operands() {
    int end;
    do {
      if (++operand_index == kNumOperands) operand_index = 0, ++tile_index;
      const Operands x = current();
      head = x.heads.first, end = x.heads.end;
    } while (head >= end);
  }
};

// Divides `heads` into groups of at most max_group_heads heads, and calls work(group) for each. If there is a group,
// calls on_first_group() once, after the barrier that precedes the first group. load(stage memory) starts to fill a
// stage. Called by all threads of a block.
template <class T, class Thread, class Load, class OnFirstGroup, class Work>
MH_DEVICE void for_each_head_group(const Thread& thread, SmemPipeline<T>& pipeline, int max_group_heads,
                                   HeadRange heads, const Load& load, const OnFirstGroup& on_first_group,
                                   const Work& work) {
  for (int first = heads.first; first < heads.end; first += max_group_heads) {
    pipeline.acquire(thread, load);
    if (first == heads.first) on_first_group();
    work(HeadGroup<T>{first, first + max_group_heads < heads.end ? first + max_group_heads : heads.end,
                      pipeline.current()});
    pipeline.release();
  }
}
template <class T, class Thread, class Load, class Work>
MH_DEVICE void for_each_head_group(const Thread& thread, SmemPipeline<T>& pipeline, int max_group_heads,
                                   HeadRange heads, const Load& load, const Work& work) {
  for_each_head_group(
      thread, pipeline, max_group_heads, heads, load, [] {}, work);
}

// The layout of the shared memory of a block: resident rows, pipeline stages, exchanged fragments, products with
// windows. The mixing matrices are at the end (SharedMatrix).
template <class T>
struct HeadMixingMemory {
  SmemPipeline<T> pipeline;
  MH_DEVICE HeadMixingMemory(const HeadMixingPlan& plan, T* memory, int stride)
      : pipeline{memory + plan.num_resident_tiles * 16 * plan.num_row_tiles * stride, plan.num_stages,
                 plan.tiles_per_stage * 16 * stride} {}
  // Returns the address of the exchanged fragments from fragment `first` on.
  template <class X>
  MH_DEVICE FragmentA<X>* fragments(int first) const {
    static_assert(sizeof(FragmentA<X>) == sizeof(FragmentA<T>));
    return reinterpret_cast<FragmentA<X>*>(pipeline.end()) + first * 32;
  }
  // Returns the address of a warp's scratch for products with a window. num_fragments: number of exchanged fragments of
  // the block.
  template <class Thread>
  MH_DEVICE float* warp_products(const Thread& thread, int num_fragments) const {
    return reinterpret_cast<float*>(fragments<T>(num_fragments)) + thread.warp() * kWindowProductBytes / 4;
  }
};

}  // namespace mh::kernels
