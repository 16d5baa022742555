// Tests of shards (.mhs files), in which each record has one sequence of tokens per field: round trips, equality of
// streaming and random access, and refusal of truncated, damaged and invalid files.
#include "io/shard.h"

#include <rapidcheck.h>
#include <zstd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>
#include <numeric>

#include "base/error.h"
#include "base/random.h"
#include "fixtures/corrupt_shards.h"
#include "fixtures/folder.h"
#include "fixtures/num_cases.h"
#include "fixtures/peak_memory.h"
#include "fixtures/shards.h"
#include "fixtures/skip.h"
#include "fixtures/status.h"
#include "fixtures/words.h"
#include "io/shard_format.h"
#include "text/records/language_modelling.h"
#include "text/records/translation.h"
#include "text/records/whole_shard.h"
#include "text/tokenizers.h"

using namespace mh;
using namespace mh::io;
using namespace mh::text;
using shards::PairShard;
using shards::read_pairs;
using shards::read_tokens;
using shards::TextShard;
using words::numbered_word_tokenizer;

namespace {

using Sequences = std::vector<std::vector<int32_t>>;

ShardHeader header(int token_bytes = 2, int64_t vocabulary = 1000, std::vector<std::string> fields = {"tokens"}) {
  ShardHeader h;
  h.kind = kTextKind;
  h.token_bytes = token_bytes;
  h.vocabulary_size = vocabulary;
  h.field_names = std::move(fields);
  h.fingerprint = "0123456789abcdef";
  h.tokenizer = std::string("any\0bytes", 9);
  h.provenance = R"({"tool":"test"})";
  return h;
}

void write_shard(const std::string& path, const ShardHeader& h, const Sequences& sequences) {
  auto sink = open_sink(path);
  ShardWriter writer(*sink, h);
  for (const auto& sequence : sequences) {
    writer.add_sequence(sequence);
    writer.add_text_bytes(sequence.size() * 3);
  }
  writer.finish();
  sink->close();
}

Sequences random_sequences(size_t count, int32_t vocabulary, uint64_t seed, size_t max_length = 40) {
  RandomSequence random(RandomStream(seed, "runs"));
  Sequences sequences(count);
  for (auto& sequence : sequences) {
    sequence.resize(random.uniform_below(max_length));
    for (int32_t& t : sequence) t = static_cast<int32_t>(random.uniform_below(static_cast<uint64_t>(vocabulary)));
  }
  return sequences;
}

std::vector<int32_t> concatenate(const Sequences& sequences) {
  std::vector<int32_t> all_tokens;
  for (const auto& sequence : sequences) all_tokens.insert(all_tokens.end(), sequence.begin(), sequence.end());
  return all_tokens;
}

// Returns the tokens of a shard, and checks that random access and streaming read the same tokens. Throws the Error of
// either reader.
std::vector<int32_t> read_all(const std::string& path) {
  ShardFile file(path);
  verify(file);
  std::vector<int32_t> tokens(file.counts().num_tokens);
  file.read(0, tokens);
  TextShard streamed_shard = read_tokens(path);
  REQUIRE(streamed_shard.tokens == tokens);
  REQUIRE(streamed_shard.counts.text_bytes == file.counts().text_bytes);
  return tokens;
}

}  // namespace

TEST_CASE("a written shard reads back equal by random access and by streaming") {
  Folder folder;
  const std::string path = folder.file("x.mhs");
  for (auto [token_bytes, vocabulary] : {std::pair{2, 65536}, {2, 7}, {4, 1 << 20}}) {
    for (size_t count : {0UL, 1UL, 10UL, 9000UL}) {
      Sequences sequences = random_sequences(count, vocabulary, count + static_cast<size_t>(token_bytes));
      ShardHeader h = header(token_bytes, vocabulary);
      write_shard(path, h, sequences);
      CHECK(read_all(path) == concatenate(sequences));
      ShardFile file(path);
      CHECK(file.header().tokenizer == h.tokenizer);
      CHECK(file.header().fingerprint == h.fingerprint);
      CHECK(file.header().provenance == h.provenance);
      CHECK(file.counts().num_records == count);
      std::vector<uint32_t> lengths;
      for (const auto& sequence : sequences) lengths.push_back(static_cast<uint32_t>(sequence.size()));
      CHECK(file.sequence_lengths() == lengths);
    }
  }
}

