// Shards of documents and examples: round trips, limits of fields, and runs that their kinds do not have.
#include <rapidcheck.h>

#include <catch2/catch.hpp>

#include "base/error.h"
#include "fixtures/corrupt_shards.h"
#include "fixtures/folder.h"
#include "fixtures/shards.h"
#include "fixtures/status.h"
#include "io/shard.h"
#include "text/records/sequence_check.h"
#include "text/records/sequences.h"
#include "text/records/whole_shard.h"
#include "text/tokenizer.h"
#include "text/tokenizers.h"

using namespace mh;
using namespace mh::io;
using namespace mh::text;
using shards::read_pairs;
using shards::read_tokens;

namespace {

using RunList = std::vector<std::vector<int32_t>>;

ShardHeader header_of(const std::string& kind, std::vector<int64_t> limits = {}) {
  const auto bytes = make_byte_tokenizer();
  ShardHeader h = header_of(*bytes);
  h.hold(kind, std::move(limits));
  return h;
}

void write_shard(const std::string& path, const ShardHeader& h, const RunList& runs) {
  auto sink = open_sink(path);
  ShardWriter writer(*sink, h);
  for (const auto& run : runs) writer.add_run(run);
  writer.finish();
  sink->close();
}

// All readers give these runs.
void holds(const std::string& path, const std::string& kind, const RunList& runs) {
  const WholeShard text = read_whole_shard(path, kind);
  const ShardFile file(path);
  verify(file);
  const text::Sequences of_file = text::sequences_of(file), of_text = text::sequences_of(text);
  const size_t fields = text.header.fields.size();
  RC_ASSERT(text.size() == runs.size() / fields);
  RC_ASSERT(text.ends.size() == runs.size());
  RC_ASSERT(of_file.ends == text.ends);
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto run = text.run(i / fields, i % fields);
    RC_ASSERT(std::vector<int32_t>(run.begin(), run.end()) == runs[i]);
    RC_ASSERT(of_file.run(i) == runs[i]);
    RC_ASSERT(of_text.run(i) == runs[i]);
  }
}

auto tokens(int32_t below, size_t longest) {
  return rc::gen::resize(static_cast<int>(longest),
                         rc::gen::container<std::vector<int32_t>>(rc::gen::inRange<int32_t>(0, below)));
}

}  // namespace

TEST_CASE("documents come back sentence by sentence", "[records]") {
  Folder folder;
  CHECK(rc::check([&] {
    RunList runs;
    for (int document = *rc::gen::inRange(0, 5); document > 0; --document) {
      for (int sentence = *rc::gen::inRange(1, 5); sentence > 0; --sentence)
        runs.push_back(*rc::gen::nonEmpty(tokens(256, 20)));
      runs.emplace_back();
    }
    write_shard(folder.file("x.mhs"), header_of(kDocumentsKind), runs);
    holds(folder.file("x.mhs"), kDocumentsKind, runs);
  }));
}

TEST_CASE("examples come back with labels beyond the vocabulary", "[records]") {
  Folder folder;
  CHECK(rc::check([&] {
    const int32_t labels = *rc::gen::element<int32_t>(2, 5001, 70000);
    ShardHeader h = header_of(kExamplesKind, {256, 256, labels});
    RC_ASSERT(h.token_bytes == (labels > 65536 ? 4 : 2));
    h.task = R"({"labels":["no","yes"],"name":"any"})";
    RunList runs;
    for (int record = *rc::gen::inRange(0, 20); record > 0; --record) {
      runs.push_back(*tokens(256, 10));
      runs.push_back(*tokens(256, 10));
      runs.push_back(*rc::gen::elementOf(std::vector<std::vector<int32_t>>{{}, {0}, {labels - 1}}));
    }
    write_shard(folder.file("x.mhs"), h, runs);
    holds(folder.file("x.mhs"), kExamplesKind, runs);
    const ShardHeader found = ShardFile(folder.file("x.mhs")).header();
    RC_ASSERT(found.limits == h.limits);
    RC_ASSERT(found.task == h.task);
    RC_ASSERT(found.limit_of(2) == labels);
  }));
}

