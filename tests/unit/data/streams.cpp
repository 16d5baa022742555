// Tests of texts in parallel streams: batches compared with naive loops, Transformer-XL memories in training and in
// checkpoints, and evaluation with a memory.
#include "fixtures/streams.h"

#include <c10/core/GradMode.h>
#include <rapidcheck.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>

#include "base/error.h"
#include "base/json_types.h"
#include "fixtures/contains.h"
#include "fixtures/corpora.h"
#include "fixtures/passes.h"
#include "fixtures/runs.h"
#include "fixtures/shards.h"
#include "fixtures/status.h"
#include "model/memories.h"
#include "model/skip_layers.h"
#include "task/token_score.h"
#include "train/run_properties.h"

using namespace mh;
using namespace mh::train;
using runs::read_log;
using runs::write_text;
using streams::config_of;
using streams::have_same_weights;
using streams::kModelConfig;
using streams::make_tokens;
using streams::train_in_folder;

namespace {

std::unique_ptr<model::LanguageModel> build(const std::string& extra_toml, const std::string& attention = "") {
  Config config;
  config.load_text(str("[model]\n", kModelConfig, extra_toml,
                       "[attention]\nheads = 4\nbias = false\nscore = 'relative'\n", attention),
                   "test");
  auto model = model::build_language_model(model::ModelConfig::read(config), {6}, at::kCPU);
  model->parameters().initialise(1);
  c10::NoGradGuard no_gradient;
  for (auto& p : model->parameters().all())
    if (p.master().dim() > 1) p.master().mul_(8);
  return model;
}

}  // namespace

TEST_CASE("streams contain every token once, in order, for any numbers of tokens and streams and any sequence length",
          "[streams]") {
  CHECK(rc::check([] {
    const int64_t num_tokens = *rc::gen::inRange<int64_t>(1, 200), num_streams = *rc::gen::inRange<int64_t>(1, 12),
                  sequence_length = *rc::gen::inRange<int64_t>(1, 12);
    RC_PRE(num_tokens >= num_streams);
    const std::vector<int32_t> text = make_tokens(num_tokens);
    TrainOptions options;
    options.batch.order = BatchOrder::streams, options.batch.sequence_length = sequence_length,
    options.batch.tokens = num_streams * sequence_length;
    auto batches = corpora::make_batches(corpora::text_of(text, 5), options);
    // Naive reference: the text is divided into streams, the longer streams first, and each stream into blocks.
    std::vector<std::vector<int64_t>> streams(static_cast<size_t>(num_streams));
    int64_t num_assigned = 0, max_length = 0;
    for (int64_t s = 0; s < num_streams; ++s) {
      int64_t length = 0;
      for (int64_t i = s; i < num_tokens; i += num_streams) ++length;
      for (int64_t i = 0; i < length; ++i) streams[static_cast<size_t>(s)].push_back(num_assigned++);
      max_length = std::max(max_length, length);
    }
    RC_ASSERT(num_assigned == num_tokens);
    RC_ASSERT(batches->updates_per_epoch() == (max_length + sequence_length - 1) / sequence_length);
    for (int64_t u = 0; u < 2 * batches->updates_per_epoch(); ++u) {
      const int64_t segment = u % batches->updates_per_epoch();
      RC_ASSERT(batches->continues_streams(u) == (segment > 0));
      const auto update = batches->rows_of(u);
      const int64_t width = std::min(sequence_length, max_length - segment * sequence_length);
      const data::Batch batch = batches->load(u, {0, static_cast<int64_t>(update.rows.size())});
      RC_ASSERT(batch.input.tokens.sizes() == at::IntArrayRef({num_streams, width}));
      const auto* in = batch.input.tokens.const_data_ptr<int64_t>();
      const auto* out = batch.targets.const_data_ptr<int64_t>();
      for (const auto& stream : streams)
        for (int64_t t = 0; t < width; ++t, ++in, ++out) {
          const auto position = static_cast<size_t>(segment * sequence_length + t);
          if (position >= stream.size()) {
            RC_ASSERT(*out == -1);
            continue;
          }
          const auto i = static_cast<size_t>(stream[position]);
          RC_ASSERT(*out == text[i]);
          RC_ASSERT(*in == (i == 0 ? 5 : text[i - 1]));
        }
      // A micro-batch is a slice of the rows of its update.
      const data::Batch micro_batch = batches->load(u, {1, std::min<int64_t>(2, num_streams - 1)});
      RC_ASSERT(at::equal(micro_batch.targets, batch.targets.slice(0, 1, 3)));
    }
  }));
  const std::vector<int32_t> text = make_tokens(5);
  TrainOptions options;
  options.batch.order = BatchOrder::streams, options.batch.sequence_length = 2, options.batch.tokens = 12;
  CHECK(contains(refusal([&] { corpora::make_batches(corpora::text_of(text, 5), options); }), "at most 5 streams"));
  CHECK(length_to_updates({1, Length::Unit::epochs}, options.batch, 100) == 9);  // ceil(ceil(100 / 6 streams) / 2)
  CHECK(length_to_updates({101, Length::Unit::tokens}, options.batch, 100) == 10);
}

