// Settings that the architectures with an encoder and a decoder share.
#pragma once

#include <string>

#include "huggingface/architecture.h"

namespace mh::huggingface {

// Keys of the multihead configuration, and the parameter of the embedding table of the source.
constexpr const char* kEncoderLayers = "model.encoder-decoder.encoder_layers";
constexpr const char* kSharedEmbedding = "model.encoder-decoder.shared_embedding";
constexpr const char* kSourceRows = "model.encoder-decoder.source_rows";
constexpr const char* kStartToken = "model.encoder-decoder.start_token";
constexpr const char* kSourceTable = "encoder.embedding.weight";

// Maximum number of layers of a stack: smaller than kMaxLayers, since both stacks together have up to five times as
// many tensors per layer as a decoder.
constexpr int64_t kMaxStackLayers = 2000;

// Returns the number of layers of the encoder.
int64_t num_encoder_layers(const Settings& settings);

// Returns an attention setting of the layers of one kind: its override, such as attention.encoder.self.heads for
// kind = "encoder.self" and key = "heads", or else attention.heads, or else `default_value`.
Json attention_setting(const Settings& settings, const std::string& kind, const std::string& key,
                       const Json& default_value);

// Returns the token that the decoder reads before the first token of a target (decoder_start_token_id), -1 for the
// token that ends a text. `default_token`: the default of decoder_start_token_id and of pad_token_id. Throws
// Error(input) if the token is neither the token that ends a text nor the padding token, since only these two are known
// not to occur in a target.
int64_t read_start_token(const JsonConfig& config, int64_t default_token);
// Adds the start token to config.json, as decoder_start_token_id and pad_token_id. Writes null for -1: no architecture
// reads null back, so conversion::write_folder() refuses the model.
void write_start_token(const Settings& settings, Json& config);

// Reads the settings of text generation in config.json, which have no effect on the model, so that they are not
// reported as unknown.
void ignore_generation_keys(const JsonConfig& config);

}  // namespace mh::huggingface
