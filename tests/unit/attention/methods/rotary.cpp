// Rotary positions: frequencies and their scalings against formulas in double precision and published numbers, the
// shared table, the rotation and its gradient, and layers against a naive reference, for memories with gaps and for
// decoding.
#include <c10/core/GradMode.h>
#include <rapidcheck.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "attention/fused/split_projection.h"
#include "attention/methods/rotary/frequencies.h"
#include "attention/methods/rotary/rotary_table.h"
#include "attention/methods/rotary/rotate.h"
#include "attention/row_layout.h"
#include "base/text.h"
#include "fixtures/gradients.h"
#include "fixtures/pick.h"
#include "fixtures/status.h"

using namespace mh;
using namespace mh::attention;
using namespace mh::nn;
using namespace numbers;
using namespace reference;
using layers::causal_mask;
using Layer = layers::PerturbedLayer;
using Catch::Contains;

namespace {

constexpr double kTwoPi = 6.283185307179586;

// Returns the options of each scaling with its required options, for size `r` and texts of 16 positions.
std::vector<RotaryOptions> options_of_all_scalings(int64_t r, double factor) {
  std::vector<RotaryOptions> all;
  for (const auto& [scaling, name] : rotary_scaling_names()) {
    RotaryOptions o;
    o.scaling = scaling;
    const bool has_factor = scaling != RotaryScaling::none && scaling != RotaryScaling::proportional;
    if (has_factor) o.factor = factor;
    if (has_factor && scaling != RotaryScaling::linear) o.original_length = 16;
    if (scaling == RotaryScaling::longrope)
      o.short_factors.assign(static_cast<size_t>(r / 2), 1), o.long_factors.assign(static_cast<size_t>(r / 2), factor);
    all.push_back(o);
  }
  return all;
}

// Returns the options as lines of [attention], with the section of the transform last.
std::string rotary_lines(const RotaryOptions& o) {
  TomlWriter writer;
  RotaryOptions copy = o;
  writer.section("attention.rotary", copy);
  return "transform = ['rotary']\n" + writer.text();
}

// Returns the scaled frequency of pair i, in double precision, from the formulas of frequencies.h.
double exact_frequency(const RotaryOptions& o, int64_t r, int64_t length, int64_t i) {
  const auto frequency = [&](double base) {
    return std::pow(base, -2 * static_cast<double>(i) / static_cast<double>(r));
  };
  const double w = frequency(o.base), s = o.factor, original = static_cast<double>(o.original_length),
               wavelength = kTwoPi / w;
  switch (o.scaling) {
    case RotaryScaling::none:
      return w;
    case RotaryScaling::linear:
      return w / s;
    case RotaryScaling::dynamic: {
      const double n = std::max(static_cast<double>(length), original),
                   exponent = static_cast<double>(r) / static_cast<double>(r - 2);
      return frequency(o.base * std::pow(s * n / original - (s - 1), exponent));
    }
    case RotaryScaling::llama3: {
      if (wavelength < original / o.high_factor) return w;
      if (wavelength > original / o.low_factor) return w / s;
      const double u = (original / wavelength - o.low_factor) / (o.high_factor - o.low_factor);
      return (1 - u) * w / s + u * w;
    }
    case RotaryScaling::yarn: {
      const auto index = [&](double rotations) {
        return static_cast<double>(r) * std::log(original / (kTwoPi * rotations)) / (2 * std::log(o.base));
      };
      double low = index(o.beta_fast), high = index(o.beta_slow);
      if (o.truncate) low = std::floor(low), high = std::ceil(high);
      low = std::max(low, 0.0), high = std::min(high, static_cast<double>(r - 1));
      const double ramp = std::clamp((static_cast<double>(i) - low) / (high == low ? 0.001 : high - low), 0.0, 1.0);
      return w * (1 - ramp) + w / s * ramp;
    }
    case RotaryScaling::longrope:
      return w / (length > o.original_length ? o.long_factors : o.short_factors)[static_cast<size_t>(i)];
    case RotaryScaling::proportional:
      return o.size == 0 || i < o.size / 2 ? w : 0;
  }
  return w;
}

// Returns the relative error of a frequency in fp32: errors of the exponent and of the logarithm of the power are
// multiplied by ln base; the scalings round at most ten times.
double frequency_error(double base) { return (2 * std::log(base) + 10) * tolerance::kFp32; }

// Returns a head x (dk) rotated by the angles of a position, in double precision; the angles are products in fp32, as
// in the table.
Vector rotate_head(const Vector& x, int64_t position, const Vector& frequencies, double factor) {
  Vector y = x;
  const size_t half = frequencies.size();
  for (size_t j = 0; j < half; ++j) {
    const double angle = static_cast<float>(position) * static_cast<float>(frequencies[j]);
    const double c = std::cos(angle) * factor, s = std::sin(angle) * factor;
    y[j] = x[j] * c - x[j + half] * s;
    y[j + half] = x[j + half] * c + x[j] * s;
  }
  return y;
}

// The arguments of a naive forward pass besides tensors. The functions return the position of a query or key by index.
struct Pass {
  int64_t batch;
  reference::MayAttend may_attend;
  std::function<int64_t(int64_t)> query_position, key_position;
};

// Returns attention with rotary positions, (B, Tq, d), row-major, in naive loops: takes the dot products of the rotated
// queries and keys in place of the queries and keys.
Vector rotary_attention(const LayerSpec& shape, const RotaryOptions& o, const Weights& w, const Vector& x,
                        const Vector& m, const Pass& pass) {
  const int64_t d = shape.width, h = shape.heads, dk = shape.key_size;
  const reference::Sizes sizes{pass.batch,
                               static_cast<int64_t>(x.size()) / (pass.batch * d),
                               static_cast<int64_t>(m.size()) / (pass.batch * d),
                               d,
                               h,
                               dk,
                               shape.value_size};
  const Vector q = apply_projection(w, "query", x, d), k = apply_projection(w, "key", m, d);
  const int64_t length = pass.query_position(sizes.queries - 1) + 1;
  const Vector frequencies = doubles(rotary_frequencies(o, o.rotary_size(dk), length));
  const double factor = attention::attention_factor(o);
  auto head_of = [&](const Vector& projection, int64_t row, int64_t i) {
    const auto begin = projection.begin() + (row * h + i) * dk;
    return Vector(begin, begin + dk);
  };
  auto dot = [](const Vector& a, const Vector& b) {
    double sum = 0;
    for (size_t c = 0; c < a.size(); ++c) sum += a[c] * b[c];
    return sum;
  };
  auto change_of_logit = [&](int64_t b, int64_t i, int64_t t, int64_t s) {
    const Vector query = head_of(q, b * sizes.queries + t, i), key = head_of(k, b * sizes.keys + s, i);
    const double rotated = dot(rotate_head(query, pass.query_position(t), frequencies, factor),
                               rotate_head(key, pass.key_position(s), frequencies, factor));
    return (rotated - dot(query, key)) / std::sqrt(static_cast<double>(dk));
  };
  return reference::attention(sizes, x, m, w, pass.may_attend, change_of_logit);
}

// Returns the rows of the positions [begin, end) of a new table on the CPU.
RotaryRows rows_of(const RotaryOptions& o, int64_t r, int64_t begin, int64_t end) {
  return RotaryTable(o, r, at::kCPU).rows({begin, end, end});
}

}  // namespace