TEST_CASE("reading any range of a shard equals slicing the concatenation of all its sequences") {
  Folder folder;
  Sequences sequences = random_sequences(20000, 900, 5);
  write_shard(folder.file("x.mhs"), header(), sequences);
  std::vector<int32_t> all_tokens = concatenate(sequences);
  ShardFile file(folder.file("x.mhs"));
  CHECK(rc::check([&] {
    auto first = *rc::gen::inRange<size_t>(0, all_tokens.size());
    auto count = *rc::gen::inRange<size_t>(0, std::min<size_t>(all_tokens.size() - first, 100000) + 1);
    std::vector<int32_t> block(count);
    file.read(first, block);
    RC_ASSERT(std::equal(block.begin(), block.end(), all_tokens.begin() + static_cast<int64_t>(first)));
  }));
  std::vector<int32_t> token(1);
  CHECK_THROWS_AS(file.read(all_tokens.size(), token), std::out_of_range);
}

TEST_CASE("a shard with two fields per record stores the length of every sequence; an incomplete record is refused") {
  Folder folder;
  ShardHeader two_fields = header(2, 1000, {"one", "other"});
  two_fields.kind = "any";
  write_shard(folder.file("x.mhs"), two_fields, {{1, 2, 3}, {4}, {}, {5, 6}});
  ShardFile file(folder.file("x.mhs"));
  CHECK(file.counts().num_records == 2);
  CHECK(file.sequence_lengths() == std::vector<uint32_t>{3, 1, 0, 2});
  auto sink = open_sink(folder.file("y.mhs"));
  ShardWriter writer(*sink, two_fields);
  writer.add_sequence(std::vector<int32_t>{1});
  CHECK_THROWS_AS(writer.finish(), Error);
}

TEST_CASE("the zstd library alone decompresses a shard to its tokens") {
  Folder folder;
  Sequences sequences = random_sequences(5000, 1000, 9);
  write_shard(folder.file("x.mhs"), header(), sequences);
  std::string bytes = read_text_file(folder.file("x.mhs"));
  std::vector<int32_t> all_tokens = concatenate(sequences);
  std::vector<uint16_t> out(all_tokens.size() + 1);
  size_t n = ZSTD_decompress(out.data(), out.size() * 2, bytes.data(), bytes.size());
  REQUIRE(ZSTD_isError(n) == 0);
  REQUIRE(n == 2 * all_tokens.size());
  CHECK(std::equal(all_tokens.begin(), all_tokens.end(), out.begin()));
}

TEST_CASE("random access and streaming refuse a frame of tokens without a checksum") {
  Folder folder;
  write_shard(folder.file("x.mhs"), header(), random_sequences(300, 1000, 5));
  std::string bytes = read_text_file(folder.file("x.mhs"));
  const size_t descriptor =
      8 + load32(reinterpret_cast<const uint8_t*>(bytes.data()) + 4) + 4;  // after header frame and zstd's magic number
  constexpr char kChecksumFlag = 4;
  REQUIRE((bytes[descriptor] & kChecksumFlag) != 0);
  bytes[descriptor] = static_cast<char>(bytes[descriptor] & ~kChecksumFlag);
  write_file_atomically(folder.file("x.mhs"), bytes);
  const ShardFile file(folder.file("x.mhs"));
  std::vector<int32_t> tokens(1);
  CHECK_THROWS_WITH(file.read(0, tokens), Catch::Contains("with its size and a checksum"));
  CHECK_THROWS_WITH(read_tokens(folder.file("x.mhs")), Catch::Contains("with its size and a checksum"));
}

