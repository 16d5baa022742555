#!/usr/bin/env python3
"""Computes the tile sizes and the memory of the attention kernels from the headers in kernels/.

usage: kernel_sizes.py            prints one line for each CUDA kernel, then one for each CPU tile (tab-separated)
       kernel_sizes.py --svg      prints the picture docs/pictures/kernel-memory.svg

The script compiles small programs with g++ (or the compiler that CXX names), without a GPU and without nvcc.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

CUDA_PROGRAM = r"""
#include <cstdio>

#include "cuda/attention_launches.h"

using namespace mh::kernels;

namespace {

constexpr int kLimits[] = {163 << 10, 227 << 10};  // shared memory of a block on an A100 and on an H100

void print(const char* kernel, const char* type, int size, int heads, int limit, int rows, int streamed, int stages, int threads, int bytes) {
  std::printf("cuda\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\n", kernel, type, size, heads, limit >> 10, rows, streamed, stages, threads, bytes);
}

template <class T, int kSize, bool kRelative>
void print_plain(const char* type) {
  const char* const suffix = kRelative ? " relative" : "";
  const auto name = [&](const char* kernel) { static char text[64]; std::snprintf(text, sizeof text, "%s%s", kernel, suffix); return text; };
  using F = AttentionTiles<T, kSize, kRelative>;
  using Q = QueryGradientTiles<T, kSize, kRelative>;
  using K = KeyGradientTiles<T, kSize, kRelative>;
  print(name("forward"), type, kSize, 1, 0, F::kQueries, F::kKeys, F::kStages, F::kThreads, sizeof(typename F::Shared));
  print(name("query gradient"), type, kSize, 1, 0, Q::kQueries, Q::kKeys, Q::kStages, Q::kThreads, sizeof(typename Q::Shared));
  print(name("key gradient"), type, kSize, 1, 0, K::kKeys, K::kQueries, K::kStages, K::kThreads, sizeof(typename K::Shared));
  if (kRelative) {
    using D = DistanceGradientTiles<T, kSize>;
    print("distance gradient", type, kSize, 1, 0, D::kDistances, D::kQueries, D::kStages, D::kThreads, sizeof(typename D::Shared));
  }
}

template <class T, int kSize>
void print_pipeline(const char* type, int heads) {
  AttentionParams params;
  params.heads = params.value_heads = heads;
  constexpr bool kSeparate = kSeparateKeyValuePasses<T, kSize>;
  for (const int limit : kLimits) {
    const auto line = [&](const char* kernel, const HeadMixingPlan& plan) {
      print(kernel, type, kSize, heads, limit, 16 * plan.num_row_tiles, 16, plan.num_stages, plan.threads(), plan.shared_bytes);
    };
    line("pipeline forward", HeadMixingForwardTiles<T, kSize>::plan(params, limit));
    line("pipeline matrix gradient", HeadMixingMatrixGradientTiles<T, kSize>::plan(params, limit));
    line("pipeline query gradient", HeadMixingQueryGradientTiles<T, kSize>::plan(params, limit));
    line("pipeline key gradient", HeadMixingKeyGradientTiles<T, kSize, true, !kSeparate>::plan(params, limit));
  }
}

template <int kSize, int kWarps, int kWarpHeads>
void print_row_mix(int heads) {
  using Traits = RowMixTraits<Bf16, kSize, kWarps, kWarpHeads>;
  AttentionParams params;
  params.heads = params.value_heads = heads;
  for (const int limit : kLimits) {
    const auto line = [&](const char* kernel, const RowMixPlan& plan, int rows, int streamed) {
      print(kernel, "bf16", kSize, heads, limit, rows, streamed, plan.num_stages, 32 * kWarps, plan.shared_bytes);
    };
    using F = RowMixForwardTiles<Traits>;
    using M = RowMixMatrixGradientTiles<Traits>;
    using Q = RowMixQueryGradientTiles<Traits>;
    using K = RowMixKeyGradientTiles<Traits>;
    line("row mix forward", F::plan(params, limit), F::kQueries, F::kKeys);
    line("row mix matrix gradient", M::plan(params, limit), M::kQueries, M::kKeys);
    line("row mix query gradient", Q::plan(params, limit), Q::kQueries, Q::kKeys);
    line("row mix key gradient", K::plan(params, limit), K::kKeys, 16);
  }
}

}  // namespace

int main() {
  std::puts("# cuda: kernel, type, head size, heads, KiB of shared memory that a block may have (0: fixed sizes), rows of a block, rows of a streamed tile, stages, threads, bytes");
  print_plain<Bf16, 64, false>("bf16"), print_plain<Bf16, 128, false>("bf16"), print_plain<Bf16, 256, false>("bf16");
  print_plain<float, 64, false>("fp32"), print_plain<float, 128, false>("fp32");
  print_plain<Bf16, 64, true>("bf16"), print_plain<Bf16, 128, true>("bf16"), print_plain<float, 64, true>("fp32");
  using B = DistanceGradientTiles<Bf16, 64, true>;
  print("position bias gradient", "bf16", 64, 1, 0, B::kDistances, B::kQueries, B::kStages, B::kThreads, sizeof(B::Shared));
  print_row_mix<64, 8, 1>(8), print_row_mix<128, 8, 1>(8), print_row_mix<64, 8, 2>(16);
  print_pipeline<Bf16, 64>("bf16", 16), print_pipeline<Bf16, 128>("bf16", 16), print_pipeline<float, 64>("fp32", 8);
}
"""

CPU_PROGRAM = r"""
#include <cstdio>

