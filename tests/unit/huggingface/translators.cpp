// Tests of the encoder-decoders Marian, T5 and mT5: settings, defaults of transformers, tensor names, refusals, and the
// written config.json.
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <set>
#include <string>

#include "fixtures/huggingface_settings.h"
#include "fixtures/sentencepiece_model.h"
#include "huggingface/architecture.h"

using namespace mh;
using namespace mh::huggingface;
using namespace huggingface_settings;

namespace {

constexpr const char* kStart = "model.encoder-decoder.start_token";

// Returns config.json of a small model with further keys, such as R"("d_kv": 12)".
std::string small_config(const std::string& type, const std::string& keys = "") {
  const std::string sizes =
      type == "marian"
          ? R"({"d_model": 32, "encoder_layers": 2, "decoder_layers": 3, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48,
               "encoder_attention_heads": 4, "decoder_attention_heads": 4, "pad_token_id": 13, "decoder_start_token_id": 13})"
          : R"({"d_model": 32, "d_ff": 48, "d_kv": 12, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 4,
               "decoder_start_token_id": 0})";
  Json config = Json::parse(sizes);
  config.update(Json::parse("{" + keys + "}"));
  return config.dump();
}

Settings small_settings(const std::string& type, const std::string& keys = "") {
  return settings_from(type, small_config(type, keys));
}

// Returns the tensor of transformers of each parameter.
std::map<std::string, std::string> tensors_by_parameter(const std::string& type, const Settings& settings) {
  std::map<std::string, std::string> result;
  for (const TensorPair& pair : architectures().make(type, "model_type")->tensor_names(settings).pairs)
    for (const std::string& name : pair.multihead_names) {
      CHECK(result.count(name) == 0);
      result[name] = pair.huggingface_name;
    }
  return result;
}

}  // namespace

TEST_CASE("keys missing from config.json of an encoder-decoder have the defaults of transformers", "[huggingface]") {
  Settings s = settings_from("marian", "{}");
  CHECK(s["model.width"] == 1024);
  CHECK(s["model.layers"] == 12);
  CHECK(s["attention.heads"] == 16);
  CHECK(s["model.ffn_dim"] == 4096);
  CHECK(s["model.activation"] == "gelu");
  CHECK(s["model.scale_embedding"] == false);
  CHECK(s["model.tied"] == true);
  CHECK(s["model.encoder-decoder.shared_embedding"] == true);
  CHECK(s[kStart] == 58100);
  s = settings_from("t5", "{}");
  CHECK(s["model.width"] == 512);
  CHECK(s["model.layers"] == 6);
  CHECK(s["model.encoder-decoder.encoder_layers"] == 6);
  CHECK(s["attention.head_size"] == 0);
  CHECK(s["model.activation"] == "relu");
  CHECK(s["model.gated_ffn"] == false);
  CHECK(s["model.norm_epsilon"] == 1e-6);
  CHECK(s["model.output_scale"] == 1 / std::sqrt(512.0));
  CHECK(s["attention.encoder.self.t5.buckets"] == 32);
  CHECK(s["attention.decoder.self.t5.max_distance"] == 128);
  CHECK(s[kStart] == 0);
  s = settings_from("mt5", "{}");
  CHECK(s["model.ffn_dim"] == 1024);
  CHECK(s["model.layers"] == 8);
  CHECK(s["attention.heads"] == 6);
  CHECK(s["attention.head_size"] == 64);
  CHECK(s["model.activation"] == "gelu-tanh");
  CHECK(s["model.gated_ffn"] == true);
  CHECK(s["model.tied"] == false);
  CHECK(s["model.output_scale"] == 1.0);
}

TEST_CASE("settings of encoder and decoder that differ are read and written", "[huggingface]") {
  Settings s = small_settings("marian", R"("encoder_attention_heads": 2, "activation_function": "swish")");
  CHECK(s["model.encoder-decoder.encoder_layers"] == 2);
  CHECK(s["model.layers"] == 3);
  CHECK(s["attention.heads"] == 4);
  CHECK(s["attention.encoder.self.heads"] == 2);
  CHECK(s["model.activation"] == "silu");
  Json config = architectures().make("marian", "model_type")->config(s);
  CHECK(config["encoder_layers"] == 2);
  CHECK(config["decoder_layers"] == 3);
  CHECK(config["encoder_attention_heads"] == 2);
  CHECK(config["decoder_attention_heads"] == 4);
  CHECK(config["bad_words_ids"] == Json::array({Json::array({13})}));
  CHECK(config["pad_token_id"] == 13);
  CHECK(toml_of(settings_from("marian", config.dump())) == toml_of(s));
  for (const char* keys : {"", R"("feed_forward_proj": "gated-gelu", "tie_word_embeddings": false)",
                           R"("feed_forward_proj": "gated-silu")",
                           R"("relative_attention_num_buckets": 8, "relative_attention_max_distance": 20, "d_kv": 8)"})
    for (const char* type : {"t5", "mt5"}) {
      INFO(type << ' ' << keys);
      s = small_settings(type, keys);
      config = architectures().make(type, "model_type")->config(s);
      CHECK(config["num_layers"] == 2);
      CHECK(config["num_decoder_layers"] == 3);
      CHECK(toml_of(settings_from(type, config.dump())) == toml_of(s));
    }
}