TEST_CASE("frequencies of every scaling equal the formulas in double precision", "[rotary]") {
  CHECK(rc::check([] {
    const int64_t r = 2 * pick(2, 40), length = pick(1, 64);
    for (RotaryOptions o : options_of_all_scalings(r, 1 + 0.25 * static_cast<double>(pick(1, 60)))) {
      o.base = static_cast<double>(pick(5, 500000));
      o.truncate = *rc::gen::arbitrary<bool>();
      if (o.original_length > 0) o.original_length = pick(2, 10000);
      if (o.scaling == RotaryScaling::proportional) o.size = 2 * pick(0, r / 2);
      const at::Tensor frequencies = rotary_frequencies(o, r, length);
      RC_ASSERT(frequencies.scalar_type() == at::kFloat);
      RC_ASSERT(frequencies.numel() == r / 2);
      // A wavelength next to a bound of llama3 may be on the other side in fp32, where both formulas agree.
      for (int64_t i = 0; i < r / 2; ++i) {
        const double exact = exact_frequency(o, r, length, i);
        RC_ASSERT(std::abs(frequencies[i].item<double>() - exact) <=
                  10 * o.factor * frequency_error(o.base) * exact + 10 * frequency_error(o.base) * exact);
      }
    }
  }));
}

TEST_CASE("frequencies and factors of published models have their published numbers", "[rotary]") {
  RotaryOptions yarn;
  yarn.scaling = RotaryScaling::yarn, yarn.factor = 4, yarn.original_length = 4096;
  CHECK(yarn_bounds(yarn, 128) == std::pair(20.0, 46.0));
  yarn.truncate = false;
  CHECK(yarn_bounds(yarn, 128).first == rounding::printed(20.944, 5));
  CHECK(yarn_bounds(yarn, 128).second == rounding::printed(45.027, 5));
  CHECK(attention::attention_factor(yarn) == rounding::printed(1.13863, 6));
  // gpt-oss does not round the bounds.
  yarn.base = 150000, yarn.factor = 32;
  CHECK(yarn_bounds(yarn, 64).first == rounding::printed(8.093, 4));
  CHECK(yarn_bounds(yarn, 64).second == rounding::printed(17.398, 5));
  CHECK(attention::attention_factor(yarn) == rounding::printed(1.34657, 6));
  yarn.mscale = 0.7, yarn.mscale_all_dim = 0.7;
  CHECK(attention::attention_factor(yarn) == 1);
  yarn.mscale_all_dim = 0.3;
  CHECK(attention::attention_factor(yarn) ==
        rounding::fp64((0.07 * std::log(32.0) + 1) / (0.03 * std::log(32.0) + 1), 8));
  yarn.attention_factor = 1.5;
  CHECK(attention::attention_factor(yarn) == 1.5);

  RotaryOptions llama;
  llama.scaling = RotaryScaling::llama3, llama.base = 500000, llama.factor = 8, llama.original_length = 8192;
  RotaryOptions plain;
  plain.base = llama.base;
  const at::Tensor ratios = rotary_frequencies(plain, 128, 1) / rotary_frequencies(llama, 128, 1);
  CHECK((ratios == 1).sum().item<int64_t>() == 29);
  CHECK((ratios == 8).sum().item<int64_t>() == 29);  // division by a power of two is exact

  RotaryOptions dynamic;
  dynamic.scaling = RotaryScaling::dynamic, dynamic.factor = 4, dynamic.original_length = 4;
  CHECK(dynamic_base(dynamic, 32, 7) == rounding::printed(43873, 5));  // s n / L0 - (s - 1) = 4
  CHECK(dynamic_base(dynamic, 32, 4) == 10000);

  RotaryOptions longrope;
  longrope.scaling = RotaryScaling::longrope, longrope.factor = 32, longrope.original_length = 4096;
  CHECK(attention::attention_factor(longrope) == rounding::fp64(std::sqrt(1 + 5.0 / 12), 8));
}

