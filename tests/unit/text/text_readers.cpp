// Tests of all text readers of the library: the treatment of characters at which other programs end lines or words, of
// byte order marks, of a missing last line feed and of characters split by a line feed. Errors must not depend on
// buffer sizes and the number of threads.
#include "fixtures/text_readers.h"

#include <catch2/catch.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "fixtures/folder.h"
#include "fixtures/num_cases.h"
#include "fixtures/status.h"
#include "text/records/masked_words.h"
#include "text/records/translation.h"
#include "text/text_bytes.h"
#include "text/wordpiece.h"

using namespace mh;
using namespace mh::io;
using namespace mh::text;
using namespace text_readers;

namespace {

// The result of a text reader. `text`: the text that the reader returned, or "refused". `message`: the error message,
// empty without an error.
struct Outcome {
  std::string text, message;
};
Outcome read_bytes(const TextReader& reader, const std::string& bytes, const ReadSettings& settings = {}) {
  static const Folder folder;
  const std::string path = folder.file("f");
  write_file_atomically(path, bytes);
  try {
    return {reader.read(path, settings), ""};
  } catch (const Error& error) {
    CHECK(error.exit() == Exit::input);
    std::string message = error.what();
    for (size_t offset; (offset = message.find(path)) != message.npos;) message.replace(offset, path.size(), "f");
    return {"refused", message};
  }
}

std::string location_of(const std::string& bytes, size_t offset) {
  return str("f:", 1 + std::count(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(offset), '\n'), ": byte ",
             offset, " of the file");
}

}  // namespace

TEST_CASE("each text reader treats each special character as TextReader::outcome_letters specifies", "[text]") {
  for (const TextReader& reader : all_readers()) {
    REQUIRE(reader.outcome_letters.size() == kUnusualCharacters.size());
    for (size_t i = 0; i < kUnusualCharacters.size(); ++i) {
      const std::string& special = kUnusualCharacters[i].bytes;
      const std::string bytes = reader.file_content("a" + special + "b");
      INFO(reader.name << ", " << kUnusualCharacters[i].name);
      const Outcome outcome = read_bytes(reader, bytes);
      CHECK(escape_piece(outcome.text) == escape_piece(outcome_of(reader.outcome_letters[i], special)));
      if (const size_t nul = bytes.find('\0'); nul != bytes.npos && reader.outcome_letters[i] == 'r')
        CHECK_THAT(outcome.message, Catch::Contains(location_of(bytes, nul)) && Catch::Contains("a NUL byte"));
    }
  }
}

TEST_CASE("a missing last line feed does not change the text that a reader returns", "[text]") {
  for (const TextReader& reader : all_readers()) {
    std::string bytes = reader.file_content("ab");
    REQUIRE(bytes.ends_with('\n'));
    const std::string text = reader.outcome_letters == std::string(kUnusualCharacters.size(), 'r') ? "refused" : "ab";
    INFO(reader.name);
    CHECK(read_bytes(reader, bytes).text == text);
    bytes.pop_back();
    // The checksum of a vocabulary file covers the last line feed.
    CHECK(read_bytes(reader, bytes).text == (reader.name == "vocabulary file" ? "refused" : text));
  }
}

TEST_CASE("every text reader drops a byte order mark, except the reader for the byte tokenizer", "[text]") {
  const std::string mark(kByteOrderMark);
  for (const TextReader& reader : all_readers()) {
    INFO(reader.name);
    const std::string bytes = reader.file_content("ab");
    const std::string text_without_mark = read_bytes(reader, bytes).text;
    CHECK(read_bytes(reader, mark + bytes).text ==
          (reader.name == "lm byte" ? mark + text_without_mark : text_without_mark));
    // Byte offsets in messages count from the start of the file and include the byte order mark.
    if (!reader.writes_raw_bytes || reader.name == "lm byte") continue;
    const std::string invalid = mark + reader.file_content("a\xFF");
    CHECK_THAT(read_bytes(reader, invalid).message, Catch::Contains(location_of(invalid, invalid.find('\xFF'))));
  }
  CHECK(drop_byte_order_mark(mark + mark + "a", "f") == mark + "a");
}

