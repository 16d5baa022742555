#include "huggingface/rope.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string_view>

#include "base/error.h"
#include "base/text.h"

namespace mh::huggingface {

namespace {

constexpr const char* kCopyConfig = "copy config.json from the source of the model";  // advice in errors
constexpr const char* kOriginalLength = "original_max_position_embeddings";

// How a number of a scaling behaves if its key is missing or null.
enum class Presence {
  required,  // an error
  optional,  // the number is not set
  derived,   // the quotient of the maximum length and the original length
  constant   // the number is Parameter::default_value
};

// A number of a kind of scaling, greater than 0.
struct Parameter {
  const char* huggingface_key;
  const char* multihead_key;
  Presence presence = Presence::required;
  double default_value = 0;
  bool zero_is_missing = false;  // whether transformers treats 0 as a missing number
};

// A kind of scaling.
struct Scaling {
  const char* name;  // in multihead
  std::vector<Parameter> parameters;
  bool has_original_length = false;  // whether the scaling depends on the length of pre-training
  bool has_factor_lists = false;     // whether each frequency has two factors of its own
};

const std::vector<Scaling>& scalings() {
  static const std::vector<Scaling> table{
      {"none", {}},
      {"linear", {{"factor", "rotary.factor"}}},
      {"dynamic", {{"factor", "rotary.factor"}}},
      {"llama3",
       {{"factor", "rotary.factor"},
        {"low_freq_factor", "rotary.low_factor"},
        {"high_freq_factor", "rotary.high_factor"}},
       true},
      {"yarn",
       {{"factor", "rotary.factor", Presence::derived},
        {"beta_fast", "rotary.beta_fast", Presence::constant, 32, true},
        {"beta_slow", "rotary.beta_slow", Presence::constant, 1, true},
        {"attention_factor", "rotary.attention_factor", Presence::optional},
        {"mscale", "rotary.mscale", Presence::optional, 0, true},
        {"mscale_all_dim", "rotary.mscale_all_dim", Presence::optional, 0, true}},
       true},
      {"longrope",
       {{"factor", "rotary.factor", Presence::derived},
        {"attention_factor", "rotary.attention_factor", Presence::optional}},
       true,
       true},
  };
  return table;
}

const Scaling* find_scaling(std::string_view name) {
  const auto scaling = std::ranges::find_if(scalings(), [&](const Scaling& s) { return s.name == name; });
  return scaling == scalings().end() ? nullptr : &*scaling;
}

// Keys of rope_parameters and rope_scaling with or without effect on some kind of scaling; the values of keys of other
// kinds are ignored, as in transformers.
constexpr std::string_view kKnownKeys[] = {
    "rope_type",        "type",          "rope_theta",       "partial_rotary_factor",
    "factor",           kOriginalLength, "attention_factor", "beta_fast",
    "beta_slow",        "short_factor",  "long_factor",      "low_freq_factor",
    "high_freq_factor", "mscale",        "mscale_all_dim",   "truncate",
    "finetuned"};

// Returns the kind of scaling that rope_parameters or rope_scaling states.
const Scaling& scaling_of(const JsonConfig& parameters, const RopeFormat& format) {
  const std::string kind = parameters.value("rope_type", ""), old_kind = parameters.value("type", "");
  if (!kind.empty() && !old_kind.empty() && kind != old_kind)
    refuse_input(parameters.path() + ": rope_type", "the value of type, \"" + old_kind + "\"", "\"" + kind + "\"",
                 "remove the wrong one of the two keys");
  std::string name = kind.empty() ? old_kind : kind;
  if (name.empty() || name == "default") return scalings().front();
  if (format.has_only_longrope && (name == "su" || name == "yarn")) name = "longrope";
  const Scaling* scaling = find_scaling(name);
  if (scaling != nullptr && scaling != scalings().data() && (!format.has_only_longrope || scaling->has_factor_lists))
    return *scaling;
  std::vector<std::string> names{"default"};
  for (const Scaling& s : scalings())
    if (&s != scalings().data() && (!format.has_only_longrope || s.has_factor_lists)) names.emplace_back(s.name);
  refuse_input(parameters.path() + ": rope_type", "a kind of rotary positions: " + join(names, ", "),
               "\"" + name + "\"",
               "use a model with one of these kinds, the only ones that multihead supports for this architecture");
}

// Returns the number of elements of a head that rotate; 0: all.
int64_t rotary_size(double partial, int64_t head_size, const std::string& where) {
  const bool is_part = partial > 0 && partial <= 1;
  const auto size = is_part ? static_cast<int64_t>(static_cast<double>(head_size) * partial) : 0;
  if (size < 2 || size % 2 != 0)
    refuse_input(where,
                 str("a fraction, up to 1, that gives an even number of elements of the ", head_size, " in a head"),
                 Json(partial).dump(), kCopyConfig);
  return size == head_size ? 0 : size;
}

// Returns the original length outside the object of rotary positions: the number at the top of config.json or, without
// this number, the default of the format; nothing if there is neither.
std::optional<int64_t> top_original_length(const JsonConfig& config, const RopeFormat& format) {
  const auto length = config.nullable<int64_t>(kOriginalLength, std::nullopt);
  return !length && format.default_original_length > 0 ? format.default_original_length : length;
}

// Returns the length, in positions, with which the model was trained before scaling.
int64_t original_length(const JsonConfig& config, const JsonConfig& parameters, const RopeFormat& format,
                        const RopeSizes& sizes) {
  const auto nested_length = parameters.nullable<int64_t>(kOriginalLength, std::nullopt);
  const auto top_length = top_original_length(config, format);
  if (top_length && nested_length && *top_length != *nested_length) {
    const std::string where = parameters.path() + ": " + kOriginalLength;
    if (config.nullable<int64_t>(kOriginalLength, std::nullopt))
      refuse_input(where, str(*top_length, ", as at the top of ", config.path()), str(*nested_length),
                   "remove the wrong one of the two keys");
    refuse_input(
        where, str(*top_length, ", the default of the architecture without this key at the top of ", config.path()),
        str(*nested_length), str("set the key at the top of ", config.path(), " to the length of pre-training"));
  }
  const int64_t length = top_length ? *top_length : nested_length ? *nested_length : sizes.max_positions;
  require_size(length, (top_length ? config.path() : parameters.path()) + ": " + kOriginalLength, 1 << 30);
  return length;
}

// Throws Error(input) for numbers of rope_scaling from which transformers 4 and 5 compute different positions. Both use
// an explicit factor of yarn, whatever the quotient of both lengths. But transformers 4 reads the original length of
// yarn in rope_scaling only and the original length of longrope at the top only, and computes the factor of longrope
// from both lengths even if rope_scaling states a factor; transformers 5 reads the length in either place, and prefers
// an explicit factor.
void refuse_version_differences(const JsonConfig& config, const JsonConfig& parameters, const Scaling& scaling,
                                const RopeFormat& format, const RopeSizes& sizes) {
  if (config.value("rope_scaling", nullptr) == nullptr) return;  // transformers 4 reads no scaling
  const auto nested_length = parameters.nullable<int64_t>(kOriginalLength, std::nullopt);
  const auto top_length = top_original_length(config, format);
  if (std::string_view(scaling.name) == "yarn" && top_length && !nested_length && *top_length != sizes.max_positions)
    refuse_input(
        parameters.path() + ": " + kOriginalLength,
        str(*top_length, ", as at the top of ", config.path(), ", which transformers 4 does not read for yarn"), "none",
        "add the key");
  if (!scaling.has_factor_lists) return;
  const auto factor = parameters.nullable<double>("factor", std::nullopt),
             attention_factor = parameters.nullable<double>("attention_factor", std::nullopt);
  if (!top_length && nested_length && *nested_length != sizes.max_positions && (factor || attention_factor))
    refuse_input(
        config.path() + ": " + kOriginalLength,
        str(*nested_length, ", as in ", parameters.path(), ", which transformers 4 does not read for longrope"), "none",
        "add the key");
  if (!top_length || !factor || attention_factor) return;
  const double quotient = static_cast<double>(sizes.max_positions) / static_cast<double>(*top_length);
  if (*factor != quotient)
    refuse_input(parameters.path() + ": factor",
                 str(Json(quotient).dump(), ", the quotient of max_position_embeddings and ", kOriginalLength,
                     ", which transformers 4 uses in place of the factor"),
                 Json(*factor).dump(), kCopyConfig);
}

// Returns the factor of cosines and sines that longrope derives from its other numbers.
double longrope_attention_factor(const Settings& rope) {
  const auto factor = setting_or(rope, "rotary.factor", 1.0).get<double>(),
             length = setting_or(rope, "rotary.original_length", 1).get<double>();
  return factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(length));
}

void read_factor_lists(const JsonConfig& parameters, int64_t size, Settings& rope) {
  for (const auto& [huggingface_key, multihead_key] :
       {std::pair{"short_factor", "rotary.short_factors"}, std::pair{"long_factor", "rotary.long_factors"}}) {
    const std::vector<double> factors = parameters.numbers(huggingface_key).value_or(std::vector<double>());
    if (static_cast<int64_t>(factors.size()) != size / 2 ||
        !std::ranges::all_of(factors, [](double factor) { return factor > 0; }))
      refuse_input(parameters.path() + ": " + huggingface_key,
                   str("a list of ", size / 2, " numbers greater than 0, one for each pair of rotated elements"),
                   factors.empty() ? "none" : Json(factors).dump(), kCopyConfig);
    rope[multihead_key] = factors;
  }
}

void read_scaling(const JsonConfig& config, const JsonConfig& parameters, const Scaling& scaling,
                  const RopeFormat& format, const RopeSizes& sizes, Settings& rope) {
  double derived_factor = 0;
  if (scaling.has_original_length) {
    const int64_t length = original_length(config, parameters, format, sizes);
    rope["rotary.original_length"] = length;
    refuse_version_differences(config, parameters, scaling, format, sizes);
    derived_factor = static_cast<double>(sizes.max_positions) / static_cast<double>(length);
    // longrope uses the factor for its attention factor only, which is 1 for all factors up to 1.
    if (scaling.has_factor_lists) derived_factor = std::max(1.0, derived_factor);
  }
  if (std::string_view(scaling.name) == "dynamic") rope["rotary.original_length"] = sizes.max_positions;
  if (std::string_view(scaling.name) == "yarn") rope["rotary.truncate"] = parameters.value("truncate", true);
  for (const Parameter& parameter : scaling.parameters) {
    const auto written_number = parameters.nullable<double>(parameter.huggingface_key, std::nullopt);
    const bool is_missing = !written_number || (parameter.zero_is_missing && *written_number == 0);
    double number = written_number.value_or(0.0);
    if (is_missing) {
      if (parameter.presence == Presence::optional) continue;
      if (parameter.presence == Presence::derived) number = derived_factor;
      if (parameter.presence == Presence::constant) number = parameter.default_value;
    }
    if (!(number > 0))
      refuse_input(parameters.path() + ": " + parameter.huggingface_key,
                   str("a number greater than 0 for the scaling ", scaling.name),
                   is_missing ? "none" : Json(number).dump(), kCopyConfig);
    rope[parameter.multihead_key] = number;
  }
  // transformers reads mscale only together with mscale_all_dim, and neither of them beside attention_factor.
  if (rope.contains("rotary.attention_factor") || !rope.contains("rotary.mscale") ||
      !rope.contains("rotary.mscale_all_dim"))
    for (const char* key : {"rotary.mscale", "rotary.mscale_all_dim"}) rope.erase(key);
  if (scaling.has_factor_lists && rope.contains("rotary.attention_factor")) {
    constexpr double kTolerance = 1e-9;  // relative
    const double longrope_factor = longrope_attention_factor(rope);
    if (std::abs(rope["rotary.attention_factor"].get<double>() - longrope_factor) <= kTolerance * longrope_factor)
      rope.erase("rotary.attention_factor");
  }
}

// Returns the number of elements of a head that rotate in a layer with these settings.
int64_t rotary_size(const Settings& layer, int64_t head_size) {
  const Json size = setting_or(layer, "rotary.size", 0);
  return size == 0 ? head_size : size.get<int64_t>();
}

// Returns the fraction of the elements of a head from which rotary_size() computes `size` elements.
double partial_of(int64_t size, int64_t head_size) {
  const double partial = static_cast<double>(size) / static_cast<double>(head_size);
  // rotary_size() rounds the product of the head size and the fraction down; the product may be slightly below `size`.
  return static_cast<int64_t>(static_cast<double>(head_size) * partial) == size ? partial : std::nextafter(partial, 2);
}

const Scaling& scaling_of(const Settings& layer) {
  const Scaling* scaling = find_scaling(setting_or(layer, "rotary.scaling", "none").get<std::string>());
  return scaling == nullptr ? scalings().front() : *scaling;
}

// Adds the numbers of the scaling of a layer to `parameters`. `with_original_length`: whether Phi-3's object has the
// original length too.
void write_scaling(const Settings& layer, const RopeFormat& format, bool with_original_length, Json& parameters) {
  const Scaling& scaling = scaling_of(layer);
  for (const Parameter& parameter : scaling.parameters) {
    // Phi-3 always derives the factor from max_position_embeddings.
    if (format.has_only_longrope && parameter.presence == Presence::derived) continue;
    if (const Json number = setting_or(layer, parameter.multihead_key, 0.0); number > 0)
      parameters[parameter.huggingface_key] = number;
  }
  if (scaling.has_original_length && (with_original_length || !format.has_only_longrope))
    parameters[kOriginalLength] = setting_or(layer, "rotary.original_length", 0);
  if (std::string_view(scaling.name) == "yarn") parameters["truncate"] = setting_or(layer, "rotary.truncate", true);
  if (!scaling.has_factor_lists) return;
  parameters["short_factor"] = setting_or(layer, "rotary.short_factors", Json::array());
  parameters["long_factor"] = setting_or(layer, "rotary.long_factors", Json::array());
  // transformers 4 ignores the factor in favour of max_position_embeddings / original_max_position_embeddings.
  if (!format.has_only_longrope && !parameters.contains("attention_factor"))
    parameters["attention_factor"] = longrope_attention_factor(layer);
}

}  // namespace