TEST_CASE("the score of a text in parallel streams equals a loop over its tokens for any batch size", "[streams]") {
  const std::vector<int32_t> text = make_tokens(103);
  constexpr int64_t kKeys = 7 + 4;  // maximum number of keys of a query: memory and block
  for (int64_t num_layers : {1, 3}) {
    auto model = build(str("layers = ", num_layers, "\ntransformer-xl.memory = 9\n"));
    data::ScoringOptions options;
    options.sequence_length = 4, options.memory = 7, options.streams = 5;
    double expected_nll = 0;
    for (int64_t s = 0; s < 5; ++s) {
      const int64_t first = s * 20 + std::min<int64_t>(s, 3), length = s < 3 ? 21 : 20;
      auto token = [&](int64_t i) { return i < 0 ? 2 : static_cast<int64_t>(text[static_cast<size_t>(i)]); };
      // The reference scores each stream separately. Autograd is enabled here, so the memory holds layer inputs instead
      // of keys and values.
      auto state = model->new_memory(7);
      for (int64_t begin = 0; begin < length; begin += 4) {
        std::vector<int64_t> inputs;
        for (int64_t t = begin; t < std::min(begin + 4, length); ++t) inputs.push_back(token(first + t - 1));
        at::Tensor hidden = model->hidden(model::Input{at::tensor(inputs, at::kLong).unsqueeze(0)}, {}, state.get());
        for (int64_t t = 0; t < static_cast<int64_t>(inputs.size()); ++t) {
          at::Tensor last = hidden.narrow(1, t, 1);
          if (num_layers == 1) {
            // The memory of a model with one layer holds embeddings, so one forward pass over the tokens of memory and
            // block gives the same hidden state.
            std::vector<int64_t> visible;
            for (int64_t i = std::max<int64_t>(0, begin - 7); i <= begin + t; ++i)
              visible.push_back(token(first + i - 1));
            at::Tensor full = model->hidden(model::Input{at::tensor(visible, at::kLong).unsqueeze(0)}, {});
            CHECK(rounding::passes_agree(*model, last, full.narrow(1, full.size(1) - 1, 1), kKeys));
          }
          at::Tensor log_p = at::log_softmax(model->logits(last).to(at::kDouble), -1);
          expected_nll -= log_p[0][0][token(first + begin + t)].item<double>();
        }
      }
    }
    for (int64_t batch : {1, 2, 4, 50}) {
      options.batch = batch;
      std::vector<int64_t> order;
      double observed_nll = 0;
      task::ScoreCallbacks callbacks;
      callbacks.on_token = [&](const task::TokenScore& scored) {
        const auto [index, token, log_probability] = scored;
        order.push_back(index);
        observed_nll -= log_probability;
        CHECK(token == text[static_cast<size_t>(index)]);
      };
      const task::NllSum score = task::score(*model, corpora::text_of(text, 2), options, callbacks);
      CHECK(score.num_tokens == 103);
      CHECK(score.nll == rounding::within(expected_nll, rounding::pass_bound(*model, kKeys) * expected_nll));
      CHECK(observed_nll == rounding::fp64(score.nll, 103));  // the same terms in another order
      std::vector<int64_t> positions_in_order(103);
      std::iota(positions_in_order.begin(), positions_in_order.end(), 0);
      CHECK(order == positions_in_order);
    }
  }
}