TEST_CASE("TextBatches drops and counts the byte order mark of each file, except with LineEnds::as_text", "[text]") {
  const Folder folder;
  const std::vector<std::string> texts{
      "\xEF\xBB\xBF"
      "a\n",
      "b", "\xEF\xBB\xBF",
      "\xEF\xBB\xBF\n\xEF\xBB\xBF"
      "c\n"};
  std::vector<std::string> files;
  for (const std::string& text : texts) {
    files.push_back(folder.file(str(files.size())));
    write_file_atomically(files.back(), text);
  }
  for (const LineEnds ends : {LineEnds::refuse_crlf, LineEnds::as_text})
    for (size_t chunk_size : {4, 1 << 20}) {
      TextBatches text(files, ends, nullptr, {1, chunk_size, 1 << 20});
      std::string lines;
      uint64_t bytes = 0;
      for (TextBatch batch; text.next(batch); bytes += batch.input_bytes)
        for (const auto& s : batch.segments) lines += batch.text.substr(s.begin, s.end - s.begin) + "|";
      const bool has_marks = ends == LineEnds::as_text;
      // U+FEFF is a byte order mark only at the start of a file; a file that contains only a byte order mark has no
      // lines.
      CHECK(lines == (has_marks ? "\uFEFFa|b|\uFEFF|\uFEFF|\uFEFFc|" : "a|b||\uFEFFc|"));
      CHECK(text.num_byte_order_marks() == (has_marks ? 0 : 3));
      CHECK(bytes == (has_marks ? 18 : 9));
    }
}

TEST_CASE("a character split by a line feed is refused, and the message states the offset of its first byte",
          "[text]") {
  for (const TextReader& reader : all_readers()) {
    if (!reader.writes_raw_bytes) continue;
    for (const std::string character : {"\u00e9", "\u2028", "\U0001F600"})
      for (size_t cut = 1; cut < character.size(); ++cut) {
        const std::string field = "caf" + character.substr(0, cut) + "\n" + character.substr(cut) + " au lait";
        const std::string bytes = reader.file_content(field);
        const Outcome outcome = read_bytes(reader, bytes);
        INFO(reader.name << ", " << character.size() << " bytes cut at " << cut);
        if (reader.name == "lm byte") {
          CHECK(outcome.message.empty());
          continue;
        }
        CHECK_THAT(outcome.message, Catch::Contains(location_of(bytes, bytes.find(field) + 3)));
        CHECK_THAT(outcome.message, Catch::Contains("a character that the end of the line cuts off"));
      }
  }
}

TEST_CASE("the first error of a text does not depend on batch size, chunk size and number of threads", "[text]") {
  using Lines = std::vector<std::string>;
  Lines valid_lines;
  for (int i = 0; i < 24; ++i) valid_lines.push_back(i % 5 == 4 ? "ab" : "caf\u00e9 au lait a b");
  const auto text_with_changes = [&](const std::vector<std::pair<size_t, std::string>>& changes) {
    Lines lines = valid_lines;
    for (const auto& [line, text] : changes) lines[line - 1] = text;
    return lines;
  };
  struct Text {
    Lines lines;
    std::string expected_location;  // expected start of the error message; empty: no error
    bool has_last_line_feed = true;
  };
  const std::string head = "caf\xC3", tail = "\xA9 au lait", nul("a \0b", 4);
  const std::vector<Text> texts{
      {valid_lines, ""},
      {text_with_changes({{11, head}, {12, tail}}), "f:11: byte "},
      {text_with_changes({{1, head}, {2, tail}, {3, nul}}), "f:1: byte 3 "},
      {text_with_changes({{7, nul}, {20, "a\xFF"}}), "f:7: byte "},
      {text_with_changes({{4, "a\xFF"}, {5, "a\r"}}), "f:4: byte "},
      {text_with_changes({{4, "a\r"}, {5, "a\xFF"}}), "f:4: expected lines that end in LF"},
      {text_with_changes({{4, "a b \xFF lait\r"}}), "f:4: byte "},
      {text_with_changes({{24, head}}), "f:24: byte ", false},
  };
  for (const TextReader& reader : all_readers()) {
    if (!reader.reads_in_batches || reader.name == "lm byte") continue;
    for (const Text& text : texts) {
      std::string bytes;
      for (std::string line : text.lines) {
        const bool has_crlf = line.ends_with('\r');
        if (has_crlf) line.pop_back();
        bytes += line + reader.line_tail + (has_crlf ? "\r\n" : "\n");
      }
      if (!text.has_last_line_feed) bytes.pop_back();
      const Outcome expected = read_bytes(reader, bytes);
      INFO(reader.name << ", " << text.expected_location);
      CHECK_THAT(expected.message, Catch::StartsWith(text.expected_location));
      CHECK(expected.message.empty() == text.expected_location.empty());
      for (size_t batch_size : {1, 30, 1 << 20})
        for (size_t chunk_size : {4, 5, 7, 64, 1 << 20})
          for (int num_threads : {1, 3}) {
            // Without MH_FULL, each size of batches and of chunks has one number of threads.
            if (fixtures::num_cases(5) == 1 && ((batch_size + chunk_size) % 2 == 0) != (num_threads == 1)) continue;
            const Outcome outcome = read_bytes(reader, bytes, {{batch_size, chunk_size, 1 << 20}, num_threads});
            if (outcome.text == expected.text && outcome.message == expected.message) continue;
            INFO("batches of " << batch_size << ", chunks of " << chunk_size << ", " << num_threads << " threads");
            CHECK(outcome.text == expected.text);
            CHECK(outcome.message == expected.message);
          }
    }
  }
}

