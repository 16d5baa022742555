// Shards: round trips, streaming equals random access, and every way to be broken is refused.
#include <rapidcheck.h>
#include <zstd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "base/random.h"
#include "folder.h"
#include "io/shard.h"
#include "io/shard_format.h"
#include "io/tokenizer.h"
#include "status.h"

using namespace mh;
using namespace mh::io;

namespace {

using Runs = std::vector<std::vector<int32_t>>;

ShardHeader header(int token_bytes = 2, int64_t vocabulary = 1000, std::vector<std::string> fields = {"tokens"}) {
  ShardHeader h;
  h.token_bytes = token_bytes;
  h.vocabulary = vocabulary;
  h.fields = std::move(fields);
  h.fingerprint = "0123456789abcdef";
  h.tokenizer = std::string("any\0bytes", 9);
  h.provenance = R"({"tool":"test"})";
  return h;
}

void write_shard(const std::string& path, const ShardHeader& h, const Runs& runs) {
  auto sink = open_sink(path);
  ShardWriter writer(*sink, h);
  for (const auto& run : runs) {
    writer.add_run(run);
    writer.add_text_bytes(run.size() * 3);
  }
  writer.finish();
  sink->close();
}

Runs random_runs(size_t count, int32_t vocabulary, uint64_t seed, size_t longest = 40) {
  RandomSequence random(RandomStream(seed, "runs"));
  Runs runs(count);
  for (auto& run : runs) {
    run.resize(random.below(longest));
    for (int32_t& t : run) t = static_cast<int32_t>(random.below(static_cast<uint64_t>(vocabulary)));
  }
  return runs;
}

std::vector<int32_t> joined(const Runs& runs) {
  std::vector<int32_t> all;
  for (const auto& run : runs) all.insert(all.end(), run.begin(), run.end());
  return all;
}

// Reads a file both ways; throws what either throws.
std::vector<int32_t> read_all(const std::string& path) {
  ShardFile file(path);
  file.verify();
  std::vector<int32_t> tokens(file.counts().tokens);
  file.read(0, tokens);
  TokenText streamed = read_tokens(path);
  REQUIRE(streamed.tokens == tokens);
  REQUIRE(streamed.counts.text_bytes == file.counts().text_bytes);
  return tokens;
}

}  // namespace

TEST_CASE("a shard gives back what was written, by file and by stream") {
  Folder folder;
  const std::string path = folder.file("x.mhs");
  for (auto [width, vocabulary] : {std::pair{2, 65536}, {2, 7}, {4, 1 << 20}}) {
    for (size_t count : {0UL, 1UL, 10UL, 9000UL}) {
      Runs runs = random_runs(count, vocabulary, count + static_cast<size_t>(width));
      ShardHeader h = header(width, vocabulary);
      write_shard(path, h, runs);
      CHECK(read_all(path) == joined(runs));
      ShardFile file(path);
      CHECK(file.header().tokenizer == h.tokenizer);
      CHECK(file.header().fingerprint == h.fingerprint);
      CHECK(file.header().provenance == h.provenance);
      CHECK(file.counts().records == count);
      std::vector<uint32_t> lengths;
      for (const auto& run : runs) lengths.push_back(static_cast<uint32_t>(run.size()));
      CHECK(file.run_lengths() == lengths);
    }
  }
}

TEST_CASE("random blocks of a shard are what a plain array gives") {
  Folder folder;
  Runs runs = random_runs(20000, 900, 5);
  write_shard(folder.file("x.mhs"), header(), runs);
  std::vector<int32_t> all = joined(runs);
  ShardFile file(folder.file("x.mhs"));
  CHECK(rc::check([&] {
    auto first = *rc::gen::inRange<size_t>(0, all.size());
    auto count = *rc::gen::inRange<size_t>(0, std::min<size_t>(all.size() - first, 100000) + 1);
    std::vector<int32_t> block(count);
    file.read(first, block);
    RC_ASSERT(std::equal(block.begin(), block.end(), all.begin() + static_cast<int64_t>(first)));
  }));
  std::vector<int32_t> one(1);
  CHECK_THROWS_AS(file.read(all.size(), one), std::out_of_range);
}

TEST_CASE("records of several fields keep their runs") {
  Folder folder;
  write_shard(folder.file("x.mhs"), header(2, 1000, {"source", "target"}), {{1, 2, 3}, {4}, {}, {5, 6}});
  ShardFile file(folder.file("x.mhs"));
  CHECK(file.counts().records == 2);
  CHECK(file.run_lengths() == std::vector<uint32_t>{3, 1, 0, 2});
  auto sink = open_sink(folder.file("y.mhs"));
  ShardWriter writer(*sink, header(2, 1000, {"source", "target"}));
  writer.add_run(std::vector<int32_t>{1});
  CHECK_THROWS_AS(writer.finish(), Error);
}

TEST_CASE("zstd alone reads a shard's tokens") {
  Folder folder;
  Runs runs = random_runs(5000, 1000, 9);
  write_shard(folder.file("x.mhs"), header(), runs);
  std::string bytes = read_text_file(folder.file("x.mhs"));
  std::vector<int32_t> all = joined(runs);
  std::vector<uint16_t> out(all.size() + 1);
  size_t n = ZSTD_decompress(out.data(), out.size() * 2, bytes.data(), bytes.size());
  REQUIRE(ZSTD_isError(n) == 0);
  REQUIRE(n == 2 * all.size());
  CHECK(std::equal(all.begin(), all.end(), out.begin()));
}