RopeSizes rope_sizes(const Settings& settings) {
  return {head_size_of(settings), settings.at("model.max_positions").get<int64_t>()};
}

Settings read_rope(const JsonConfig& config, const std::optional<JsonConfig>& parameters, const RopeFormat& format,
                   double base, const RopeSizes& sizes) {
  const char* rotary_fraction_key =
      format.rotary_fraction_key != nullptr ? format.rotary_fraction_key : "partial_rotary_factor";
  double partial = config.value(rotary_fraction_key, format.default_rotary_fraction).get<double>();
  std::string partial_place = config.path() + ": " + rotary_fraction_key;
  if (parameters) {
    for (const std::string& key : parameters->keys())
      if (std::ranges::count(kKnownKeys, key) == 0)
        refuse_input(parameters->path() + ": " + key, "only keys of rotary positions that multihead supports", key,
                     "use a model without this key");
    base = parameters->value("rope_theta", base).get<double>();
    if (parameters->value("partial_rotary_factor", nullptr) != nullptr) {
      partial = parameters->value("partial_rotary_factor", partial).get<double>();
      partial_place = parameters->path() + ": partial_rotary_factor";
    }
  }
  if (format.rotary_fraction_key == nullptr && partial != 1)
    refuse_input(partial_place, "1, since all elements of a head rotate in this architecture", Json(partial).dump(),
                 kCopyConfig);
  if (!(base > 0))
    refuse_input(config.path() + ": " + format.base_key, "a base of the frequencies greater than 0", Json(base).dump(),
                 kCopyConfig);
  Settings rope{{"rotary.base", base}, {"rotary.size", rotary_size(partial, sizes.head_size, partial_place)}};
  const Scaling& scaling = parameters ? scaling_of(*parameters, format) : scalings().front();
  rope["rotary.scaling"] = scaling.name;
  if (!parameters) return rope;
  read_scaling(config, *parameters, scaling, format, sizes, rope);
  if (scaling.has_factor_lists) read_factor_lists(*parameters, rotary_size(rope, sizes.head_size), rope);
  return rope;
}

