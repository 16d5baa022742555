// Tests of checkpoints, which are safetensors files: round trips, and refusal of truncated, damaged and inconsistent
// files.
#include "io/checkpoint.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>

#include "base/error.h"
#include "base/random.h"
#include "fixtures/folder.h"
#include "fixtures/num_cases.h"
#include "fixtures/status.h"
#include "io/tensor_files.h"
#include "text/tokenizers.h"

using namespace mh;
using namespace mh::io;
using namespace mh::text;

namespace {

struct Content {
  std::vector<float> weight;
  std::vector<int64_t> steps;
  std::vector<TensorView> views() const {
    return {{{"layer.weight", DType::f32, {static_cast<int64_t>(weight.size()) / 4, 4}}, weight.data()},
            {{"empty", DType::f32, {0, 3}}, nullptr},
            {{"steps", DType::i64, {static_cast<int64_t>(steps.size())}}, steps.data()},
            {{"scalar", DType::i64, {}}, steps.data()}};
  }
};

Content sample_content() {
  Content c;
  c.weight.resize(400);
  std::iota(c.weight.begin(), c.weight.end(), 0.5F);
  c.steps = {1, -2, int64_t{1} << 60};
  return c;
}

void write_to(const std::string& path, const std::vector<TensorView>& views) {
  auto sink = open_sink(path);
  write_checkpoint(*sink, views, {{kConfigKey, "heads = 8\n"}, {kTokenizerKey, to_base64(std::string("a\0b", 3))}});
  sink->close();
}

void write_to(const std::string& path, const Content& c) { write_to(path, c.views()); }

bool has_content(const std::string& path, const Content& c) {
  Checkpoint checkpoint(path);
  checkpoint.verify();
  if (checkpoint.tensors().size() != 4) return false;
  for (const TensorView& v : c.views()) {
    const TensorInfo* info = checkpoint.find(v.info.name);
    if (info == nullptr || info->shape != v.info.shape || info->type != v.info.type) return false;
    if (v.info.num_bytes() > 0 && std::memcmp(checkpoint.data(v.info.name), v.data, v.info.num_bytes()) != 0)
      return false;
  }
  return checkpoint.metadata_entry(kConfigKey) == "heads = 8\n";
}

std::string safetensors_bytes(const std::string& json, const std::string& data) {
  std::string bytes(8, '\0');
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(json.size() >> (8 * i));
  return bytes + json + data;
}

}  // namespace

TEST_CASE("a checkpoint with two tensors of the same name is not written") {
  const Folder folder;
  const Content content = sample_content();
  std::vector<TensorView> views = content.views();
  views.push_back(views.front());
  auto sink = open_sink(folder.file("twice.safetensors"));
  CHECK_THROWS_WITH(write_checkpoint(*sink, views, {}), Catch::Contains("two tensors named layer.weight"));
}

TEST_CASE(
    "a checkpoint whose tensors are produced when they are written has the bytes of a checkpoint of tensors in "
    "memory") {
  const Folder folder;
  const Content content = sample_content();
  std::vector<TensorView> views = content.views();
  std::vector<std::string> names;   // names of the tensors, in the order of the calls of `produce`
  std::vector<std::string> buffer;  // the data of the last tensor only
  for (TensorView& view : views) {
    if (view.info.name == "steps") continue;  // views with and without `produce` may be mixed
    view.produce = [&, data = static_cast<const char*>(view.data), info = view.info] {
      names.push_back(info.name);
      buffer.assign(1, std::string(data, info.num_bytes()));
      return buffer[0].data();
    };
    view.data = nullptr;
  }
  write_to(folder.file("viewed"), content.views());
  write_to(folder.file("produced"), views);
  CHECK(read_text_file(folder.file("produced")) == read_text_file(folder.file("viewed")));
  CHECK(names == std::vector<std::string>{"layer.weight", "empty", "scalar", "layer.weight", "empty", "scalar"});
}