TEST_CASE("an encoder-decoder that starts with the end token has no start token", "[huggingface]") {
  CHECK(small_settings("t5", R"("eos_token_id": 0)")[kStart] == -1);
  CHECK(small_settings("t5", R"("eos_token_id": 1)")[kStart] == 0);
  CHECK_THAT(refusal_message("t5", R"({"decoder_start_token_id": 5, "pad_token_id": 0, "eos_token_id": 1})"),
             Catch::Contains("decoder_start_token_id") && Catch::Contains("the padding token 0"));
}

TEST_CASE("tensors of Marian cover shared and separate embeddings, and the bias of the output layer", "[huggingface]") {
  auto tensors = tensors_by_parameter("marian", small_settings("marian"));
  CHECK(tensors.size() == 2 + 2 * 16 + 3 * 26);
  CHECK(tensors["decoder.embedding.weight"] == "shared.weight");
  CHECK(tensors["decoder.output.bias"] == "final_logits_bias");
  CHECK(tensors["encoder.layers.1.self.query.bias"] == "encoder.layers.1.self_attn.q_proj.bias");
  CHECK(tensors["encoder.layers.1.self.norm.weight"] == "encoder.layers.1.self_attn_layer_norm.weight");
  CHECK(tensors["decoder.layers.2.cross.output.weight"] == "decoder.layers.2.encoder_attn.out_proj.weight");
  CHECK(tensors["decoder.layers.2.cross.norm.bias"] == "decoder.layers.2.encoder_attn_layer_norm.bias");
  CHECK(tensors["decoder.layers.0.ffn.up.weight"] == "decoder.layers.0.fc1.weight");
  CHECK(tensors["decoder.layers.0.ffn.norm.weight"] == "decoder.layers.0.final_layer_norm.weight");
  tensors = tensors_by_parameter(
      "marian", small_settings("marian", R"("share_encoder_decoder_embeddings": false, "tie_word_embeddings": false)"));
  CHECK(tensors["decoder.embedding.weight"] == "decoder.embed_tokens.weight");
  CHECK(tensors["encoder.embedding.weight"] == "encoder.embed_tokens.weight");
  CHECK(tensors["decoder.output.weight"] == "lm_head.weight");

  const auto marian = architectures().make("marian", "model_type");
  CHECK(marian->is_buffer("encoder.embed_positions.weight"));
  CHECK_FALSE(marian->is_buffer("encoder.embed_tokens.weight"));
  CHECK(marian->belongs_to_output_head("final_logits_bias"));
  Json config = Json::object();
  marian->set_vocabulary_sizes(config, 30, 20);
  CHECK(config == Json{{"vocab_size", 20}, {"decoder_vocab_size", 30}});
}

TEST_CASE("tensors of T5 cover both forms of feed-forward sublayers and both output layers", "[huggingface]") {
  auto tensors = tensors_by_parameter("t5", small_settings("t5"));
  CHECK(tensors.size() == 1 + 2 * 2 + 2 * 8 + 3 * 13);
  CHECK(tensors["decoder.embedding.weight"] == "shared.weight");
  CHECK(tensors["encoder.position_bias.weight"] ==
        "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight");
  CHECK(tensors["decoder.position_bias.weight"] ==
        "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight");
  CHECK(tensors["encoder.layers.1.ffn.up.weight"] == "encoder.block.1.layer.1.DenseReluDense.wi.weight");
  CHECK(tensors["encoder.layers.1.ffn.norm.weight"] == "encoder.block.1.layer.1.layer_norm.weight");
  CHECK(tensors["decoder.layers.2.self.norm.weight"] == "decoder.block.2.layer.0.layer_norm.weight");
  CHECK(tensors["decoder.layers.2.cross.key.weight"] == "decoder.block.2.layer.1.EncDecAttention.k.weight");
  CHECK(tensors["decoder.layers.2.ffn.down.weight"] == "decoder.block.2.layer.2.DenseReluDense.wo.weight");
  CHECK(tensors["decoder.norm.weight"] == "decoder.final_layer_norm.weight");
  tensors = tensors_by_parameter(
      "t5", small_settings("t5", R"("feed_forward_proj": "gated-gelu", "tie_word_embeddings": false)"));
  CHECK(tensors["decoder.layers.0.ffn.gate.weight"] == "decoder.block.0.layer.2.DenseReluDense.wi_0.weight");
  CHECK(tensors["decoder.layers.0.ffn.up.weight"] == "decoder.block.0.layer.2.DenseReluDense.wi_1.weight");
  CHECK(tensors["decoder.output.weight"] == "lm_head.weight");
  CHECK(architectures()
            .make("t5", "model_type")
            ->is_buffer("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"));
}

