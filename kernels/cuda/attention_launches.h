// Which kernels a call of AttentionKernels is, with which grids: of one type and head size, over a launcher. It is
// launch.h's on a GPU; tests/host_launcher.h runs the same on the CPU.
//
//   const char* launcher(Grid{x, y, z}, threads, bytes of shared memory, body)
//   int launcher.most_shared_memory()
//   int launcher.multiprocessors()
//
// A body is a kernel and its arguments: body(thread, shared memory).
#pragma once

#include <algorithm>

#include "cuda/attention_backward.h"
#include "cuda/distance_gradient.h"
#include "cuda/grid.h"
#include "cuda/mixed_backward.h"
#include "cuda/mixed_forward.h"
#include "cuda/mixed_key_gradient.h"

namespace mh::kernels {

template <class T>
Rows<T> rows_of(const AnyRows& rows) {
  return {static_cast<T*>(rows.data), rows.batch, rows.head, rows.position};
}
inline int tiles_of(int64_t length, int of) { return static_cast<int>((length + of - 1) / of); }

// Into how many parts the keys of `blocks` blocks, `tiles` tiles of them each, are best divided, where so many blocks
// are at work at once: as many as take the least time, in tiles. A block takes one more than it has, and joining takes
// two.
inline int parts_of_keys(int64_t blocks, int tiles, int at_once) {
  int best = 1;
  int64_t least = INT64_MAX;
  for (int parts = 1; parts <= tiles && parts <= at_once; ++parts) {
    const int64_t rounds = (blocks * parts + at_once - 1) / at_once, each = tiles_of(tiles, parts) + 1;
    const int64_t time = rounds * each + (parts > 1 ? 2 : 0);
    if (time < least) best = parts, least = time;
  }
  return best;
}

// What every kernel reads.
template <class T>
struct Given {
  Rows<const T> q, k, v, dout;
  const float *log_sums, *d;
  explicit Given(const AttentionTensors& x)
      : q(rows_of<const T>(x.q)),
        k(rows_of<const T>(x.k)),
        v(rows_of<const T>(x.v)),
        dout(rows_of<const T>(x.dout)),
        log_sums(x.log_sums),
        d(x.d) {}
};

template <class T, int kSize, bool kOutputs, bool kRelative>
struct Forward {
  using Z = AttentionTiles<T, kSize, kRelative>;
  static constexpr int kThreads = Z::kThreads;
  AttentionCall a;
  Given<T> x;
  Rows<T> out;
  float* log_sums;
  KeyParts parts;
  template <class Thread>
  MH_DEVICE void operator()(const Thread& thread, void* memory) const {
    attention_forward<T, kSize, kOutputs, kRelative>(thread, a, x.q, x.k, x.v, out, log_sums, parts,
                                                     *static_cast<typename Z::Shared*>(memory));
  }
};

template <class T>
struct JoinParts {
  static constexpr int kThreads = 128;
  AttentionCall a;
  Rows<T> out;
  float* log_sums;
  KeyParts parts;
  template <class Thread>
  MH_DEVICE void operator()(const Thread& thread, void*) const {
    join_parts<T>(thread, a, parts, out, log_sums);
  }
};

template <class T>
struct RowSums {
  static constexpr int kThreads = 128;
  AttentionCall a;
  Rows<const T> out, dout;
  float* d;
  template <class Thread>
  MH_DEVICE void operator()(const Thread& thread, void*) const {
    attention_row_sums<T>(thread, a, out, dout, d);
  }
};

template <class T, int kSize, bool kRelative>
struct QueryGradient {
  using Z = QueryGradientTiles<T, kSize, kRelative>;
  static constexpr int kThreads = Z::kThreads;
  AttentionCall a;
  Given<T> x;
  Rows<T> dq;
  float *dscale, *du, *dv_bias;
  template <class Thread>
  MH_DEVICE void operator()(const Thread& thread, void* memory) const {
    attention_query_gradient<T, kSize, kRelative>(thread, a, x.q, x.k, x.v, x.dout, x.log_sums, x.d, dq, dscale, du,
                                                  dv_bias, *static_cast<typename Z::Shared*>(memory));
  }
};

template <class T, int kSize, bool kOfKeys, bool kOfValues, bool kRelative>
struct KeyGradient {
  using Z = KeyGradientTiles<T, kSize, kRelative>;
  static constexpr int kThreads = Z::kThreads;
  AttentionCall a;
  Given<T> x;
  bool joined;
  Rows<T> dk, dv;
  template <class Thread>
  MH_DEVICE void operator()(const Thread& thread, void* memory) const {
    attention_key_gradient<T, kSize, kOfKeys, kOfValues, kRelative>(
        thread, a, x.q, x.k, x.v, x.dout, x.log_sums, x.d, joined, dk, dv, *static_cast<typename Z::Shared*>(memory));
  }
};

template <class T, int kSize>
struct DistanceGradient {
  using Z = DistanceGradientTiles<T, kSize>;
  static constexpr int kThreads = Z::kThreads;
  AttentionCall a;
  Given<T> x;
  float* dr;
  template <class Thread>
  MH_DEVICE void operator()(const Thread& thread, void* memory) const {
    attention_distance_gradient<T, kSize>(thread, a, x.q, x.k, x.v, x.dout, x.log_sums, x.d, dr,
                                          *static_cast<typename Z::Shared*>(memory));
  }
};

constexpr int kMixedThreads = 32 * kMixedWarps;
constexpr int kPartOfKeys = 64;  // a part of fewer keys is not worth a block

// What kernels of mixed heads read: with relative positions q is q + u.
template <class T>
struct MixedGiven : Given<T> {
  Rows<const T> shifted;
  const OfQuery* of_queries;
  explicit MixedGiven(const AttentionTensors& x)
      : Given<T>(x), shifted(rows_of<const T>(x.shifted)), of_queries(x.of_queries) {
    if (x.biased.data != nullptr) this->q = rows_of<const T>(x.biased);
  }
};

template <class T, int kSize, bool kRelative>
struct MixedForward {
  using Z = MixedForwardTiles<T, kSize, kRelative>;
  static constexpr int kThreads = kMixedThreads;
  MixedCall a;
  MixedPlan plan;
  MixedGiven<T> x;
  Rows<T> out;
  MixedParts parts;
  template <class Thread>
  MH_DEVICE void operator()(const Thread& thread, void* memory) const {
    mixed_forward<T, kSize, kRelative>(thread, a, plan, x.q, x.shifted, x.k, x.v, x.log_sums, out, parts, memory);
  }
};

template <class T>
struct JoinMixedParts {
  static constexpr int kThreads = 128;
  MixedCall a;
  Rows<T> out;
  MixedParts parts;
  template <class Thread>
  MH_DEVICE void operator()(const Thread& thread, void*) const {
    join_mixed_parts<T>(thread, a, parts, out);
  }
};

template <class T, int kSize, bool kRelative>
struct MixedSums {
  using Z = MixedSumsTiles<T, kSize, kRelative>;
  static constexpr int kThreads = kMixedThreads;
  MixedCall a;
  MixedPlan plan;
  MixedGiven<T> x;
  float *g, *sums;
  template <class Thread>
  MH_DEVICE void operator()(const Thread& thread, void* memory) const {
    mixed_sums<T, kSize, kRelative>(thread, a, plan, x.q, x.shifted, x.k, x.v, x.dout, x.log_sums, g, sums, memory);
  }
};

struct MixedRowSums {
  static constexpr int kThreads = 128;
  MixedCall a;
  int64_t batch;
  MixedWeights weights;
  const float *log_sums, *sums;
  float* g;
  OfQuery* of_queries;
  template <class Thread>
  MH_DEVICE void operator()(const Thread& thread, void*) const {
    mixed_row_sums(thread, a, batch, weights, log_sums, sums, g, of_queries);
  }
};

template <class T, int kSize, bool kRelative>
struct MixedQueryGradient {
  using Z = MixedQueryGradientTiles<T, kSize, kRelative>;
  static constexpr int kThreads = kMixedThreads;
  MixedCall a;
  MixedPlan plan;
  MixedGiven<T> x;
  Rows<T> dq, dshifted;
  template <class Thread>
  MH_DEVICE void operator()(const Thread& thread, void* memory) const {
    mixed_query_gradient<T, kSize, kRelative>(thread, a, plan, x.q, x.shifted, x.k, x.v, x.dout, x.of_queries, dq,
                                              dshifted, memory);
  }
};

template <class T, int kSize, bool kOfKeys, bool kOfValues, Staying kStays>
struct MixedKeyGradient {
  using Z = MixedKeyGradientTiles<T, kSize, kOfKeys, kOfValues, kStays>;
  static constexpr int kThreads = kMixedThreads;
  MixedCall a;
  MixedPlan plan;
  MixedGiven<T> x;
  bool joined;
  Rows<T> dk, dv;
  float* dr;
  template <class Thread>
  MH_DEVICE void operator()(const Thread& thread, void* memory) const {
    mixed_key_gradient<T, kSize, kOfKeys, kOfValues, kStays>(thread, a, plan, x.q, x.shifted, x.k, x.v, x.dout,
                                                             x.of_queries, joined, dk, dv, dr, memory);
  }
};

template <class T, int kSize>
struct AttentionLaunches {
  static int scale_tiles(const AttentionCall& a) {
    return tiles_of(
        a.queries, a.relative != nullptr ? 16 * kRelativeWarps<T, kSize> : QueryGradient<T, kSize, false>::Z::kQueries);
  }

