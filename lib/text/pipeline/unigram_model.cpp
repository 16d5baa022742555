// The model Unigram of tokenizer.json (Kudo 2018, https://arxiv.org/abs/1804.10959): the segmentation of a word whose
// pieces have the highest sum of log-probabilities, by the algorithm of Viterbi in double precision. A character that
// is no piece has the lowest log-probability minus 10; adjacent unknown characters are one token, or the tokens of
// their bytes (byte_fallback).
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "text/pipeline/model.h"
#include "text/pipeline/normalizer.h"
#include "text/pipeline/sorted_pieces.h"

namespace mh::text {

namespace {

constexpr double kUnknownPenalty = 10.0;

SortedPieces sorted_pieces(const std::vector<std::string>& pieces) {
  SortedPieces result;
  size_t num_bytes = 0;
  for (const std::string& piece : pieces) num_bytes += piece.size();
  result.reserve(pieces.size(), num_bytes);
  for (size_t id = 0; id < pieces.size(); ++id) result.add(pieces[id], static_cast<int32_t>(id));
  result.sort();
  return result;
}

// Returns the log-probability that Hugging Face tokenizers reads for the number `value` of a file. Its JSON reader
// (serde_json without float_roundtrip) divides the decimal digits as an integer by a power of ten, which rounds twice
// and differs from the nearest double in a sixth of all numbers. These differences choose between segmentations whose
// exact scores are equal, such as two segmentations of "...". Assumes that the file has the shortest digits of the
// number, as all writers of tokenizer.json write them.
double score_of_number(double value) {
  static const auto powers_of_ten = [] {
    std::array<double, 309> result{};
    for (size_t i = 0; i < result.size(); ++i) result[i] = std::strtod(str("1e", i).c_str(), nullptr);
    return result;
  }();
  char text[40];
  const auto end = std::to_chars(text, text + sizeof text, std::abs(value), std::chars_format::scientific).ptr;
  uint64_t digits = 0;
  int exponent = 0;
  for (const char* p = text; p < end; ++p) {
    if (*p == 'e') {
      int written_exponent = 0;
      std::from_chars(p[1] == '+' ? p + 2 : p + 1, end, written_exponent);
      exponent += written_exponent;
      break;
    }
    if (*p == '.') continue;
    digits = 10 * digits + static_cast<uint64_t>(*p - '0');
    if (p > text) --exponent;
  }
  auto score = static_cast<double>(digits);
  for (; exponent < -308; exponent += 308) score /= powers_of_ten[308];
  if (exponent < 0) score /= powers_of_ten[static_cast<size_t>(-exponent)];
  else score *= powers_of_ten[static_cast<size_t>(exponent)];
  return value < 0 ? -score : score;
}

class UnigramModel : public Model {
 public:
  UnigramModel(SortedPieces pieces, std::vector<double> scores, int32_t unknown_id, bool has_byte_fallback)
      : scores_(std::move(scores)), pieces_(std::move(pieces)), unknown_id_(unknown_id) {
    unknown_score_ = *std::min_element(scores_.begin(), scores_.end()) - kUnknownPenalty;
    if (has_byte_fallback)
      byte_ids_ = byte_fallback_ids([this](std::string_view piece) { return pieces_.find(piece); });
  }

  int32_t unknown_id() const override { return unknown_id_; }
  int32_t id_of(std::string_view piece) const override { return pieces_.find(piece); }

  void encode_word(std::string_view word, Workspace& workspace, std::vector<int32_t>& tokens) const override {
    find_best_path(word, workspace.path);
    auto& segments = workspace.segments;
    segments.clear();
    for (size_t end = word.size(); end > 0;) {
      const Workspace::PathNode& node = workspace.path[end];
      const std::string_view text = word.substr(node.begin, end - node.begin);
      if (node.id == unknown_id_ && !segments.empty() && segments.back().id == unknown_id_)
        segments.back().text = word.substr(node.begin, text.size() + segments.back().text.size());
      else segments.push_back({text, node.id});
      end = node.begin;
    }
    for (auto segment = segments.rbegin(); segment != segments.rend(); ++segment)
      if (segment->id == unknown_id_) add_unknown(segment->text, tokens);
      else tokens.push_back(segment->id);
  }