TEST_CASE("T5 1.1 of transformers 5 is not tied, although its config.json states so", "[huggingface]") {
  const std::string keys = R"("tie_word_embeddings": true, "scale_decoder_outputs": false)";
  Settings s = settings_from("t5", small_config("t5", keys), {"shared.weight", "lm_head.weight"});
  CHECK(s["model.tied"] == false);
  CHECK(s["model.output_scale"] == 1.0);
  s = settings_from("t5", small_config("t5", keys), {"shared.weight"});
  CHECK(s["model.tied"] == true);
  CHECK(s["model.output_scale"] == 1.0);
  s = settings_from("t5", small_config("t5", R"("scale_decoder_outputs": true)"), {"shared.weight"});
  CHECK(s["model.output_scale"] == 1 / std::sqrt(32.0));
}

TEST_CASE("mT5 of transformers 5 is not tied, and a tied mT5, which both versions compute differently, is refused",
          "[huggingface]") {
  const std::string config = small_config("mt5", R"("tie_word_embeddings": true)");
  const Settings s = settings_from("mt5", config, {"shared.weight", "lm_head.weight"});
  CHECK(s.at("model.tied") == false);
  CHECK(s.at("model.output_scale") == 1.0);
  CHECK_THAT(refusal_message("mt5", config), Catch::Contains("config.json: tie_word_embeddings: expected false"));
}

TEST_CASE("settings of encoder-decoders without an equivalent are refused by their keys", "[huggingface]") {
  const std::map<std::string, std::string> marian_keys{{R"("encoder_ffn_dim": 64)", "encoder_ffn_dim"},
                                                       {R"("normalize_before": true)", "normalize_before"},
                                                       {R"("add_final_layer_norm": true)", "add_final_layer_norm"},
                                                       {R"("static_position_embeddings": false)", "static_position"},
                                                       {R"("tie_encoder_decoder": true)", "tie_encoder_decoder"},
                                                       {R"("activation_function": "mish")", "activation_function"}};
  for (const auto& [key, words] : marian_keys)
    CHECK_THAT(refusal_message("marian", small_config("marian", key)), Catch::Contains(words));
  const std::map<std::string, std::string> t5_keys{{R"("feed_forward_proj": "gated-mish")", "feed_forward_proj"},
                                                   {R"("num_decoder_layers": 0)", "num_decoder_layers"},
                                                   {R"("d_kv": 0)", "d_kv"}};
  for (const auto& [key, words] : t5_keys) CHECK_THAT(refusal_message("t5", "{" + key + "}"), Catch::Contains(words));
}

TEST_CASE("Marian's folder gets the vocabulary files of the model, with the token of each role", "[huggingface]") {
  const text::Tokenizers tokenizers = sentencepiece_model::marian_tokenizers();
  const auto marian = architectures().make("marian", "model_type");
  const auto files = marian->vocabulary_files(tokenizers, small_settings("marian"), "test");
  CHECK(files.at("source.spm") == sentencepiece_model::source_model());
  CHECK(files.at("target.spm") == sentencepiece_model::target_model());
  CHECK(files.count("target_vocab.json") == 0);
  const Json config = Json::parse(files.at("tokenizer_config.json"));
  CHECK(config["tokenizer_class"] == "MarianTokenizer");
  CHECK(config["pad_token"] == "<pad>");
  CHECK(config["eos_token"] == "</s>");
  CHECK(config["separate_vocabs"] == false);
  CHECK(marian->token_ids(tokenizers)["eos_token_id"] == 0);
  const text::Tokenizers bytes{text::make_byte_tokenizer(), nullptr};
  CHECK_THROWS_WITH(marian->vocabulary_files(bytes, small_settings("marian"), "test"),
                    Catch::Contains("a vocabulary of the type marian"));
}