  // What is wrong with relative positions of heads that nothing mixes, before anything is launched; or nullptr.
  template <class Launcher>
  static const char* relative_lacks(const Launcher& launcher) {
    constexpr size_t bytes[] = {sizeof(typename Forward<T, kSize, true, true>::Z::Shared),
                                sizeof(typename QueryGradient<T, kSize, true>::Z::Shared),
                                sizeof(typename KeyGradient<T, kSize, true, true, true>::Z::Shared),
                                sizeof(typename DistanceGradient<T, kSize>::Z::Shared)};
    for (const size_t needed : bytes) {
      if (needed > static_cast<size_t>(launcher.most_shared_memory()))
        return "relative positions of heads so large, for which the shared memory of a block has no place";
    }
    return nullptr;
  }

  template <bool kOutputs, class Launcher>
  static const char* forward_of(const Launcher& launcher, const AttentionCall& a, const AttentionTensors& x) {
    if (a.relative == nullptr) return forward_by<kOutputs, false>(launcher, a, x);
    if (const char* problem = relative_lacks(launcher)) return problem;
    return forward_by<kOutputs, true>(launcher, a, x);
  }
  // Into how many parts a forward pass divides the keys.
  template <class Launcher>
  static int key_parts(const Launcher& launcher, const AttentionCall& a, int64_t batch) {
    const auto best = [&](auto tiles) {
      constexpr int queries = decltype(tiles)::kQueries;
      const int64_t seen = a.window > 0 ? std::min(a.keys, a.window + queries - 1) : a.keys;
      return parts_of_keys(tiles_of(a.queries, queries) * batch * a.heads, tiles_of(seen, decltype(tiles)::kKeys),
                           launcher.multiprocessors());
    };
    return a.relative != nullptr ? best(AttentionTiles<T, kSize, true>{}) : best(AttentionTiles<T, kSize, false>{});
  }
  template <class Launcher>
  static const char* forward(const Launcher& launcher, const AttentionCall& a, const AttentionTensors& x) {
    const char* problem = forward_of<true>(launcher, a, x);
    return problem != nullptr ? problem : joined(launcher, a, x);
  }

