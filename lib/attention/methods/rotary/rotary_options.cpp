// Lists and checks the options of rotary positions.
#include "attention/methods/rotary/rotary_options.h"

#include <algorithm>
#include <initializer_list>

#include "base/error.h"
#include "base/text.h"

namespace mh::attention {

const std::vector<std::pair<RotaryScaling, std::string>>& rotary_scaling_names() {
  static const std::vector<std::pair<RotaryScaling, std::string>> names{{RotaryScaling::none, "none"},
                                                                        {RotaryScaling::linear, "linear"},
                                                                        {RotaryScaling::dynamic, "dynamic"},
                                                                        {RotaryScaling::llama3, "llama3"},
                                                                        {RotaryScaling::yarn, "yarn"},
                                                                        {RotaryScaling::longrope, "longrope"},
                                                                        {RotaryScaling::proportional, "proportional"}};
  return names;
}

void RotaryOptions::describe(Fields& f) {
  f.field("size", size, "number of elements of a head that rotate, from the first on; even; 0: all",
          between(0, 1 << 16));
  f.field("base", base, "base of the frequencies, base^(-2i/size)", at_least(1));
  f.choice("scaling", scaling, rotary_scaling_names(),
           "change of the frequencies for longer texts than in training; linear: division by the factor; dynamic: a "
           "base that grows with the length of the input (NTK); llama3, yarn: division of low frequencies only; "
           "longrope: division by a list of factors; proportional: frequencies base^(-2i/head_size) of pairs (i, i + "
           "head_size/2), of which the first size/2 pairs rotate");
  f.field("factor", factor, "factor by which the scaling extends the length; 0: not set", or_unset(0, at_least(1)));
  f.field("original_length", original_length,
          "number of positions of the texts in training, for the scalings dynamic, llama3, yarn and longrope; 0: not "
          "set",
          between(0, 1 << 30));
  f.field("low_factor", low_factor,
          "llama3: number of rotations in original_length positions below which a frequency is divided by the factor",
          positive());
  f.field("high_factor", high_factor,
          "llama3: number of rotations in original_length positions above which a frequency stays unchanged",
          positive());
  f.field("beta_fast", beta_fast,
          "yarn: number of rotations in original_length positions above which a frequency stays unchanged", positive());
  f.field("beta_slow", beta_slow,
          "yarn: number of rotations in original_length positions below which a frequency is divided by the factor",
          positive());
  f.field("truncate", truncate, "yarn: round the bounds of the blended frequencies to whole indices");
  f.field("attention_factor", attention_factor,
          "yarn, longrope: number by which rotated queries and keys are multiplied; 0: computed from factor",
          at_least(0));
  f.field("mscale", mscale,
          "yarn: coefficient in the numerator of the computed attention factor; 0: not set, without a denominator",
          at_least(0));
  f.field("mscale_all_dim", mscale_all_dim,
          "yarn: coefficient in the denominator of the computed attention factor; 0: not set", at_least(0));
  f.field("short_factors", short_factors,
          "longrope: divisor of each frequency for inputs of at most original_length positions", positive());
  f.field("long_factors", long_factors, "longrope: divisor of each frequency for longer inputs", positive());
}

void RotaryOptions::check(const LayerSpec& layer_spec) const {
  const auto refuse = [&](const std::string& key, const std::string& expected, const std::string& found,
                          const std::string& advice) {
    refuse_usage(str(layer_spec.name, ", attention.rotary.", key), expected, found, advice);
  };
  const int64_t head_size = layer_spec.key_size, r = rotary_size(head_size);
  if (size > head_size)
    refuse("size", str("at most ", head_size, ", the head size"), str(size),
           "set attention.rotary.size to at most this size");
  if (size % 2 != 0 || r % 2 != 0)
    refuse("size", "an even number, since elements rotate in pairs",
           size % 2 != 0 ? str(size) : str(r, ", the head size"),
           "set attention.rotary.size or attention.head_size to an even number");

  const RotaryOptions defaults;
  const auto& names = rotary_scaling_names();
  const auto name_of = [&](RotaryScaling s) {
    return std::find_if(names.begin(), names.end(), [&](const auto& entry) { return entry.first == s; })->second;
  };
  const std::string with_scaling = str("with attention.rotary.scaling=", name_of(scaling));
  // Returns whether the scaling is one of `readers`, the scalings that read the option. Throws Error(usage) if the
  // option is set although the scaling does not read it.
  const auto is_read = [&](const char* key, bool is_set, const std::initializer_list<RotaryScaling>& readers) {
    const bool reads = std::find(readers.begin(), readers.end(), scaling) != readers.end();
    std::vector<std::string> reader_names;
    for (const RotaryScaling reader : readers) reader_names.push_back(name_of(reader));
    if (is_set && !reads)
      refuse(key, str("the default ", with_scaling), "another value",
             str("leave attention.rotary.", key, " out, or set attention.rotary.scaling to ",
                 join_alternatives(reader_names)));
    return reads;
  };
  using enum RotaryScaling;
  const bool computes_attention_factor = attention_factor == 0;
  if (is_read("factor", factor != 0, {linear, dynamic, llama3, yarn, longrope}) && factor == 0 &&
      (scaling != longrope || computes_attention_factor))
    refuse("factor", str("a factor of at least 1 ", with_scaling), "none", "set attention.rotary.factor");
  const int64_t min_length = scaling == longrope ? 2 : 1;  // longrope divides by the logarithm of the length
  if (is_read("original_length", original_length != 0, {dynamic, llama3, yarn, longrope}) &&
      original_length < min_length)
    refuse("original_length", str("a number of positions of at least ", min_length, ' ', with_scaling),
           original_length == 0 ? "none" : str(original_length), "set attention.rotary.original_length");
  is_read("low_factor", low_factor != defaults.low_factor, {llama3});
  if (is_read("high_factor", high_factor != defaults.high_factor, {llama3}) && high_factor <= low_factor)
    refuse("high_factor", str("a number above attention.rotary.low_factor, ", low_factor), str(high_factor),
           "increase attention.rotary.high_factor, or decrease attention.rotary.low_factor");
  is_read("beta_slow", beta_slow != defaults.beta_slow, {yarn});
  if (is_read("beta_fast", beta_fast != defaults.beta_fast, {yarn}) && beta_fast < beta_slow)
    refuse("beta_fast", str("a number of at least attention.rotary.beta_slow, ", beta_slow), str(beta_fast),
           "increase attention.rotary.beta_fast, or decrease attention.rotary.beta_slow");
  is_read("truncate", truncate != defaults.truncate, {yarn});
  is_read("attention_factor", !computes_attention_factor, {yarn, longrope});
  is_read("mscale_all_dim", mscale_all_dim != 0, {yarn});
  if (is_read("mscale", mscale != 0, {yarn})) {
    if ((mscale == 0) != (mscale_all_dim == 0))
      refuse(mscale == 0 ? "mscale" : "mscale_all_dim",
             "both attention.rotary.mscale and attention.rotary.mscale_all_dim", "only one of them",
             "set both, or leave both out");
    if (mscale != 0 && !computes_attention_factor)
      refuse("mscale", "0, since attention.rotary.attention_factor is set", str(mscale),
             "leave attention.rotary.attention_factor, or the options mscale and mscale_all_dim, out");
  }
  for (const auto& [key, factors] : {std::pair{"short_factors", &short_factors}, {"long_factors", &long_factors}})
    if (is_read(key, !factors->empty(), {longrope}) && static_cast<int64_t>(factors->size()) != r / 2)
      refuse(key, str(count_of(r / 2, "number"), ", one for each pair of elements that rotate"),
             count_of(factors->size(), "number"), "correct the list, or attention.rotary.size");
  if (scaling == yarn && base == 1)
    refuse("base", str("a number above 1 ", with_scaling), str(base), "increase attention.rotary.base");
  if (scaling == dynamic && r == 2)
    refuse("size", str("at least 4 ", with_scaling), str(r),
           "set attention.rotary.size to at least 4, or choose another scaling");
}

}  // namespace mh::attention