TEST_CASE("the scoring protocol of a text follows from the options and the model's memory", "[streams]") {
  auto with_memory = build("layers = 1\ntransformer-xl.memory = 9\n"), without_memory = build("layers = 1\n");
  auto resolve_options = [](model::LanguageModel& m, int64_t context, int64_t memory, int64_t streams) {
    data::ScoringOptions options;
    options.sequence_length = 4, options.context = context, options.memory = memory, options.streams = streams;
    return data::Text(100, 0, {}).resolve(options, m);
  };
  auto protocol = [](const data::ScoringOptions& options) { return std::string(data::protocol_of(options)); };
  CHECK(protocol(resolve_options(*with_memory, 0, -1, 0)) == "streams");
  CHECK(resolve_options(*with_memory, 0, -1, 0).memory == 9);
  CHECK(resolve_options(*with_memory, 0, -1, 0).streams == 10);
  CHECK(resolve_options(*with_memory, 0, 50, 200).streams == 100);
  CHECK(protocol(resolve_options(*with_memory, 0, 0, 0)) == "independent-blocks");
  CHECK(protocol(resolve_options(*with_memory, 2, -1, 0)) == "context-window");
  CHECK(protocol(resolve_options(*without_memory, 0, -1, 0)) == "independent-blocks");
  CHECK(protocol(resolve_options(*without_memory, 2, -1, 0)) == "context-window");
  CHECK(contains(refusal([&] { resolve_options(*without_memory, 0, 5, 0); }), "0 for a model without a memory"));
  CHECK(contains(refusal([&] { resolve_options(*without_memory, 0, -1, 5); }), "--streams"));
  CHECK(contains(refusal([&] { resolve_options(*with_memory, 2, 5, 0); }), "0 if --memory is above 0"));
}

TEST_CASE("queries attend to an initial memory of zeros, which therefore differs from an empty memory", "[streams]") {
  auto zeros_model = build("layers = 2\ntransformer-xl.memory = 5\ntransformer-xl.initial_memory = 'zeros'\n"),
       empty_model = build("layers = 2\ntransformer-xl.memory = 5\n");
  at::manual_seed(1);
  const at::Tensor x = at::randint(6, {2, 9}, at::kLong);
  for (bool with_autograd : {false, true}) {
    at::AutoGradMode mode(with_autograd);
    auto zeros_memory = zeros_model->new_memory(5), explicit_zeros = empty_model->new_memory(5),
         empty_memory = empty_model->new_memory(5);
    for (auto& layer : explicit_zeros->layers) {
      layer.inputs = at::zeros({2, 5, 16});
      layer.positions = {-5, -4, -3, -2, -1};
    }
    for (int64_t t = 0; t < 9; t += 3) {
      const at::Tensor hidden = zeros_model->hidden(model::Input{x.narrow(1, t, 3)}, {}, zeros_memory.get());
      CHECK(at::equal(hidden, empty_model->hidden(model::Input{x.narrow(1, t, 3)}, {}, explicit_zeros.get())));
      const at::Tensor without_zeros = empty_model->hidden(model::Input{x.narrow(1, t, 3)}, {}, empty_memory.get());
      CHECK_FALSE(rounding::passes_agree(*empty_model, hidden, without_zeros, 8));
    }
  }
}

TEST_CASE("memories load into micro-batches of another size; mismatched or damaged memories are refused", "[streams]") {
  auto model = build("layers = 3\ntransformer-xl.memory = 9\n");
  std::vector<model::Memories> saved;
  nn::Requests requests;
  requests.add(std::make_shared<model::SkipLayersRequest>(std::vector<bool>{false, true, false}));
  for (int64_t num_rows : {2, 2, 1}) {
    auto m = model->new_memory(9);
    nn::ForwardContext forward_context{true, 1, 0, 0};
    forward_context.requests = &requests;
    for (int i = 0; i < 3; ++i)
      model->hidden(model::Input{at::randint(6, {num_rows, 4}, at::kLong)}, forward_context, m.get());
    saved.push_back(std::move(*m));
  }
  Folder folder;
  const std::string path = folder.file("m.safetensors");
  auto write = [&](const std::function<void(const std::string&, at::Tensor&)>& change) {
    auto tensors = model::memory_tensors(saved);
    model::CheckpointTensors checkpoint_tensors;
    for (auto& [name, tensor] : tensors) {
      if (change) change(name, tensor);
      if (tensor.defined()) checkpoint_tensors.add(name, tensor);
    }
    auto sink = open_sink(path);
    io::write_checkpoint(*sink, checkpoint_tensors.views(), {});
    sink->close();
  };
  auto load = [&](int64_t num_rows, int64_t rows_per_micro_batch, int64_t capacity, int64_t width) {
    return model::load_memories(io::Checkpoint(path), *model->new_memory(capacity), num_rows, rows_per_micro_batch,
                                width, at::kCPU);
  };
  write({});
  const auto loaded = load(5, 3, 9, 16);
  REQUIRE(loaded.size() == 2);
  for (size_t l = 0; l < 3; ++l) {
    CHECK(loaded[1].next_position == 12);
    CHECK(loaded[1].layers[l].positions == saved[0].layers[l].positions);
    if (l == 1) {
      CHECK_FALSE(loaded[0].layers[l].inputs.defined());
      continue;
    }
    CHECK(at::equal(nn::cat({loaded[0].layers[l].inputs, loaded[1].layers[l].inputs}),
                    nn::cat({saved[0].layers[l].inputs, saved[1].layers[l].inputs, saved[2].layers[l].inputs})));
  }
  auto is_refused = [&](int64_t num_rows, int64_t capacity, int64_t width) {
    try {
      load(num_rows, num_rows, capacity, width);
    } catch (const Error& error) {
      return error.exit() == Exit::input;
    }
    return false;
  };
  CHECK_FALSE(is_refused(5, 9, 16));
  CHECK(is_refused(4, 9, 16));
  CHECK(is_refused(5, 8, 16));
  CHECK(is_refused(5, 9, 20));
  for (const char* name : {"memory.seen", "memory.layers.1.positions", "memory.layers.2.inputs"}) {
    write([&](const std::string& n, at::Tensor& t) {
      if (n == name) t = at::Tensor();
    });
    CHECK(is_refused(5, 9, 16));
  }
  write([&](const std::string& n, at::Tensor& t) {
    if (n == "memory.layers.0.positions") t[3] = t[4];
  });
  CHECK(is_refused(5, 9, 16));
  write([&](const std::string& n, at::Tensor& t) {
    if (n == "memory.layers.0.positions") t[8] = 12;
  });
  CHECK(is_refused(5, 9, 16));
}