namespace {

bool has_any_of(const JsonConfig& config, std::initializer_list<const char*> keys) {
  return std::ranges::any_of(keys, [&](const char* key) { return config.value(key, nullptr) != nullptr; });
}

// Throws Error(input) for rope_parameters that differ from the rotary positions of the keys `old_keys`.
[[noreturn]] void refuse_two_spellings(const JsonConfig& config, const std::string& old_keys) {
  refuse_input(config.path() + ": rope_parameters",
               str("the rotary positions of ", old_keys, ", the keys of transformers 4"), "other rotary positions",
               str("remove either rope_parameters or ", old_keys));
}

}  // namespace

Settings read_rope(const JsonConfig& config, const RopeFormat& format, const RopeSizes& sizes) {
  const auto scaling = config.object("rope_scaling"), parameters = config.object("rope_parameters");
  const bool has_old_spelling = has_any_of(config, {"rope_scaling", format.base_key});
  const double base = config.value(format.base_key, format.default_base).get<double>();
  if (!parameters) return read_rope(config, scaling, format, base, sizes);
  Settings rope = read_rope(config, parameters, format, has_old_spelling ? base : format.default_base, sizes);
  if (has_old_spelling && read_rope(config, scaling, format, base, sizes) != rope)
    refuse_two_spellings(config, str(format.base_key, " and rope_scaling"));
  return rope;
}