TEST_CASE("random access and streaming refuse a frame of tokens after the sequence lengths") {
  Folder folder;
  const std::string path = folder.file("x.mhs");
  write_shard(path, header(), random_sequences(300, 1000, 5));
  const std::string bytes = read_text_file(path);
  const auto* raw_bytes = reinterpret_cast<const uint8_t*>(bytes.data());
  REQUIRE(load32(raw_bytes + bytes.size() - 9) == 4);  // frames: header, tokens, sequence lengths, trailer
  const size_t table = bytes.size() - 9 - 4 * 8;
  const size_t tokens = load32(raw_bytes + table), lengths = tokens + load32(raw_bytes + table + 8),
               trailer = lengths + load32(raw_bytes + table + 16);
  write_file_atomically(path, bytes.substr(0, tokens) + bytes.substr(lengths, trailer - lengths) +
                                  bytes.substr(tokens, lengths - tokens) + bytes.substr(trailer, table + 8 - trailer) +
                                  bytes.substr(table + 16, 8) + bytes.substr(table + 8, 8) + bytes.substr(table + 24));
  CHECK(status_of([&] { ShardFile file(path); }) == 3);
  CHECK(status_of([&] { read_tokens(path); }) == 3);
}

TEST_CASE("random access and streaming refuse a seek table that states another size for a frame") {
  Folder folder;
  const std::string path = folder.file("x.mhs");
  write_shard(path, header(), {std::vector<int32_t>(kFrameTokens + 1000, 7)});
  std::string bytes = read_text_file(path);
  const auto* raw_bytes = reinterpret_cast<const uint8_t*>(bytes.data());
  REQUIRE(load32(raw_bytes + bytes.size() - 9) == 5);  // frames: header, tokens, tokens, sequence lengths, trailer
  // Move a token of 2 bytes from the first frame to the second, so that the sum of the sizes is unchanged.
  const size_t table = bytes.size() - 9 - 5 * 8, sizes[] = {table + 8 + 4, table + 16 + 4};
  for (const size_t i : {0, 1}) {
    std::string size;
    store32(size, load32(raw_bytes + sizes[i]) + (i == 0 ? -2 : 2));
    bytes.replace(sizes[i], 4, size);
  }
  write_file_atomically(path, bytes);
  const ShardFile file(path);
  std::vector<int32_t> tokens(1);
  CHECK_THROWS_WITH(file.read(0, tokens), Catch::Contains("expected 65534 bytes of tokens in the frame, as the seek "
                                                          "table states; found 65536 bytes"));
  CHECK_THROWS_WITH(read_tokens(path), Catch::Contains("expected a seek table that lists the frames of the shard"));
}

TEST_CASE("sequence lengths are refused if zstd cannot decompress them or if another program damages their frame") {
  Folder folder;
  const std::string path = folder.file("x.mhs");
  write_shard(path, header(), random_sequences(300, 1000, 5));
  const std::string intact_bytes = read_text_file(path);
  const size_t lengths = intact_bytes.find(kLengthsTag);
  REQUIRE(lengths != intact_bytes.npos);
  std::string damaged_bytes = intact_bytes;
  damaged_bytes[lengths + kLengthsTag.size()] ^= 1;  // the magic number of zstd
  write_file_atomically(path, damaged_bytes);
  const auto zstd_error = Catch::Contains("expected sequence lengths that zstd can decompress; found zstd's error '");
  CHECK_THROWS_WITH(ShardFile(path).sequence_lengths(), zstd_error);
  CHECK_THROWS_WITH(read_tokens(path), zstd_error);
  write_file_atomically(path, intact_bytes);
  const ShardFile file(path);
  std::fstream(path, std::ios::in | std::ios::out).seekp(static_cast<std::streamoff>(lengths - 4)).write("\1\0\0\0", 4);
  CHECK_THROWS_WITH(file.sequence_lengths(),
                    Catch::Contains("expected a frame of sequence lengths; found a frame that begins with 'Q*M\\x18"));
}

