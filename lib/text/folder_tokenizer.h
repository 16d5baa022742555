// The tokenizer of a folder saved by the package transformers, for mh-convert and mh-prep: tokenizer.json, or the files
// of older versions, vocab.json and merges.txt of GPT-2 and vocab.txt of BERT, with added tokens (added_tokens.json,
// added_tokens_decoder of tokenizer_config.json, added_tokens of tokenizer.json).
#pragma once

#include <memory>
#include <string>

#include "text/byte_bpe.h"
#include "text/wordpiece.h"

namespace mh::text {

// Read the tokenizer. Throw Error(input), with the file and the setting, if files are missing, disagree, or require an
// unsupported treatment of text.
std::unique_ptr<ByteBpeTokenizer> read_byte_bpe_folder(const std::string& folder);
std::unique_ptr<WordPieceTokenizer> read_wordpiece_folder(const std::string& folder);

// Throws Error(usage) for --cased and --strip-accents with a folder, which has its own settings.
void refuse_text_options(const char* option, const std::string& folder, bool cased, const std::string& strip_accents);

}  // namespace mh::text
