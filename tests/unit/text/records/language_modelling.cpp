// Documents of a language model: the text and the tokens of each document equal a naive division of the files, for any
// buffer sizes and numbers of threads.
#include "text/records/language_modelling.h"

#include <rapidcheck.h>

#include <catch2/catch.hpp>

#include "base/json_types.h"
#include "base/text.h"
#include "base/unicode.h"
#include "fixtures/folder.h"
#include "fixtures/shards.h"
#include "fixtures/status.h"
#include "text/byte_bpe.h"
#include "text/tokenizers.h"

using namespace mh;
using namespace mh::text;

namespace {

using Texts = std::vector<std::string>;

// Returns a tokenizer with merges of white space, so that tokens depend on the white space around a line end.
const Tokenizer& tokenizer() {
  static const auto instance = [] {
    WordMap<uint64_t> words;
    for (const char* word : {"ab", " ab", " a", "\n\n", "\n ", "  ", " \n", "  \n", "\u4e2d\u6587"}) words[word] = 2;
    return learn_byte_bpe(words, 300, 1);
  }();
  return *instance;
}

// Returns the documents of the files by a division of whole texts.
Texts naive_documents(const Texts& files, DocumentUnit unit) {
  Texts documents;
  for (std::string text : files) {
    if (text.ends_with('\n')) text.pop_back();
    const Texts lines = split(text, '\n');
    if (unit == DocumentUnit::file) documents.push_back(text);
    if (unit == DocumentUnit::jsonl)
      for (const std::string& line : lines)
        if (!is_blank(line)) documents.push_back(nlohmann::json::parse(line)["text"]);
    if (unit != DocumentUnit::blank_line) continue;
    Texts document_lines;
    for (size_t i = 0; i <= lines.size(); ++i) {
      if (i < lines.size() && !is_blank(lines[i])) {
        document_lines.push_back(lines[i]);
        continue;
      }
      documents.push_back(join(document_lines, "\n"));
      document_lines.clear();
    }
  }
  std::erase_if(documents, [](const std::string& document) { return document.empty(); });
  return documents;
}

rc::Gen<std::string> any_text() {
  const auto part = rc::gen::element<std::string>("a", "b", "ab", " ", "  ", " ab", "\n", "\n", "\n\n", " \n", "\n \n",
                                                  "\t", "\r", "\u00a0", "\u3000", "\u4e2d\u6587", "'s", "1", "!");
  return rc::gen::map(rc::gen::container<Texts>(part), [](const Texts& parts) {
    std::string text = join(parts, "");
    for (size_t at; (at = text.find("\r\n")) != text.npos;) text.erase(at, 1);  // CR LF is refused
    return text;
  });
}

std::string json_lines(const Texts& texts) {
  std::string lines;
  for (const std::string& text : texts) lines += nlohmann::json{{"id", 1}, {"text", text}}.dump() + "\n" + " \n";
  return lines;
}

struct Encoded {
  std::vector<std::vector<int32_t>> records;
  uint64_t text_bytes = 0, num_empty_documents = 0;
};

Encoded encode_files(const Texts& contents, DocumentUnit unit, const ReadSizes& sizes, int num_threads) {
  static const Folder folder;
  Texts files;
  for (const std::string& content : contents) {
    files.push_back(folder.file(str(files.size())));
    write_file_atomically(files.back(), content);
  }
  const TextBatches::FindSplit find_split = [](std::string_view t) { return tokenizer().find_split(t); };
  TextBatches lines(files, LineEnds::refuse_crlf, unit == DocumentUnit::jsonl ? nullptr : find_split, sizes);
  DocumentBatches documents(lines, unit, find_split, sizes);
  const std::string path = folder.file("shard");
  const auto sink = open_sink(path);
  io::ShardHeader header = header_of(tokenizer());
  header.set_kind(text::kTextKind);
  io::ShardWriter writer(*sink, header);
  encode_lm_documents(documents, tokenizer(), num_threads, writer);
  writer.finish();
  sink->close();
  const io::ShardFile shard(path);
  Encoded encoded;
  uint64_t begin = 0;
  for (uint32_t length : shard.sequence_lengths()) {
    encoded.records.emplace_back(length);
    shard.read(begin, encoded.records.back());
    begin += length;
  }
  encoded.text_bytes = shard.counts().text_bytes;
  encoded.num_empty_documents = documents.num_empty_documents();
  return encoded;
}

}  // namespace