TEST_CASE("writing the same tokens twice gives identical shard files") {
  Folder folder;
  Sequences sequences = random_sequences(300, 1000, 2);
  write_shard(folder.file("a"), header(), sequences);
  write_shard(folder.file("b"), header(), sequences);
  CHECK(read_text_file(folder.file("a")) == read_text_file(folder.file("b")));
}

TEST_CASE("a shard that is truncated or has an extra byte is refused") {
  Folder folder;
  write_shard(folder.file("x.mhs"), header(), random_sequences(3000, 1000, 3));
  std::string intact_bytes = read_text_file(folder.file("x.mhs"));
  for (size_t i = 0; i < 64; ++i) {
    size_t size = i < 16 ? intact_bytes.size() * i / 16 : intact_bytes.size() - (64 - i);
    write_file_atomically(folder.file("y.mhs"), intact_bytes.substr(0, size));
    CHECK(status_of([&] { ShardFile file(folder.file("y.mhs")); }) == 3);
    CHECK(status_of([&] { read_tokens(folder.file("y.mhs")); }) == 3);
  }
  const std::string header_size = str(load32(reinterpret_cast<const uint8_t*>(intact_bytes.data()) + 4));
  write_file_atomically(folder.file("y.mhs"), intact_bytes.substr(0, 20));
  CHECK_THROWS_WITH(ShardFile(folder.file("y.mhs")), Catch::Contains("expected a header of " + header_size + " bytes"));
  write_file_atomically(folder.file("y.mhs"), intact_bytes + "x");
  CHECK(status_of([&] { ShardFile file(folder.file("y.mhs")); }) == 3);
  CHECK(status_of([&] { read_tokens(folder.file("y.mhs")); }) == 3);
}

TEST_CASE("a shard of text with a flipped bit is refused or reads back with the original tokens") {
  Folder folder;
  Sequences sequences = random_sequences(3000, 1000, 4);
  write_shard(folder.file("x.mhs"), header(), sequences);
  std::string intact_bytes = read_text_file(folder.file("x.mhs"));
  std::vector<int32_t> all_tokens = concatenate(sequences);
  RandomSequence random(RandomStream(4, "flips"));
  int num_refused = 0;
  const int num_flips = fixtures::num_cases(2000);
  for (int i = 0; i < num_flips; ++i) {
    // At least half of the flipped bits are in the first 400 bytes, with the header, or in the last 400 bytes, with
    // the trailer and the seek table.
    size_t offset = i % 4 == 0   ? random.uniform_below(400)
                    : i % 4 == 1 ? intact_bytes.size() - 1 - random.uniform_below(400)
                                 : random.uniform_below(intact_bytes.size());
    std::string damaged = intact_bytes;
    damaged[offset] = static_cast<char>(damaged[offset] ^ (1 << random.uniform_below(8)));
    write_file_atomically(folder.file("y.mhs"), damaged);
    try {
      std::vector<int32_t> actual = read_all(folder.file("y.mhs"));
      CHECK(actual == all_tokens);
    } catch (const Error& error) {
      CHECK(error.exit() == Exit::input);
      ++num_refused;
    }
    try {
      std::vector<int32_t> actual = read_tokens(folder.file("y.mhs")).tokens;
      CHECK(actual == all_tokens);
    } catch (const Error& error) {
      CHECK(error.exit() == Exit::input);
    }
  }
  CHECK(num_refused > num_flips * 19 / 20);
}

