// The model BPE of tokenizer.json: the characters of a word are symbols, and merges join adjacent symbols, the merge of
// the lowest rank first, from left to right. A character that is no piece becomes its bytes (byte_fallback) or the
// unknown token; without either it is dropped.
#include <atomic>

#include "base/log.h"
#include "base/text.h"
#include "text/pipeline/model.h"
#include "text/pipeline/normalizer.h"

namespace mh::text {

namespace {

struct BpeOptions {
  std::string unknown_piece, continuing_prefix, word_suffix;
  bool fuses_unknown = false, has_byte_fallback = false, ignores_merges = false;
};

class BpeModel : public Model {
 public:
  BpeModel(PieceIds ids, MergeTable merges, BpeOptions options)
      : ids_(std::move(ids)), merges_(std::move(merges)), options_(std::move(options)) {
    if (options_.has_byte_fallback)
      byte_ids_ = byte_fallback_ids([this](std::string_view piece) { return ids_.find(piece); });
    if (!options_.unknown_piece.empty()) unknown_id_ = ids_.find(options_.unknown_piece);
  }

  int32_t unknown_id() const override { return unknown_id_; }
  int32_t id_of(std::string_view piece) const override { return ids_.find(piece); }

  void encode_word(std::string_view word, Workspace& workspace, std::vector<int32_t>& tokens) const override {
    if (options_.ignores_merges)
      if (const int32_t id = ids_.find(word); id >= 0) {
        tokens.push_back(id);
        return;
      }
    auto& symbols = workspace.symbols;
    symbols.clear();
    size_t num_unknown_bytes = 0;  // bytes of the unknown symbol that is not yet among the symbols
    const auto flush_unknown = [&] {
      if (num_unknown_bytes > 0) symbols.push_back({unknown_id_, num_unknown_bytes});
      num_unknown_bytes = 0;
    };
    const bool has_affixes = !options_.continuing_prefix.empty() || !options_.word_suffix.empty();
    for (size_t begin = 0; begin < word.size();) {
      const size_t num_bytes = decode_utf8(word.data() + begin).num_bytes;
      std::string_view symbol = word.substr(begin, num_bytes);
      if (has_affixes) {
        workspace.text.clear();
        if (begin > 0) workspace.text += options_.continuing_prefix;
        workspace.text += symbol;
        if (begin + num_bytes == word.size()) workspace.text += options_.word_suffix;
        symbol = workspace.text;
      }
      begin += num_bytes;
      if (const int32_t id = ids_.find(symbol); id >= 0) {
        flush_unknown();
        symbols.push_back({id, num_bytes});
        continue;
      }
      // As in Hugging Face tokenizers, bytes precede an unknown symbol that is still to be added.
      if (options_.has_byte_fallback && add_bytes(symbol, symbols)) continue;
      if (unknown_id_ < 0) {
        warn_of_dropped(symbol);
        continue;
      }
      if (!options_.fuses_unknown) flush_unknown();
      num_unknown_bytes += num_bytes;
    }
    flush_unknown();
    merges_.apply(symbols, MergeOrder::one_by_one, workspace.merges);
    for (const Symbol& symbol : symbols) tokens.push_back(symbol.id);
  }

 private:
  // Adds a symbol for each byte of `text`; adds nothing and returns false if a byte has no piece.
  bool add_bytes(std::string_view text, std::vector<Symbol>& symbols) const {
    for (char byte : text)
      if (byte_ids_[static_cast<unsigned char>(byte)] < 0) return false;
    for (char byte : text) symbols.push_back({byte_ids_[static_cast<unsigned char>(byte)], 1});
    return true;
  }

  // Warns, once per model, that a symbol of the text is dropped.
  void warn_of_dropped(std::string_view symbol) const {
    if (!has_warned_.exchange(true))
      log_warning(str("the tokenizer drops characters without a token, as in Hugging Face tokenizers; the first is '",
                      symbol, "'"));
  }

