// Tests of the conversion of ModernBERT's settings and tensor names.
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "fixtures/huggingface_settings.h"
#include "huggingface/architecture.h"
#include "huggingface/layer_settings.h"

using namespace mh;
using namespace mh::huggingface;
using namespace huggingface_settings;

namespace {

std::unique_ptr<Architecture> modernbert() { return architectures().make("modernbert", "model_type"); }

// Returns the settings with the keys that a complete configuration has.
Settings complete(Settings settings) {
  settings.insert({{"model.bert.next_sentence", false},
                   {"model.bert.classes", 0},
                   {"model.bert.pooler", "tanh"},
                   {"model.dropout_output", 0.0}});
  return settings;
}

}  // namespace

TEST_CASE("keys of ModernBERT missing from config.json have the defaults of transformers", "[huggingface]") {
  Settings s = settings_from("modernbert", "{}");
  CHECK(s["model.backbone"] == "bert");
  CHECK(s["model.norm"] == "pre");
  CHECK(s["model.first_norm"] == false);
  CHECK(s["model.final_norm"] == true);
  CHECK(s["model.norm_bias"] == false);
  CHECK(s["model.ffn_bias"] == false);
  CHECK(s["model.gated_ffn"] == true);
  CHECK(s["model.activation"] == "gelu");
  CHECK(s["model.positions"] == "none");
  CHECK(s["model.max_positions"] == 8192);
  CHECK(s["model.width"] == 768);
  CHECK(s["model.ffn_dim"] == 1152);
  CHECK(s["model.norm_epsilon"] == 1e-5);
  CHECK(s["model.tied"] == true);
  CHECK(s["model.bert.segments"] == 0);
  CHECK(s["model.bert.embedding_norm"] == true);
  CHECK(s["model.bert.head"] == "words");
  CHECK(s["model.bert.transform_bias"] == false);
  CHECK(s.count("model.bert.pooler") == 0);
  CHECK(s["attention.bias"] == false);
  CHECK(s["attention.transform"] == Json::array({"rotary"}));
  const LayerSettings layers = layers_of(s, 22, "encoder.self");
  for (size_t i = 0; i < 22; ++i) {
    INFO(i);
    const bool is_full = i % 3 == 0;
    CHECK(layers.of_layer(i).at("window") == (is_full ? 0 : 65));
    CHECK(layers.of_layer(i).at("rotary.base") == (is_full ? 160000.0 : 10000.0));
  }
  s = settings_from("modernbert", R"({"architectures": ["ModernBertForSequenceClassification"], "classifier_bias": true,
                                      "id2label": {"0": "a", "1": "b", "2": "c"}, "classifier_dropout": 0.3})");
  CHECK(s["model.bert.head"] == "classes");
  CHECK(s["model.bert.classes"] == 3);
  CHECK(s["model.bert.pooler"] == "transform");
  CHECK(s["model.bert.transform_bias"] == true);
  CHECK(s["model.dropout_output"] == 0.3);
}

TEST_CASE("both spellings of ModernBERT's layers and rotary positions give the same settings", "[huggingface]") {
  const std::string sizes =
      R"("hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 4, "local_attention": 6)";
  const Settings old_spelling = settings_from(
      "modernbert",
      "{" + sizes + R"(, "global_attn_every_n_layers": 2, "global_rope_theta": 500, "local_rope_theta": 50})");
  CHECK(settings_from(
            "modernbert",
            "{" + sizes +
                R"(, "layer_types": ["full_attention", "sliding_attention", "full_attention", "sliding_attention"],
             "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 500},
                                 "sliding_attention": {"rope_type": "default", "rope_theta": 50}}})") == old_spelling);
  CHECK(layers_of(old_spelling, 4, "encoder.self").of_layer(1).at("window") == 4);
  const Settings one_base =
      settings_from("modernbert", "{" + sizes + R"(, "global_rope_theta": 500, "local_rope_theta": null})");
  CHECK(layers_of(one_base, 4, "encoder.self").of_layer(1).at("rotary.base") == 500.0);
  CHECK_THAT(refusal_message("modernbert", R"({"global_rope_theta": 500, "rope_parameters": {
                                 "full_attention": {"rope_theta": 600}, "sliding_attention": {"rope_theta": 10000}}})"),
             Catch::Contains("global_rope_theta"));
}

