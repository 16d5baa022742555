// Tests of the families of decoders: settings, defaults of transformers, tensor names, and the written config.json.
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "fixtures/huggingface_settings.h"
#include "huggingface/architecture.h"
#include "huggingface/layer_settings.h"

using namespace mh;
using namespace mh::huggingface;
using namespace huggingface_settings;

namespace {

// The families, and config.json of a small model of each; head_dim is free where the class reads the key.
const std::map<std::string, std::string> kSmallConfigs{
    {"llama", R"("head_dim": 12, )"},
    {"mistral", R"("head_dim": 12, "sliding_window": 5, )"},
    {"qwen2", R"("head_dim": 12, "use_sliding_window": true, "sliding_window": 5, "max_window_layers": 1, )"},
    {"qwen3", R"("head_dim": 12, )"},
    {"phi3", R"("sliding_window": 5, "partial_rotary_factor": 0.5, )"},
    {"olmo2", R"("head_dim": 12, )"},
    {"smollm3", R"("head_dim": 12, )"},
    {"gemma", R"("head_dim": 12, )"},
    {"gemma2", R"("head_dim": 12, "sliding_window": 5, "query_pre_attn_scalar": 7, )"},
    {"gemma3_text",
     R"("head_dim": 12, "sliding_window": 5, "query_pre_attn_scalar": 7, "sliding_window_pattern": 3, )"},
    {"gpt_neox", ""},
    {"falcon", ""},
    {"gptj", ""},
    {"opt", ""}};

// Returns the sizes of the small model.
std::string small_sizes(const std::string& type) {
  if (type == "gptj")
    return R"("n_embd": 32, "n_inner": 48, "n_layer": 5, "n_head": 4, "n_positions": 64, "rotary_dim": 4)";
  const std::string sizes =
      R"("hidden_size": 32, "num_hidden_layers": 5, "num_attention_heads": 4, "max_position_embeddings": 64, )";
  if (type == "falcon") return sizes + R"("ffn_hidden_size": 48)";
  if (type == "opt") return sizes + R"("ffn_dim": 48)";
  return sizes + R"("intermediate_size": 48)" + (type == "gpt_neox" ? "" : R"(, "num_key_value_heads": 2)");
}

// Returns config.json of a small model with further keys, such as R"("rope_theta": 500, )".
std::string small_config(const std::string& type, const std::string& keys = "") {
  return "{" + kSmallConfigs.at(type) + keys + small_sizes(type) + "}";
}

Settings small_settings(const std::string& type, const std::string& keys = "") {
  return settings_from(type, small_config(type, keys));
}

TensorNames names_of(const std::string& type, const Settings& settings) {
  return architectures().make(type, "model_type")->tensor_names(settings);
}

// Returns the tensor of transformers that contains a parameter; "" if there is none.
std::string tensor_of(const TensorNames& names, const std::string& parameter) {
  for (const TensorPair& pair : names.pairs)
    for (const std::string& name : pair.multihead_names)
      if (name == parameter) return pair.huggingface_name;
  return "";
}

TensorPair pair_named(const TensorNames& names, const std::string& tensor) {
  for (const TensorPair& pair : names.pairs)
    if (pair.huggingface_name == tensor) return pair;
  FAIL("no tensor " << tensor);
  return names.pairs.front();
}

}  // namespace

TEST_CASE("keys missing from config.json of a decoder have the defaults of its class in transformers",
          "[huggingface]") {
  struct Defaults {
    const char* type;
    int64_t width, ffn_dim, layers, heads, kv_heads, head_size, max_positions;
    double epsilon, base;
    bool is_tied;
    const char* activation;
  };
  for (const Defaults& d : {Defaults{"llama", 4096, 11008, 32, 32, 0, 0, 2048, 1e-6, 1e4, false, "silu"},
                            Defaults{"mistral", 4096, 14336, 32, 32, 8, 0, 131072, 1e-6, 1e4, false, "silu"},
                            Defaults{"qwen2", 4096, 22016, 32, 32, 0, 0, 32768, 1e-6, 1e4, false, "silu"},
                            Defaults{"qwen3", 4096, 22016, 32, 32, 0, 0, 32768, 1e-6, 1e4, false, "silu"},
                            Defaults{"phi3", 3072, 8192, 32, 32, 0, 0, 4096, 1e-5, 1e4, false, "silu"},
                            Defaults{"olmo2", 4096, 11008, 32, 32, 0, 0, 2048, 1e-5, 1e4, false, "silu"},
                            Defaults{"smollm3", 2048, 11008, 36, 16, 4, 0, 32768, 1e-6, 2e6, true, "silu"},
                            Defaults{"gemma", 3072, 24576, 28, 16, 0, 256, 8192, 1e-6, 1e4, true, "gelu-tanh"},
                            Defaults{"gemma2", 2304, 9216, 26, 8, 4, 256, 8192, 1e-6, 1e4, true, "gelu-tanh"},
                            Defaults{"gemma3_text", 2304, 9216, 26, 8, 4, 256, 131072, 1e-6, 1e4, true, "gelu-tanh"},
                            Defaults{"gpt_neox", 6144, 24576, 44, 64, 0, 0, 2048, 1e-5, 1e4, false, "gelu"},
                            Defaults{"falcon", 4544, 18176, 32, 71, 1, 0, 2048, 1e-5, 1e4, true, "gelu"},
                            Defaults{"gptj", 4096, 16384, 28, 16, 0, 0, 2048, 1e-5, 1e4, false, "gelu-tanh"},
                            Defaults{"opt", 768, 3072, 12, 12, 0, 0, 2048, 1e-5, 0, true, "relu"}}) {
    INFO(d.type);
    const Settings s = settings_from(d.type, "{}");
    CHECK(s.at("model.width") == d.width);
    CHECK(s.at("model.ffn_dim") == d.ffn_dim);
    CHECK(s.at("model.layers") == d.layers);
    CHECK(s.at("attention.heads") == d.heads);
    CHECK(setting_or(s, "attention.key_value_heads", 0) == d.kv_heads);
    CHECK(setting_or(s, "attention.head_size", 0) == d.head_size);
    CHECK(s.at("model.max_positions") == d.max_positions);
    CHECK(s.at("model.norm_epsilon") == d.epsilon);
    CHECK(setting_or(s, "attention.rotary.base", 0) == d.base);
    CHECK(s.at("model.tied") == d.is_tied);
    CHECK(s.at("model.activation") == d.activation);
    CHECK(s.at("model.backbone") == "decoder");
    CHECK(s.at("model.positions") == (d.base == 0 ? "learned" : "none"));
    const bool is_llama_form = !std::set<std::string>{"falcon", "gpt_neox", "gptj", "opt"}.contains(d.type);
    CHECK(s.at("model.norm_type") == (is_llama_form ? "rms" : "layer"));
    CHECK(s.at("model.gated_ffn") == is_llama_form);
  }
  // Qwen 3 has heads of 128 elements whatever its width; here 4096 / 32 is the same number.
  CHECK(settings_from("qwen3", R"({"hidden_size": 1024, "num_attention_heads": 16, "num_key_value_heads": 8})")
            .at("attention.head_size") == 128);
  CHECK(settings_from("qwen3",
                      R"({"hidden_size": 1024, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": null})")
            .at("attention.head_size") == 0);
}