TEST_CASE("training carries the memory from update to update and empties it at the end of an epoch", "[streams]") {
  Folder folder;
  write_text(folder.file("t.mhs"), make_tokens(400));
  const std::string sgd =
      "[model]\ndropout_ffn = 0.0\n[train]\noptimizer.rule = 'sgd'\noptimizer.momentum = 0.0\nlr = 0.5\n";
  auto trained_model = train_in_folder(folder, "run", sgd + "length = '9u'\n");
  // Reference: a training loop from the same initial weights.
  auto config = config_of(folder, sgd);
  auto model = model::build_language_model(config.model, {6}, at::kCPU);
  model->parameters().initialise(1);
  const std::vector<int32_t> text = make_tokens(400);
  double largest_gradient = 0;
  std::unique_ptr<model::Memories> memory;
  for (int64_t u = 0; u < 9; ++u) {
    const int64_t from = u % 7 * 8, width = std::min<int64_t>(8, 50 - from);
    if (from == 0) memory = model->new_memory(10);
    at::Tensor in = at::empty({8, width}, at::kLong), out = at::empty({8, width}, at::kLong);
    for (int64_t s = 0; s < 8; ++s)
      for (int64_t t = 0; t < width; ++t) {
        const auto i = static_cast<size_t>(s * 50 + from + t);
        in[s][t] = i == 0 ? 0 : text[i - 1];
        out[s][t] = text[i];
      }
    nn::ForwardContext forward_context{true, 1, static_cast<uint32_t>(u), 0};
    auto loss = model->loss(model->hidden(model::Input{in}, forward_context, memory.get()), {out}, 0);
    loss.smoothed.backward();
    model->parameters().collect_gradients();
    c10::NoGradGuard no_gradient;
    for (auto& p : model->parameters().all()) {
      const at::Tensor gradient = p.master().grad() / static_cast<double>(8 * width);
      largest_gradient = std::max(largest_gradient, numbers::max_abs(gradient));
      p.master().sub_(gradient * 0.5);
    }
    model->parameters().zero_gradients();
  }
  for (auto& p : trained_model.model->parameters().all()) {
    INFO(p.name());
    // Without momentum each of 9 updates moves an element by lr times its gradient. The gradient has the error of a
    // forward and a backward pass with up to 10 + 8 keys; scaling and update add 3 roundings.
    const double bound = rounding::bound(at::kFloat, at::kFloat, 9 * 3, numbers::max_abs(p.master())) +
                         9 * 0.5 * largest_gradient * rounding::gradient_bound(*model, 10 + 8);
    CHECK(numbers::error(p.master(), model->parameters().find(p.name())->master()) <= bound);
  }
  // The memory affects the weights, so the comparison above detects a run that ignores the memory.
  auto without_memory =
      train_in_folder(folder, "no-memory", sgd + "length = '9u'\n[model]\ntransformer-xl.memory = 0\n");
  CHECK_FALSE(have_same_weights(trained_model, without_memory));
}