TEST_CASE("a written config.json of ModernBERT reads back to the same settings, and each tensor name occurs once",
          "[huggingface]") {
  for (
      const std::string text :
      {R"({"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 5, "local_attention": 7})",
       R"({"num_hidden_layers": 1, "norm_bias": true, "attention_bias": true, "mlp_bias": true})",
       R"({"num_hidden_layers": 4, "global_attn_every_n_layers": 1, "tie_word_embeddings": false})",
       R"({"num_hidden_layers": 4, "rope_scaling": {"rope_type": "linear", "factor": 2.0}})",
       R"({"architectures": ["ModernBertForSequenceClassification"], "id2label": {"0": "a"}, "embedding_dropout": 0.1})",
       R"({"architectures": ["ModernBertForSequenceClassification"], "classifier_bias": true, "mlp_dropout": 0.2})"}) {
    INFO(text);
    const auto architecture = modernbert();
    const Settings s = settings_from("modernbert", text);
    CHECK(settings_of(toml_of(s)) == s);
    const Json written_config = architecture->config(complete(s));
    CHECK(settings_from("modernbert", written_config.dump()) == s);
    for (const char* key : {"tie_word_embeddings", "layer_types", "rope_parameters", "global_rope_theta",
                            "local_rope_theta", "classifier_pooling", "pad_token_id", "dtype"})
      CHECK(written_config.contains(key));
    CHECK(written_config.at("classifier_dropout").is_number());
    std::set<std::string> transformers_names, library_names;
    const TensorNames names = architecture->tensor_names(s);
    for (const TensorPair& pair : names.pairs) {
      CHECK(transformers_names.insert(pair.huggingface_name).second);
      CHECK_FALSE(architecture->is_buffer(pair.huggingface_name));
      for (const std::string& library_name : pair.multihead_names) CHECK(library_names.insert(library_name).second);
    }
    for (const auto& [copy, original] : names.aliases) {
      CHECK(transformers_names.count(copy) == 0);
      CHECK(transformers_names.count(original) == 1);
    }
  }
}

TEST_CASE("tensors of ModernBERT are blocks of queries, keys and values, and of gate and inner vectors",
          "[huggingface]") {
  const Settings s = settings_from("modernbert", R"({"num_hidden_layers": 2})");
  std::map<std::string, std::vector<std::string>> names;
  for (const TensorPair& pair : modernbert()->tensor_names(s).pairs) {
    names[pair.huggingface_name] = pair.multihead_names;
    CHECK(pair.num_groups == 1);
  }
  const std::string layer = "encoder.layers.1.";
  CHECK(names.at("layers.1.attn.Wqkv.weight") ==
        std::vector<std::string>{layer + "self.query.weight", layer + "self.key.weight", layer + "self.value.weight"});
  CHECK(names.at("layers.1.mlp.Wi.weight") ==
        std::vector<std::string>{layer + "ffn.gate.weight", layer + "ffn.up.weight"});
  CHECK(names.count("layers.0.attn_norm.weight") == 0);
  CHECK(names.at("layers.1.attn_norm.weight") == std::vector<std::string>{layer + "self.norm.weight"});
  CHECK(names.at("head.dense.weight") == std::vector<std::string>{"head.words.transform.weight"});
  CHECK(modernbert()->tensor_names(s).aliases.at("decoder.weight") == "embeddings.tok_embeddings.weight");
  CHECK(modernbert()->belongs_to_output_head("head.dense.weight"));
  CHECK(modernbert()->belongs_to_output_head("decoder.bias"));
  CHECK_FALSE(modernbert()->belongs_to_output_head("layers.0.mlp.Wo.weight"));
}

TEST_CASE("settings of ModernBERT without an equivalent are refused, and the message names the key", "[huggingface]") {
  const std::string classifier = R"({"architectures": ["ModernBertForSequenceClassification"])";
  CHECK_THAT(refusal_message("modernbert", classifier + R"(, "classifier_pooling": "mean"})"),
             Catch::Contains("classifier_pooling"));
  CHECK(refusal_message("modernbert", R"({"classifier_pooling": "mean"})").empty());  // masked words have no pooler
  CHECK_THAT(refusal_message("modernbert", R"({"decoder_bias": false})"), Catch::Contains("decoder_bias"));
  CHECK_THAT(refusal_message("modernbert", R"({"classifier_activation": "silu"})"),
             Catch::Contains("classifier_activation"));
  CHECK_THAT(refusal_message("modernbert", R"({"architectures": ["ModernBertForTokenClassification"]})"),
             Catch::Contains("ModernBertForMaskedLM"));
  CHECK_THAT(refusal_message("modernbert", R"({"local_attention": 0})"), Catch::Contains("local_attention"));
  CHECK_THAT(refusal_message("modernbert", R"({"global_attn_every_n_layers": 0})"),
             Catch::Contains("global_attn_every_n_layers"));
  CHECK_THAT(refusal_message("modernbert", R"({"is_decoder": true})"), Catch::Contains("is_decoder"));
  // transformers 4 has a window in all layers except every n-th layer.
  const Settings s = settings_from("modernbert", R"({"num_hidden_layers": 3, "layer_types": ["full_attention",
                                                     "full_attention", "sliding_attention"]})");
  CHECK_THROWS_WITH(modernbert()->config(complete(s)), Catch::Contains("attention.window"));
}