#include "cpu/attention.h"
#include "cpu/attention_sizes.h"
#include "cpu/head_mixing/layout.h"

using namespace mh::kernels;

namespace {

void print_cpu(int64_t keys, int64_t l2_bytes) {
  AttentionParams params;
  params.queries = params.keys = params.max_keys = keys;
  params.heads = params.value_heads = 8;
  params.key_size = params.value_size = 64;
  params.l2_bytes = l2_bytes;
  std::printf("cpu\tplain\t%ld\t%ld\t32\t%ld\t%ld\t%ld\t%ld\n", long(l2_bytes >> 10), long(keys), long(forward_span(params)), long(backward_span(params)),
              long(4 * attention_forward_scratch_floats(params)), long(4 * attention_backward_scratch_floats(params)));
  const TileSize tile = tile_size(params);
  std::printf("cpu\tmixing\t%ld\t%ld\t%ld\t%ld\t%ld\t%ld\t%ld\n", long(l2_bytes >> 10), long(keys), long(tile.rows), long(tile.span), long(tile.span),
              long(4 * head_mixing_forward_scratch_floats(params)), long(4 * head_mixing_backward_scratch_floats(params)));
}

}  // namespace

int main() {
  std::puts("# cpu: kernel, KiB of L2 cache, keys, queries of a tile, keys of a span (forward, backward), bytes of scratch (forward, backward)");
  for (const int64_t l2_bytes : {int64_t{512} << 10, int64_t{1} << 20, int64_t{2} << 20})
    for (const int64_t keys : {512, 2048, 8192, 16384}) print_cpu(keys, l2_bytes);
}
"""


def run_program(text, *sources):
    """Compiles a program with further sources of kernels/cpu/ and runs it; returns the lines that it prints."""
    with tempfile.TemporaryDirectory() as folder:
        source, program = pathlib.Path(folder) / "sizes.cpp", pathlib.Path(folder) / "sizes"
        source.write_text(text, encoding="utf-8")
        subprocess.run([os.environ.get("CXX", "g++"), "-std=c++20", "-O0", "-w", "-DMH_LEVEL=baseline", "-I", ROOT / "kernels", source,
                        *(ROOT / "kernels/cpu" / name for name in sources), "-o", program], check=True)
        return subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines()


def svg(lines):
    """Returns a bar chart of the shared memory of a block: one bar for each kernel with bf16 tensors, on a GPU with 227 KiB."""
    rows = [line.split("\t") for line in lines if line.startswith("cuda\t")]
    bars = []
    for _, kernel, dtype, size, heads, limit, *_, shared in rows:
        if dtype == "bf16" and size in ("64", "128") and limit in ("0", "227"):
            label = f"{kernel}, size {size}" + (f", {heads} heads" if limit != "0" else "")
            bars.append((label, int(shared) / 1024))
    left, scale, height = 330, 2.2, 18
    width, total = left + int(227 * scale) + 70, height * len(bars) + 50
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{total}" font-family="sans-serif" font-size="12">',
           f'<rect width="{width}" height="{total}" fill="white"/>']
    for i, (label, kib) in enumerate(bars):
        y = 30 + i * height
        colour = "#c07830" if label.startswith("row mix") else "#70a060" if label.startswith("pipeline") else "#4878a8"
        out.append(f'<text x="{left - 8}" y="{y + 12}" text-anchor="end">{label}</text>')
        out.append(f'<rect x="{left}" y="{y + 2}" width="{kib * scale:.1f}" height="{height - 5}" fill="{colour}"/>')
        out.append(f'<text x="{left + kib * scale + 4:.1f}" y="{y + 12}">{kib:.1f}</text>')
    for kib, label in ((163, "163 KiB (A100)"), (227, "227 KiB (H100)")):
        x = left + kib * scale
        out.append(f'<line x1="{x:.1f}" y1="22" x2="{x:.1f}" y2="{total - 15}" stroke="black" stroke-dasharray="3 3"/>')
        out.append(f'<text x="{x:.1f}" y="15" text-anchor="middle">{label}</text>')
    return "\n".join([*out, "</svg>"])


def main():
    if sys.argv[1:] not in ([], ["--svg"]):
        sys.exit(f"kernel_sizes.py: expected no argument or --svg; found {' '.join(sys.argv[1:])}; leave the other arguments out")
    lines = run_program(CUDA_PROGRAM)
    if sys.argv[1:]:
        print(svg(lines))
    else:
        lines += run_program(CPU_PROGRAM, "attention_sizes.cpp", "head_mixing_sizes.cpp", "simd_level.cpp")
        print("\n".join(lines))


if __name__ == "__main__":
    main()