TEST_CASE("a written checkpoint reads back equal") {
  Folder folder;
  write_to(folder.file("x"), sample_content());
  CHECK(has_content(folder.file("x"), sample_content()));
  Checkpoint checkpoint(folder.file("x"));
  CHECK(from_base64(checkpoint.metadata_entry(kTokenizerKey)) == std::string("a\0b", 3));
  CHECK(status_of([&] { checkpoint.metadata_entry("multihead.none"); }) == 3);
}

TEST_CASE("base64 decodes to the encoded bytes, and invalid base64 is refused") {
  RandomSequence random(RandomStream(1, "base64"));
  for (size_t n = 0; n < 50; ++n) {
    std::string bytes(n, '\0');
    for (char& c : bytes) c = static_cast<char>(random.next_u32());
    CHECK(from_base64(to_base64(bytes)) == bytes);
  }
  CHECK(to_base64("multihead") == "bXVsdGloZWFk");
  for (const char* invalid_text : {"a", "====", "ab!=", "a==="})
    CHECK_THROWS_AS(from_base64(invalid_text), std::invalid_argument);
}

TEST_CASE("a truncated checkpoint is refused; a flipped bit is refused or changes no tensor and no metadata") {
  Folder folder;
  write_to(folder.file("x"), sample_content());
  std::string intact_bytes = read_text_file(folder.file("x"));
  auto is_refused = [&](const std::string& bytes) {
    std::ofstream(folder.file("y"), std::ios::binary) << bytes;  // without fsync, since thousands are written
    return status_of([&] { Checkpoint(folder.file("y")).verify(); }) == 3;
  };
  for (size_t i = 0; i < 16; ++i) CHECK(is_refused(intact_bytes.substr(0, intact_bytes.size() * i / 16)));
  CHECK(is_refused(intact_bytes.substr(0, intact_bytes.size() - 1)));
  CHECK(is_refused(intact_bytes + "x"));
  RandomSequence random(RandomStream(1, "flips"));
  const Metadata metadata = Checkpoint(folder.file("x")).metadata();
  for (int i = 0; i < fixtures::num_cases(4000); ++i) {
    std::string damaged = intact_bytes;
    size_t offset = i % 2 == 0 ? random.uniform_below(1000) : random.uniform_below(intact_bytes.size());
    damaged[offset] = static_cast<char>(damaged[offset] ^ (1 << random.uniform_below(8)));
    INFO("byte " << offset);
    CHECK((is_refused(damaged) ||
           (has_content(folder.file("y"), sample_content()) && Checkpoint(folder.file("y")).metadata() == metadata)));
  }
}

TEST_CASE("a checkpoint with an edited header is refused, although the header is valid JSON") {
  Folder folder;
  write_to(folder.file("x"), sample_content());
  const std::string intact_bytes = read_text_file(folder.file("x"));
  auto status_after_edit = [&](const std::string& from, const std::string& to) {
    std::string edited_bytes = intact_bytes;
    size_t offset = edited_bytes.find(from);
    REQUIRE(offset != std::string::npos);
    edited_bytes.replace(offset, from.size(), to);
    write_file_atomically(folder.file("y"), edited_bytes);
    return status_of([&] { Checkpoint(folder.file("y")).verify(); });
  };
  CHECK(status_after_edit("heads = 8", "heads = 4") == 3);
  CHECK(status_after_edit("[100,4]", "[4,100]") == 3);
  CHECK(status_after_edit("multihead.xxh64", "multihead.xxh65") == 3);
  CHECK(status_after_edit("__metadata__\\\"", "__metadatb__\\\"") == 3);
}