  template <class Launcher>
  static const char* backward(const Launcher& launcher, const AttentionCall& a, const AttentionTensors& x) {
    if (const char* problem = a.relative != nullptr ? relative_lacks(launcher) : nullptr) return problem;
    const RowSums<T> of_rows{a, rows_of<const T>(x.out), rows_of<const T>(x.dout), x.d};
    if (const char* problem = launcher(Grid{tiles_of(a.queries, 4), rows(a, x)}, of_rows.kThreads, 0, of_rows))
      return problem;
    return a.relative != nullptr ? gradients<true>(launcher, a, x) : gradients<false>(launcher, a, x);
  }

  // What is wrong with so many heads of queries and of the result, before anything is launched; or nullptr.
  template <class Launcher>
  static const char* mixed_lacks(const Launcher& launcher, int in, int heads, bool relative) {
    MixedCall a;
    a.in = in, a.heads = heads;
    const int limit = launcher.most_shared_memory();
    return relative ? mixed_lacks_of<true>(a, limit) : mixed_lacks_of<false>(a, limit);
  }
  // Into how many parts a forward pass divides the keys: a power of two; 1 with relative positions.
  template <class Launcher>
  static int mixed_key_parts(const Launcher& launcher, const MixedCall& a, int64_t batch) {
    const int limit = launcher.most_shared_memory();
    const MixedPlan plan = MixedForwardTiles<T, kSize, false>::plan(a, limit);
    if (a.relative != nullptr || plan.slots == 0) return 1;
    const int queries = 16 * plan.strips;
    const int64_t seen = a.window > 0 ? std::min(a.keys, a.window + queries - 1) : a.keys;
    const int best = parts_of_keys(tiles_of(a.queries, queries) * batch * plan.blocks, tiles_of(seen, kPartOfKeys),
                                   launcher.multiprocessors());
    int parts = 1;
    while (2 * parts <= best) parts *= 2;
    return parts;
  }
  template <class Launcher>
  static const char* mixed_forward(const Launcher& launcher, const MixedCall& a, const AttentionTensors& x) {
    return a.relative != nullptr ? mixed_forward_of<true>(launcher, a, x) : mixed_forward_of<false>(launcher, a, x);
  }
  template <class Launcher>
  static const char* mixed_backward(const Launcher& launcher, const MixedCall& a, const AttentionTensors& x) {
    return a.relative != nullptr ? mixed_backward_of<true>(launcher, a, x) : mixed_backward_of<false>(launcher, a, x);
  }