namespace {

// Reads the rotary positions of transformers 4.
RopeOfTypes read_old_rope_of_types(const JsonConfig& config, const RopeOfTypesFormat& format, const RopeSizes& sizes) {
  const double base = config.value(format.full.base_key, format.full.default_base),
               sliding_base =
                   config.nullable<double>(format.sliding_base_key, format.default_sliding_base).value_or(base);
  const auto scaling = config.object("rope_scaling");
  return {read_rope(config, scaling, format.full, base, sizes),
          read_rope(config, format.scales_sliding ? scaling : std::nullopt, format.full, sliding_base, sizes)};
}

}  // namespace

RopeOfTypes read_rope_of_types(const JsonConfig& config, const RopeOfTypesFormat& format, const RopeSizes& sizes) {
  const auto parameters = config.object("rope_parameters");
  if (!parameters) return read_old_rope_of_types(config, format, sizes);
  const bool has_old_spelling = has_any_of(config, {"rope_scaling", format.full.base_key, format.sliding_base_key});
  for (const std::string& key : parameters->keys())
    if (key != kFullAttention && key != kSlidingAttention)
      refuse_input(parameters->path() + ": " + key, str("only the keys ", kFullAttention, " and ", kSlidingAttention),
                   key, kCopyConfig);
  RopeOfTypes rope{
      read_rope(config, parameters->object(kFullAttention), format.full, format.full.default_base, sizes),
      read_rope(config, parameters->object(kSlidingAttention), format.full, format.default_sliding_base, sizes)};
  if (has_old_spelling) {
    const RopeOfTypes old_rope = read_old_rope_of_types(config, format, sizes);
    if (old_rope.full != rope.full || old_rope.sliding != rope.sliding)
      refuse_two_spellings(config, str(format.full.base_key, ", ", format.sliding_base_key, " and rope_scaling"));
  }
  return rope;
}