TEST_CASE("resuming a run with a memory gives bit-identical weights", "[streams]") {
  Folder folder;
  write_text(folder.file("t.mhs"), make_tokens(400));
  for (const std::string extra_toml : {"", "[train]\nbatch.micro_tokens = 24\n", "[train]\nprecision = 'bf16'\n",
                                       "[train.procedures.skip-retain]\nschedule = 'all'\nrate = 0.4\n",
                                       "[model]\ntransformer-xl.initial_memory = 'zeros'\n"}) {
    INFO(extra_toml);
    const std::string name = std::to_string(std::hash<std::string>()(extra_toml));
    auto length = [&](int num_updates) {
      return str(extra_toml, "[train]\nlength = '", num_updates, "u'\nschedule.length = '16u'\n");
    };
    auto uninterrupted_model = train_in_folder(folder, name, length(16));
    for (int stop : {5, 7, 9}) {  // update 7 is the last of an epoch
      train_in_folder(folder, str(name, stop), length(stop));
      CHECK(have_same_weights(train_in_folder(folder, str(name, stop), length(16), true), uninterrupted_model));
    }
  }
}

TEST_CASE("updates in micro-batches, each with its own memory, give the same weights as undivided updates",
          "[streams]") {
  Folder folder;
  write_text(folder.file("t.mhs"), make_tokens(397));
  // Gradient clipping limits the largest gradient to 1, the value that sgd_bound() receives below.
  const std::string common_toml =
      "[train]\nlength = '9u'\noptimizer.rule = 'sgd'\noptimizer.clip_norm = 1.0\nlr = 0.1\n"
      "[train.procedures.skip-retain]\nrate = 0.3\n";
  auto whole_updates = train_in_folder(folder, "whole", common_toml),
       micro_batches = train_in_folder(folder, "parts", common_toml + "[train]\nbatch.micro_tokens = 24\n");
  const auto check_same = [&](const model::LoadedModel& other) {
    for (auto& p : whole_updates.model->parameters().all()) {
      INFO(p.name());
      CHECK(numbers::error(p.master(), other.model->parameters().find(p.name())->master()) <=
            rounding::sgd_bound(*whole_updates.model, 10 + 8, 9, 0.1, 1, p.master()));
    }
  };
  check_same(micro_batches);
  // The saved memory covers all rows of an update, so a resumed run may use micro-batches of another size.
  train_in_folder(folder, "mixed", common_toml + "[train]\nlength = '4u'\nbatch.micro_tokens = 24\n");
  check_same(train_in_folder(folder, "mixed", common_toml + "[train]\nbatch.micro_tokens = 16\n", true));
}

TEST_CASE("the validation loss of a training run equals an evaluation with the same sequence length and memory",
          "[streams]") {
  Folder folder;
  write_text(folder.file("t.mhs"), make_tokens(400));
  write_text(folder.file("v.mhs"), make_tokens(133));
  const std::string valid_toml = "[data]\nvalid = '" + folder.file("v.mhs") + "'\n[train]\nlength = '9u'\n";
  const shards::TextShard text = shards::read_tokens(folder.file("v.mhs"));
  for (const auto& [extra_toml, sequence_length, memory] :
       {std::tuple{std::string(), 8, 10},
        {"validation.sequence_length = 3\n", 3, 15},
        {"validation.sequence_length = 3\nvalidation.memory = 4\n", 3, 4},
        {"validation.memory = 0\n", 8, 0}}) {
    const std::string name = std::to_string(sequence_length * 100 + memory);
    auto loaded = train_in_folder(folder, name, valid_toml + extra_toml);
    data::ScoringOptions options;
    options.sequence_length = sequence_length, options.memory = memory;
    const task::NllSum score = task::score(*loaded.model, corpora::text_of(text.tokens, 0), options);
    const double valid_nll = read_log(folder.file(name), "valid_nll").back()["valid_nll"];
    CHECK(valid_nll == rounding::fp64(score.nll / 133, 133));  // a mean in fp64 of the same terms
  }
}