 private:
  static constexpr bool kApart = kMixedApart<T, kSize>;
  static constexpr const char* kNoPlace = "more heads, or larger ones, than the shared memory of a block has place for";

  static int rows(const AttentionCall& a, const AttentionTensors& x) { return static_cast<int>(x.batch * a.heads); }

  template <bool kOutputs, bool kRelative, class Launcher>
  static const char* forward_by(const Launcher& launcher, const AttentionCall& a, const AttentionTensors& x) {
    using Body = Forward<T, kSize, kOutputs, kRelative>;
    if (!(a.scale > 0)) return "expected a positive scale of the logits; found another; turn the signs of the queries";
    const KeyParts parts{x.parts, x.found};
    return launcher(Grid{tiles_of(a.queries, Body::Z::kQueries), rows(a, x), parts.count}, Body::kThreads,
                    sizeof(typename Body::Z::Shared), Body{a, Given<T>(x), rows_of<T>(x.out), x.log_sums, parts});
  }

  // What a forward pass has found of several parts of the keys, if it has divided them.
  template <class Launcher>
  static const char* joined(const Launcher& launcher, const AttentionCall& a, const AttentionTensors& x) {
    if (x.parts == 1) return nullptr;
    const JoinParts<T> join{a, rows_of<T>(x.out), x.log_sums, {x.parts, x.found}};
    return launcher(Grid{tiles_of(a.queries, 4), rows(a, x)}, join.kThreads, 0, join);
  }

