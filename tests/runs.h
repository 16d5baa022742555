// Short runs of training on a small text.
#pragma once

#include <ATen/Parallel.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "folder.h"
#include "io/shard.h"
#include "model/load.h"
#include "text/tokenizers.h"
#include "train/trainer.h"

namespace runs {

using namespace mh;
using namespace mh::train;

// A shard of these tokens, each 0 (the line's end), 1 (unknown) or one of four words.
inline void write_text(const std::string& path, const std::vector<int32_t>& tokens) {
  auto tokenizer = text::make_word_tokenizer({{"<eos>", 1}, {"<unk>", 0}, {"a", 1}, {"b", 1}, {"c", 1}, {"d", 1}});
  auto sink = open_sink(path);
  io::ShardWriter writer(*sink, text::header_of(*tokenizer));
  writer.add_run(tokens);
  writer.finish();
  sink->close();
}

// Lines of four words, which repeat.
inline std::vector<int32_t> lines(int64_t count) {
  std::vector<int32_t> text;
  for (int64_t i = 0; i < count; ++i) text.push_back(static_cast<int32_t>(i % 5 == 4 ? 0 : 2 + i * i % 4));
  return text;
}

inline RunConfig config_of(const Folder& folder, const std::string& extra) {
  Config config;
  config.load_text(
      "[model]\nlayers = 2\nwidth = 16\nffn = 16\ndropout_ffn = 0.1\n[attention]\nheads = 4\n[train]\nblock = 8\n"
      "batch_tokens = 64\nlr = 0.01\nvalidate_every = '1e'\nlog_every = '1u'\nclip = 1.0\n[data]\ntrain = '" +
          folder.file("t.mhs") + "'\nvalid = '" + folder.file("t.mhs") + "'\n",
      "test");
  config.load_text(extra, "extra");
  return RunConfig::read(config);
}

// Trains to the end; the model that the run leaves.
inline model::LoadedModel run(const RunConfig& config, const std::string& out, bool resume = false) {
  // One thread: the models are tiny, and threads that wait for each other take most of the time on a busy machine.
  struct OneThread {
    int before = at::get_num_threads();
    OneThread() { at::set_num_threads(1); }
    ~OneThread() { at::set_num_threads(before); }
  } one_thread;
  Trainer trainer(config, out, resume);
  const int status = trainer.run();
  CHECK(status == 0);
  return model::load_model(out + "/last.safetensors", at::kCPU);
}
inline model::LoadedModel run_of(const Folder& folder, const std::string& name, const std::string& extra,
                                 bool resume = false) {
  return run(config_of(folder, extra), folder.file(name), resume);
}

// The lines of the log of the run in this folder that have this entry; all lines where none is named.
inline std::vector<nlohmann::json> logged(const std::string& run, const std::string& entry = "") {
  std::vector<nlohmann::json> lines;
  std::ifstream log(run + "/log.jsonl");
  for (std::string line; std::getline(log, line);)
    if (auto j = nlohmann::json::parse(line); entry.empty() || j.contains(entry)) lines.push_back(std::move(j));
  return lines;
}

inline at::Tensor& find(model::LoadedModel& m, const std::string& name) {
  return m.model->parameters().find(name)->master();
}

}  // namespace runs