TEST_CASE("a shard header that claims implausible sizes is refused before memory of these sizes is allocated") {
  Folder folder;
  const bool can_reset_peak = reset_peak_memory();
  const int64_t initial_peak_kb = peak_memory_kb();
  auto check_refused = [&](const std::string& bytes) {
    write_file_atomically(folder.file("y.mhs"), bytes);
    CHECK(status_of([&] { ShardFile file(folder.file("y.mhs")); }) == 3);
    CHECK(status_of([&] { read_tokens(folder.file("y.mhs")); }) == 3);
  };
  std::string frame_head;
  store32(frame_head, kHeaderMagic);
  store32(frame_head, 0xFFFFFFFF);
  check_refused(frame_head + std::string(100, 'x'));
  check_refused("");
  check_refused("x");
  check_refused("plain text that is not a shard");
  // Two headers: one has a valid checksum but claims 2^60 vocabulary entries; the other claims over 2^60 bytes of JSON.
  ShardHeader h = header(4, 1000);
  h.vocabulary_size = int64_t{1} << 60;
  std::string payload = encode_header(h);
  frame_head.clear();
  store32(frame_head, kHeaderMagic);
  store32(frame_head, static_cast<uint32_t>(payload.size()));
  check_refused(frame_head + payload);
  std::string oversized_payload = encode_header(header());
  oversized_payload[8 + 7] = 0x10;
  frame_head.clear();
  store32(frame_head, kHeaderMagic);
  store32(frame_head, static_cast<uint32_t>(oversized_payload.size()));
  check_refused(frame_head + oversized_payload);
  // A header with a valid checksum, whose JSON is nested more deeply than the limit that protects the call stack.
  h = header();
  h.provenance = std::string(100, '[') + std::string(100, ']');
  payload = encode_header(h);
  frame_head.clear();
  store32(frame_head, kHeaderMagic);
  store32(frame_head, static_cast<uint32_t>(payload.size()));
  check_refused(frame_head + payload);
  CHECK(status_of([&] { ShardFile file(folder.file("none.mhs")); }) == 3);
  CHECK(status_of([&] { ShardFile file(folder.path.string()); }) == 3);
  if (!can_reset_peak) SKIP("peak memory cannot be reset on this system");
  CHECK(peak_memory_kb() - initial_peak_kb < 64 << 10);
}

TEST_CASE("a shard of a later version of the format is refused as such, not as damaged") {
  std::string payload = encode_header(header());
  payload[7] = '2';
  CHECK_THROWS_WITH(decode_header(payload, "x.mhs"),
                    Catch::Contains("x.mhs: header: expected version 1 of the shard format; found '2'; use a newer") &&
                        !Catch::Contains("damaged"));
}

TEST_CASE("a shard of another kind or vocabulary is refused; the message states both vocabulary fingerprints") {
  ShardHeader h = header();
  CHECK(status_of([&] { require_kind(h, "x.mhs", "translation"); }) == 3);
  require_kind(h, "x.mhs", "language-model");
  try {
    require_vocabulary(h, "x.mhs", "ffff", "run1");
    FAIL("a shard with another vocabulary was accepted");
  } catch (const Error& error) {
    CHECK(std::string(error.what()).find("ffff") != std::string::npos);
    CHECK(std::string(error.what()).find(h.fingerprint) != std::string::npos);
  }
  // A tokenizer must have an entry for every token that the header allows, even if the fingerprints are equal.
  const auto byte_tokenizer = make_byte_tokenizer();
  h.fingerprint = byte_tokenizer->fingerprint(), h.vocabulary_size = byte_tokenizer->size();
  require_vocabulary(h, "x.mhs", *byte_tokenizer, "run1");
  ++h.vocabulary_size;
  CHECK(status_of([&] { require_vocabulary(h, "x.mhs", *byte_tokenizer, "run1"); }) == 3);
}

