// Encodes text with the SentencePiece library. If segmenting a line equals segmenting each of its words (BPE as usually
// trained), the library segments single words, whose ids are cached; otherwise it segments whole lines. Both methods
// give the library's ids of the line.
#include "text/sentencepiece_tokenizer.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <cmath>
#include <new>

#include "base/error.h"
#include "base/log.h"
#include "text/sentencepiece_file.h"
#include "text/word_cache.h"

namespace mh::text {

namespace {

constexpr std::string_view kSpaceMark = "\xe2\x96\x81";  // U+2581, SentencePiece's space

void require(const sentencepiece::util::Status& status, const std::string& name, const char* expected) {
  if (!status.ok())
    refuse_input(name, expected, status.ToString(),
                 "the model is damaged; copy the file again, or train the model again");
}

class SentencePieceEncoder : public Encoder {
 public:
  explicit SentencePieceEncoder(const SentencePieceTokenizer& tokenizer) : tokenizer_(tokenizer) {}
  void encode(std::string_view text, std::vector<int32_t>& out) override {
    // The library drops a space mark at the end of its input, so text that contains the mark is encoded as a whole.
    if (!tokenizer_.splits_words() || text.find(kSpaceMark) != text.npos)
      return tokenizer_.encode_by_library(text, out);
    for_each_spaced_word(text, [&](std::string_view word) {
      cache_.encode(WordKey(word), out,
                    [&](std::string_view w, std::vector<int32_t>& ids) { tokenizer_.encode_by_library(w, ids); });
    });
  }

