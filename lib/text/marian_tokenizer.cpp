// Encodes text with a SentencePiece model and the table of a Marian model. The vocabulary file has the model and the
// table as one JSON object.
#include "text/marian_tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <stdexcept>

#include "base/error.h"
#include "base/file.h"
#include "io/checkpoint.h"
#include "io/json_config.h"
#include "text/byte_bpe.h"
#include "text/tokenizer_json.h"

namespace mh::text {

namespace {

constexpr const char* kCopyAgain = "copy the file again";

// Returns the length of the language code at the start of a text: ">>" up to the first "<<"; 0: none.
size_t language_code_length(std::string_view text) {
  if (!text.starts_with(">>")) return 0;
  const size_t end = text.find("<<");
  return end == text.npos ? 0 : end + 2;
}

class MarianEncoder : public Encoder {
 public:
  explicit MarianEncoder(const MarianTokenizer& tokenizer) : tokenizer_(tokenizer) {}
  void encode(std::string_view text, std::vector<int32_t>& out) override { tokenizer_.encode(text, out); }

 private:
  const MarianTokenizer& tokenizer_;
};

}  // namespace

MarianTokenizer::MarianTokenizer(const std::string& model, std::vector<std::string> pieces, int32_t end_id,
                                 int32_t unknown_id, const std::string& name)
    : sentencepiece_(model, name), pieces_(std::move(pieces)), end_id_(end_id), unknown_id_(unknown_id) {
  token_of_piece_.reserve(pieces_.size());
  for (size_t i = 0; i < pieces_.size(); ++i)
    if (!token_of_piece_.emplace(pieces_[i], static_cast<int32_t>(i)).second)
      refuse_input(name, "distinct pieces", "'" + pieces_[i] + "' twice", kCopyAgain);
  for (const int32_t id : {end_id_, unknown_id_})
    if (id < 0 || id >= size())
      refuse_input(name, str("tokens below ", size(), " for the end of a text and for unknown pieces"),
                   str("the tokens ", end_id_, " and ", unknown_id_), kCopyAgain);
}

std::unique_ptr<Encoder> MarianTokenizer::encoder() const { return std::make_unique<MarianEncoder>(*this); }

void MarianTokenizer::encode(std::string_view text, std::vector<int32_t>& out) const {
  const auto add = [&](const std::string& piece) {
    const auto token = token_of_piece_.find(piece);
    out.push_back(token == token_of_piece_.end() ? unknown_id_ : token->second);
  };
  const size_t code_length = language_code_length(text);
  if (code_length > 0) add(std::string(text.substr(0, code_length)));
  // The text of an unknown piece may be a piece of the other language, which the table has.
  for (const std::string& piece : sentencepiece_.pieces_of(text.substr(code_length))) add(piece);
}

std::string MarianTokenizer::decode(std::span<const int32_t> tokens) const {
  std::string text;
  std::vector<std::string> pieces;
  const auto flush = [&] {
    if (!pieces.empty()) text += sentencepiece_.text_of(pieces);
    pieces.clear();
  };
  for (const int32_t token : tokens) {
    if (token != end_id_) {
      pieces.push_back(piece(token));
      continue;
    }
    flush();
    text += '\n';
  }
  flush();
  return text;
}

std::string MarianTokenizer::table_json() const {
  NumberedPieces numbered_pieces;
  for (size_t i = 0; i < pieces_.size(); ++i) numbered_pieces[i] = pieces_[i];
  return serialize_byte_bpe_pieces(numbered_pieces);
}

std::string MarianTokenizer::serialize() const {
  const nlohmann::json content{{"model", io::to_base64(model())}, {"pieces", pieces_}, {"unknown", unknown_id_}};
  return serialize_embedded_file(kType, size(), -1, end_id_, content.dump());
}

std::unique_ptr<Tokenizer> make_marian_tokenizer(const VocabularyFile& file, const std::string& name) {
  const io::JsonConfig content(file.embedded_file, name);
  const auto pieces = content.texts("pieces");
  const int64_t unknown_id = content.value("unknown", -1).get<int64_t>();
  if (!pieces || unknown_id < 0 || unknown_id >= static_cast<int64_t>(pieces->size()))
    refuse_input(name, "the members model, pieces and unknown of a vocabulary of the type marian",
                 pieces ? str("unknown = ", unknown_id) : std::string("no pieces"), kCopyAgain);
  std::string model;
  try {
    model = io::from_base64(content.value("model", "").get<std::string>());
  } catch (const std::invalid_argument&) {
    refuse_input(name + ": model", "base64", "other characters", kCopyAgain);
  }
  return std::make_unique<MarianTokenizer>(model, *pieces, file.end_id, static_cast<int32_t>(unknown_id), name);
}

bool is_marian_folder(const std::string& folder) {
  return std::filesystem::exists(folder + "/source.spm") && std::filesystem::exists(folder + "/target.spm");
}

Tokenizers read_marian_folder(const std::string& folder) {
  const auto read = [&](const std::string& file) {
    const std::string path = folder + "/" + file;
    if (!std::filesystem::exists(path))
      refuse_input(folder, "a folder of a Marian model with source.spm, target.spm and vocab.json", "no " + file,
                   "copy " + file + " from the source of the model");
    return read_regular_file(path);
  };
  const io::JsonConfig config = io::JsonConfig::read_if_exists(folder + "/tokenizer_config.json");
  const auto make = [&](const std::string& model_file, const std::string& table_file) -> std::unique_ptr<Tokenizer> {
    const std::string table_path = folder + "/" + table_file, model = read(model_file);
    std::vector<std::string> pieces;
    for (Piece& piece : pieces_in_id_order(read_numbered_pieces(read(table_file), table_path), table_path))
      pieces.push_back(std::move(piece.text));
    const auto token_of_role = [&](const char* role, const char* default_piece) {
      const std::string configured_token = token_text(config.value(role, nullptr)),
                        piece = configured_token.empty() ? default_piece : configured_token;
      const auto it = std::find(pieces.begin(), pieces.end(), piece);
      if (it == pieces.end())
        refuse_input(table_path, str("the piece '", piece, "', the ", role, " of the model"), "no such piece",
                     "copy the vocabulary files from the source of the model");
      return static_cast<int32_t>(it - pieces.begin());
    };
    const int32_t end_id = token_of_role("eos_token", "</s>"), unknown_id = token_of_role("unk_token", "<unk>");
    return std::make_unique<MarianTokenizer>(model, std::move(pieces), end_id, unknown_id, folder + "/" + model_file);
  };
  const bool is_separate = config.value("separate_vocabs", false);
  Tokenizers tokenizers;
  tokenizers.source = make("source.spm", "vocab.json");
  tokenizers.target = make("target.spm", is_separate ? "target_vocab.json" : "vocab.json");
  return tokenizers;
}

}  // namespace mh::text
