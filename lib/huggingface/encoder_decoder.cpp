#include "huggingface/encoder_decoder.h"

#include "base/error.h"

namespace mh::huggingface {

namespace {

// Settings of text generation that older versions of transformers wrote to config.json.
constexpr const char* kGenerationKeys[] = {"bad_words_ids",
                                           "diversity_penalty",
                                           "do_sample",
                                           "early_stopping",
                                           "force_bos_token_to_be_generated",
                                           "forced_bos_token_id",
                                           "forced_eos_token_id",
                                           "length_penalty",
                                           "max_length",
                                           "min_length",
                                           "no_repeat_ngram_size",
                                           "num_beam_groups",
                                           "num_beams",
                                           "num_return_sequences",
                                           "prefix",
                                           "renormalize_logits",
                                           "repetition_penalty",
                                           "temperature",
                                           "top_k",
                                           "top_p"};

}  // namespace

int64_t num_encoder_layers(const Settings& settings) {
  const auto count = setting_or(settings, kEncoderLayers, 0).get<int64_t>();
  return count > 0 ? count : settings.at("model.layers").get<int64_t>();
}

Json attention_setting(const Settings& settings, const std::string& kind, const std::string& key,
                       const Json& default_value) {
  return setting_or(settings, "attention." + kind + "." + key, setting_or(settings, "attention." + key, default_value));
}

int64_t read_start_token(const JsonConfig& config, int64_t default_token) {
  const auto start_token = config.value("decoder_start_token_id", default_token).get<int64_t>();
  const Json end_token = config.value("eos_token_id", nullptr);
  if (start_token == end_token) return -1;
  const auto padding_token = config.value("pad_token_id", default_token).get<int64_t>();
  if (start_token < 0 || start_token != padding_token)
    refuse_input(config.path() + ": decoder_start_token_id",
                 str("the padding token ", padding_token, " or the token that ends a text, eos_token_id"),
                 str(start_token), "use a model whose decoder starts with one of these tokens");
  return start_token;
}

void write_start_token(const Settings& settings, Json& config) {
  const auto start_token = setting_or(settings, kStartToken, -1).get<int64_t>();
  for (const char* key : {"decoder_start_token_id", "pad_token_id"})
    config[key] = start_token < 0 ? Json() : Json(start_token);
}

void ignore_generation_keys(const JsonConfig& config) {
  for (const char* key : kGenerationKeys) config.value(key, nullptr);
}

}  // namespace mh::huggingface