TEST_CASE("a null number of key/value heads means as many as heads, and head_dim is free", "[huggingface]") {
  const Settings s = small_settings("llama");
  CHECK(s.at("attention.key_value_heads") == 2);
  CHECK(s.at("attention.head_size") == 12);
  const std::string sizes = R"("hidden_size": 32, "num_attention_heads": 4})";
  CHECK(settings_from("mistral", R"({"num_key_value_heads": null, )" + sizes).at("attention.key_value_heads") == 0);
  CHECK(settings_from("llama", R"({"num_key_value_heads": 1, )" + sizes).at("attention.key_value_heads") == 1);
  CHECK(settings_from("llama", R"({"head_dim": 8, )" + sizes).at("attention.head_size") == 0);
  CHECK_THAT(refusal_message("llama", R"({"num_key_value_heads": 3, )" + sizes),
             Catch::Contains("num_key_value_heads: expected a divisor of num_attention_heads, 4; found 3"));
  CHECK_THAT(refusal_message("mistral", "{" + sizes), Catch::Contains("found 8"));  // the default, 8, of 4 heads
  CHECK_THAT(refusal_message("llama", R"({"head_dim": 0, )" + sizes), Catch::Contains("head_dim"));
}

TEST_CASE("a missing sliding_window of Mistral is 4096, and null is no window", "[huggingface]") {
  CHECK(settings_from("mistral", "{}").at("attention.window") == 4096);
  CHECK(settings_from("mistral", R"({"sliding_window": null})").at("attention.window") == 0);
  CHECK(settings_from("mistral", R"({"sliding_window": 5})").at("attention.window") == 5);
  CHECK_THAT(refusal_message("mistral", R"({"sliding_window": 0})"), Catch::Contains("sliding_window"));
  CHECK(settings_from("phi3", "{}").at("attention.window") == 0);  // the default of Phi-3 is null
  CHECK_FALSE(settings_from("llama", R"({"sliding_window": 5})").contains("attention.window"));
}

TEST_CASE("the window of Qwen counts only with use_sliding_window, in the last layers or by layer_types",
          "[huggingface]") {
  for (const char* type : {"qwen2", "qwen3"}) {
    INFO(type);
    const auto windows = [&](const std::string& keys) {
      const Settings s = settings_from(type, "{" + keys + R"("num_hidden_layers": 4})");
      const LayerSettings layers = layers_of(s, 4);
      std::vector<int64_t> result;
      for (size_t i = 0; i < 4; ++i) result.push_back(layers.of_layer(i).at("window").get<int64_t>());
      return result;
    };
    using Windows = std::vector<int64_t>;
    CHECK(windows("") == Windows{0, 0, 0, 0});
    CHECK(windows(R"("sliding_window": 5, "max_window_layers": 1, )") == Windows{0, 0, 0, 0});
    CHECK(windows(R"("use_sliding_window": true, "sliding_window": 5, "max_window_layers": 1, )") ==
          Windows{0, 5, 5, 5});
    CHECK(windows(R"("use_sliding_window": true, "sliding_window": 5, )") == Windows{0, 0, 0, 0});  // from layer 28 on
    CHECK(windows(R"("use_sliding_window": true, "max_window_layers": 3, )") == Windows{0, 0, 0, 4096});
    CHECK(windows(R"("use_sliding_window": true, "sliding_window": null, "max_window_layers": 0, )") ==
          Windows{0, 0, 0, 0});
    const std::string types =
        R"("layer_types": ["sliding_attention", "full_attention", "full_attention", "sliding_attention"], )";
    CHECK(windows(R"("use_sliding_window": true, "sliding_window": 5, )" + types) == Windows{5, 0, 0, 5});
    CHECK(windows(R"("sliding_window": 5, )" + types) == Windows{0, 0, 0, 0});
  }
}

