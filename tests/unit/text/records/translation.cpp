// Tests of the encoding of sentence pairs, from two files or from one file with tabs: filters compared with a naive
// reference, for any number of threads; alignment of source and target lines; refusals.
#include "text/records/translation.h"

#include <rapidcheck.h>

#include <catch2/catch.hpp>
#include <map>

#include "base/file.h"
#include "base/text.h"
#include "fixtures/contains.h"
#include "fixtures/folder.h"
#include "fixtures/shards.h"
#include "fixtures/status.h"
#include "fixtures/words.h"
#include "text/tokenizers.h"

using namespace mh;
using namespace mh::io;
using namespace mh::text;
using shards::PairShard;
using shards::read_pairs;
using words::word_tokenizer;

namespace {

using Lines = std::vector<std::string>;

struct PairTokenizers {
  std::unique_ptr<Tokenizer> source = word_tokenizer({"a", "b", "c"}), target = word_tokenizer({"x", "y"});
};

PairSummary encode_to(const std::string& path, const Lines& files, const PairTokenizers& tokenizers,
                      const PairFilters& filters = {}, int threads = 1) {
  PairBatches batches(files, LineEnds::refuse_crlf);
  ShardHeader h = header_of(*tokenizers.target);
  h.source_vocabulary_size = tokenizers.source->size();
  h.source_fingerprint = tokenizers.source->fingerprint();
  h.source_tokenizer = tokenizers.source->serialize();
  h.set_kind(kPairsKind);
  auto sink = open_sink(path);
  ShardWriter writer(*sink, h);
  PairSummary summary = encode_pairs(batches, *tokenizers.source, *tokenizers.target, filters, threads, writer);
  writer.finish();
  sink->close();
  return summary;
}

std::string lines_of(const Lines& lines) { return lines.empty() ? "" : join(lines, "\n") + "\n"; }

std::string text_of(const Tokenizer& tokenizer, std::span<const int32_t> sequence) {
  return tokenizer.decode(sequence.first(sequence.size() - 1));
}

// Returns the error message of encode_to(), or "nothing" if it succeeds. Checks that an error leaves no file at `path`.
std::string refusal_of(const std::string& path, const Lines& files, const PairFilters& filters = {}) {
  try {
    encode_to(path, files, PairTokenizers(), filters);
  } catch (const Error& error) {
    CHECK(error.exit() == Exit::input);
    CHECK(!MappedFile::is_mappable(path));
    return error.what();
  }
  return "nothing";
}

}  // namespace

TEST_CASE("pair filters equal a naive reference, for one input file and for two", "[pairs]") {
  Folder folder;
  const PairTokenizers tokenizers;
  const auto side_of = [](const Lines& words) {
    return rc::gen::map(rc::gen::resize(12, rc::gen::container<Lines>(rc::gen::elementOf(words))),
                        [](const Lines& parts) { return join(parts, " "); });
  };
  CHECK(rc::check([&] {
    const auto pairs = *rc::gen::container<std::vector<std::pair<std::string, std::string>>>(
        rc::gen::pair(side_of({"a", "b", "c", "q"}), side_of({"x", "y", "q"})));
    PairFilters filters;
    filters.empty_handling = "drop";
    filters.min_length = *rc::gen::inRange(0, 3);
    filters.max_length = *rc::gen::element(0, 3, 8);
    filters.max_ratio = *rc::gen::element(0.0, 1.0, 1.5, 2.0);
    const int threads = *rc::gen::element(1, 3);

    Lines source, target, tab_separated, expected;
    std::map<std::string, uint64_t> num_dropped;
    std::array<uint64_t, 2> tokens{}, unknown{};
    uint64_t target_bytes = 0;
    for (const auto& [s, t] : pairs) {
      source.push_back(s);
      target.push_back(t);
      tab_separated.push_back(s + "\t" + t);
      const double source_words = static_cast<double>((s.size() + 1) / 2),
                   target_words = static_cast<double>((t.size() + 1) / 2);
      if (source_words == 0 || target_words == 0) ++num_dropped["empty"];
      else if (std::min(source_words, target_words) < static_cast<double>(filters.min_length)) ++num_dropped["short"];
      else if (filters.max_length > 0 && std::max(source_words, target_words) > static_cast<double>(filters.max_length))
        ++num_dropped["long"];
      else if (filters.max_ratio > 0 &&
               std::max(source_words, target_words) / std::min(source_words, target_words) > filters.max_ratio)
        ++num_dropped["ratio"];
      else {
        auto with_unk = [](std::string text) {
          for (size_t q = text.find('q'); q != text.npos; q = text.find('q')) text.replace(q, 1, "<unk>");
          return text;
        };
        expected.push_back(with_unk(s) + "\t" + with_unk(t));
        tokens[0] += static_cast<uint64_t>(source_words) + 1;
        tokens[1] += static_cast<uint64_t>(target_words) + 1;
        unknown[0] += static_cast<uint64_t>(std::count(s.begin(), s.end(), 'q'));
        unknown[1] += static_cast<uint64_t>(std::count(t.begin(), t.end(), 'q'));
        target_bytes += t.size() + 1;
      }
    }
    write_file_atomically(folder.file("s"), lines_of(source));
    write_file_atomically(folder.file("t"), lines_of(target));
    write_file_atomically(folder.file("both"), lines_of(tab_separated));
    const PairSummary summary =
        encode_to(folder.file("two.mhs"), {folder.file("s"), folder.file("t")}, tokenizers, filters, threads);
    encode_to(folder.file("one.mhs"), {folder.file("both")}, tokenizers, filters, threads);
    RC_ASSERT(read_text_file(folder.file("two.mhs")) == read_text_file(folder.file("one.mhs")));
    RC_ASSERT(summary.num_pairs == expected.size());
    RC_ASSERT(summary.num_dropped == num_dropped);
    RC_ASSERT(summary.num_tokens == tokens);
    RC_ASSERT(summary.num_unknown == unknown);
    const PairShard shard = read_pairs(folder.file("two.mhs"));
    RC_ASSERT(shard.size() == expected.size());
    RC_ASSERT(shard.counts.num_dropped == num_dropped);
    RC_ASSERT(shard.counts.text_bytes == target_bytes);
    for (size_t i = 0; i < expected.size(); ++i)
      RC_ASSERT(text_of(*tokenizers.source, shard.source(i)) + "\t" + text_of(*tokenizers.target, shard.target(i)) ==
                expected[i]);
  }));
}

