// Tests of the checksums by which processes compare their input files.
#include "io/content_checksum.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <vector>

#include "fixtures/folder.h"
#include "io/checkpoint.h"
#include "io/shard.h"
#include "text/records/language_modelling.h"

using namespace mh;

namespace {

void write_weights(const std::string& path, float weight) {
  const std::vector<float> weights(4, weight);
  auto sink = open_sink(path);
  io::write_checkpoint(*sink, {{{"weights", io::DType::f32, {4}}, weights.data()}}, {{io::kConfigKey, "heads = 8\n"}});
  sink->close();
}

void write_shard(const std::string& path, int32_t token) {
  io::ShardHeader header;
  header.vocabulary_size = 10;
  header.fingerprint = "0123456789abcdef";
  header.tokenizer = "vocabulary";
  header.set_kind(text::kTextKind);
  auto sink = open_sink(path);
  io::ShardWriter writer(*sink, header);
  writer.add_sequence(std::vector<int32_t>{1, token, 3});
  writer.finish();
  sink->close();
}

void write_text(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

}  // namespace

TEST_CASE("content checksum: files of one kind have equal checksums only if their contents are equal") {
  const Folder folder;
  const std::string a = folder.file("a"), b = folder.file("b"), c = folder.file("c");
  const auto check = [&] {
    CHECK(io::content_checksum(a).size() == 16);
    CHECK(io::content_checksum(a) == io::content_checksum(c));
    CHECK(io::content_checksum(a) != io::content_checksum(b));
  };
  write_weights(a, 1), write_weights(b, 2), write_weights(c, 1);
  check();
  write_shard(a, 4), write_shard(b, 5), write_shard(c, 4);
  check();
  for (const std::string start : {"", "text of some length"}) {
    write_text(a, start + "1"), write_text(b, start + "2"), write_text(c, start + "1");
    check();
  }
}