TEST_CASE("Qwen 2 always has biases of queries, keys and values, and none of the output", "[huggingface]") {
  const Settings s = small_settings("qwen2");
  CHECK(s.at("attention.bias") == true);
  CHECK(s.at("attention.output_bias") == "false");
  const TensorNames names = names_of("qwen2", s);
  for (const char* name : {"query", "key", "value"})
    CHECK_FALSE(tensor_of(names, std::string("decoder.layers.0.self.") + name + ".bias").empty());
  CHECK(tensor_of(names, "decoder.layers.0.self.output.bias").empty());
}

TEST_CASE("attention_bias means biases of all four projections, and mlp_bias of all of the feed-forward sublayer",
          "[huggingface]") {
  for (const char* type : {"llama", "qwen3", "olmo2", "smollm3", "gemma", "gemma2", "gemma3_text"}) {
    INFO(type);
    for (const bool has_bias : {false, true}) {
      const Settings s = small_settings(type, has_bias ? R"("attention_bias": true, )" : "");
      CHECK(s.at("attention.bias") == has_bias);
      const TensorNames names = names_of(type, s);
      for (const char* name : {"query", "key", "value", "output"})
        CHECK(tensor_of(names, std::string("decoder.layers.1.self.") + name + ".bias").empty() != has_bias);
      CHECK(tensor_of(names, "decoder.layers.1.ffn.up.bias").empty());
    }
  }
  for (const char* type : {"llama", "smollm3"}) {
    const Settings s = small_settings(type, R"("mlp_bias": true, )");
    CHECK(s.at("model.ffn_bias") == true);
    for (const char* name : {"gate", "up", "down"})
      CHECK_FALSE(tensor_of(names_of(type, s), std::string("decoder.layers.1.ffn.") + name + ".bias").empty());
  }
  const Settings neox = small_settings("gpt_neox", R"("attention_bias": false, )");
  CHECK(tensor_of(names_of("gpt_neox", neox), "decoder.layers.0.self.output.bias").empty());
  CHECK(tensor_of(names_of("gpt_neox", neox), "decoder.layers.0.self.query.bias").empty());
  CHECK_FALSE(tensor_of(names_of("gpt_neox", neox), "decoder.layers.0.ffn.up.bias").empty());
}

TEST_CASE("norms of queries and keys are per head in Qwen 3 and Gemma 3, and joint in OLMo 2", "[huggingface]") {
  for (const auto& [type, scope] : {std::pair{"qwen3", "head"}, {"gemma3_text", "head"}, {"olmo2", "joint"}}) {
    INFO(type);
    const Settings s = small_settings(type, R"("rms_norm_eps": 1e-3, )");
    CHECK(s.at("attention.qk-norm.scope") == scope);
    CHECK(s.at("attention.qk-norm.epsilon") == 1e-3);
    CHECK(s.at("model.norm_epsilon") == 1e-3);
    CHECK(s.at("attention.transform") == Json::array({"qk-norm", "rotary"}));
    CHECK(tensor_of(names_of(type, s), "decoder.layers.2.self.query_norm.weight") ==
          "layers.2.self_attn.q_norm.weight");
    CHECK(tensor_of(names_of(type, s), "decoder.layers.2.self.key_norm.weight") == "layers.2.self_attn.k_norm.weight");
  }
  CHECK(small_settings("llama").at("attention.transform") == Json::array({"rotary"}));
}

TEST_CASE(
    "post_attention_layernorm precedes the feed-forward sublayer, or follows attention in OLMo 2, Gemma 2 and Gemma 3",
    "[huggingface]") {
  const std::string layer = "decoder.layers.0.";
  for (const char* type : {"llama", "gemma"}) {
    const Settings s = small_settings(type);
    CHECK(s.at("model.norm") == "pre");
    CHECK(tensor_of(names_of(type, s), layer + "self.norm.weight") == "layers.0.input_layernorm.weight");
    CHECK(tensor_of(names_of(type, s), layer + "ffn.norm.weight") == "layers.0.post_attention_layernorm.weight");
    CHECK(tensor_of(names_of(type, s), layer + "self.output_norm.weight").empty());
  }
  const Settings olmo2 = small_settings("olmo2"), gemma2 = small_settings("gemma2"),
                 gemma3 = small_settings("gemma3_text");
  CHECK(olmo2.at("model.norm") == "output");
  CHECK(gemma2.at("model.norm") == "around");
  CHECK(gemma3.at("model.norm") == "around");
  for (const auto& [type, settings] :
       {std::pair{"olmo2", olmo2}, std::pair{"gemma2", gemma2}, {"gemma3_text", gemma3}}) {
    const TensorNames names = names_of(type, settings);
    CHECK(tensor_of(names, layer + "self.output_norm.weight") == "layers.0.post_attention_layernorm.weight");
    CHECK(tensor_of(names, layer + "ffn.output_norm.weight") == "layers.0.post_feedforward_layernorm.weight");
  }
  CHECK(tensor_of(names_of("olmo2", olmo2), layer + "self.norm.weight").empty());
  CHECK(tensor_of(names_of("olmo2", olmo2), layer + "ffn.norm.weight").empty());
  for (const auto& [type, settings] : {std::pair{"gemma2", gemma2}, {"gemma3_text", gemma3}}) {
    CHECK(tensor_of(names_of(type, settings), layer + "self.norm.weight") == "layers.0.input_layernorm.weight");
    CHECK(tensor_of(names_of(type, settings), layer + "ffn.norm.weight") ==
          "layers.0.pre_feedforward_layernorm.weight");
  }
  CHECK(tensor_of(names_of("gemma2", gemma2), layer + "self.query_norm.weight").empty());
}