 private:
  const SentencePieceTokenizer& tokenizer_;
  WordCache cache_;
};

}  // namespace

SentencePieceTokenizer::SentencePieceTokenizer(const std::string& model, const std::string& name)
    : model_(model), name_(name), processor_(std::make_unique<sentencepiece::SentencePieceProcessor>()) {
  check_sentencepiece_file(model, name);
  load();
  end_id_ = processor_->eos_id();
  if (end_id_ < 0)
    refuse_input(name, "a SentencePiece model with an end-of-sentence piece", "none",
                 "train the model with an eos id, or with mh-prep vocab");
  splits_words_ = segments_words_independently();
  if (!splits_words_)
    log_detail(name +
               ": this model does not segment words independently, so SentencePiece segments whole lines (slower)");
}

SentencePieceTokenizer::~SentencePieceTokenizer() = default;

void SentencePieceTokenizer::load() {
  // Loading may throw undocumented exceptions from the library's trie.
  std::string fault = "a file of another format";
  try {
    if (processor_->LoadFromSerializedProto(model_).ok()) return;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    fault = str("a model that SentencePiece cannot load: ", error.what());
  }
  refuse_input(name_, "a vocabulary of mh-prep or a SentencePiece model", fault,
               "make a vocabulary with mh-prep vocab");
}

void SentencePieceTokenizer::set_surrounding_tokens(int32_t begin_id, int32_t end_id) {
  if (std::max(begin_id, end_id) < 0 || std::max(begin_id, end_id) >= size())
    refuse_input(name_, str("ids of tokens below ", size(), " at the start or the end of a text"),
                 str("the ids ", begin_id, " and ", end_id), "copy the file again");
  begin_id_ = begin_id;
  end_id_ = end_id;
  has_surrounding_tokens_ = true;
  std::vector<int32_t> tokens;
  encode_by_library("\n", tokens);
  encodes_line_feeds_ = decode(tokens) == "\n";
}

int64_t SentencePieceTokenizer::size() const { return processor_->GetPieceSize(); }

int32_t SentencePieceTokenizer::unknown_id() const { return processor_->unk_id(); }

int32_t SentencePieceTokenizer::model_begin_id() const { return processor_->bos_id(); }

std::string SentencePieceTokenizer::piece(int32_t token) const { return processor_->IdToPiece(token); }

std::unique_ptr<Encoder> SentencePieceTokenizer::encoder() const {
  return std::make_unique<SentencePieceEncoder>(*this);
}

std::string SentencePieceTokenizer::decode(std::span<const int32_t> tokens) const {
  std::string text, segment;
  std::vector<int> ids;
  auto flush = [&] {
    if (ids.empty()) return;
    require(processor_->Decode(ids, &segment), name_, "a SentencePiece model that decodes its pieces");
    text += segment;
    ids.clear();
  };
  for (int32_t token : tokens) {
    if (token != end_of_line_id()) {
      ids.push_back(token);
      continue;
    }
    flush();
    text += '\n';
  }
  flush();
  return text;
}

size_t SentencePieceTokenizer::find_split(std::string_view text) const {
  if (!splits_words_) return text.npos;
  // Splits after a word without a space mark, since the library drops marks at the end of its input.
  for (size_t space = text.rfind(' '); space != text.npos;) {
    const size_t last_character = text.find_last_not_of(' ', space);
    if (last_character == text.npos) return space + 1;
    const size_t previous_space = text.rfind(' ', last_character);
    if (text.substr(previous_space + 1, last_character - previous_space).find(kSpaceMark) == text.npos)
      return space + 1;
    space = previous_space;
  }
  return text.npos;
}

std::string SentencePieceTokenizer::serialize() const {
  return has_surrounding_tokens_ ? serialize_embedded_file(kType, size(), begin_id_, end_id_, model_) : model_;
}

void SentencePieceTokenizer::encode_by_library(std::string_view text, std::vector<int32_t>& out) const {
  std::vector<int> ids;
  require(processor_->Encode(absl::string_view(text.data(), text.size()), &ids), name_,
          "a SentencePiece model that segments text");
  out.insert(out.end(), ids.begin(), ids.end());
}

std::vector<std::string> SentencePieceTokenizer::pieces_of(std::string_view text) const {
  std::vector<std::string> pieces;
  require(processor_->Encode(absl::string_view(text.data(), text.size()), &pieces), name_,
          "a SentencePiece model that segments text");
  return pieces;
}

std::string SentencePieceTokenizer::text_of(const std::vector<std::string>& pieces) const {
  std::string text;
  require(processor_->Decode(pieces, &text), name_, "a SentencePiece model that decodes its pieces");
  return text;
}

// Returns whether the tokens of a line are the concatenated tokens of its words. True only if space marks occur only at
// the start of a piece, the mark alone is a piece (otherwise consecutive unknown pieces are joined across words), and
// normalisation removes extra spaces.
bool SentencePieceTokenizer::segments_words_independently() const {
  for (int i = 0; i < processor_->GetPieceSize(); ++i) {
    // The scores of BPE are integers. Unigram sums log-probabilities along the line, so that ties between two
    // segmentations of a word may depend on the preceding text.
    if (const float score = processor_->GetScore(i); score != std::floor(score)) return false;
    std::string text = processor_->IdToPiece(i);
    if (text.find(kSpaceMark, 1) != text.npos || text.find(' ') != text.npos) return false;
  }
  if (processor_->PieceToId(std::string(kSpaceMark)) == processor_->unk_id()) return false;
  std::vector<int32_t> ab, cd, two_words, extra_spaces, outer_spaces;
  encode_by_library("ab", ab);
  encode_by_library("cd", cd);
  encode_by_library("ab cd", two_words);
  encode_by_library("ab   cd", extra_spaces);
  encode_by_library("  ab cd ", outer_spaces);
  ab.insert(ab.end(), cd.begin(), cd.end());
  return two_words == ab && extra_spaces == two_words && outer_spaces == two_words && !two_words.empty();
}

std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(const std::string& model, const std::string& name) {
  return std::make_unique<SentencePieceTokenizer>(model, name);
}

std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(const VocabularyFile& file, const std::string& name) {
  auto tokenizer = std::make_unique<SentencePieceTokenizer>(file.embedded_file, name);
  tokenizer->set_surrounding_tokens(file.begin_id, file.end_id);
  return tokenizer;
}

}  // namespace mh::text