TEST_CASE("proportional frequencies have exponents relative to the head size, and are 0 past the rotated part",
          "[rotary]") {
  RotaryOptions o;
  o.scaling = RotaryScaling::proportional, o.base = 1e6, o.size = 4;
  CHECK(o.rotary_size(16) == 16);
  const at::Tensor frequencies = rotary_frequencies(o, 16, 1);
  CHECK(frequencies.numel() == 8);
  CHECK(frequencies[0].item<double>() == 1);
  CHECK(frequencies[1].item<double>() == rounding::printed(0.177828, 6));  // 10^(-6 * 2 / 16)
  CHECK(at::equal(frequencies.narrow(0, 2, 6), at::zeros({6})));
  const auto table = shared_rotary_table(o, 16, at::kCPU);
  o.size = 6;
  CHECK(shared_rotary_table(o, 16, at::kCPU) != table);
  // The elements 2 to 7 and 10 to 15 of a head stay unchanged, whatever the position.
  c10::NoGradGuard no_gradient;
  const at::Tensor x = normal({1, 1, 5, 16}, 1);
  const RotaryRows rows = table->rows({0, 5, 5});
  const at::Tensor rotated = rotate({x, x, x}, rows, rows).q;
  for (const int64_t first : {2, 10}) CHECK(at::equal(rotated.narrow(3, first, 6), x.narrow(3, first, 6)));
  for (const int64_t first : {0, 8})
    CHECK_FALSE(at::equal(rotated.select(2, 1).narrow(2, first, 2), x.select(2, 1).narrow(2, first, 2)));
}

TEST_CASE("every scaling with the factor 1 leaves frequencies and attention factor unchanged", "[rotary]") {
  const int64_t r = 32;
  const at::Tensor plain = rotary_frequencies({}, r, 1);
  for (const RotaryOptions& o : options_of_all_scalings(r, 1)) {
    INFO(static_cast<int>(o.scaling));
    // The base of dynamic grows with n / L0 even if the factor is 1, so n is at most L0 = 16.
    const at::Tensor ratios = rotary_frequencies(o, r, 16) / plain;
    CHECK(rounding::agree(ratios, at::ones(ratios.sizes()), 6));
    CHECK(attention::attention_factor(o) == 1);
  }
}

TEST_CASE("dynamic and longrope depend on the length of the input, above the original length only", "[rotary]") {
  for (const RotaryOptions& o : options_of_all_scalings(8, 2)) {
    const bool is_dynamic = o.scaling == RotaryScaling::dynamic, is_longrope = o.scaling == RotaryScaling::longrope;
    CHECK(depends_on_length(o) == (is_dynamic || is_longrope));
    const at::Tensor at_16 = rotary_frequencies(o, 8, 16);
    CHECK(at::equal(rotary_frequencies(o, 8, 3), at_16));
    CHECK(at::equal(rotary_frequencies(o, 8, 17), at_16) == !depends_on_length(o));
    CHECK(at::equal(rotary_frequencies(o, 8, 18), rotary_frequencies(o, 8, 17)) == !is_dynamic);
    for (const int64_t length : {1, 16, 17, 18, 40})
      CHECK(at::equal(rotary_frequencies(o, 8, frequency_length(o, length)), rotary_frequencies(o, 8, length)));
  }
}