TEST_CASE("all norms of Gemma, and no other tensors, are stored minus 1", "[huggingface]") {
  for (const auto& [type, config] : kSmallConfigs) {
    INFO(type);
    const bool is_gemma = type.starts_with("gemma");
    for (const TensorPair& pair : names_of(type, small_settings(type)).pairs) {
      INFO(pair.huggingface_name);
      const bool is_norm = pair.huggingface_name.find("norm") != std::string::npos;
      CHECK(pair.addend == (is_gemma && is_norm ? 1 : 0));
    }
    CHECK(small_settings(type).at("model.scale_embedding") == is_gemma);
  }
}

TEST_CASE("the activation gelu of Gemma means gelu-tanh, and hidden_activation has no effect there", "[huggingface]") {
  CHECK(settings_from("gemma", R"({"hidden_act": "gelu"})").at("model.activation") == "gelu-tanh");
  CHECK(settings_from("gemma", R"({"hidden_act": "gelu", "hidden_activation": null})").at("model.activation") ==
        "gelu-tanh");
  CHECK(settings_from("gemma", R"({"hidden_act": "relu"})").at("model.activation") == "relu");
  CHECK(settings_from("gemma3_text", R"({"hidden_activation": "gelu"})").at("model.activation") == "gelu");
  CHECK(settings_from("gpt_neox", R"({"hidden_act": "gelu"})").at("model.activation") == "gelu");
}

TEST_CASE("SmolLM3 has no rotary positions in every fourth layer, or in the layers of no_rope_layers",
          "[huggingface]") {
  const auto rotating = [](const std::string& keys) {
    const Settings s = settings_from("smollm3", "{" + keys + R"("num_hidden_layers": 5})");
    const LayerSettings layers = layers_of(s, 5);
    std::string result;
    for (size_t i = 0; i < 5; ++i) result += layers.of_layer(i).at("transform").empty() ? '0' : '1';
    return result;
  };
  CHECK(rotating("") == "11101");
  CHECK(rotating(R"("no_rope_layer_interval": 2, )") == "10101");
  CHECK(rotating(R"("no_rope_layers": [0, 1, 1, 1, 0], )") == "01110");
  CHECK(rotating(R"("no_rope_layers": [0, 0, 0, 0, 0], )") == "00000");
  CHECK_THAT(refusal_message("smollm3", R"({"no_rope_layers": [1, 0], "num_hidden_layers": 5})"),
             Catch::Contains("no_rope_layers: expected a number for each of the 5 layers"));
  CHECK_THAT(refusal_message("smollm3", R"({"no_rope_layers": [1, 2], "num_hidden_layers": 2})"),
             Catch::Contains("no_rope_layers"));
  // A window, which is off by default, is in the layers without positions.
  const Settings s =
      settings_from("smollm3", R"({"num_hidden_layers": 5, "use_sliding_window": true, "sliding_window": 7})");
  const LayerSettings layers = layers_of(s, 5);
  CHECK(layers.of_layer(3).at("window") == 7);
  CHECK(layers.of_layer(2).at("window") == 0);
}

TEST_CASE("Gemma 3 has a window and an unscaled base of its own in five of six layers", "[huggingface]") {
  const Settings s = settings_from("gemma3_text", R"({"num_hidden_layers": 7, "sliding_window": 5, "rope_theta": 500000,
      "rope_local_base_freq": 700, "rope_scaling": {"rope_type": "linear", "factor": 8}})");
  const LayerSettings layers = layers_of(s, 7);
  for (size_t i = 0; i < 7; ++i) {
    const bool is_full = i == 5;
    CHECK(layers.of_layer(i).at("window") == (is_full ? 0 : 5));
    CHECK(layers.of_layer(i).at("rotary.base") == (is_full ? 500000 : 700));
    CHECK(layers.of_layer(i).at("rotary.scaling") == (is_full ? "linear" : "none"));
  }
  CHECK(layers.of_layer(5).at("rotary.factor") == 8.0);
  CHECK_FALSE(layers.of_layer(0).contains("rotary.factor"));
  // transformers 5 has an object for each kind of layer.
  const std::string nested = R"("num_hidden_layers": 7, "sliding_window": 5, "rope_parameters": {
      "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 500000},
      "sliding_attention": {"rope_type": "default", "rope_theta": 700}}})";
  CHECK(settings_from("gemma3_text", "{" + nested) == s);
  CHECK_THAT(refusal_message("gemma3_text", R"({"rope_local_base_freq": 900, )" + nested),
             Catch::Contains("rope_local_base_freq"));
  CHECK_THAT(refusal_message("gemma3_text", R"({"rope_parameters": {"rope_theta": 7}})"),
             Catch::Contains("rope_parameters: rope_theta"));
  CHECK(settings_from("gemma3_text", R"({"num_hidden_layers": 7})").at("attention.decoder.self.5.rotary.base") == 1e6);
  // The default window is 4096, and null is none.
  CHECK(settings_from("gemma3_text", "{}").at("attention.window") == 4096);
  CHECK(settings_from("gemma3_text", R"({"sliding_window": null})").at("attention.window") == 0);
  const Settings by_types = settings_from(
      "gemma3_text", R"({"num_hidden_layers": 2, "layer_types": ["full_attention", "sliding_attention"]})");
  CHECK(layers_of(by_types, 2).of_layer(0).at("window") == 0);
  CHECK(layers_of(by_types, 2).of_layer(1).at("window") == 4096);
}