TEST_CASE("source and target lines stay aligned if they are in batches of different numbers of lines", "[pairs]") {
  Folder folder;
  const PairTokenizers tokenizers;
  Lines source, target;
  for (int i = 0; i < 9000; ++i) {
    std::string s = "a", t = "x";
    for (int k = 0; k < i % 400; ++k) s += i % 3 == 0 ? " b" : " c";
    for (int k = 0; k < i % 7; ++k) t += " y";
    source.push_back(s);
    target.push_back(t);
  }
  write_file_atomically(folder.file("s"), lines_of(source));
  write_file_atomically(folder.file("t"), join(target, "\n"));  // without a last line feed
  encode_to(folder.file("1.mhs"), {folder.file("s"), folder.file("t")}, tokenizers);
  encode_to(folder.file("4.mhs"), {folder.file("s"), folder.file("t")}, tokenizers, {}, 4);
  CHECK(read_text_file(folder.file("1.mhs")) == read_text_file(folder.file("4.mhs")));
  const PairShard shard = read_pairs(folder.file("1.mhs"));
  REQUIRE(shard.size() == source.size());
  size_t num_mismatches = 0;
  for (size_t i = 0; i < source.size(); ++i)
    if (text_of(*tokenizers.source, shard.source(i)) != source[i] ||
        text_of(*tokenizers.target, shard.target(i)) != target[i])
      ++num_mismatches;
  CHECK(num_mismatches == 0);
  // If source and target have different numbers of lines, the message states both numbers and the first line without a
  // counterpart.
  for (size_t num_target_lines : {0UL, 1UL, 3000UL, 8999UL}) {
    write_file_atomically(folder.file("u"),
                          lines_of(Lines(target.begin(), target.begin() + static_cast<int64_t>(num_target_lines))));
    std::string message = refusal_of(folder.file("x.mhs"), {folder.file("s"), folder.file("u")});
    CHECK(message.find(str("9000 and ", num_target_lines)) != message.npos);
    CHECK(message.find(str("s:", num_target_lines + 1)) != message.npos);
  }
  write_file_atomically(folder.file("u"), lines_of(Lines(300, "a")));
  std::string message = refusal_of(folder.file("x.mhs"), {folder.file("u"), folder.file("t")});
  CHECK(message.find("300 and 9000") != message.npos);
  CHECK(message.find("t:301") != message.npos);
}

TEST_CASE("a malformed pair is refused, and the message names its line", "[pairs]") {
  Folder folder;
  const std::string path = folder.file("x.mhs");
  auto error_of = [&](const std::string& text) {
    write_file_atomically(folder.file("p"), text);
    return refusal_of(path, {folder.file("p")});
  };
  CHECK(contains(error_of("a\tx\nb y\n"), "p:2"));
  CHECK(contains(error_of("a\tx\nb\ty\tx\n"), "2 tabs"));
  CHECK(contains(error_of("a\tx\n\ty\n"), "an empty source"));
  CHECK(contains(error_of("a\tx\na\t  \n"), "p:2"));
  CHECK(contains(error_of("a\tx\na\t  \n"), "an empty target"));
  CHECK(contains(error_of("a\tx\r\n"), "CR LF"));
  CHECK(contains(error_of("a\tx \xff\n"), "byte 4 of the file"));
  CHECK(contains(error_of("a \xff\tx\n"), "byte 2 of the file"));
  CHECK(contains(error_of(std::string("a\0\tx\n", 5)), "NUL"));
  CHECK(contains(error_of("a <eos> b\tx\n"), "<eos>"));
  CHECK(contains(error_of("a\tx <eos>\n"), "p:1"));
  CHECK(contains(error_of("a\tx\n" + std::string(10 << 20, 'a') + "\tx\n"), "p:2: expected lines of at most"));
  // A line of 10,000 words is accepted.
  std::string long_line = "a";
  for (int i = 1; i < 10000; ++i) long_line += " b";
  write_file_atomically(folder.file("p"), long_line + "\tx\n");
  CHECK(encode_to(path, {folder.file("p")}, PairTokenizers()).num_tokens[0] == 10001);
}

TEST_CASE("filters that no pair can satisfy are refused", "[pairs]") {
  PairFilters filters;
  filters.min_length = 5;
  filters.max_length = 4;
  CHECK(status_of([&] { filters.check(); }) == 2);
  filters.max_length = 5;
  filters.check();
  filters.max_ratio = 0.5;
  CHECK(status_of([&] { filters.check(); }) == 2);
}