  // Of a backward pass whose row sums are there.
  template <bool kRelative, class Launcher>
  static const char* gradients(const Launcher& launcher, const AttentionCall& a, const AttentionTensors& x) {
    if (const char* problem = query_gradient<kRelative>(launcher, a, x)) return problem;
    if constexpr (kRelative) {
      if (const char* problem = distance_gradient(launcher, a, x)) return problem;
    }
    if constexpr (KeyGradientTiles<T, kSize>::kApart) {
      const char* problem = key_gradient<true, false, kRelative>(launcher, a, x);
      return problem != nullptr ? problem : key_gradient<false, true, kRelative>(launcher, a, x);
    } else {
      return key_gradient<true, true, kRelative>(launcher, a, x);
    }
  }

  template <bool kRelative, class Launcher>
  static const char* query_gradient(const Launcher& launcher, const AttentionCall& a, const AttentionTensors& x) {
    using Body = QueryGradient<T, kSize, kRelative>;
    return launcher(Grid{scale_tiles(a), rows(a, x), kSize / Body::Z::kColumns}, Body::kThreads,
                    sizeof(typename Body::Z::Shared),
                    Body{a, Given<T>(x), rows_of<T>(x.dq), x.dscale, x.du, x.dv_bias});
  }

  template <class Launcher>
  static const char* distance_gradient(const Launcher& launcher, const AttentionCall& a, const AttentionTensors& x) {
    using Body = DistanceGradient<T, kSize>;
    return launcher(Grid{tiles_of(a.positions.distances, Body::Z::kDistances), rows(a, x)}, Body::kThreads,
                    sizeof(typename Body::Z::Shared), Body{a, Given<T>(x), x.dr});
  }

  template <bool kOfKeys, bool kOfValues, bool kRelative, class Launcher>
  static const char* key_gradient(const Launcher& launcher, const AttentionCall& a, const AttentionTensors& x) {
    using Body = KeyGradient<T, kSize, kOfKeys, kOfValues, kRelative>;
    return launcher(Grid{key_tiles<kRelative>(a, Body::Z::kKeys), rows(a, x)}, Body::kThreads,
                    sizeof(typename Body::Z::Shared),
                    Body{a, Given<T>(x), x.joined, rows_of<T>(x.dk), rows_of<T>(x.dv)});
  }

  // Tiles of so many keys; of relative positions those of each run at most.
  template <bool kRelative>
  static int key_tiles(const AttentionCall& a, int of) {
    const int further = kRelative && a.positions.count > 0 ? a.positions.count - 1 : 0;
    return tiles_of(a.keys, of) + further;
  }

  template <bool kRelative>
  static const char* mixed_lacks_of(const MixedCall& a, int limit) {
    constexpr Staying kStays = kRelative ? Staying::keys_of_run : Staying::keys;
    bool fits = sizeof(typename Forward<T, kSize, false, kRelative>::Z::Shared) <= static_cast<size_t>(limit) &&
                MixedForwardTiles<T, kSize, kRelative>::plan(a, limit).slots > 0 &&
                MixedSumsTiles<T, kSize, kRelative>::plan(a, limit).slots > 0 &&
                MixedQueryGradientTiles<T, kSize, kRelative>::plan(a, limit).slots > 0 &&
                MixedKeyGradientTiles<T, kSize, !kApart, true, kStays>::plan(a, limit).slots > 0 &&
                MixedKeyGradientTiles<T, kSize, true, !kApart, kStays>::plan(a, limit).slots > 0;
    if constexpr (kRelative)
      fits = fits && MixedKeyGradientTiles<T, kSize, true, false, Staying::distances>::plan(a, limit).slots > 0;
    return fits ? nullptr : kNoPlace;
  }