TEST_CASE("Gemma 3 with sliding_window null keeps the rotary positions of both types of layers", "[huggingface]") {
  const auto architecture = architectures().make("gemma3_text", "model_type");
  for (const std::string keys : {"", R"("rope_scaling": {"rope_type": "linear", "factor": 8}, )",
                                 R"("layer_types": ["full_attention", "sliding_attention"], "num_hidden_layers": 2, )",
                                 R"("layer_types": ["full_attention", "sliding_attention"], "num_hidden_layers": 2,
           "rope_scaling": {"rope_type": "linear", "factor": 8}, )"}) {
    INFO(keys);
    const Settings s = settings_from("gemma3_text", "{" + keys + R"("sliding_window": null})");
    const Json written = architecture->config(s);
    CHECK(written.at("sliding_window").is_null());
    CHECK(settings_from("gemma3_text", written.dump()) == s);
  }
  // With one type of layers, transformers ignores the window, but requires a number.
  const Settings s =
      settings_from("gemma3_text", R"({"sliding_window_pattern": 1, "num_hidden_layers": 2, "sliding_window": null})");
  CHECK(architecture->config(s).at("sliding_window") == 4096);
}

TEST_CASE("Gemma 2 has a window in even layers or by layer_types, and the same rotary positions in all layers",
          "[huggingface]") {
  const auto windows = [](const std::string& keys) {
    const LayerSettings layers = layers_of(settings_from("gemma2", "{" + keys + R"("num_hidden_layers": 3})"), 3);
    std::vector<int64_t> result;
    for (size_t i = 0; i < 3; ++i) {
      result.push_back(layers.of_layer(i).at("window").get<int64_t>());
      CHECK(layers.of_layer(i).at("rotary.base") == 10000);
      CHECK(layers.of_layer(i).at("transform") == Json::array({"rotary"}));
    }
    return result;
  };
  using Windows = std::vector<int64_t>;
  CHECK(windows("") == Windows{4096, 0, 4096});
  CHECK(windows(R"("sliding_window": 5, )") == Windows{5, 0, 5});
  CHECK(windows(R"("sliding_window": null, )") == Windows{0, 0, 0});
  CHECK(windows(R"("sliding_window": 5, "layer_types": ["full_attention", "sliding_attention", "full_attention"], )") ==
        Windows{0, 5, 0});
}

TEST_CASE("the soft caps of Gemma 2 are 50 and 30 if the keys are missing, of Gemma 3 none, and null is none",
          "[huggingface]") {
  for (const auto& [type, attention_cap, output_cap] :
       {std::tuple{"gemma2", 50.0, 30.0}, std::tuple{"gemma3_text", 0.0, 0.0}}) {
    INFO(type);
    const auto architecture = architectures().make(type, "model_type");
    const auto check = [&, type = type](const std::string& keys, double attention, double output) {
      const Settings s = settings_from(type, "{" + keys + "}");
      CHECK(s.at("attention.soft_cap") == attention);
      CHECK(s.at("model.output_soft_cap") == output);
      const Json written = architecture->config(s);
      CHECK(written.at("attn_logit_softcapping") == (attention == 0 ? Json() : Json(attention)));
      CHECK(written.at("final_logit_softcapping") == (output == 0 ? Json() : Json(output)));
    };
    check("", attention_cap, output_cap);
    check(R"("attn_logit_softcapping": null, "final_logit_softcapping": null)", 0, 0);
    check(R"("attn_logit_softcapping": 20, "final_logit_softcapping": 1.5)", 20, 1.5);
  }
}

TEST_CASE("query_pre_attn_scalar of Gemma 2 and 3 sets the scale of the logits, and reads back", "[huggingface]") {
  for (const char* type : {"gemma2", "gemma3_text"}) {
    for (const char* scalar : {"7", "256", "144", "1", "168", "3"}) {
      INFO(type << " " << scalar);
      const Settings s = settings_from(type, std::string(R"({"query_pre_attn_scalar": )") + scalar + "}");
      const double value = std::stod(scalar);
      CHECK(s.at("attention.scale") == (value == 256 ? 0 : 1 / std::sqrt(value)));  // 256: the head size
      CHECK(architectures().make(type, "model_type")->config(s).at("query_pre_attn_scalar") == value);
    }
    CHECK(settings_from(type, "{}").at("attention.scale") == 0);
    CHECK(settings_from(type, R"({"head_dim": 128})").at("attention.scale") == 0.0625);
  }
}