  PieceIds ids_;
  MergeTable merges_;
  BpeOptions options_;
  mutable std::atomic<bool> has_warned_ = false;
  std::vector<int32_t> byte_ids_;
  int32_t unknown_id_ = -1;
};

// Parses merge number `rank` of a list of merges. `node`: the value of the merge, with the path of the list for errors.
Merge parse_merge(const JsonNode& node, size_t rank) {
  const nlohmann::json& value = *node.value;
  Merge merge;
  if (value.is_array() && value.size() == 2 && value[0].is_string() && value[1].is_string()) {
    merge = {value[0], value[1]};
  } else if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    const size_t space = text.find(' ');
    if (space != text.npos && text.find(' ', space + 1) == text.npos)
      merge = {text.substr(0, space), text.substr(space + 1)};
  }
  if (merge.left.empty() || merge.right.empty())
    refuse_input(str(node.path, "[", rank, "]"), "two symbols, as a pair or separated by a space", abbreviate(value),
                 "copy the folder again");
  return merge;
}

}  // namespace

ParsedModel parse_bpe_model(const JsonNode& node, nlohmann::json& canonical) {
  node.require("dropout", {nullptr, 0, 0.0}, "set dropout to null, since dropout makes tokens random");
  BpeOptions options;
  options.unknown_piece = node.text("unk_token", "");
  options.continuing_prefix = node.text("continuing_subword_prefix", "");
  options.word_suffix = node.text("end_of_word_suffix", "");
  options.fuses_unknown = node.flag("fuse_unk", false);
  options.has_byte_fallback = node.flag("byte_fallback", false);
  options.ignores_merges = node.flag("ignore_merges", false);
  const auto text_or_null = [](const std::string& text) {
    return text.empty() ? nlohmann::json() : nlohmann::json(text);
  };
  canonical.update({{"dropout", nullptr},
                    {"unk_token", text_or_null(options.unknown_piece)},
                    {"continuing_subword_prefix", text_or_null(options.continuing_prefix)},
                    {"end_of_word_suffix", text_or_null(options.word_suffix)},
                    {"fuse_unk", options.fuses_unknown},
                    {"byte_fallback", options.has_byte_fallback},
                    {"ignore_merges", options.ignores_merges}});
  std::vector<std::string> pieces = parse_vocabulary(node.at("vocab"));
  PieceIds ids(pieces);
  if (!options.unknown_piece.empty() && ids.find(options.unknown_piece) < 0)
    node.at("unk_token").refuse("a piece of the vocabulary", "'" + options.unknown_piece + "'");
  MergeTable merges;
  const JsonNode merge_list = node.at("merges");
  if (!merge_list.value->is_array()) merge_list.refuse("a list of merges", abbreviate(*merge_list.value));
  for (size_t rank = 0; rank < merge_list.value->size(); ++rank) {
    const nlohmann::json& value = (*merge_list.value)[rank];
    const auto name = [&] { return str(merge_list.path, "[", rank, "]"); };
    const Merge merge = parse_merge({&value, merge_list.path}, rank);
    const auto id_of = [&](const std::string& piece) {
      const int32_t id = ids.find(piece);
      if (id < 0)
        refuse_input(name(), "a merge of pieces of the vocabulary to a piece",
                     "'" + piece + "', which is no piece of the vocabulary",
                     "use the complete vocabulary and merges of one model");
      return id;
    };
    // The symbol on the right loses its prefix of a continuing symbol.
    const size_t prefix_size = options.continuing_prefix.size();
    if (merge.right.size() < prefix_size)
      refuse_input(name(), "a right symbol with the prefix '" + options.continuing_prefix + "'",
                   "'" + merge.right + "'", "use the complete vocabulary and merges of one model");
    const int32_t left = id_of(merge.left), right = id_of(merge.right);
    // Of equal merges the last one applies, as in Hugging Face tokenizers.
    merges.find_or_insert(left, right) = {rank, id_of(merge.left + merge.right.substr(prefix_size))};
  }
  ParsedModel result;
  result.model = std::make_unique<BpeModel>(std::move(ids), std::move(merges), std::move(options));
  result.pieces = std::move(pieces);
  return result;
}

}  // namespace mh::text
