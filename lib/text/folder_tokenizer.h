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
// Reads the tokenizer of a model folder of any family from the first of these files that the folder has:
// tokenizer.json; tokenizer.model (SentencePiece); spiece.model (T5); vocab.txt (BERT); merges.txt with vocab.json
// (GPT-2, OPT and Qwen 2, by tokenizer_class). A tokenizer of GPT-2 or BERT has the type byte-bpe or wordpiece, another
// tokenizer.json the type tokenizer-json. For the latter, add_bos_token of tokenizer_config.json decides about the
// token in front of a text if tokenizer_class is a Llama or Gemma tokenizer, and eos_token is the token after a text if
// the post-processor has none. With tokenizer.model, bos_token precedes a text unless add_bos_token is false; another
// tokenizer_class must state add_bos_token. Throws Error(input).
std::unique_ptr<Tokenizer> read_tokenizer_folder(const std::string& folder);
// Returns the tokenizer of the content of a tokenizer.json outside a folder. `name` is the name of the file in
// messages.
std::unique_ptr<Tokenizer> read_tokenizer_json(const std::string& text, const std::string& name);
// Reads BERT's vocab.txt (standard input for "-"), with `normalisation` as the normalisation of text. If `path` is a
// folder, calls read_wordpiece_folder() and ignores `normalisation`, since a folder states its own. Throws
// Error(input).
std::unique_ptr<WordPieceTokenizer> read_wordpiece_vocabulary(const std::string& path, BertNormalisation normalisation);

// Throws Error(usage) if --cased or --strip-accents is given, since a model folder states its own normalisation.
// `option` is the option that names the folder.
void refuse_text_options(const char* option, const std::string& folder, bool cased, const std::string& strip_accents);

}  // namespace mh::text