TEST_CASE("the heads of GPT-NeoX are interleaved in one tensor, and its sublayers are parallel by default",
          "[huggingface]") {
  const Settings s = small_settings("gpt_neox");
  CHECK(s.at("model.residual") == "parallel");
  CHECK(small_settings("gpt_neox", R"("use_parallel_residual": false, )").at("model.residual") == "sequential");
  CHECK(s.at("attention.rotary.size") == 2);  // a quarter of 8
  CHECK(small_settings("gpt_neox", R"("rotary_pct": 1.0, "rotary_emb_base": 500, )").at("attention.rotary.base") ==
        500.0);
  // transformers 4 repeats the numbers under other names, which it ignores.
  CHECK(small_settings("gpt_neox", R"("rope_theta": 3, "partial_rotary_factor": 0.75, )") == s);
  for (const char* suffix : {".weight", ".bias"}) {
    const TensorPair pair =
        pair_named(names_of("gpt_neox", s), std::string("layers.0.attention.query_key_value") + suffix);
    CHECK(pair.num_groups == 4);
    CHECK(pair.multihead_names == std::vector<std::string>{std::string("decoder.layers.0.self.query") + suffix,
                                                           std::string("decoder.layers.0.self.key") + suffix,
                                                           std::string("decoder.layers.0.self.value") + suffix});
  }
  // The output layer is embed_out in files, and lm_head in memory of transformers 5.
  CHECK(names_of("gpt_neox", s).aliases.at("lm_head.weight") == "embed_out.weight");
  const TensorNames tied = names_of("gpt_neox", small_settings("gpt_neox", R"("tie_word_embeddings": true, )"));
  CHECK(tied.aliases == std::map<std::string, std::string>{{"embed_out.weight", "embed_in.weight"},
                                                           {"lm_head.weight", "embed_in.weight"}});
}

TEST_CASE("the forms of Falcon differ in residual connections, norms, and the groups of their fused tensor",
          "[huggingface]") {
  struct Form {
    const char* keys;
    const char* residual;
    int64_t kv_heads, num_groups;
    std::vector<std::string> norms;  // of attention and of the feed-forward sublayer
  };
  for (const Form& form :
       {Form{"", "parallel-shared", 1, 1, {"input_layernorm", ""}},
        Form{R"("new_decoder_architecture": true, "num_kv_heads": 2, )", "parallel", 2, 2, {"ln_attn", "ln_mlp"}},
        Form{R"("new_decoder_architecture": true, )", "parallel", 0, 4, {"ln_attn", "ln_mlp"}},
        Form{R"("new_decoder_architecture": true, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1, )",
             "parallel-shared",
             2,
             2,
             {"input_layernorm", ""}},
        Form{R"("multi_query": false, "parallel_attn": false, )",
             "sequential",
             0,
             4,
             {"input_layernorm", "post_attention_layernorm"}}}) {
    INFO(form.keys);
    const Settings s = small_settings("falcon", form.keys);
    CHECK(s.at("model.residual") == form.residual);
    CHECK(s.at("attention.key_value_heads") == form.kv_heads);
    CHECK(s.at("attention.bias") == false);
    CHECK(s.at("model.ffn_bias") == false);
    const TensorNames names = names_of("falcon", s);
    const TensorPair pair = pair_named(names, "h.0.self_attention.query_key_value.weight");
    CHECK(pair.num_groups == form.num_groups);
    CHECK(pair.multihead_names == std::vector<std::string>{"decoder.layers.0.self.query.weight",
                                                           "decoder.layers.0.self.key.weight",
                                                           "decoder.layers.0.self.value.weight"});
    for (const char* suffix : {".weight", ".bias"}) {
      CHECK(tensor_of(names, std::string("decoder.layers.0.self.norm") + suffix) == "h.0." + form.norms[0] + suffix);
      CHECK(tensor_of(names, std::string("decoder.layers.0.ffn.norm") + suffix) ==
            (form.norms[1].empty() ? "" : "h.0." + form.norms[1] + suffix));
    }
  }
  CHECK_FALSE(
      tensor_of(names_of("falcon", small_settings("falcon", R"("bias": true, )")), "decoder.layers.0.self.output.bias")
          .empty());
  CHECK_THAT(refusal_message("falcon", R"({"alibi": true})"), Catch::Contains("alibi"));
  CHECK_THAT(refusal_message("falcon", R"({"new_decoder_architecture": true, "parallel_attn": false})"),
             Catch::Contains("parallel_attn"));
  CHECK_THAT(refusal_message("falcon", R"({"new_decoder_architecture": true, "num_ln_in_parallel_attn": 3})"),
             Catch::Contains("null, 1 or 2"));
  CHECK_THAT(refusal_message("falcon", R"({"num_ln_in_parallel_attn": 2})"), Catch::Contains("null or 1 without"));
  CHECK_THAT(refusal_message("falcon", R"({"new_decoder_architecture": true, "num_kv_heads": 3})"),
             Catch::Contains("num_kv_heads: expected a divisor of num_attention_heads, 71; found 3"));
}

TEST_CASE("GPT-J has adjacent rotary pairs, one norm a layer, and a bias of the output layer", "[huggingface]") {
  const Settings s = small_settings("gptj");
  CHECK(s.at("model.residual") == "parallel-shared");
  CHECK(s.at("attention.rotary.size") == 4);
  const TensorNames names = names_of("gptj", s);
  for (const char* name : {"q_proj", "k_proj", "v_proj"}) {
    const TensorPair pair = pair_named(names, std::string("h.0.attn.") + name + ".weight");
    CHECK(pair.num_interleaved_rows == (name[0] == 'v' ? 0 : 4));
    CHECK(pair.head_rows == (name[0] == 'v' ? 0 : 8));
  }
  CHECK(tensor_of(names, "decoder.output.bias") == "lm_head.bias");
  CHECK(tensor_of(names, "decoder.layers.0.self.query.bias").empty());
  CHECK(tensor_of(names, "decoder.layers.0.ffn.norm.weight").empty());
  CHECK(tensor_of(names, "decoder.layers.0.ffn.down.bias") == "h.0.mlp.fc_out.bias");
  const auto architecture = architectures().make("gptj", "model_type");
  CHECK(architecture->is_buffer("h.0.attn.bias"));
  CHECK_FALSE(architecture->is_buffer("h.0.attn.q_proj.bias"));
  const std::string sizes = R"("n_embd": 32, "n_head": 4})";
  CHECK(settings_from("gptj", R"({"rotary_dim": 8, )" + sizes).at("attention.rotary.size") == 0);  // the whole head
  for (const char* size : {"3", "10", "0", "null"})
    CHECK_THAT(refusal_message("gptj", std::string(R"({"rotary_dim": )") + size + ", " + sizes),
               Catch::Contains("rotary_dim: expected an even number from 2 to 8"));
}

