// Reads the tokenizer of a Hugging Face model folder, for mh-convert and mh-prep: tokenizer.json, or the files of older
// versions (vocab.json and merges.txt of GPT-2, vocab.txt of BERT), and the added tokens (added_tokens.json,
// added_tokens_decoder of tokenizer_config.json, added_tokens of tokenizer.json).
#pragma once

#include <memory>
#include <string>

#include "text/byte_bpe.h"
#include "text/wordpiece.h"

namespace mh::text {

// Read the tokenizer of the model folder `folder`. Throw Error(input), with the file and the setting, if files are
// missing, disagree, or require unsupported text processing.
std::unique_ptr<ByteBpeTokenizer> read_byte_bpe_folder(const std::string& folder);
std::unique_ptr<WordPieceTokenizer> read_wordpiece_folder(const std::string& folder);
// Reads BERT's vocab.txt (standard input for "-"), with `normalisation` as the normalisation of text. If `path` is a
// folder, calls read_wordpiece_folder() and ignores `normalisation`, since a folder states its own. Throws
// Error(input).
std::unique_ptr<WordPieceTokenizer> read_wordpiece_vocabulary(const std::string& path, BertNormalisation normalisation);

// Throws Error(usage) if --cased or --strip-accents is given, since a model folder states its own normalisation.
// `option` is the option that names the folder.
void refuse_text_options(const char* option, const std::string& folder, bool cased, const std::string& strip_accents);

}  // namespace mh::text