void write_rope_of_types(const RopeOfTypes& rope, const RopeOfTypesFormat& format, const RopeSizes& sizes,
                         Json& config) {
  config[format.full.base_key] = setting_or(rope.full, "rotary.base", format.full.default_base);
  config[format.sliding_base_key] = setting_or(rope.sliding, "rotary.base", format.default_sliding_base);
  config["rope_scaling"] = rope_scaling(rope.full, format.full);
  config["rope_parameters"] = {{kFullAttention, rope_parameters(rope.full, format.full, sizes)},
                               {kSlidingAttention, rope_parameters(rope.sliding, format.full, sizes)}};
}

Json rope_parameters(const Settings& layer, const RopeFormat& format, const RopeSizes& sizes) {
  const Scaling& scaling = scaling_of(layer);
  Json parameters = Json::object();
  parameters["rope_type"] = &scaling == scalings().data() ? "default" : scaling.name;
  parameters["rope_theta"] = setting_or(layer, "rotary.base", format.default_base);
  if (format.rotary_fraction_key != nullptr)
    parameters["partial_rotary_factor"] = partial_of(rotary_size(layer, sizes.head_size), sizes.head_size);
  write_scaling(layer, format, true, parameters);
  return parameters;
}

Json rope_scaling(const Settings& layer, const RopeFormat& format) {
  const Scaling& scaling = scaling_of(layer);
  if (&scaling == scalings().data()) return nullptr;
  Json parameters = Json::object();
  parameters[format.has_plain_scaling ? "type" : "rope_type"] = scaling.name;
  write_scaling(layer, format, false, parameters);
  return parameters;
}

void write_rope(const Settings& layer, const RopeFormat& format, const RopeSizes& sizes, Json& config) {
  config[format.base_key] = setting_or(layer, "rotary.base", format.default_base);
  if (format.rotary_fraction_key != nullptr)
    config[format.rotary_fraction_key] = partial_of(rotary_size(layer, sizes.head_size), sizes.head_size);
  config["rope_scaling"] = rope_scaling(layer, format);
  config["rope_parameters"] = rope_parameters(layer, format, sizes);
  // transformers 4 reads the original length of longrope at the top only.
  if (scaling_of(layer).has_factor_lists) config[kOriginalLength] = setting_or(layer, "rotary.original_length", 0);
}

}  // namespace mh::huggingface