TEST_CASE("the same input gives the same bytes") {
  Folder folder;
  Runs runs = random_runs(300, 1000, 2);
  write_shard(folder.file("a"), header(), runs);
  write_shard(folder.file("b"), header(), runs);
  CHECK(read_text_file(folder.file("a")) == read_text_file(folder.file("b")));
}

TEST_CASE("a shard cut off anywhere is refused") {
  Folder folder;
  write_shard(folder.file("x.mhs"), header(), random_runs(3000, 1000, 3));
  std::string whole = read_text_file(folder.file("x.mhs"));
  for (size_t i = 0; i < 64; ++i) {
    size_t size = i < 16 ? whole.size() * i / 16 : whole.size() - (64 - i);
    write_file_atomically(folder.file("y.mhs"), whole.substr(0, size));
    CHECK(status_of([&] { ShardFile file(folder.file("y.mhs")); }) == 3);
    CHECK(status_of([&] { read_tokens(folder.file("y.mhs")); }) == 3);
  }
  write_file_atomically(folder.file("y.mhs"), whole + "x");
  CHECK(status_of([&] { ShardFile file(folder.file("y.mhs")); }) == 3);
  CHECK(status_of([&] { read_tokens(folder.file("y.mhs")); }) == 3);
}

TEST_CASE("a flipped bit anywhere is refused or changes nothing") {
  Folder folder;
  Runs runs = random_runs(3000, 1000, 4);
  write_shard(folder.file("x.mhs"), header(), runs);
  std::string whole = read_text_file(folder.file("x.mhs"));
  std::vector<int32_t> all = joined(runs);
  RandomSequence random(RandomStream(4, "flips"));
  int refused = 0;
  for (size_t i = 0; i < 2000; ++i) {
    // Half of the flips go where little stands: the first and last 400 bytes.
    size_t at = i % 4 == 0   ? random.below(400)
                : i % 4 == 1 ? whole.size() - 1 - random.below(400)
                             : random.below(whole.size());
    std::string broken = whole;
    broken[at] = static_cast<char>(broken[at] ^ (1 << random.below(8)));
    write_file_atomically(folder.file("y.mhs"), broken);
    try {
      std::vector<int32_t> found = read_all(folder.file("y.mhs"));
      CHECK(found == all);
    } catch (const Error& error) {
      CHECK(error.exit() == Exit::input);
      ++refused;
    }
    try {
      std::vector<int32_t> found = read_tokens(folder.file("y.mhs")).tokens;
      CHECK(found == all);
    } catch (const Error& error) {
      CHECK(error.exit() == Exit::input);
    }
  }
  CHECK(refused > 1900);
}

TEST_CASE("headers that claim too much are refused before memory is taken") {
  Folder folder;
  auto refused = [&](const std::string& bytes) {
    write_file_atomically(folder.file("y.mhs"), bytes);
    CHECK(status_of([&] { ShardFile file(folder.file("y.mhs")); }) == 3);
    CHECK(status_of([&] { read_tokens(folder.file("y.mhs")); }) == 3);
  };
  std::string head;
  store32(head, kHeaderMagic);
  store32(head, 0xFFFFFFFF);
  refused(head + std::string(100, 'x'));
  refused("");
  refused("x");
  refused("plain text that is no shard at all");
  // A sealed header of 2^60 vocabulary entries, and one whose JSON claims 2^60 bytes.
  ShardHeader h = header(4, 1000);
  h.vocabulary = int64_t{1} << 60;
  std::string payload = encode_header(h);
  head.clear();
  store32(head, kHeaderMagic);
  store32(head, static_cast<uint32_t>(payload.size()));
  refused(head + payload);
  std::string huge = encode_header(header());
  huge[8 + 7] = 0x10;
  refused(head + huge);
  CHECK(status_of([&] { ShardFile file(folder.file("none.mhs")); }) == 3);
  CHECK(status_of([&] { ShardFile file(folder.path.string()); }) == 3);
}

TEST_CASE("another kind and another vocabulary are refused with what to do") {
  ShardHeader h = header();
  CHECK(status_of([&] { require_kind(h, "x.mhs", "translation"); }) == 3);
  require_kind(h, "x.mhs", "language-model");
  try {
    require_vocabulary(h, "x.mhs", "ffff", "run1");
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(std::string(error.what()).find("ffff") != std::string::npos);
    CHECK(std::string(error.what()).find(h.fingerprint) != std::string::npos);
  }
  // A tokenizer has an entry for every token that the header allows.
  const auto bytes = make_byte_tokenizer();
  h.fingerprint = bytes->fingerprint(), h.vocabulary = bytes->size();
  require_vocabulary(h, "x.mhs", *bytes, "run1");
  ++h.vocabulary;
  CHECK(status_of([&] { require_vocabulary(h, "x.mhs", *bytes, "run1"); }) == 3);
}

TEST_CASE("tokens outside the vocabulary are refused by the writer") {
  Folder folder;
  auto sink = open_sink(folder.file("x.mhs"));
  ShardWriter writer(*sink, header());
  CHECK_THROWS_AS(writer.add_run(std::vector<int32_t>{1000}), Error);
  CHECK_THROWS_AS(ShardWriter(*sink, header(2, 70000)), Error);
}