TEST_CASE("invalid and inconsistent checkpoint headers are refused") {
  Folder folder;
  auto check_refused = [&](const std::string& bytes) {
    write_file_atomically(folder.file("y"), bytes);
    CHECK(status_of([&] { Checkpoint(folder.file("y")).verify(); }) == 3);
  };
  check_refused("");
  check_refused("short");
  check_refused("a long text that is not a checkpoint");
  check_refused(std::string("\0\0\0\0\0\0\0\x10{}", 10));  // claims a header of 2^60 bytes
  check_refused(safetensors_bytes("{\"a\":1}", ""));
  check_refused(safetensors_bytes("[1]", ""));
  check_refused(safetensors_bytes(R"({"a":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}})", "0000"));
  check_refused(safetensors_bytes(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", "0000"));
  check_refused(safetensors_bytes(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", "0000"));
  check_refused(safetensors_bytes(
      R"({"a":{"dtype":"F32","shape":[1152921504606846976,1152921504606846976],"data_offsets":[0,4]}})", "0000"));
  check_refused(safetensors_bytes(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})", "0000"));
  check_refused(
      safetensors_bytes(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", "00000000"));  // gap [0,4)
  check_refused(safetensors_bytes(
      R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
      "0000"));
  check_refused(safetensors_bytes(
      R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
      "00000000"));
  check_refused(safetensors_bytes(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "00001"));
  // Damage that the JSON parser accepts: fractions, a number in place of a list, bytes after a NUL byte, duplicate keys
  // within a tensor and within the metadata.
  check_refused(safetensors_bytes(R"({"a":{"dtype":"F32","shape":[1.7],"data_offsets":[0,4]}})", "0000"));
  check_refused(safetensors_bytes(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0.5,4.9]}})", "0000"));
  check_refused(safetensors_bytes(R"({"a":{"dtype":"F32","shape":1,"data_offsets":[0,4]}})", "0000"));
  check_refused(safetensors_bytes(
      R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})" + std::string("\0other", 6), "0000"));
  check_refused(safetensors_bytes(R"({"a":{"dtype":"F32","dtype":"I32","shape":[1],"data_offsets":[0,4]}})", "0000"));
  check_refused(safetensors_bytes(
      R"({"__metadata__":{"format":"pt","format":"np"},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
      "0000"));
  CHECK(status_of([&] { Checkpoint c(folder.file("none")); }) == 3);
  CHECK(status_of([&] { Checkpoint c(folder.path.string()); }) == 3);
}

TEST_CASE("write_checkpoint() refuses a header above the format's limit of 100 MB") {
  Folder folder;
  auto sink = open_sink(folder.file("y"));
  CHECK(status_of([&] { write_checkpoint(*sink, {}, {{"text", std::string(100'000'000, 'a')}}); }) == 1);
}

TEST_CASE("a vocabulary too large for a checkpoint is refused when its shard is read") {
  ShardHeader header;
  header.source_vocabulary_size = 1;
  header.tokenizer = header.source_tokenizer = std::string(33'750'001, 'x');
  CHECK_THROWS_WITH(
      tokenizers_of(header, "t.mhs"),
      "t.mhs: expected vocabularies of at most 67500000 bytes, which the header of a checkpoint can hold; "
      "found 67500002 bytes; use a smaller vocabulary");
  CHECK(status_of([&] { tokenizers_of(header, "t.mhs"); }) == 3);
  // Vocabularies of exactly the limit pass the check of their size; tokenizers_of() then refuses the bytes, which are
  // not a vocabulary.
  header.tokenizer.pop_back();
  header.source_tokenizer.pop_back();
  CHECK_THROWS_WITH(tokenizers_of(header, "t.mhs"), !Catch::Contains("header of a checkpoint"));
}

TEST_CASE("a safetensors file without metadata of multihead is read as plain tensors") {
  Folder folder;
  write_file_atomically(folder.file("y"),
                        safetensors_bytes(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "0000"));
  Checkpoint checkpoint(folder.file("y"));
  CHECK(checkpoint.tensors().size() == 1);
  CHECK(std::memcmp(checkpoint.data("a"), "0000", 4) == 0);
}

TEST_CASE("a tensor of a safetensors file without checksums that was shortened while it was mapped is refused") {
  Folder folder;
  const std::string path = folder.file("y");
  write_file_atomically(path, safetensors_bytes(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "0000"));
  const auto file = open_safetensors(path);
  CHECK(file->read_bytes("a") == std::vector<uint8_t>(4, '0'));
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 2);  // within the last page, so no SIGBUS
  CHECK(status_of([&] { file->read_bytes("a"); }) == 3);
}