TEST_CASE("PairBatches counts every byte of its files, line ends included", "[text]") {
  const Folder folder;
  const std::string source = "a\r\nbb\r\nc\n", target = "x\r\n\r\nzzz", pairs = "a\tx\r\nbb\ty\n";
  for (const auto& [name, text] : {std::pair("source", source), {"target", target}, {"pairs", pairs}})
    write_file_atomically(folder.file(name), text);
  const auto bytes = [&](const std::vector<std::string>& names, size_t batch_size) {
    std::vector<std::string> files;
    for (const std::string& name : names) files.push_back(folder.file(name));
    PairBatches reader(files, LineEnds::normalise_crlf, {batch_size, 1 << 20, 1 << 20});
    uint64_t sum = 0;
    for (PairBatch batch; reader.next(batch);) sum += batch.source.input_bytes + batch.target.input_bytes;
    return sum;
  };
  for (size_t batch_size : {1, 4, 1 << 20}) {
    CHECK(bytes({"source", "target"}, batch_size) == source.size() + target.size());
    CHECK(bytes({"pairs"}, batch_size) == pairs.size());
  }
}

TEST_CASE("the error in the earlier line of two files is reported; for equal line numbers, the error in the source",
          "[text]") {
  const Folder folder;
  const std::vector<std::string> files{folder.file("source"), folder.file("target")};
  const auto message = [&](size_t batch_size) -> std::string {
    try {
      PairBatches text(files, LineEnds::refuse_crlf, {batch_size, 1 << 20, 1 << 20});
      for (PairBatch pairs; text.next(pairs);)
        for (size_t i = 0; i < pairs.source.segments.size(); ++i) {
          check_text(pairs.source, pairs.source.segments[i], false);
          check_text(pairs.target, pairs.target.segments[i], false);
        }
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  struct Sides {
    std::string source, target, error;
  };
  for (const Sides& sides :
       std::vector<Sides>{{"a\nb\nc\n", "a\nb\nc", ""},
                          {"a\nb\n\xFF\n", "a\n\xFF\nc\n", "target:2: byte 2"},
                          {"a\n\xFF\nc\n", "a\n\xFF\nc\n", "source:2: byte 2"},
                          {"a\nb\nc\r\n", "a\nb\r\nc\n", "target:2: expected lines that end in LF"},
                          {"a\nb\r\nc\n", "a\nb\r\nc\n", "source:2: expected lines that end in LF"},
                          {"a\nb\nc\r\n", "a\n\xFF\nc\n", "target:2: byte 2"},
                          {"a\nb\nc\n", "a\nb\n", "found 3 and 2"},
                          {"a\n", "a\nb\nc\n", "found 1 and 3"},
                          {"\xFF\nb\n", "a\n", "source:1: byte 0"}}) {
    write_file_atomically(files[0], sides.source);
    write_file_atomically(files[1], sides.target);
    for (size_t batch_size : {1, 3, 1 << 20}) {
      INFO(sides.error << ", batches of " << batch_size);
      const std::string actual = message(batch_size);
      CHECK(actual.empty() == sides.error.empty());
      CHECK_THAT(actual, Catch::Contains(sides.error));
    }
  }
}

TEST_CASE("a line of only white space ends a document, and a line of control characters does not", "[text]") {
  const Folder folder;
  std::vector<Piece> pieces;
  for (const char* piece : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"}) pieces.push_back({piece, 0});
  const auto tokenizer = make_wordpiece_tokenizer(std::move(pieces), {}, "test");
  const std::string expected_documents =
      "r22222221"
      "2";  // for each entry of kUnusualCharacters the number of documents, or r if the file is refused
  for (size_t i = 0; i < kUnusualCharacters.size(); ++i) {
    INFO(kUnusualCharacters[i].name);
    write_file_atomically(folder.file("text"), "a\n" + kUnusualCharacters[i].bytes + "\nb\n");
    uint64_t actual = 0;
    const int status = status_of([&] {
      TextBatches text({folder.file("text")}, LineEnds::refuse_crlf, nullptr);
      ShardHeader header;
      header.vocabulary_size = tokenizer->size();
      header.set_kind(kDocumentsKind);
      auto sink = open_sink(folder.file("x.mhs"));
      ShardWriter writer(*sink, header);
      actual = encode_documents(text, *tokenizer, 1, writer).num_documents;
    });
    // The special character CR and the line feed after it form a CR LF line end, which is refused.
    const bool is_refused = expected_documents[i] == 'r' || kUnusualCharacters[i].bytes == "\r";
    CHECK(status == (is_refused ? 3 : 0));
    if (!is_refused) CHECK(actual == static_cast<uint64_t>(expected_documents[i] - '0'));
  }
}