TEST_CASE("layers with equal options share a table, whose rows keep their bits while it grows", "[rotary]") {
  RotaryOptions o;
  o.base = 12345;
  const auto table = shared_rotary_table(o, 6, at::kCPU);
  CHECK(shared_rotary_table(o, 6, at::kCPU) == table);
  CHECK(shared_rotary_table(o, 8, at::kCPU) != table);
  RotaryOptions other_options = o;
  other_options.base = 12346;
  CHECK(shared_rotary_table(other_options, 6, at::kCPU) != table);
  other_options = o;
  other_options.size = 6;  // the size of every head anyway
  CHECK(shared_rotary_table(other_options, 6, at::kCPU) == table);

  const RotaryRows rows = table->rows({3, 200, 200});
  const int64_t num_positions = table->num_positions();
  CHECK(num_positions >= 200);
  for (const auto& [begin, end] : {std::pair{-7, 5}, {0, static_cast<int>(num_positions) + 1}, {-40, 900}}) {
    table->rows({begin, end, end});
    const RotaryRows same_rows = table->rows({3, 200, 200});
    CHECK(at::equal(same_rows.cosines, rows.cosines));
    CHECK(at::equal(same_rows.sines, rows.sines));
  }
  const int64_t num_grown_positions = table->num_positions();
  CHECK(num_grown_positions >= 2 * num_positions);
  table->rows({-40, 900, 900});
  CHECK(table->num_positions() == num_grown_positions);
  // The cosine is even, and the sine is odd.
  const RotaryRows after = table->rows({1, 41, 41}), before = table->rows({-40, 0, 0});
  CHECK(at::equal(before.cosines.flip(0), after.cosines));
  CHECK(at::equal(before.sines.flip(0), -after.sines));
}

TEST_CASE("threads that read and grow a table at once see the rows of their positions", "[rotary]") {
  for (RotaryOptions o : options_of_all_scalings(6, 2)) {
    RotaryTable table(o, 6, at::kCPU);
    std::vector<std::thread> threads;
    std::vector<char> are_equal(4, 1);
    for (size_t i = 0; i < are_equal.size(); ++i)
      threads.emplace_back([&, i] {
        for (int64_t end = 1; end < 400; end += 7 + static_cast<int64_t>(i)) {
          const RotaryRange range{end / 2, end, end};
          const RotaryRows actual = table.rows(range), expected = RotaryTable(o, 6, at::kCPU).rows(range);
          if (!at::equal(actual.cosines, expected.cosines) || !at::equal(actual.sines, expected.sines))
            are_equal[i] = 0;
        }
      });
    for (std::thread& thread : threads) thread.join();
    CHECK(std::count(are_equal.begin(), are_equal.end(), 1) == 4);
    // The table of a length above L0 of the scaling dynamic is replaced by the next one.
    if (o.scaling == RotaryScaling::dynamic) CHECK(table.num_positions() <= 256 + 400);
  }
}

TEST_CASE("rotated heads match a naive reference for every type, layout and partial size, and keep their norm",
          "[rotary]") {
  CHECK(rc::check([] {
    const int64_t batch = pick(1, 3), h = pick(1, 4), kv_heads = pick(1, 2), length = pick(1, 9), dk = pick(2, 70),
                  r = 2 * pick(1, dk / 2), first = pick(-20, 20), width = (h + kv_heads) * dk + kv_heads * 3;
    const auto type = *rc::gen::element(at::kFloat, at::kBFloat16, at::kDouble, at::kHalf);
    const at::Tensor joint = normal({batch, length, width}, 1).to(type);
    const auto heads = [&](int64_t offset, int64_t count, int64_t size) {
      return joint.narrow(2, offset, count * size).unflatten(2, {count, size}).transpose(1, 2);
    };
    at::Tensor q = heads(0, h, dk);
    if (*rc::gen::arbitrary<bool>()) q = q.contiguous();
    if (*rc::gen::arbitrary<bool>()) q = q.transpose(2, 3).contiguous().transpose(2, 3);  // rows are not contiguous
    const ProjectedHeads x{q, heads(h * dk, kv_heads, dk), heads((h + kv_heads) * dk, kv_heads, 3)};
    const RotaryRows rows = rows_of({}, r, first, first + length);
    const ProjectedHeads y = rotate(x, rows, rows);
    RC_ASSERT(y.v.is_same(x.v));
    for (const auto& [input, output] : {std::pair{x.q, y.q}, {x.k, y.k}}) {
      RC_ASSERT(output.scalar_type() == type);
      RC_ASSERT(output.transpose(1, 2).is_contiguous());
      const at::Tensor exact = input.to(at::kDouble), a = exact.narrow(3, 0, r / 2), b = exact.narrow(3, r / 2, r / 2),
                       c = rows.cosines.to(at::kDouble), s = rows.sines.to(at::kDouble);
      const at::Tensor expected = nn::cat({a * c - b * s, b * c + a * s, exact.narrow(3, r, dk - r)}, 3);
      // Two products, a sum, and the rounding to the type.
      RC_ASSERT(error(output, expected) <=
                tolerance::sum_error_bound(2, type == at::kDouble ? 0 : unit_roundoff(type), 2 * max_abs(exact)));
      RC_ASSERT(at::equal(output.narrow(3, r, dk - r), input.narrow(3, r, dk - r)));
      const at::Tensor norm = exact.norm(2, 3);
      RC_ASSERT(error(output.to(at::kDouble).norm(2, 3), norm) <=
                tolerance::long_sum_error_bound(dk, 3 * unit_roundoff(type), max_abs(norm)));
    }
    // Heads in bf16 and fp16 are rotated in fp32 and rounded once.
    if (type == at::kBFloat16 || type == at::kHalf) {
      const ProjectedHeads fp32 = rotate({x.q.to(at::kFloat), x.k.to(at::kFloat), x.v}, rows, rows);
      RC_ASSERT(at::equal(fp32.q.to(type), y.q));
    }
  }));
}

