// Creates the tokenizer of a vocabulary file of any type, and implements the functions that all tokenizers share.
#include "text/tokenizer.h"

#include <xxhash.h>

#include <algorithm>
#include <filesystem>

#include "base/empty_input.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "io/checkpoint.h"
#include "text/byte_bpe.h"
#include "text/folder_tokenizer.h"
#include "text/json_tokenizer.h"
#include "text/marian_tokenizer.h"
#include "text/sentencepiece_tokenizer.h"
#include "text/tokenizers.h"
#include "text/vocabulary_types.h"
#include "text/wordpiece.h"

namespace mh::text {

std::string Tokenizer::fingerprint() const {
  std::string bytes = type() + '\0' + fingerprint_content();
  const XXH128_hash_t h = XXH3_128bits(bytes.data(), bytes.size());
  return hex64(h.high64) + hex64(h.low64);
}

namespace {

// Returns whether the file is a vocabulary of tiktoken: its first line is base64, a space and a rank.
bool is_tiktoken_file(std::string_view bytes) {
  const std::string_view line = bytes.substr(0, bytes.find('\n'));
  const size_t space = line.find(' ');
  if (space == line.npos || space == 0 || space % 4 != 0 || space + 1 == line.size()) return false;
  const auto is_base64 = [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' || c == '/' ||
           c == '=';
  };
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || c == '\r'; };
  return std::all_of(line.begin(), line.begin() + static_cast<ptrdiff_t>(space), is_base64) &&
         std::all_of(line.begin() + static_cast<ptrdiff_t>(space) + 1, line.end(), is_digit);
}

}  // namespace

uint64_t count_unknown(std::span<const int32_t> tokens, const Tokenizer& tokenizer) {
  if (tokenizer.unknown_id() < 0) return 0;
  return static_cast<uint64_t>(std::count(tokens.begin(), tokens.end(), tokenizer.unknown_id()));
}

std::unique_ptr<Tokenizer> parse_tokenizer(const std::string& bytes, const std::string& name) {
  if (bytes.empty()) throw empty_input_error(name, "a vocabulary", "make a vocabulary with mh-prep vocab");
  if (bytes.find("\n[UNK]\n") != bytes.npos && bytes.find('\0') == bytes.npos && !is_vocabulary_file(bytes))
    refuse_input(name, "a vocabulary that states whether case is kept", "a plain list of pieces",
                 "convert the list with mh-prep vocab --type wordpiece --from FILE; add --cased to keep case");
  if (bytes.front() == '{') return read_tokenizer_json(bytes, name);
  if (is_tiktoken_file(bytes))
    refuse_input(name, "a vocabulary of mh-prep, a SentencePiece model or a tokenizer.json",
                 "a vocabulary of tiktoken: lines of base64 and ranks",
                 "name the tokenizer.json of the same model, which states how text is split into words");
  if (!is_vocabulary_file(bytes)) return make_sentencepiece_tokenizer(bytes, name);
  VocabularyFile file = read_vocabulary(bytes, name);
  auto require_piece = [&](size_t index, const char* piece) {
    if (index >= file.pieces.size() || file.pieces[index].text != piece)
      refuse_input(name, str("the piece ", piece, " as entry ", index),
                   index < file.pieces.size() ? "the piece " + escape_piece(file.pieces[index].text) : "no entry",
                   "make the vocabulary again with mh-prep vocab");
  };
  if (file.type == "word") {
    require_piece(0, kEndOfLinePiece);
    require_piece(1, kUnknownPiece);
    return make_word_tokenizer(std::move(file.pieces));
  }
  if (file.type == "subword-nmt") {
    require_piece(0, kEndOfLinePiece);
    require_piece(1, kUnknownPiece);
    return make_subword_tokenizer(std::move(file.pieces), std::move(file.merges));
  }
  if (file.type == WordPieceTokenizer::kType)
    return make_wordpiece_tokenizer(std::move(file.pieces), file.normalisation, name, std::move(file.added_tokens));
  if (file.type == ByteBpeTokenizer::kType)
    return make_byte_bpe_tokenizer(std::move(file.pieces), std::move(file.merges), name, std::move(file.added_tokens));
  if (file.type == JsonTokenizer::kType || file.type == SentencePieceTokenizer::kType ||
      file.type == MarianTokenizer::kType) {
    auto tokenizer = file.type == JsonTokenizer::kType     ? make_json_tokenizer(file, name)
                     : file.type == MarianTokenizer::kType ? make_marian_tokenizer(file, name)
                                                           : make_sentencepiece_tokenizer(file, name);
    if (tokenizer->size() != file.num_entries)
      refuse_input(name + ":3", str("entries ", tokenizer->size(), ", the number of tokens of the tokenizer"),
                   str("entries ", file.num_entries), "copy the file again");
    return tokenizer;
  }
  if (file.type == "char") {
    require_piece(0, "\n");
    require_piece(1, kUnknownPiece);
    return make_char_tokenizer(std::move(file.pieces));
  }
  if (file.type == "byte" && file.pieces.empty()) return make_byte_tokenizer();
  const std::vector<std::string> types = vocabulary_file_type_names();
  refuse_input(name + ":2", "a vocabulary of one of the types " + join(types, ", "), file.type,
               did_you_mean(file.type, types, "make the vocabulary again with mh-prep vocab"));
}

namespace {

// Returns whether `path` is a regular file that starts like a .safetensors file: the length of the JSON header, below
// 2^48, in eight bytes with the lowest first, then '{'.
bool is_checkpoint(const std::string& path) {
  if (!MappedFile::is_mappable(path)) return false;
  char first_bytes[9];
  return open_source(path)->read_exactly(first_bytes, sizeof first_bytes) && first_bytes[6] == 0 &&
         first_bytes[7] == 0 && first_bytes[8] == '{';
}

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path) { return std::move(load_tokenizers(path).target); }

Tokenizers load_tokenizers(const std::string& path) {
  // Bounds the memory for files that are not vocabularies. No usable vocabulary is larger, since the header of a
  // checkpoint, which stores the vocabulary, has at most 100 MB.
  constexpr size_t kMaxVocabularyBytes = 256U << 20;
  if (std::filesystem::is_directory(path)) {
    if (is_marian_folder(path)) return read_marian_folder(path);
    return {read_tokenizer_folder(path), nullptr};
  }
  if (is_checkpoint(path)) return tokenizers_of(io::Checkpoint(path));
  auto source = open_source(path);
  std::string bytes;
  std::vector<char> buffer(1 << 16);
  while (size_t n = source->read(buffer.data(), buffer.size())) {
    bytes.append(buffer.data(), n);
    if (bytes.size() > kMaxVocabularyBytes)
      refuse_input(source->name(), str("a vocabulary of at most ", kMaxVocabularyBytes, " bytes"), "a larger file",
                   "name a vocabulary file");
  }
  return {parse_tokenizer(bytes, source->name()), nullptr};
}

}  // namespace mh::text