  template <bool kRelative, class Launcher>
  static const char* mixed_forward_of(const Launcher& launcher, const MixedCall& a, const AttentionTensors& x) {
    const int limit = launcher.most_shared_memory();
    AttentionCall logits = a;
    logits.heads = a.in, logits.head_scales = nullptr, logits.value_size = 0;
    if (const char* problem = forward_by<false, kRelative>(launcher, logits, x)) return problem;
    if (const char* problem = joined(launcher, logits, x)) return problem;
    using Body = MixedForward<T, kSize, kRelative>;
    const MixedPlan plan = Body::Z::plan(a, limit);
    const MixedParts parts(x.parts, x.found);
    const Body body{a, plan, MixedGiven<T>(x), rows_of<T>(x.out), parts};
    if (const char* problem = launched(launcher, tiles_of(a.queries, 16 * plan.strips), x, body, x.parts))
      return problem;
    if (x.parts == 1) return nullptr;
    const JoinMixedParts<T> join{a, rows_of<T>(x.out), parts};
    return launcher(Grid{tiles_of(a.queries, 4), rows(a, x)}, join.kThreads, 0, join);
  }

  template <bool kRelative, class Launcher>
  static const char* mixed_backward_of(const Launcher& launcher, const MixedCall& a, const AttentionTensors& x) {
    const int limit = launcher.most_shared_memory();
    using Sums = MixedSums<T, kSize, kRelative>;
    const MixedPlan of_sums = Sums::Z::plan(a, limit);
    if (const char* problem = launched(launcher, tiles_of(a.queries, 16 * of_sums.strips), x,
                                       Sums{a, of_sums, MixedGiven<T>(x), x.g, x.sums}, Sums::Z::chunks(a)))
      return problem;
    const MixedRowSums of_rows{a, x.batch, MixedWeights::of<T>(a), x.log_sums, x.sums, x.g, x.of_queries};
    if (const char* problem = launcher(Grid{tiles_of(x.batch * a.in * a.queries + kQueriesBehind, of_rows.kThreads)},
                                       of_rows.kThreads, 0, of_rows))
      return problem;
    using Queries = MixedQueryGradient<T, kSize, kRelative>;
    const MixedPlan of_queries = Queries::Z::plan(a, limit);
    if (const char* problem = launched(
            launcher, tiles_of(a.queries, 16 * of_queries.strips), x,
            Queries{a, of_queries, MixedGiven<T>(x), rows_of<T>(x.dq), rows_of<T>(x.dshifted)}, Queries::Z::kPieces))
      return problem;
    if constexpr (kRelative) {
      if (const char* problem = mixed_key_gradient<true, false, Staying::distances>(launcher, a, x, limit))
        return problem;
    }
    constexpr Staying kStays = kRelative ? Staying::keys_of_run : Staying::keys;
    if constexpr (kApart) {
      const char* problem = mixed_key_gradient<true, false, kStays>(launcher, a, x, limit);
      return problem != nullptr ? problem : mixed_key_gradient<false, true, kStays>(launcher, a, x, limit);
    } else {
      return mixed_key_gradient<true, true, kStays>(launcher, a, x, limit);
    }
  }

  // As its plan says.
  template <class Launcher, class Body>
  static const char* launched(const Launcher& launcher, int tiles, const AttentionTensors& x, const Body& body,
                              int more_blocks = 1) {
    if (body.plan.slots == 0) return kNoPlace;
    return launcher(Grid{tiles, static_cast<int>(x.batch), body.plan.blocks * more_blocks}, body.plan.threads(),
                    body.plan.bytes, body);
  }

  template <bool kOfKeys, bool kOfValues, Staying kStays, class Launcher>
  static const char* mixed_key_gradient(const Launcher& launcher, const MixedCall& a, const AttentionTensors& x,
                                        int limit) {
    using Body = MixedKeyGradient<T, kSize, kOfKeys, kOfValues, kStays>;
    const MixedPlan plan = Body::Z::plan(a, limit);
    const int rows = 16 * plan.strips;
    const int tiles = kStays == Staying::distances ? tiles_of(a.positions.distances, rows)
                                                   : key_tiles<kStays == Staying::keys_of_run>(a, rows);
    return launched(launcher, tiles, x,
                    Body{a, plan, MixedGiven<T>(x), x.joined, rows_of<T>(x.dk), rows_of<T>(x.dv), x.dr},
                    Body::Z::kPieces);
  }
};

}  // namespace mh::kernels