TEST_CASE("the gradient of a rotation is the rotation by the opposite angle, and equals finite differences",
          "[rotary]") {
  const int64_t length = 5;
  for (const int64_t r : {4, 10}) {
    const RotaryRows rows = rows_of({}, r, 3, 3 + length), inverse = rows_of({}, r, -2 - length, -2);
    const RotaryRows opposite{inverse.cosines.flip(0), inverse.sines.flip(0)};
    for (const auto type : {at::kFloat, at::kBFloat16, at::kDouble}) {
      const auto leaf = [&](int64_t heads, uint64_t seed) {
        return normal({2, heads, length, 10}, seed).to(type).requires_grad_();
      };
      const at::Tensor q = leaf(3, 1), k = leaf(2, 2), v = leaf(2, 3);
      const at::Tensor dq = normal({2, 3, length, 10}, 4).to(type), dk = normal({2, 2, length, 10}, 5).to(type),
                       dv = normal({2, 2, length, 10}, 6).to(type);
      const ProjectedHeads y = rotate({q, k, v}, rows, rows);
      ((y.q * dq).sum() + (y.k * dk).sum() + (y.v * dv).sum()).backward();
      c10::NoGradGuard no_gradient;
      const ProjectedHeads expected = rotate({dq, dk, dv}, opposite, opposite);
      CHECK(at::equal(q.grad(), expected.q));
      CHECK(at::equal(k.grad(), expected.k));
      CHECK(at::equal(v.grad(), dv));
      if (type != at::kDouble) continue;
      const auto loss = [&](size_t i, double shift) {
        at::Tensor shifted = q.detach().clone();
        shifted.view({-1})[static_cast<int64_t>(i)].add_(shift);
        return (rotate({shifted, k, v}, rows, rows).q * dq).sum().item<double>();
      };
      layers::check_slopes(q.grad(), static_cast<size_t>(q.numel()), 0, q.numel(), loss, 10);
    }
  }
}

TEST_CASE("the backward pass of a rotation returns adjacent slices, and leaves its input gradients unchanged",
          "[rotary]") {
  const int64_t length = 6, size = 4;
  constexpr ProjectionSizes kSizes{.q_heads = 3, .k_heads = 2, .v_heads = 2, .key_size = 4, .value_size = 4};
  const RotaryRows rows = rows_of({}, size, 0, length);
  at::Tensor joint = normal({2, length, 7 * size}, 1).requires_grad_();
  const auto [q, k, v] = split_projection(joint, kSizes);
  std::vector<at::Tensor> slices(3);
  size_t index = 0;
  for (const at::Tensor& x : {q, k, v})
    x.register_hook([&slices, i = index++](const at::Tensor& gradient) { slices[i] = gradient; });
  const ProjectedHeads y = rotate({q, k, v}, rows, rows);
  const at::Tensor dq = normal({2, 3, length, size}, 2), dk = normal({2, 2, length, size}, 3),
                   dv = normal({2, 2, length, size}, 4), dq_copy = dq.clone();
  torch::autograd::backward({y.q, y.k, y.v}, {dq, dk, dv});
  CHECK(at::equal(dq, dq_copy));
  CHECK(are_adjacent_slices(slices));
  CHECK(at::equal(joint.grad().narrow(2, 5 * size, 2 * size), dv.transpose(1, 2).flatten(2)));
}

TEST_CASE("rotary layers match a naive reference for every scaling, memories with gaps and partial sizes", "[rotary]") {
  CHECK(rc::check([] {
    const bool causal = *rc::gen::arbitrary<bool>(), has_gaps = *rc::gen::arbitrary<bool>();
    const int64_t batch = pick(1, 3), queries = pick(1, 7), dk = pick(4, 9), r = 2 * pick(2, dk / 2), d = pick(1, 8);
    auto all_options = options_of_all_scalings(r, 1 + 0.5 * static_cast<double>(pick(1, 9)));
    RotaryOptions o = all_options[static_cast<size_t>(pick(0, static_cast<int64_t>(all_options.size()) - 1))];
    if (dk % 2 != 0 && o.scaling == RotaryScaling::proportional) o = RotaryOptions();
    o.size = r;
    o.base = 100;
    if (o.original_length > 0) o.original_length = pick(2, 9);
    const int64_t num_slots = depends_on_length(o) ? 0 : pick(0, 9), keys = num_slots + queries;
    const auto seed = static_cast<uint64_t>(pick(1, 1000000));
    Layer l(str("heads = ", pick(1, 3), "\nhead_size = ", dk, "\n", rotary_lines(o)), d, seed,
            causal ? AttentionKind::decoder_self : AttentionKind::encoder_self);
    const at::Tensor m = normal({batch, keys, d}, seed), x = num_slots == 0 ? m : m.narrow(1, num_slots, queries);
    std::vector<int64_t> positions(static_cast<size_t>(keys));
    for (int64_t s = keys; s-- > 0;)
      positions[static_cast<size_t>(s)] =
          s >= num_slots ? s - num_slots : positions[static_cast<size_t>(s) + 1] - (has_gaps ? pick(1, 3) : 1);
    Mask mask;
    mask.causal = causal;
    mask.offset = num_slots;
    if (has_gaps) mask.key_positions = at::tensor(positions, at::kLong);
    const auto may_attend = [&](int64_t, int64_t t, int64_t s) { return !causal || s <= t + num_slots; };
    const Vector expected = rotary_attention(
        l.layer->layer_spec(), o, l.weights(), doubles(x), doubles(m),
        {batch, may_attend, [](int64_t t) { return t; }, [&](int64_t s) { return positions[static_cast<size_t>(s)]; }});
    RC_ASSERT(layers::rounding_of(l, x, m, mask).agree(l(x, m, mask), expected));
  }));
}

