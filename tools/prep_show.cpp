// mh-prep info and mh-prep cat: what a shard holds.
#include <nlohmann/json.hpp>

#include "io/shard.h"
#include "io/tokenizer.h"
#include "prep.h"

namespace mh::prep {

using namespace mh::io;
using nlohmann::ordered_json;

void show_info(const Arguments& a) {
  refuse_output_onto_input("-", a.inputs);
  for (const std::string& input : a.inputs) {
    ShardStream stream(input);
    std::vector<int32_t> tokens(1 << 16);
    while (stream.read(tokens) > 0) {
    }
    const ShardHeader& h = stream.header();
    auto type = parse_tokenizer(h.tokenizer, stream.name())->type();
    ordered_json j{{"file", stream.name()},
                   {"kind", h.kind},
                   {"tokens", stream.counts().tokens},
                   {"records", stream.counts().records},
                   {"text_bytes", stream.counts().text_bytes},
                   {"vocabulary", h.vocabulary},
                   {"tokenizer", type},
                   {"token_bytes", h.token_bytes},
                   {"fingerprint", h.fingerprint},
                   {"provenance", ordered_json::parse(h.provenance)}};
    auto sink = open_sink("-");
    if (a.format == "json") {
      sink->write(j.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n");
    } else {
      for (auto& [key, value] : j.items())
        sink->write(key + "\t" + (value.is_string() ? value.get<std::string>() : value.dump()) + "\n");
    }
    sink->close();
  }
}

namespace {

void show_text_of(const std::string& input, bool ids, ByteSink& sink) {
  ShardStream stream(input);
  require_kind(stream.header(), stream.name(), "language-model");
  auto tokenizer = parse_tokenizer(stream.header().tokenizer, stream.name());
  require_vocabulary(stream.header(), stream.name(), *tokenizer, "its own tokenizer");
  std::vector<int32_t> tokens(1 << 14), line;
  auto print = [&] {
    if (!ids) return sink.write(tokenizer->decode(line));
    for (size_t i = 0; i < line.size(); ++i) sink.write((i > 0 ? " " : "") + std::to_string(line[i]));
    sink.write("\n");
  };
  while (size_t n = stream.read(tokens)) {
    for (size_t i = 0; i < n; ++i) {
      line.push_back(tokens[i]);
      if (tokens[i] != tokenizer->end_of_line()) continue;
      print();
      line.clear();
    }
  }
  if (!line.empty()) print();
}

}  // namespace

void show_text(const Arguments& a) {
  refuse_output_onto_input("-", a.inputs);
  auto sink = open_sink("-");
  for (const std::string& input : a.inputs) show_text_of(input, a.ids, *sink);
  sink->close();
}

}  // namespace mh::prep