TEST_CASE("the properties of a resumed run contain the update of the next validation", "[streams]") {
  Folder folder;
  const auto run = config_of(folder, "[train]\nlength = '10u'\nvalidation.every = '4u'\n");
  const auto batches = corpora::make_batches(data::Text(400, 0, {}), run.train);
  auto next_validation_after = [&](int64_t update, bool is_complete) {
    TrainState state;
    state.update = update, state.is_complete = is_complete;
    return run_properties_of(run, *batches, true, state).next_validation_update;
  };
  CHECK(next_validation_after(0, true) == 4);
  CHECK(next_validation_after(3, true) == 4);
  CHECK(next_validation_after(4, true) == 8);
  CHECK(next_validation_after(4, false) == 4);  // the validation at update 4 was interrupted by a signal
  CHECK(next_validation_after(8, true) == 10);
  CHECK_FALSE(run_properties_of(run, *batches, true).has_best_weights);
}

TEST_CASE("invalid options of streams, memories and Skip-Retain are refused before the run folder is created",
          "[streams]") {
  Folder folder;
  write_text(folder.file("t.mhs"), make_tokens(400));
  int run_number = 0;
  auto refusal_of = [&](const std::string& extra_toml) {
    const std::string out = folder.file(std::to_string(run_number++));
    std::string message =
        refusal([&] { Trainer(config_of(folder, "[train]\nlength = '4u'\n" + extra_toml), out, false); });
    CHECK_FALSE(std::filesystem::exists(out));
    return message;
  };
  const std::string skip_retain = "[train.procedures.skip-retain]\n",
                    valid_toml = "[data]\nvalid = '" + folder.file("t.mhs") + "'\n";
  CHECK(contains(refusal_of("[train]\nbatch.order = 'blocks'\n"), "train.batch.order"));
  CHECK(contains(refusal_of("[train]\nbatch.tokens = 4000\n"), "at most 400 streams"));
  CHECK(contains(refusal_of("[train]\nvalidation.sequence_length = 19\n"), "train.validation.sequence_length"));
  CHECK(contains(refusal_of("[model]\ntransformer-xl.memory = 0\n[train]\nvalidation.memory = 3\n"),
                 "train.validation.memory"));
  CHECK(contains(
      refusal_of(skip_retain +
                 "[model]\nbackbone = 'decoder'\ntransformer-xl.memory = 0\noutput_bias = false\n[attention]\nscore = "
                 "'dot-product'\n"),
      "skip layers"));
  CHECK(contains(refusal_of(skip_retain + "until = '2u'\n"), "no --valid"));
  CHECK(contains(refusal_of(skip_retain + "until = '2u'\n" + valid_toml + "[train]\nvalidation.every = '3u'\n"),
                 "no validation up to update"));
  // Streams without a memory are allowed: their blocks are independent sequences.
  CHECK_NOTHROW(train_in_folder(folder, "no-memory", "[train]\nlength = '9u'\n[model]\ntransformer-xl.memory = 0\n"));
}

TEST_CASE("loading a checkpoint may override configuration keys that change no parameter", "[streams]") {
  Folder folder;
  write_text(folder.file("t.mhs"), make_tokens(400));
  train_in_folder(folder, "run", "[train]\nlength = '3u'\n");
  const std::string path = folder.file("run") + "/last.safetensors";
  auto load = [&](const std::vector<std::string>& overrides) { return model::load_model(path, at::kCPU, overrides); };
  auto original_model = load({}),
       overridden_model = load(
           {"model.transformer-xl.same_length=true", "attention.relative.clamp=3", "model.transformer-xl.memory=20"});
  CHECK(overridden_model.config.model.transformer_xl.same_length);
  CHECK(overridden_model.model->memory_length() == 20);
  const std::vector<int32_t> text = make_tokens(90);
  data::ScoringOptions options;
  options.sequence_length = 8, options.memory = 20;
  // Without the overrides both models would compute the same bits.
  CHECK(task::score(*original_model.model, corpora::text_of(text, 0), options).nll !=
        task::score(*overridden_model.model, corpora::text_of(text, 0), options).nll);
  CHECK(
      contains(refusal([&] { load({"model.layers=3"}); }), "keep the names, shapes and head counts of all parameters"));
  CHECK(contains(refusal([&] { load({"model.ffn_dim=32"}); }), "(16, 16)"));
  CHECK(
      contains(refusal([&] { load({"attention.mixer=mixhead-a"}); }), "the new parameter decoder.layers.0.self.mixer"));
  CHECK(contains(refusal([&] { load({"attention.score=dot-product"}); }), "no parameter of this name"));
  CHECK(contains(refusal([&] { load({"train.lr=1"}); }), "a key of [model] or [attention]"));
  CHECK(contains(refusal([&] { load({"model.transformer-xl.same_lenght=true"}); }), "did you mean"));
}