TEST_CASE("gradients of rotary layers equal finite differences of a naive reference", "[rotary]") {
  for (const RotaryOptions& scaled_options : options_of_all_scalings(4, 2)) {
    RotaryOptions o = scaled_options;
    o.size = 4, o.base = 50;
    const int64_t head_size = o.scaling == RotaryScaling::proportional ? 6 : 5;
    Layer l(str("heads = 2\nhead_size = ", head_size, "\n", rotary_lines(o)), 4, 5);
    const at::Tensor inputs = normal({2, 5, 4}, 7);
    layers::check_gradients(
        l, inputs, [&](const at::Tensor& x, Observer* observer) { return l(x, x, causal_mask(), {}, observer); },
        [&](const Weights& w, const Vector& x) {
          const auto position = [](int64_t t) { return t; };
          return rotary_attention(l.layer->layer_spec(), o, w, x, x,
                                  {2, [](int64_t, int64_t t, int64_t s) { return s <= t; }, position, position});
        });
  }
}

namespace {

// Returns the output (B, T, d) of a forward pass over x with an empty cache, whose first position is `first_position`.
at::Tensor output_from(Layer& l, const at::Tensor& x, int64_t first_position) {
  Cache cache;
  Mask mask = causal_mask();
  mask.first_position = first_position;
  return l.layer->forward(x, x, mask, {}, &cache);
}

// Returns the output of decoding x (B, T, d) in steps of one token after a prefill of `prefill` tokens. `max_cached`:
// number of positions that the cache retains before each step; 0: all.
at::Tensor decode(Layer& l, const at::Tensor& x, int64_t prefill, int64_t max_cached = 0) {
  Cache cache;
  std::vector<at::Tensor> outputs;
  for (int64_t t = 0; t < x.size(1);) {
    const int64_t count = t == 0 ? prefill : 1;
    if (max_cached > 0) cache.retain_last(max_cached);
    Mask mask = causal_mask();
    mask.offset = cache.length(), mask.first_position = t;
    const at::Tensor step = x.narrow(1, t, count);
    outputs.push_back(l.layer->forward(step, step, mask, {}, &cache));
    t += count;
  }
  return nn::cat(outputs, 1);
}

}  // namespace

TEST_CASE("a shift of all positions leaves outputs unchanged, also with Mixhead B", "[rotary]") {
  c10::NoGradGuard no_gradient;
  for (const int64_t size : {16, 6})
    for (const char* mixer : {"none", "mixhead-a", "mixhead-b"}) {
      INFO(mixer << ", head size " << size);
      Layer l(str("heads = 4\nhead_size = ", size, "\nmixer = '", mixer, "'\ntransform = ['rotary']\n"), 8, 3);
      const at::Tensor x = normal({2, 7, 8}, 1), expected = l(x, x, causal_mask());
      const layers::LayerRounding rounding = layers::rounding_of(l, x, x, causal_mask());
      for (const Path path : {Path::automatic, Path::composed}) {
        l.layer->set_path(path);
        // An angle of up to 19 radians has an error of up to 19 units of fp32.
        CHECK(rounding.agree(output_from(l, x, 0), expected, 20));
        CHECK(rounding.agree(output_from(l, x, 13), expected, 20));
        // Without a cache, only positions relative to the first query matter.
        Mask mask = causal_mask();
        mask.first_position = 13;
        CHECK(at::equal(l(x, x, mask), l(x, x, causal_mask())));
      }
    }
}

TEST_CASE("different positions change the output of a rotary layer", "[rotary]") {
  c10::NoGradGuard no_gradient;
  Layer l("heads = 2\nhead_size = 6\ntransform = ['rotary']\n", 8, 3, AttentionKind::encoder_self);
  const at::Tensor x = normal({1, 5, 8}, 1);
  const layers::LayerRounding rounding = layers::rounding_of(l, x, x);
  const at::Tensor order = at::tensor({3, 1, 4, 0, 2}, at::kLong);
  const at::Tensor permuted = x.index_select(1, order);
  CHECK(!rounding.agree(l(permuted, permuted, {}), l(x, x, {}).index_select(1, order)));
  Layer plain("heads = 2\nhead_size = 6\n", 8, 3, AttentionKind::encoder_self);
  CHECK(rounding.agree(plain(permuted, permuted, {}), plain(x, x, {}).index_select(1, order)));
}

