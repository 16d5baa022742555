#include "text_readers.h"

#include <sentencepiece_trainer.h>

#include <algorithm>

#include "base/file.h"
#include "base/text.h"
#include "base/unicode.h"
#include "text/byte_bpe.h"
#include "text/merges.h"
#include "text/records/encode.h"
#include "text/records/encode_documents.h"
#include "text/records/encode_pairs.h"
#include "text/records/examples.h"
#include "text/records/squad.h"
#include "text/records/whole_shard.h"
#include "text/tokenizers.h"
#include "text/vocabulary.h"
#include "text/wordpiece.h"

// Exported by the library, though its installed headers do not declare it.
namespace sentencepiece::logging {
void SetMinLogLevel(int level);
}

namespace text_readers {

using namespace mh;
using namespace mh::io;
using namespace mh::text;

namespace {

std::string without_last(std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

std::string with_bars(std::string lines) {
  std::replace(lines.begin(), lines.end(), '\n', '|');
  return lines;
}

// Writes a shard beside `path` and returns its name.
template <class Encode>
std::string shard_beside(const std::string& path, const ShardHeader& header, const Encode& encode) {
  auto sink = open_sink(path + ".mhs");
  ShardWriter writer(*sink, header);
  encode(writer);
  writer.finish();
  sink->close();
  return path + ".mhs";
}

std::string read_lm(const std::string& path, const Tokenizer& tokenizer, const ReadHow& how) {
  TextBatches text(
      {path}, tokenizer.takes_any_bytes() ? LineEnds::keep : LineEnds::refuse_crlf,
      [&](std::string_view t) { return tokenizer.cut(t); }, how.sizes);
  ShardHeader header = header_of(tokenizer);
  header.hold(kTextKind);
  const std::string shard =
      shard_beside(path, header, [&](ShardWriter& writer) { encode_lines(text, tokenizer, how.threads, writer); });
  return with_bars(without_last(tokenizer.decode(read_tokens(shard).tokens)));
}

std::string read_vocabulary_and_lm(const VocabularyOptions& options, const std::string& path, const ReadHow& how) {
  TextBatches text(
      {path}, LineEnds::refuse_crlf,
      [](std::string_view t) {
        const size_t last = t.find_last_of(' ');
        return last == t.npos ? t.npos : last + 1;
      },
      how.sizes);
  return read_lm(path, *make_vocabulary(options, text), how);
}

std::string read_sources(const std::vector<std::string>& files, const Tokenizer& tokenizer, const ReadHow& how) {
  PairBatches text(files, LineEnds::refuse_crlf, how.sizes);
  ShardHeader header = header_of(tokenizer);
  header.hold(kPairsKind);
  const PairText pairs = read_pairs(shard_beside(files[0], header, [&](ShardWriter& writer) {
    encode_pairs(text, tokenizer, tokenizer, {}, how.threads, writer);
  }));
  std::string sources;
  for (size_t i = 0; i < pairs.size(); ++i)
    sources += (i > 0 ? "|" : "") + without_last(tokenizer.decode(pairs.source(i)));
  return sources;
}

std::string read_sentences(const std::string& path, const Tokenizer& tokenizer, const ReadHow& how) {
  TextBatches text({path}, LineEnds::refuse_crlf, nullptr, how.sizes);
  ShardHeader header = header_of(tokenizer);
  header.hold(kDocumentsKind);
  const RunText runs = read_runs(
      shard_beside(path, header, [&](ShardWriter& writer) { encode_documents(text, tokenizer, how.threads, writer); }),
      kDocumentsKind);
  std::string sentences;
  uint64_t begin = 0;
  for (uint64_t end : runs.ends) {
    if (end > begin)
      sentences +=
          (sentences.empty() ? "" : "|") + tokenizer.decode(std::span(runs.tokens).subspan(begin, end - begin));
    begin = end;
  }
  return sentences;
}

std::string read_examples(const std::string& path, const Tokenizer& tokenizer, const ReadHow& how) {
  TextBatches text({path}, LineEnds::refuse_crlf, nullptr, how.sizes);
  const ExampleTask task{"any", 1, {"no", "yes"}, 0, 0, {"accuracy"}, "any.tsv"};
  ShardHeader header = header_of(tokenizer);
  hold_examples(header, task);
  const FindColumns find = [](const std::vector<std::string>&, const std::string&) {
    return ExampleColumns{0, ExampleColumns::kNone, 1, 2, false};
  };
  const RunText runs = read_runs(
      shard_beside(
          path, header,
          [&](ShardWriter& writer) { encode_examples(text, find, task, false, tokenizer, how.threads, writer); }),
      kExamplesKind);
  std::string texts;
  for (size_t i = 0; i < runs.size(); ++i) texts += (i > 0 ? "|" : "") + tokenizer.decode(runs.run(i, 0));
  return texts;
}

std::string squad_of(const std::string& context) {
  return R"({"data": [{"paragraphs": [{"context": )" + context +
         R"(, "qas": [{"id": "1", "question": "a?", "answers": [{"text": "a", "answer_start": 0}]}]}]}]})" + "\n";
}

std::string read_context(const std::string& path, const ReadHow&) {
  return read_squad({path}, {1.0, "refuse"}).paragraphs.at(0).text;
}

std::string special_lines() {
  std::string text;
  for (const char* special : kSpecialPieces) text += std::string(special) + "\n";
  return text;
}

// Tokenizers that know each word of the table.

std::vector<Piece> with_odd_words(std::vector<Piece> pieces) {
  for (const char* word : {"a", "b", "c", "ab", "caf\u00e9", "au", "lait"}) pieces.push_back({word, 1});
  for (const OddByte& odd : kOddBytes) pieces.push_back({"a" + odd.bytes + "b", 1});
  return pieces;
}

const Tokenizer& word_tokenizer() {
  static const auto made = make_word_tokenizer(with_odd_words({{kEndOfLinePiece, 1}, {kUnknownPiece, 0}}));
  return *made;
}

const Tokenizer& char_tokenizer() {
  static const auto made = [] {
    std::vector<Piece> pieces{{"\n", 1}, {kUnknownPiece, 0}};
    for (const char* c : {"a", "b", "c", "f", "\u00e9", "u", "l", "i", "t", " "}) pieces.push_back({c, 1});
    for (const OddByte& odd : kOddBytes)
      if (odd.bytes != "\n") pieces.push_back({odd.bytes, 1});
    return make_char_tokenizer(std::move(pieces));
  }();
  return *made;
}

const Tokenizer& subword_tokenizer() {
  static const auto made =
      make_subword_tokenizer(with_odd_words({{kEndOfLinePiece, 1}, {kUnknownPiece, 0}, {"a@@", 1}}), [] {
        std::vector<Merge> merges{{"a", "b</w>"}};
        for (const OddByte& odd : kOddBytes) {
          merges.push_back({"a", odd.bytes});
          merges.push_back({"a" + odd.bytes, "b</w>"});
        }
        return merges;
      }());
  return *made;
}

const Tokenizer& wordpiece_tokenizer() {
  static const auto made = [] {
    std::vector<Piece> pieces;
    for (const char* special : kSpecialPieces) pieces.push_back({special, 0});
    for (const char* piece : {"a", "b", "c", "ab", "cafe", "au", "lait"}) pieces.push_back({piece, 0});
    return make_wordpiece_tokenizer(std::move(pieces), {}, "test");
  }();
  return *made;
}

const Tokenizer& byte_bpe_tokenizer() {
  static const auto made = [] {
    std::vector<Piece> pieces{{kEndOfText, 0}};
    for (int byte = 0; byte < 256; ++byte) {
      std::string letter;
      append_utf8(letter_of_byte(static_cast<uint8_t>(byte)), letter);
      pieces.push_back({letter, 0});
    }
    return make_byte_bpe_tokenizer(std::move(pieces), {}, "test");
  }();
  return *made;
}

const Tokenizer& byte_tokenizer() {
  static const auto made = make_byte_tokenizer();
  return *made;
}

class TrainingLines : public sentencepiece::SentenceIterator {
 public:
  bool done() const override { return at_ == 20; }
  void Next() override { ++at_; }
  const std::string& value() const override { return line_; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  std::string line_ = "a b ab c caf\u00e9 au lait";
  int at_ = 0;
};

// Spells the characters of the table in bytes.
const Tokenizer& sentencepiece_tokenizer() {
  static const auto made = [] {
    sentencepiece::logging::SetMinLogLevel(2);
    std::string model;
    TrainingLines lines;
    const auto status = sentencepiece::SentencePieceTrainer::Train(
        "--model_type=bpe --vocab_size=280 --byte_fallback=true --character_coverage=1 --num_threads=1 --minloglevel=2 "
        "--hard_vocab_limit=false",
        &lines, &model);
    if (!status.ok()) throw std::runtime_error(status.ToString());
    return make_sentencepiece_tokenizer(model, "test");
  }();
  return *made;
}

std::string as_line(const std::string& field) { return field + "\n"; }

TextReader lm_reader(const std::string& name, const std::string& cells, const Tokenizer& (*tokenizer)()) {
  return {"lm " + name, cells, as_line,
          [=](const std::string& path, const ReadHow& how) { return read_lm(path, tokenizer(), how); }, true};
}

TextReader vocabulary_reader(const std::string& type, const std::string& cells) {
  VocabularyOptions options;
  options.type = type;
  if (type == "subword-nmt") options.merges = 1;
  if (type == WordPieceTokenizer::kType) options.size = 60;
  return {"vocab " + type, cells, as_line,
          [=](const std::string& path, const ReadHow& how) { return read_vocabulary_and_lm(options, path, how); },
          true};
}

// A target of as many lines as the source has.
std::string target_beside(const std::string& path) {
  const std::string source = read_text_file(path);
  std::string target;
  for (size_t i = 0; i < split(without_last(source), '\n').size(); ++i) target += "c\n";
  write_file_atomically(path + ".target", target);
  return path + ".target";
}

}  // namespace

std::vector<TextReader> all_readers() {
  std::vector<TextReader> readers{
      // NUL, U+2028, U+0085, form feed, vertical tab, lone CR, U+001C, U+00A0, U+FEFF, LF.
      vocabulary_reader("word", "rwwsswwwwl"),
      vocabulary_reader("char", "rwwwwwwwwl"),
      vocabulary_reader("subword-nmt", "rwwwwwwwwl"),
      vocabulary_reader("wordpiece", "rsdddsdsdl"),
      lm_reader("word", "rwwsswwwwl", word_tokenizer),
      lm_reader("char", "rwwwwwwwwl", char_tokenizer),
      lm_reader("byte", "wwwwwwwwwl", byte_tokenizer),
      lm_reader("subword-nmt", "rwwwwwwwwl", subword_tokenizer),
      lm_reader("wordpiece", "rsdddsdsdl", wordpiece_tokenizer),
      lm_reader("byte-bpe", "rwwwwwwwwl", byte_bpe_tokenizer),
      lm_reader("sentencepiece", "rswsdsdssl", sentencepiece_tokenizer),
  };
  const auto add = [&](TextReader reader) { readers.push_back(std::move(reader)); };
  add({"translation, two files", "rwwsswwwwl", as_line,
       [](const std::string& path, const ReadHow& how) {
         return read_sources({path, target_beside(path)}, word_tokenizer(), how);
       },
       true});
  add({"translation, tabs", "rwwsswwwwr", [](const std::string& field) { return field + "\tc\n"; },
       [](const std::string& path, const ReadHow& how) { return read_sources({path}, word_tokenizer(), how); }, true,
       "\tc"});
  add({"mlm", "rsdddsdsdl", as_line,
       [](const std::string& path, const ReadHow& how) { return read_sentences(path, wordpiece_tokenizer(), how); },
       true});
  add({"examples", "rsdddsdsdr", [](const std::string& field) { return field + "\tyes\n"; },
       [](const std::string& path, const ReadHow& how) { return read_examples(path, wordpiece_tokenizer(), how); },
       true, "\tyes"});
  add({"examples, label", "rrrrrrrrrr", [](const std::string& field) { return "a\t" + field + "\n"; },
       [](const std::string& path, const ReadHow& how) { return read_examples(path, wordpiece_tokenizer(), how); }});
  add({"squad", "rwwrrrrwwr", [](const std::string& field) { return squad_of("\"" + field + "\""); }, read_context});
  add({"squad, escapes", "rwwwwwwwww",
       [](const std::string& field) { return squad_of(nlohmann::json(field).dump(-1, ' ', true)); }, read_context,
       false, "", false});
  add({"codes", "rwwwwwwwwr", [](const std::string& field) { return "#version: 0.2\n" + field + " c\n"; },
       [](const std::string& path, const ReadHow&) { return read_codes(read_text_file(path), path).at(0).left; }});
  add({"merges.txt", "rwwwwwwwwr", [](const std::string& field) { return "#version: 0.2\n" + field + " c\n"; },
       [](const std::string& path, const ReadHow&) {
         return read_byte_bpe_merges(read_text_file(path), path).at(0).left;
       }});
  add({"vocab.json", "rwwrrrrwwr", [](const std::string& field) { return "{\"" + field + "\": 0}\n"; },
       [](const std::string& path, const ReadHow&) { return read_numbered_pieces(read_text_file(path), path).at(0); }});
  add({"vocab.txt", "rwwwwwwwwl", [](const std::string& field) { return special_lines() + field + "\n"; },
       [](const std::string& path, const ReadHow&) {
         std::string pieces;
         const auto all = read_wordpieces(read_text_file(path), path);
         for (size_t i = std::size(kSpecialPieces); i < all.size(); ++i)
           pieces += (pieces.empty() ? "" : "|") + all[i].text;
         return pieces;
       }});
  add({"vocabulary file", "wwwwwwwwww",
       [](const std::string& field) {
         return write_vocabulary("word", {{kEndOfLinePiece, 1}, {kUnknownPiece, 0}, {field, 1}});
       },
       [](const std::string& path, const ReadHow&) {
         return read_vocabulary(read_text_file(path), path).pieces.at(2).text;
       },
       false, "", false});
  return readers;
}

}  // namespace text_readers