TEST_CASE("each document has the tokens of its whole text and one end-of-text token, for any buffer sizes", "[lm]") {
  for (const DocumentUnit unit : {DocumentUnit::blank_line, DocumentUnit::file, DocumentUnit::jsonl})
    CHECK(rc::check([&] {
      Texts contents = *rc::gen::container<Texts>(any_text());
      if (unit == DocumentUnit::jsonl)
        for (std::string& content : contents) content = json_lines(split(content, ' '));
      const auto batch_bytes = *rc::gen::inRange<size_t>(1, 12), chunk_bytes = *rc::gen::inRange<size_t>(4, 12);
      const auto num_threads = *rc::gen::inRange(1, 3);
      std::vector<std::vector<int32_t>> expected;
      uint64_t text_bytes = 0;
      for (const std::string& document : naive_documents(contents, unit)) {
        expected.emplace_back();
        tokenizer().encoder()->encode(document, expected.back());
        expected.back().push_back(tokenizer().end_of_line_id());
        text_bytes += document.size() + 1;
      }
      const Encoded encoded = encode_files(contents, unit, {batch_bytes, chunk_bytes, 1 << 20}, num_threads);
      RC_ASSERT(encoded.records == expected);
      RC_ASSERT(encoded.text_bytes == text_bytes);
    }));
}

TEST_CASE("blank lines, ends of files and JSON objects end documents, and documents without text are dropped", "[lm]") {
  const auto texts_of = [](const Texts& contents, DocumentUnit unit) {
    Texts texts;
    const Encoded encoded = encode_files(contents, unit, {}, 1);
    for (const auto& record : encoded.records) texts.push_back(tokenizer().decode(record));
    if (encoded.num_empty_documents > 0) texts.push_back(str(encoded.num_empty_documents, " dropped"));
    return texts;
  };
  CHECK(texts_of({"a\nb\n\n \u3000\nc", "d\n"}, DocumentUnit::blank_line) == Texts{"a\nb\n", "c\n", "d\n"});
  CHECK(texts_of({"\n\na\n\n"}, DocumentUnit::blank_line) == Texts{"a\n"});
  CHECK(texts_of({"a\n\nb\n", "", "\n", "c"}, DocumentUnit::file) == Texts{"a\n\nb\n", "c\n", "1 dropped"});
  CHECK(texts_of({"{\"text\": \"a\\nb\\n\"}\n\n{\"x\": [{}], \"text\": \"\"}\n"}, DocumentUnit::jsonl) ==
        Texts{"a\nb\n\n", "1 dropped"});
}

TEST_CASE("lines that are not JSON objects with a string at the key text are refused with file and line", "[lm]") {
  for (const char* line : {"{\"text\": 1}", "{\"Text\": \"a\"}", "[\"text\"]", "\"text\"", "{\"text\": \"a\"", "text",
                           "{\"text\": \"a\\u0000\"}", "{\"text\": \"\\ud83d\"}", "{\"text\": \"a\", \"text\": \"b\"}",
                           "{\"text\": \"a\"} {}"}) {
    INFO(line);
    const std::string content = str("{\"text\": \"a\"}\n", line, "\n");
    CHECK(status_of([&] { encode_files({content}, DocumentUnit::jsonl, {}, 2); }) == 3);
    CHECK_THROWS_WITH(encode_files({content}, DocumentUnit::jsonl, {}, 2), Catch::Contains(":2"));
  }
}

TEST_CASE("a document that cannot be split within the limit is refused with its file", "[lm]") {
  const Folder folder;
  const std::string path = folder.file("t");
  write_file_atomically(path, std::string(100, 'a'));
  const TextBatches::FindSplit never_split = [](std::string_view) { return std::string::npos; };
  TextBatches lines({path}, LineEnds::refuse_crlf, never_split);
  DocumentBatches documents(lines, DocumentUnit::file, never_split, {1, 16, 64});
  TextBatch batch;
  CHECK_THROWS_WITH(documents.next(batch),
                    Catch::Contains(path + ": expected a space or a line end, where the text can be split, at least "
                                           "every 64") &&
                        Catch::Contains("found none; break the text up"));
}
