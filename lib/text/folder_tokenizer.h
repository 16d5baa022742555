// The tokenizer of a folder that the package transformers saved, for mh-convert and mh-prep alike: tokenizer.json, or
// the files of older versions, vocab.json and merges.txt of GPT-2 and vocab.txt of BERT; with tokens that are added
// (added_tokens.json, added_tokens_decoder of tokenizer_config.json, added_tokens of tokenizer.json).
#pragma once

#include <memory>
#include <string>

#include "text/byte_bpe.h"
#include "text/wordpiece.h"

namespace mh::text {

// Error(input) where files are missing, disagree, or ask for text to be read in a way that is not known here; the
// message names the file and the setting.
std::unique_ptr<ByteBpeTokenizer> read_byte_bpe_folder(const std::string& folder);
std::unique_ptr<WordPieceTokenizer> read_wordpiece_folder(const std::string& folder);

// Refuses --cased and --strip-accents with a folder, which says itself how text is read. Error(usage).
void refuse_text_options(const char* option, const std::string& folder, bool cased, const std::string& strip_accents);

}  // namespace mh::text