namespace {

// Returns the header of a shard of pairs with vocabularies of the given sizes; `source_size` 0: a joint vocabulary.
ShardHeader pair_header(int64_t target_size, int64_t source_size) {
  ShardHeader h;
  const auto target = numbered_word_tokenizer(target_size);
  h.vocabulary_size = target_size;
  h.fingerprint = target->fingerprint();
  h.tokenizer = target->serialize();
  if (source_size > 0) {
    const auto source = numbered_word_tokenizer(source_size);
    h.source_vocabulary_size = source_size;
    h.source_fingerprint = source->fingerprint();
    h.source_tokenizer = source->serialize();
  }
  h.set_kind(kPairsKind);
  return h;
}

// Returns the tokens of each source and each target, alternating, read by streaming.
Sequences read_by_streaming(const std::string& path) {
  ShardStream stream(path);
  Sequences sequences;
  std::vector<int32_t> source, target;
  for (PairStream pairs(stream); pairs.next(source, target);) sequences.insert(sequences.end(), {source, target});
  return sequences;
}

// Checks that verify(), read_pairs() and PairStream refuse the shard at `path` with status 3.
void check_readers_refuse(const std::string& path) {
  CHECK(status_of([&] { verify(ShardFile(path)); }) == 3);
  CHECK(status_of([&] { read_pairs(path); }) == 3);
  CHECK(status_of([&] { read_by_streaming(path); }) == 3);
}

}  // namespace

TEST_CASE("random pairs read back equal by random access and by streaming", "[pairs]") {
  Folder folder;
  const std::string path = folder.file("x.mhs");
  CHECK(rc::check([&] {
    const int64_t target_size = *rc::gen::inRange<int64_t>(3, 300);
    const int64_t source_size = *rc::gen::element<int64_t>(0, 3, 40, 70000);
    const ShardHeader h = pair_header(target_size, source_size);
    RC_ASSERT(h.token_bytes == (source_size > 65536 ? 4 : 2));
    Sequences sequences(2 * *rc::gen::inRange<size_t>(0, 40));
    for (size_t i = 0; i < sequences.size(); ++i) {
      const int64_t size = i % 2 == 0 && source_size > 0 ? source_size : target_size;
      sequences[i] =
          *rc::gen::container<std::vector<int32_t>>(rc::gen::inRange<int32_t>(1, static_cast<int32_t>(size)));
      sequences[i].push_back(0);
    }
    auto sink = open_sink(path);
    ShardWriter writer(*sink, h);
    for (const auto& sequence : sequences) writer.add_sequence(sequence);
    writer.add_text_bytes(12);
    writer.add_dropped("too long", 2);
    writer.add_dropped("too long", 1);
    writer.finish();
    sink->close();

    const PairShard shard = read_pairs(path);
    RC_ASSERT(shard.size() == sequences.size() / 2);
    RC_ASSERT(shard.tokens == concatenate(sequences));
    RC_ASSERT(read_by_streaming(path) == sequences);
    for (size_t i = 0; i < shard.size(); ++i) {
      const auto source = shard.source(i), target = shard.target(i);
      RC_ASSERT(std::vector<int32_t>(source.begin(), source.end()) == sequences[2 * i]);
      RC_ASSERT(std::vector<int32_t>(target.begin(), target.end()) == sequences[2 * i + 1]);
    }
    RC_ASSERT(shard.counts.num_records == shard.size());
    RC_ASSERT(shard.counts.num_dropped == (std::map<std::string, uint64_t>{{"too long", 3}}));
    const ShardFile file(path);
    verify(file);
    RC_ASSERT(file.counts().num_dropped == shard.counts.num_dropped);
    for (const ShardHeader& actual : {file.header(), shard.header}) {
      RC_ASSERT(actual.kind == "translation");
      RC_ASSERT(actual.shares_vocabulary() == (source_size == 0));
      RC_ASSERT(actual.vocabulary_size == target_size);
      RC_ASSERT(actual.source_vocabulary_size == source_size);
      RC_ASSERT(actual.tokenizer == h.tokenizer);
      RC_ASSERT(actual.source_tokenizer == h.source_tokenizer);
      RC_ASSERT(actual.source_fingerprint == h.source_fingerprint);
    }
  }));
}