 private:
  void find_best_path(std::string_view word, std::vector<Workspace::PathNode>& path) const {
    path.assign(word.size() + 1, {0, UINT32_MAX, 0});
    for (size_t begin = 0; begin < word.size();) {
      const double score_before = path[begin].score;
      const size_t num_bytes = decode_utf8(word.data() + begin).num_bytes;
      bool has_character_piece = false;
      // A later candidate replaces an earlier one only if its score is higher.
      const auto add_candidate = [&](size_t length, double score, int32_t id) {
        Workspace::PathNode& node = path[begin + length];
        if (node.begin == UINT32_MAX || score > node.score) node = {score, static_cast<uint32_t>(begin), id};
      };
      pieces_.for_each_prefix(word.substr(begin), [&](size_t length, int32_t id) {
        add_candidate(length, scores_[static_cast<size_t>(id)] + score_before, id);
        has_character_piece |= length == num_bytes;
      });
      if (!has_character_piece) add_candidate(num_bytes, unknown_score_ + score_before, unknown_id_);
      begin += num_bytes;
    }
  }

  // Appends the tokens of adjacent unknown characters, which together can be a piece.
  void add_unknown(std::string_view text, std::vector<int32_t>& tokens) const {
    if (const int32_t id = pieces_.find(text); id >= 0) return tokens.push_back(id);
    const auto id_of_byte = [&](char byte) { return byte_ids_[static_cast<unsigned char>(byte)]; };
    if (byte_ids_.empty() || std::any_of(text.begin(), text.end(), [&](char byte) { return id_of_byte(byte) < 0; }))
      return tokens.push_back(unknown_id_);
    for (char byte : text) tokens.push_back(id_of_byte(byte));
  }

  std::vector<double> scores_;  // by token id: natural logarithms of probabilities
  SortedPieces pieces_;
  double unknown_score_ = 0;
  int32_t unknown_id_;
  std::vector<int32_t> byte_ids_;
};

}  // namespace

ParsedModel parse_unigram_model(const JsonNode& node, nlohmann::json& canonical) {
  const bool has_byte_fallback = node.flag("byte_fallback", false);
  const JsonNode vocabulary = node.at("vocab");
  if (!vocabulary.value->is_array() || vocabulary.value->empty())
    vocabulary.refuse("a list of pieces with log-probabilities", abbreviate(*vocabulary.value));
  for (size_t i = 0; i < vocabulary.value->size(); ++i) {
    const nlohmann::json& entry = (*vocabulary.value)[i];
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number() ||
        entry[0].get_ref<const std::string&>().empty())
      refuse_input(str(vocabulary.path, "[", i, "]"), "a piece and its log-probability", abbreviate(entry),
                   "copy the folder again");
  }
  ParsedModel result;
  std::vector<double> scores;
  result.pieces.reserve(vocabulary.value->size());
  scores.reserve(vocabulary.value->size());
  for (const nlohmann::json& entry : *vocabulary.value) {
    result.pieces.push_back(entry[0].get_ref<const std::string&>());
    scores.push_back(score_of_number(entry[1].get<double>()));
  }
  SortedPieces pieces = sorted_pieces(result.pieces);
  if (const int32_t id = pieces.find_repeated(); id >= 0)
    refuse_input(str(vocabulary.path, "[", id, "]"), "distinct pieces",
                 "'" + result.pieces[static_cast<size_t>(id)] + "' twice", "copy the folder again");
  const int64_t unknown_id = node.count("unk_id", -1);
  if (unknown_id < 0 || unknown_id >= std::ssize(scores))
    node.at("unk_id").refuse("the id of a piece", abbreviate(*node.at("unk_id").value), kUseSupportedType);
  canonical.update({{"byte_fallback", has_byte_fallback}, {"unk_id", unknown_id}});
  result.model = std::make_unique<UnigramModel>(std::move(pieces), std::move(scores), static_cast<int32_t>(unknown_id),
                                                has_byte_fallback);
  return result;
}

}  // namespace mh::text