TEST_CASE("decoding token by token with rotary positions equals one forward pass", "[rotary]") {
  c10::NoGradGuard no_gradient;
  for (const char* lines :
       {"head_size = 16\n", "head_size = 6\n", "head_size = 16\nkey_value_heads = 2\n",
        "head_size = 16\nmixer = 'mixhead-b'\n", "head_size = 6\nmixer = 'mixhead-b'\nkey_value_heads = 1\n"})
    for (const RotaryOptions& scaled_options : options_of_all_scalings(6, 4)) {
      RotaryOptions o = scaled_options;
      o.size = 6;
      INFO(lines << static_cast<int>(o.scaling));
      Layer l(str("heads = 4\n", lines, rotary_lines(o)), 8, 3);
      const at::Tensor x = normal({3, 12, 8}, 1), expected = l(x, x, causal_mask());  // at most L0 = 16 positions
      const layers::LayerRounding rounding = layers::rounding_of(l, x, x, causal_mask());
      for (const int64_t prefill : {1, 4}) CHECK(rounding.agree(decode(l, x, prefill), expected, 12));
    }
}

TEST_CASE("decoding with a cache of the last keys equals one forward pass with a window", "[rotary]") {
  c10::NoGradGuard no_gradient;
  Layer l("heads = 2\nhead_size = 16\ntransform = ['rotary']\n", 8, 3);
  const at::Tensor x = normal({2, 12, 8}, 1);
  Mask mask = causal_mask();
  mask.window = 4;
  CHECK(layers::rounding_of(l, x, x, mask).agree(decode(l, x, 1, 3), l(x, x, mask), 12));
}

TEST_CASE("a step of decoding uses the frequencies of its length, and cached keys keep theirs", "[rotary]") {
  c10::NoGradGuard no_gradient;
  for (const auto scaling : {RotaryScaling::dynamic, RotaryScaling::longrope}) {
    RotaryOptions o;
    o.scaling = scaling, o.factor = 4, o.original_length = 4;
    if (scaling == RotaryScaling::longrope)
      o.attention_factor = 1, o.short_factors = {1, 1, 1}, o.long_factors = {2, 3, 4};
    Layer l(str("heads = 1\nhead_size = 6\n", rotary_lines(o)), 8, 3);
    // The output of the last of six tokens, whose keys were appended in one pass of four and two steps.
    const at::Tensor x = normal({1, 6, 8}, 1), decoded = decode(l, x, 4).select(1, 5);
    const Weights w = l.weights();
    const Vector q = apply_projection(w, "query", doubles(x), 8), k = apply_projection(w, "key", doubles(x), 8);
    const auto rotated = [&](const Vector& projection, int64_t t, int64_t length) {
      return rotate_head(Vector(projection.begin() + 6 * t, projection.begin() + 6 * (t + 1)), t,
                         doubles(rotary_frequencies(o, 6, length)), 1);
    };
    const auto change_of_logit = [&](int64_t, int64_t, int64_t t, int64_t s) {
      double sum = 0;
      const Vector query = rotated(q, t, t + 1), key = rotated(k, s, std::max<int64_t>(4, s + 1));
      for (size_t c = 0; c < 6; ++c)
        sum += query[c] * key[c] - q[static_cast<size_t>(6 * t) + c] * k[static_cast<size_t>(6 * s) + c];
      return sum / std::sqrt(6.0);
    };
    const Vector expected = reference::attention(
        {1, 6, 6, 8, 1, 6, 6}, doubles(x), doubles(x), w, [](int64_t, int64_t t, int64_t s) { return s <= t; },
        change_of_logit);
    const layers::LayerRounding rounding = layers::rounding_of(l, x, x, causal_mask());
    CHECK(rounding.agree(decoded.flatten(), Vector(expected.end() - 8, expected.end())));
    CHECK(!rounding.agree(decoded, l(x, x, causal_mask()).select(1, 5)));
  }
}

TEST_CASE("errors of rotary layers on the fused path are at most twice those on the composed path", "[rotary]") {
  for (const char* mixer : {"none", "mixhead-b"}) {
    Layer l(str("heads = 4\nhead_size = 16\nkey_value_heads = 2\nmixer = '", mixer,
                "'\ntransform = ['rotary']\nrotary.size = 12\n"),
            8, 5);
    CHECK(l.layer->reasons_not_fused(true).empty());
    const at::Tensor x = normal({2, 6, 8}, 1);
    const auto [fused, composed, exact, magnitudes] = layers::results_of_paths(
        l, x, [&](const at::Tensor& input) { return l(input, input, causal_mask()); }, true);
    CHECK(find_excess_error(fused, composed, exact, at::kFloat, magnitudes) == "");
  }
}