TEST_CASE("source and target of a shard of pairs share a joint vocabulary or have one each", "[pairs]") {
  const ShardHeader joint_header = pair_header(10, 0), separate_header = pair_header(10, 20);
  for (Side side : {Side::source, Side::target}) {
    CHECK(joint_header.vocabulary_size_of(side) == 10);
    CHECK(joint_header.tokenizer_of(side) == joint_header.tokenizer);
    require_vocabulary(joint_header, "x.mhs", *numbered_word_tokenizer(10), "m", side);
  }
  CHECK(separate_header.vocabulary_size_of(Side::source) == 20);
  CHECK(separate_header.vocabulary_size_of(Side::target) == 10);
  CHECK(separate_header.largest_limit() == 20);
  require_vocabulary(separate_header, "x.mhs", *numbered_word_tokenizer(20), "m", Side::source);
  require_vocabulary(separate_header, "x.mhs", *numbered_word_tokenizer(10), "m", Side::target);
  CHECK(status_of([&] {
          require_vocabulary(separate_header, "x.mhs", *numbered_word_tokenizer(11), "m", Side::source);
        }) == 3);
  try {
    require_vocabulary(separate_header, "x.mhs", *numbered_word_tokenizer(10), "m", Side::source);
    FAIL("the target vocabulary was accepted as the source vocabulary");
  } catch (const Error& error) {
    CHECK(std::string(error.what()).find("source vocabulary") != std::string::npos);
    CHECK(std::string(error.what()).find("source and target of the shard are exchanged") != std::string::npos);
  }
  // The header and the trailer of a text shard have no entries for pairs, so that they equal the bytes that versions
  // without support for pairs wrote.
  CHECK(encode_header(header()).find("source") == std::string::npos);
  CHECK(encode_trailer(Trailer{}).find("dropped") == std::string::npos);
}

TEST_CASE("ShardWriter refuses pairs with tokens outside their vocabulary, and inconsistent headers of pairs",
          "[pairs]") {
  Folder folder;
  auto sink = open_sink(folder.file("x.mhs"));
  {
    ShardWriter writer(*sink, pair_header(10, 20));
    writer.add_sequence(std::vector<int32_t>{19, 0});
    CHECK_THROWS_AS(writer.add_sequence(std::vector<int32_t>{10, 0}), Error);  // inside the source vocabulary only
  }
  ShardWriter writer(*sink, pair_header(20, 10));
  CHECK_THROWS_AS(writer.add_sequence(std::vector<int32_t>{10, 0}), Error);
  CHECK_THROWS_AS(ShardWriter(*sink, pair_header(20, 10)).end_sequence(), Error);
  auto check_header_refused = [&](const std::function<void(ShardHeader&)>& change) {
    ShardHeader h = pair_header(10, 20);
    change(h);
    CHECK(status_of([&] { ShardWriter w(*sink, h); }) == 2);
    // decode_header() refuses the same header, whose checksum is valid.
    const std::string payload = encode_header(h);
    CHECK(status_of([&] { decode_header(payload, "x.mhs"); }) == 3);
  };
  check_header_refused([](ShardHeader& h) { h.field_names = {"target", "source"}; });
  check_header_refused([](ShardHeader& h) { h.field_names = {"source"}; });
  check_header_refused([](ShardHeader& h) { h.kind = kTextKind; });
  check_header_refused([](ShardHeader& h) { h.source_vocabulary_size = -1; });
  check_header_refused([](ShardHeader& h) { h.source_vocabulary_size = int64_t{1} << 40; });
  check_header_refused([](ShardHeader& h) { h.source_fingerprint.clear(); });
  check_header_refused([](ShardHeader& h) { h.source_tokenizer.clear(); });
  CHECK(status_of([&] {
          ShardHeader h = pair_header(10, 70000);
          h.token_bytes = 2;
          ShardWriter w(*sink, h);
        }) == 2);
}