TEST_CASE("the positions of OPT begin at the third row, and its norms precede the sublayers by default",
          "[huggingface]") {
  const Settings s = small_settings("opt");
  const TensorNames names = names_of("opt", s);
  CHECK(pair_named(names, "decoder.embed_positions.weight").num_unused_rows == 2);
  CHECK(tensor_of(names, "decoder.layers.0.self.norm.bias") == "decoder.layers.0.self_attn_layer_norm.bias");
  CHECK(tensor_of(names, "decoder.layers.0.ffn.norm.weight") == "decoder.layers.0.final_layer_norm.weight");
  CHECK(tensor_of(names, "decoder.norm.weight") == "decoder.final_layer_norm.weight");
  CHECK(s.at("model.norm") == "pre");
  const Settings post = small_settings("opt", R"("do_layer_norm_before": false, )");
  CHECK(post.at("model.norm") == "post");
  CHECK(tensor_of(names_of("opt", post), "decoder.norm.weight").empty());
  const TensorNames without_bias = names_of("opt", small_settings("opt", R"("enable_bias": false, )"));
  for (const char* name : {"self.query.bias", "self.output.bias", "ffn.up.bias", "ffn.down.bias"})
    CHECK(tensor_of(without_bias, std::string("decoder.layers.0.") + name).empty());
  CHECK(settings_from("opt", R"({"word_embed_proj_dim": 768})").at("model.width") == 768);
  CHECK_THAT(refusal_message("opt", R"({"word_embed_proj_dim": 512})"), Catch::Contains("word_embed_proj_dim"));
  CHECK_THAT(refusal_message("opt", R"({"layer_norm_elementwise_affine": false})"),
             Catch::Contains("layer_norm_elementwise_affine"));
}

TEST_CASE("Phi-3 fuses its projections in blocks, and has dropouts of its own", "[huggingface]") {
  const Settings s = small_settings("phi3", R"("resid_pdrop": 0.25, "embd_pdrop": 0.5, "attention_dropout": 0.125, )");
  CHECK(s.at("model.dropout_attention") == 0.25);
  CHECK(s.at("model.dropout_ffn") == 0.25);
  CHECK(s.at("model.dropout_embedding") == 0.5);
  CHECK(s.at("attention.dropout") == 0.125);
  const TensorNames names = names_of("phi3", s);
  CHECK(pair_named(names, "layers.0.self_attn.qkv_proj.weight").multihead_names ==
        std::vector<std::string>{"decoder.layers.0.self.query.weight", "decoder.layers.0.self.key.weight",
                                 "decoder.layers.0.self.value.weight"});
  CHECK(pair_named(names, "layers.0.self_attn.qkv_proj.weight").num_groups == 1);
  CHECK(pair_named(names, "layers.0.mlp.gate_up_proj.weight").multihead_names ==
        std::vector<std::string>{"decoder.layers.0.ffn.gate.weight", "decoder.layers.0.ffn.up.weight"});
}

TEST_CASE("an output layer is an alias of the embedding if they are tied, and otherwise required", "[huggingface]") {
  for (const auto& [type, config] : kSmallConfigs) {
    INFO(type);
    for (const bool is_tied : {false, true}) {
      const Settings s =
          small_settings(type, is_tied ? R"("tie_word_embeddings": true, )" : R"("tie_word_embeddings": false, )");
      const TensorNames names = names_of(type, s);
      CHECK(tensor_of(names, "decoder.output.weight").empty() == is_tied);
      if (is_tied) {
        CHECK(names.aliases.at("lm_head.weight") == names.pairs.front().huggingface_name);
        continue;
      }
      const TensorPair& pair = names.pairs.back();
      CHECK(pair.component.empty());
      REQUIRE(pair.missing_advice != nullptr);
      CHECK_THAT(std::string(pair.missing_advice), Catch::Contains("tie_word_embeddings = true"));
    }
  }
}