TEST_CASE("rotary positions refuse cross-attention, and scalings by length refuse a memory", "[rotary]") {
  CHECK_THROWS_WITH(Layer("heads = 2\ntransform = ['rotary']\n", 8, 1, AttentionKind::decoder_cross),
                    Contains("transform 'rotary': expected a stage that supports cross-attention"));
  for (const RotaryOptions& o : options_of_all_scalings(4, 2)) {
    Layer l(str("heads = 2\nhead_size = 4\n", rotary_lines(o)), 8, 1);
    CHECK(l.layer->capabilities().supports_memory == !depends_on_length(o));
    CHECK(l.layer->capabilities().supports_incremental_decoding);
    CHECK(!l.layer->is_per_query());
  }
}

TEST_CASE("options of rotary positions that contradict each other are refused", "[rotary]") {
  const auto refusal_of = [](const std::string& options) {
    return refusal(
        [&] { Layer(str("heads = 2\nhead_size = 6\ntransform = ['rotary']\n[attention.rotary]\n", options), 8, 1); });
  };
  const std::string longrope = "scaling = 'longrope'\noriginal_length = 8\nfactor = 2\n",
                    yarn = "scaling = 'yarn'\noriginal_length = 8\nfactor = 2\n";
  CHECK(refusal_of("size = 4\n").empty());
  CHECK_THAT(refusal_of("size = 8\n"), Contains("attention.rotary.size: expected at most 6, the head size; found 8"));
  CHECK_THAT(refusal_of("size = 3\n"), Contains("expected an even number"));
  CHECK_THAT(refusal([] { Layer("heads = 2\nhead_size = 5\ntransform = ['rotary']\n", 8, 1); }),
             Contains("found 5, the head size"));
  for (const char* scaling : {"linear", "dynamic", "llama3", "yarn", "longrope"})
    CHECK_THAT(refusal_of(str("scaling = '", scaling, "'\n")), Contains("attention.rotary.factor: expected a factor"));
  for (const char* scaling : {"dynamic", "llama3", "yarn", "longrope"})
    CHECK_THAT(refusal_of(str("factor = 2\nscaling = '", scaling, "'\n")),
               Contains("attention.rotary.original_length: expected a number of positions"));
  CHECK_THAT(refusal_of("factor = 2\n"), Contains("leave attention.rotary.factor out"));
  CHECK_THAT(refusal_of("scaling = 'linear'\nfactor = 2\noriginal_length = 8\n"),
             Contains("attention.rotary.original_length: expected the default"));
  for (const char* option : {"low_factor = 2", "high_factor = 2", "beta_fast = 2", "beta_slow = 2", "truncate = false",
                             "attention_factor = 2", "mscale = 2", "mscale_all_dim = 2", "short_factors = [1, 1, 1]",
                             "long_factors = [1, 1, 1]"})
    CHECK_THAT(refusal_of(option), Contains("expected the default with attention.rotary.scaling=none"));
  CHECK_THAT(refusal_of("scaling = 'llama3'\nfactor = 2\noriginal_length = 8\nlow_factor = 4\n"),
             Contains("attention.rotary.high_factor: expected a number above attention.rotary.low_factor, 4"));
  CHECK(refusal_of("scaling = 'proportional'\nsize = 4\n").empty());
  CHECK_THAT(refusal_of("scaling = 'proportional'\nsize = 8\n"),
             Contains("expected at most 6, the head size; found 8"));
  CHECK_THAT(refusal_of("scaling = 'proportional'\nsize = 3\n"), Contains("expected an even number"));
  CHECK_THAT(refusal_of("scaling = 'proportional'\nfactor = 2\n"), Contains("leave attention.rotary.factor out"));
  CHECK_THAT(
      refusal([] {
        Layer("heads = 2\nhead_size = 5\ntransform = ['rotary']\nrotary.scaling = 'proportional'\nrotary.size = 4\n", 8,
              1);
      }),
      Contains("found 5, the head size"));
  CHECK_THAT(refusal_of(yarn + "beta_slow = 40\n"),
             Contains("attention.rotary.beta_fast: expected a number of at least"));
  CHECK_THAT(refusal_of(yarn + "base = 1\n"), Contains("attention.rotary.base: expected a number above 1"));
  CHECK_THAT(refusal_of(yarn + "mscale = 1\n"), Contains("found only one of them"));
  CHECK_THAT(refusal_of(yarn + "mscale_all_dim = 1\n"), Contains("found only one of them"));
  CHECK_THAT(refusal_of(yarn + "mscale = 1\nmscale_all_dim = 1\nattention_factor = 2\n"),
             Contains("attention.rotary.mscale: expected 0"));
  CHECK_THAT(refusal_of(longrope + "short_factors = [1, 1]\nlong_factors = [1, 1, 1]\n"),
             Contains("attention.rotary.short_factors: expected 3 numbers"));
  CHECK_THAT(refusal_of(longrope + "short_factors = [1, 1, 1]\n"),
             Contains("attention.rotary.long_factors: expected 3"));
  CHECK(refusal_of("scaling = 'longrope'\noriginal_length = 8\nattention_factor = 1.5\nshort_factors = [1, 1, 1]\n"
                   "long_factors = [1, 1, 1]\n")
            .empty());
  CHECK_THAT(refusal_of("size = 2\nscaling = 'dynamic'\nfactor = 2\noriginal_length = 8\n"),
             Contains("attention.rotary.size: expected at least 4"));
}