TEST_CASE("all readers refuse a shard of pairs that has valid checksums but invalid pairs", "[pairs]") {
  Folder folder;
  const std::string path = folder.file("x.mhs");
  // Writes a shard with a permissive header of kind "any", replaces this header by `pair_header_of_file`, and checks
  // that verify() and read_pairs() accept the shard if `is_accepted` is set, and that all readers refuse it otherwise.
  auto check_sequences = [&](const Sequences& sequences, ShardHeader pair_header_of_file, bool is_accepted) {
    ShardHeader h = header(2, 1000, {"source", "target"});
    h.kind = "any";
    auto sink = open_sink(path);
    ShardWriter writer(*sink, h);
    for (const auto& sequence : sequences) writer.add_sequence(sequence);
    writer.finish();
    sink->close();
    replace_header(path, pair_header_of_file);
    if (!is_accepted) return check_readers_refuse(path);
    verify(ShardFile(path));
    CHECK(read_pairs(path).tokens == concatenate(sequences));
  };
  const ShardHeader separate_header = pair_header(10, 20);
  check_sequences({{19, 0}, {9, 0}, {0}, {0}}, separate_header, true);
  check_sequences({{19, 0}, {10, 0}}, separate_header, false);  // target outside its vocabulary, inside the source's
  check_sequences({{20, 0}, {9, 0}}, separate_header, false);   // source outside both vocabularies
  check_sequences({{19, 0}, {9}}, separate_header, false);      // target without end token
  check_sequences({{19}, {9, 0}}, separate_header, false);      // source without end token
  check_sequences({{19, 0, 18, 0}, {9, 0}}, separate_header, false);  // an end token within the source
  check_sequences({{19, 0}, {}}, separate_header, false);             // an empty target
  // Valid tokens, but a token of the target moved to the source.
  check_sequences({{19, 0, 9}, {0}}, separate_header, false);
  ShardHeader inconsistent_header = separate_header;
  std::swap(inconsistent_header.tokenizer, inconsistent_header.source_tokenizer);
  check_sequences({{9, 0}, {9, 0}}, inconsistent_header, false);
  inconsistent_header = separate_header;
  inconsistent_header.source_tokenizer = "not a vocabulary";
  check_sequences({{9, 0}, {9, 0}}, inconsistent_header, false);
  // read_pairs() refuses a shard of text.
  write_shard(path, header(), {{1, 2}});
  CHECK(status_of([&] { read_pairs(path); }) == 3);
}

TEST_CASE("a shard of pairs with a flipped bit is refused or reads back with the original tokens", "[pairs]") {
  Folder folder;
  Sequences sequences = random_sequences(600, 20, 6);
  for (auto& sequence : sequences) {
    for (int32_t& t : sequence) t = 1 + t % 9;
    sequence.push_back(0);
  }
  write_shard(folder.file("x.mhs"), pair_header(10, 20), sequences);
  const std::string intact_bytes = read_text_file(folder.file("x.mhs"));
  RandomSequence random(RandomStream(5, "flips"));
  int num_refused = 0;
  const int num_flips = fixtures::num_cases(600);
  for (int i = 0; i < num_flips; ++i) {
    std::string damaged = intact_bytes;
    const size_t offset = random.uniform_below(intact_bytes.size());
    damaged[offset] = static_cast<char>(damaged[offset] ^ (1 << random.uniform_below(8)));
    write_file_atomically(folder.file("y.mhs"), damaged);
    try {
      const std::vector<int32_t> actual = read_pairs(folder.file("y.mhs")).tokens;
      CHECK(actual == concatenate(sequences));
    } catch (const Error& error) {
      CHECK(error.exit() == Exit::input);
      ++num_refused;
    }
  }
  CHECK(num_refused > num_flips * 5 / 6);
}

TEST_CASE("ShardWriter refuses tokens outside the vocabulary, and a vocabulary too large for the token width") {
  Folder folder;
  auto sink = open_sink(folder.file("x.mhs"));
  ShardWriter writer(*sink, header());
  CHECK_THROWS_AS(writer.add_sequence(std::vector<int32_t>{1000}), Error);
  CHECK_THROWS_AS(ShardWriter(*sink, header(2, 70000)), Error);
}