TEST_CASE("a written config.json of a decoder has both spellings, all defaults, and reads back to the same settings",
          "[huggingface]") {
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases{
      {"llama",
       {"", R"("attention_bias": true, "mlp_bias": true, "tie_word_embeddings": true, )", R"("hidden_act": "gelu", )",
        R"("rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1,
            "high_freq_factor": 4, "original_max_position_embeddings": 16}, )",
        R"("rope_scaling": {"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 16}, )",
        R"("rope_scaling": {"rope_type": "dynamic", "factor": 2}, )"}},
      {"mistral", {"", R"("attention_dropout": 0.25, )"}},
      {"qwen2",
       {"",
        R"("layer_types": ["sliding_attention", "full_attention", "full_attention", "full_attention", "sliding_attention"], )"}},
      {"qwen3", {"", R"("attention_bias": true, "rms_norm_eps": 1e-5, )"}},
      {"phi3",
       {"", R"("resid_pdrop": 0.25, "rope_scaling": {"type": "su", "short_factor": [1, 2], "long_factor": [3, 4]},
                "original_max_position_embeddings": 16, )"}},
      {"olmo2", {"", R"("rope_scaling": {"type": "linear", "factor": 2.0}, )"}},
      {"smollm3", {"", R"("no_rope_layers": [0, 0, 1, 0, 0], "use_sliding_window": true, "sliding_window": 7, )"}},
      {"gemma", {"", R"("hidden_act": "gelu", )", R"("hidden_act": "relu", )"}},
      {"gemma2",
       {"", R"("rope_scaling": {"rope_type": "linear", "factor": 8}, "final_logit_softcapping": null, )",
        R"("layer_types": ["full_attention", "full_attention", "sliding_attention", "full_attention", "full_attention"],
           "attn_logit_softcapping": 2.5, )"}},
      {"gemma3_text", {"", R"("rope_scaling": {"rope_type": "linear", "factor": 8}, "final_logit_softcapping": 20, )"}},
      {"gpt_neox",
       {"", R"("use_parallel_residual": false, "attention_bias": false, "rotary_pct": 1.0, "hidden_dropout": 0.25, )"}},
      {"falcon",
       {"", R"("new_decoder_architecture": true, "num_kv_heads": 2, )",
        R"("new_decoder_architecture": true, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1, )",
        R"("new_decoder_architecture": true, "num_kv_heads": 1, )",
        R"("multi_query": false, "parallel_attn": false, "bias": true, "rope_theta": 500, )",
        R"("multi_query": false, "rope_scaling": {"rope_type": "linear", "factor": 2}, )",
        R"("num_ln_in_parallel_attn": 1, "hidden_dropout": 0.25, "tie_word_embeddings": false, )"}},
      {"gptj", {"", R"("tie_word_embeddings": true, "resid_pdrop": 0.25, "activation_function": "relu", )"}},
      {"opt",
       {"", R"("do_layer_norm_before": false, "dropout": 0.25, )", R"("_remove_final_layer_norm": true, )",
        R"("enable_bias": false, "tie_word_embeddings": false, )"}}};
  CHECK(cases.size() == kSmallConfigs.size());
  for (const auto& [type, variants] : cases)
    for (const std::string& keys : variants) {
      INFO(type << " " << keys);
      const auto architecture = architectures().make(type, "model_type");
      const Settings s = small_settings(type, keys);
      const Json written = architecture->config(settings_of(toml_of(s)));
      CHECK(settings_from(type, written.dump()) == s);
      CHECK(written.at("model_type") == type);
      // Keys whose defaults differ between classes or versions are written, null where that is the value.
      for (const char* key : {"tie_word_embeddings", "use_cache", type == "opt" ? "init_std" : "initializer_range",
                              "dtype", "bos_token_id", "eos_token_id", "pad_token_id"})
        CHECK(written.contains(key));
      if (type == "gptj") CHECK((written.contains("rotary_dim") && written.contains("n_positions")));
      else if (type == "opt") CHECK(written.contains("max_position_embeddings"));
      else
        for (const char* key : {"rope_scaling", "rope_parameters", "max_position_embeddings",
                                type == "gpt_neox" ? "rotary_emb_base" : "rope_theta"})
          CHECK(written.contains(key));
      CHECK(written.at("pad_token_id").is_null());
      const JsonConfig file = config(written.dump());
      architecture->settings(file, {});
      const std::set<std::string> known_unread{"architectures", "model_type",   "bos_token_id",
                                               "eos_token_id",  "pad_token_id", "dtype"};
      for (const std::string& key : file.unread_keys()) CHECK(known_unread.contains(key));
      // Each tensor and parameter occurs once.
      std::set<std::string> tensors, parameters;
      const TensorNames names = architecture->tensor_names(s);
      for (const TensorPair& pair : names.pairs) {
        CHECK(tensors.insert(pair.huggingface_name).second);
        CHECK_FALSE(architecture->is_buffer(pair.huggingface_name));
        CHECK(canonical_name(architecture->tensor_prefix() + pair.huggingface_name, architecture->tensor_prefix()) ==
              pair.huggingface_name);
        for (const std::string& name : pair.multihead_names) CHECK(parameters.insert(name).second);
      }
    }
}

TEST_CASE("config.json of a decoder without heads has no number that is not finite, and does not read back",
          "[huggingface]") {
  for (const auto& [type, text] : kSmallConfigs)
    for (const bool has_overrides : {false, true}) {
      INFO(type << " " << has_overrides);
      Settings s = small_settings(type);
      if (has_overrides)
        for (int layer = 0; layer < 5; ++layer) s[str("attention.decoder.self.", layer, ".heads")] = 0;
      else s["attention.heads"] = 0;
      const Json written = architectures().make(type, "model_type")->config(s);
      const Json parameters = written.value("rope_parameters", Json::object());
      for (const Json* object : {&written, &parameters})
        for (const auto& [key, value] : object->items()) {
          INFO(key);
          if (value.is_number_float()) CHECK(std::isfinite(value.get<double>()));
        }
      if (!has_overrides) CHECK_FALSE(refusal_message(type, written.dump()).empty());
    }
}

TEST_CASE("all keys of settings are in [model] and [attention], and no setting is null", "[huggingface]") {
  for (const auto& [type, text] : kSmallConfigs)
    for (const auto& [key, value] : small_settings(type)) {
      INFO(type << " " << key);
      CHECK((key.starts_with("model.") || key.starts_with("attention.")));
      CHECK_FALSE(value.is_null());
    }
}