TEST_CASE("the writer refuses what a kind's records are not", "[records]") {
  Folder folder;
  auto sink = open_sink(folder.file("x.mhs"));
  const auto fails = [&](const ShardHeader& h, const RunList& runs) {
    CHECK(status_of([&] {
            ShardWriter writer(*sink, h);
            for (const auto& run : runs) writer.add_run(run);
            writer.finish();
          }) == 1);
  };
  const ShardHeader documents = header_of(kDocumentsKind), examples = header_of(kExamplesKind, {256, 200, 3});
  fails(documents, {{}});                      // no sentence
  fails(documents, {{1}, {}, {}});             //
  fails(documents, {{1}, {}, {2}});            // not ended
  fails(examples, {{1}, {2}, {0, 0}});         // two labels
  fails(examples, {{1}, {2}, {3}});            // each field has its limit
  fails(examples, {{1}, {200}, {2}});          //
  fails(examples, {{256}, {2}, {2}});          //
  fails(examples, {{1}, {2}, {2}, {1}, {1}});  // not complete
  const auto refused = [&](const ShardHeader& h) {
    CHECK(status_of([&] { ShardWriter writer(*sink, h); }) == 2);
    CHECK(status_of([&] { decode_header(encode_header(h), "x.mhs"); }) == 3);
  };
  refused(header_of(kExamplesKind, {256, 256}));
  CHECK(header_of(kExamplesKind, {256, 300}).largest_limit() == 300);  // also of limits that do not fit the fields
  refused(header_of(kExamplesKind, {256, 256, 2, 2}));
  refused(header_of(kExamplesKind, {256, 256, 0}));
  refused(header_of(kExamplesKind, {256, 257, 2}));
  refused(header_of(kExamplesKind, {256, 256, int64_t{1} << 40}));
  refused(header_of(kDocumentsKind, {256}));  // the vocabulary says it
  refused(header_of(kTextKind, {256}));
  refused(header_of(kPairsKind, {256, 256}));
  ShardHeader h = header_of(kDocumentsKind);
  h.fields = {"tokens"};
  refused(h);
  h = header_of(kExamplesKind);
  h.task = "[]";
  refused(h);
  h.token_bytes = 2, h.task.clear(), h.limits = {256, 256, 70000};
  CHECK(status_of([&] { ShardWriter writer(*sink, h); }) == 2);
  CHECK(status_of([&] { h.hold("any"); }) == 2);
}

TEST_CASE("sealed shards with runs that their kind has not are refused by both readers", "[records]") {
  Folder folder;
  const std::string path = folder.file("x.mhs");
  const auto sealed = [&](const ShardHeader& wanted, const RunList& runs, bool fits) {
    ShardHeader h = wanted;
    h.kind = "any", h.limits.clear();
    write_shard(path, h, runs);
    exchange_header(path, wanted);
    CHECK(status_of([&] { verify(ShardFile(path)); }) == (fits ? 0 : 3));
    CHECK(status_of([&] { read_whole_shard(path, wanted.kind); }) == (fits ? 0 : 3));
  };
  const ShardHeader documents = header_of(kDocumentsKind), examples = header_of(kExamplesKind, {256, 200, 3});
  sealed(documents, {{1, 2}, {3}, {}, {4}, {}}, true);
  sealed(documents, {}, true);
  sealed(documents, {{1, 2}, {3}, {}, {4}}, false);
  sealed(documents, {{1}, {}, {}}, false);
  sealed(documents, {{}, {1}, {}}, false);
  sealed(examples, {{255}, {199}, {2}, {}, {}, {}, {}, {}, {1}}, true);
  sealed(examples, {{1}, {}, {3}}, false);
  sealed(examples, {{1}, {200}, {}}, false);
  sealed(examples, {{}, {}, {}, {1}, {200}, {2}}, false);
  sealed(examples, {{1}, {2}, {1, 1}}, false);
  ShardHeader other = examples;
  other.fingerprint = "another";
  sealed(other, {{1}, {}, {}}, false);
  other = examples;
  other.tokenizer = "no vocabulary";
  sealed(other, {{1}, {}, {}}, false);
  // Another kind is not read as this one.
  write_shard(path, documents, {{1}, {}});
  CHECK(status_of([&] { read_whole_shard(path, kExamplesKind); }) == 3);
  CHECK(status_of([&] { read_pairs(path); }) == 3);
  CHECK(status_of([&] { read_tokens(path); }) == 3);
}
