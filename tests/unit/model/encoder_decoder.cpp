// The encoder-decoder: parameter counts, equations, causality, padding, incremental decoding, gradients.
#include <c10/core/GradMode.h>
#include <rapidcheck.h>

#include <catch2/catch.hpp>
#include <cmath>

#include "base/error.h"
#include "fixtures/gradients.h"
#include "fixtures/status.h"
#include "fixtures/translators.h"
#include "oracle/sublayers.h"

using namespace mh;
using namespace mh::model;
using namespace mh::nn;
using models::parse_model_config;
using models::random_tokens;
using translators::build_model;
using translators::kTiny;
using translators::stage_lines;

namespace {

int64_t num_trainable_parameters(const std::string& toml, const VocabularySizes& vocabulary_sizes) {
  return build_language_model(parse_model_config(toml), vocabulary_sizes, at::kMeta)
      ->parameters()
      .num_trainable_elements();
}

at::Tensor lengths(std::initializer_list<int64_t> values) {
  return at::tensor(std::vector<int64_t>(values), at::kLong);
}

// Returns random source and target rows of these lengths, padded with random tokens.
Input random_input(const std::vector<int64_t>& source, const std::vector<int64_t>& target, uint64_t seed) {
  const auto rows = static_cast<int64_t>(source.size());
  const int64_t source_length = *std::max_element(source.begin(), source.end()),
                target_length = *std::max_element(target.begin(), target.end());
  return {random_tokens(rows, target_length, 30, seed),
          random_tokens(rows, source_length, 20, seed + 1),
          {at::tensor(target, at::kLong), at::tensor(source, at::kLong)}};
}

at::Tensor logits(LanguageModel& model, const Input& input) { return model.logits(model.hidden(input, {})); }

}  // namespace

TEST_CASE("encoder-decoders have the parameter counts of published translation models", "[translation]") {
  // fairseq's transformer_iwslt_de_en on De-En, and transformer_wmt_en_de with a joint vocabulary.
  const std::string iwslt =
      "[model]\nbackbone = 'encoder-decoder'\nnorm = 'post'\nlayers = 6\nwidth = 512\nffn_dim = "
      "1024\nencoder-decoder.source_rows = "
      "8848\nvocabulary_rows = 6632\n[attention]\nheads = 8\n";
  CHECK(num_trainable_parameters(iwslt, {6632, 8848}) == 39469056);
  const std::string wmt =
      "[model]\nbackbone = 'encoder-decoder'\nnorm = 'post'\nlayers = 6\nwidth = 512\nffn_dim = "
      "2048\nencoder-decoder.shared_embedding = "
      "true\n[attention]\nheads = 8\n";
  CHECK(num_trainable_parameters(wmt, {32768}) == 60915712);
  // Alphas in all 18 attention layers (without the unused bias of the released code), and gates of MAE.
  CHECK(num_trainable_parameters(iwslt + "combiner = 'alphas'\n", {6632, 8848}) == 39469056 + 1152);
  CHECK(num_trainable_parameters(
            iwslt + "combiner = 'alphas'\n[attention.encoder.self]\nheads = 16\n[attention.decoder.self]\nheads = "
                    "16\n[attention.decoder.cross]\nheads = 16\n",
            {6632, 8848}) == 39469056 + 4608);
  CHECK(num_trainable_parameters(wmt + "combiner = 'mae'\n", {32768}) == 60915712 + 2419344);
  CHECK(num_trainable_parameters(wmt + "combiner = 'mae'\nmae.omitted_heads = 2\n", {32768}) == 60915712 + 2511864);
  // Mixing matrices in all 18 attention layers.
  CHECK(num_trainable_parameters(iwslt + "mixer = 'mixhead-a'\n", {6632, 8848}) == 39469056 + 18 * 64);
  CHECK(num_trainable_parameters(iwslt + "mixer = 'mixhead-b'\n", {6632, 8848}) == 39469056 + 18 * (64 + 8 * 64));
}

namespace {

// The model of Vaswani et al. 2017, post-norm or pre-norm, as naive loops in double precision.
struct Reference : reference::NaiveSublayers {
  HiddenStates embed_with_positions(const std::string& owner, const std::vector<int64_t>& tokens) const {
    return add(embed(owner, tokens, std::sqrt(static_cast<double>(width))), sinusoidal_positions(tokens.size()));
  }
  HiddenStates operator()(const std::vector<int64_t>& source, const std::vector<int64_t>& target,
                          int64_t encoder_layers, int64_t num_layers) const {
    HiddenStates m = embed_with_positions("encoder", source);
    for (int64_t i = 0; i < encoder_layers; ++i)
      m = feed_forward_sublayer(str("encoder.layers.", i, ".ffn"),
                                attention_sublayer(str("encoder.layers.", i, ".self"), m, nullptr, false));
    if (is_pre_norm) m = norm("encoder.norm", m);
    HiddenStates x = embed_with_positions("decoder", target);
    for (int64_t i = 0; i < num_layers; ++i) {
      const std::string name = str("decoder.layers.", i);
      x = attention_sublayer(name + ".self", x, nullptr, true);
      x = attention_sublayer(name + ".cross", x, &m, false);
      x = feed_forward_sublayer(name + ".ffn", x);
    }
    return is_pre_norm ? norm("decoder.norm", x) : x;
  }
};

}  // namespace

TEST_CASE("the encoder-decoder matches a naive reference in double precision, pre-norm and post-norm, with padding",
          "[translation]") {
  c10::NoGradGuard no_gradient;
  for (const bool is_pre_norm : {true, false}) {
    auto model = build_model(std::string(kTiny).replace(8, 0, is_pre_norm ? "norm = 'pre'\n" : "norm = 'post'\n"));
    for (Parameter& p : model->parameters().all())  // so that gains and biases are not neutral
      if (p.master().dim() == 1) p.master().add_(at::randn(p.master().sizes()) * 0.2);
    const std::vector<int64_t> source{5, 1, 3}, target{4, 6, 2};
    const Input input = random_input(source, target, 7);
    for (auto path : {attention::Path::composed, attention::Path::automatic}) {
      model->set_path(path);
      const at::Tensor hidden = model->hidden(input, {});
      for (int64_t b = 0; b < 3; ++b) {
        const auto s = source[static_cast<size_t>(b)], t = target[static_cast<size_t>(b)];
        const auto expected = Reference{{*model, is_pre_norm}}(reference::tokens_of_row(input.source, b, s),
                                                               reference::tokens_of_row(input.tokens, b, t), 3, 2);
        const at::Tensor rows = at::tensor(Reference::flatten(expected), at::kDouble).view({t, 16});
        REQUIRE(rounding::passes_agree(*model, hidden[b].narrow(0, 0, t), rows, 6));
      }
    }
  }
}

TEST_CASE("standard sinusoids of an encoder-decoder match a naive reference in double precision", "[translation]") {
  c10::NoGradGuard no_gradient;
  auto model = build_model(std::string(kTiny).replace(8, 0, "sinusoids = 'standard'\n"));
  const Input input = random_input({5}, {9}, 7);
  const auto expected = Reference{{.model = *model, .is_pre_norm = true, .sinusoids = Sinusoids::standard}}(
      reference::tokens_of_row(input.source, 0, 5), reference::tokens_of_row(input.tokens, 0, 9), 3, 2);
  const at::Tensor rows = at::tensor(Reference::flatten(expected), at::kDouble).view({9, 16});
  CHECK(rounding::passes_agree(*model, model->hidden(input, {})[0], rows, 6));
}

TEST_CASE("an encoder-decoder with a start token reads it instead of the first token of each target", "[translation]") {
  c10::NoGradGuard no_gradient;
  auto model = build_model(std::string(kTiny).replace(8, 0, "encoder-decoder.start_token = 29\n")),
       plain_model = build_model(kTiny);
  CHECK(model->start_token() == 29);
  CHECK(plain_model->start_token() == -1);
  const Input input = random_input({7, 4}, {6, 6}, 5);
  Input input_with_start{input.tokens.clone(), input.source, input.lengths};
  input_with_start.tokens.select(1, 0).fill_(29);
  const at::Tensor expected = logits(*plain_model, input_with_start), original_tokens = input.tokens.clone();
  CHECK(at::equal(logits(*model, input), expected));
  CHECK(at::equal(input.tokens, original_tokens));
  // In decoding only the first token of a target is replaced.
  auto state = model->new_state();
  for (int64_t position = 0; position < 6; ++position) {
    const Input step{input.tokens.narrow(1, position, 1), input.source, {{}, input.lengths.encoder}};
    CHECK(rounding::passes_agree(*model, model->logits(model->hidden(step, {}, state.get())),
                                 expected.narrow(1, position, 1), 9));
  }
}

TEST_CASE("target logits ignore later target tokens and depend on source tokens, with every stage", "[translation]") {
  c10::NoGradGuard no_gradient;
  for (const std::string& stage : stage_lines()) {
    INFO(stage);
    auto model = build_model(kTiny + stage);
    const Input original_input = random_input({7, 5}, {9, 9}, 3);
    Input changed_target = original_input;
    changed_target.tokens = original_input.tokens.clone();
    changed_target.tokens.narrow(1, 6, 3).copy_(random_tokens(2, 3, 30, 2));
    const at::Tensor x = logits(*model, original_input), y = logits(*model, changed_target);
    CHECK(at::equal(x.narrow(1, 0, 6), y.narrow(1, 0, 6)));
    CHECK(!rounding::passes_agree(*model, x.narrow(1, 6, 3), y.narrow(1, 6, 3), 9));
    Input changed_source = original_input;
    changed_source.source = original_input.source.clone();
    changed_source.source.select(1, 4).copy_((original_input.source.select(1, 4) + 1) % 20);
    CHECK(!rounding::passes_agree(*model, logits(*model, changed_source).select(1, 0), x.select(1, 0), 9));
  }
}

TEST_CASE("a translation row is independent of padding and of the other rows, with every stage", "[translation]") {
  c10::NoGradGuard no_gradient;
  for (const std::string& stage : stage_lines()) {
    INFO(stage);
    auto model = build_model(kTiny + stage);
    // A row that is one position shorter than the longest row.
    const Input two_rows = random_input({7, 6}, {4, 3}, 5);
    const Input second_row{two_rows.tokens.narrow(0, 1, 1).narrow(1, 0, 3),
                           two_rows.source.narrow(0, 1, 1).narrow(1, 0, 6),
                           {lengths({3}), lengths({6})}};
    CHECK(
        rounding::passes_agree(*model, logits(*model, second_row)[0], logits(*model, two_rows)[1].narrow(0, 0, 3), 7));
    const std::vector<int64_t> source{7, 2, 5, 1}, target{3, 8, 1, 6};
    const Input batch = random_input(source, target, 5);
    const at::Tensor batch_logits = logits(*model, batch);
    for (int64_t b = 0; b < 4; ++b) {
      const int64_t s = source[static_cast<size_t>(b)], t = target[static_cast<size_t>(b)];
      const Input single_row{batch.tokens.narrow(0, b, 1).narrow(1, 0, t),
                             batch.source.narrow(0, b, 1).narrow(1, 0, s),
                             {lengths({t}), lengths({s})}};
      CHECK(rounding::passes_agree(*model, logits(*model, single_row)[0], batch_logits[b].narrow(0, 0, t), 8));
    }
  }
}

TEST_CASE("the contents of padding do not change hidden states in training, with every stage", "[translation]") {
  c10::NoGradGuard no_gradient;
  const std::vector<int64_t> source{7, 2, 5, 1}, target{3, 8, 1, 6};
  const Input original_input = random_input(source, target, 5);
  Input changed_padding{original_input.tokens.clone(), original_input.source.clone(), original_input.lengths};
  for (int64_t b = 0; b < 4; ++b) {
    const auto s = source[static_cast<size_t>(b)], t = target[static_cast<size_t>(b)];
    changed_padding.source[b].narrow(0, s, 7 - s).fill_(3);
    changed_padding.tokens[b].narrow(0, t, 8 - t).fill_(4);
  }
  nn::ForwardContext forward_context;
  forward_context.training = true;
  for (const std::string& stage : stage_lines()) {
    INFO(stage);
    const auto model = build_model(kTiny + stage);
    const at::Tensor x = model->hidden(original_input, forward_context),
                     y = build_model(kTiny + stage)->hidden(changed_padding, forward_context);
    for (int64_t b = 0; b < 4; ++b) {
      const int64_t t = target[static_cast<size_t>(b)];
      CHECK(rounding::passes_agree(*model, x[b].narrow(0, 0, t), y[b].narrow(0, 0, t), 8));
    }
  }
}

TEST_CASE("incremental decoding of an encoder-decoder with reordered rows equals one forward pass, with every stage",
          "[translation]") {
  c10::NoGradGuard no_gradient;
  for (const std::string& stage : stage_lines()) {
    INFO(stage);
    auto model = build_model(kTiny + stage);
    const Input input = random_input({7, 4, 5}, {9, 9, 9}, 11);
    const at::Tensor full_logits = logits(*model, input);
    auto state = model->new_state();
    int64_t position = 0;
    for (int64_t step : {1, 2, 1}) {
      const Input step_input{input.tokens.narrow(1, position, step), input.source, {{}, input.lengths.encoder}};
      CHECK(rounding::passes_agree(*model, model->logits(model->hidden(step_input, {}, state.get())),
                                   full_logits.narrow(1, position, step), 9));
      position += step;
    }
    // Row 2 twice and row 1; row 0 is dropped, as in beam search.
    const at::Tensor rows = at::tensor({2, 1, 2}, at::kLong);
    state->reorder(rows);
    const at::Tensor next_tokens = random_tokens(3, 1, 30, 12);
    const Input longer_input{nn::cat({input.tokens.index_select(0, rows).narrow(1, 0, 4), next_tokens}, 1),
                             input.source.index_select(0, rows),
                             {{}, input.lengths.encoder.index_select(0, rows)}};
    CHECK(rounding::passes_agree(*model, model->logits(model->hidden(model::Input{next_tokens}, {}, state.get())),
                                 logits(*model, longer_input).narrow(1, 4, 1), 7));
    // A swap of two rows of one sentence.
    const at::Tensor swapped_rows = at::tensor({2, 1, 0}, at::kLong);
    state->reorder(swapped_rows);
    const at::Tensor last_tokens = random_tokens(3, 1, 30, 13);
    const Input longest_input{nn::cat({longer_input.tokens.index_select(0, swapped_rows), last_tokens}, 1),
                              longer_input.source.index_select(0, swapped_rows),
                              {{}, longer_input.lengths.encoder.index_select(0, swapped_rows)}};
    CHECK(rounding::passes_agree(*model, model->logits(model->hidden(model::Input{last_tokens}, {}, state.get())),
                                 logits(*model, longest_input).narrow(1, 5, 1), 7));
  }
}

TEST_CASE("gradients of an encoder-decoder equal finite differences", "[translation]") {
  for (const char* stage : {"", "mixer = 'mixhead-b'\ncombiner = 'alphas'\n"}) {
    auto model = build_model(std::string(kTiny).replace(8, 0, "activation = 'gelu'\n") + stage);
    const Input input = random_input({4, 2}, {3, 5}, 21);
    at::Tensor targets = random_tokens(2, 5, 30, 22);
    targets[0].narrow(0, 3, 2).fill_(-1);
    const auto loss = [&] { return model->loss(model->hidden(input, {}), {targets}, 0.1).smoothed; };
    models::check_gradients(*model, loss, 5);
  }
}

TEST_CASE("invalid options of an encoder-decoder are rejected, and so are encoder-decoder options in a decoder",
          "[translation]") {
  const auto error_of = [](const std::string& lines, const VocabularySizes& vocabulary_sizes) {
    return refusal([&] {
      build_language_model(
          parse_model_config("[model]\nlayers = 1\nwidth = 16\nffn_dim = 8\n" + lines + "[attention]\nheads = 2\n"),
          vocabulary_sizes, at::kMeta);
    });
  };
  const std::string encoder_decoder = "backbone = 'encoder-decoder'\n";
  CHECK(error_of(encoder_decoder, {30, 20}).empty());
  CHECK(error_of(encoder_decoder + "encoder-decoder.shared_embedding = true\n", {30, 20}).find("a joint vocabulary") !=
        std::string::npos);
  CHECK(error_of(encoder_decoder + "encoder-decoder.shared_embedding = true\nencoder-decoder.source_rows = 40\n", {30})
            .find("model.encoder-decoder.source_rows") != std::string::npos);
  CHECK(error_of(encoder_decoder + "encoder-decoder.shared_embedding = true\n", {30, 30, true}).empty());
  CHECK(error_of(encoder_decoder + "encoder-decoder.start_token = 30\n", {30, 20}).find("below 30") !=
        std::string::npos);
  CHECK(error_of("positions = 'none'\nsinusoids = 'standard'\n", {30}).find("model.positions=sinusoidal") !=
        std::string::npos);
  CHECK(error_of("encoder-decoder.start_token = 2\n", {30}).find("model.backbone='encoder-decoder'") !=
        std::string::npos);
  CHECK(error_of(encoder_decoder + "encoder-decoder.source_rows = 19\n", {30, 20})
            .find("at least 20, the size of the vocabulary") != std::string::npos);
  CHECK(error_of(encoder_decoder + "transformer-xl.memory = 5\n", {30}).find("transformer-xl") != std::string::npos);
  CHECK(error_of(encoder_decoder + "tied = false\ninput_cutoffs = [5]\n", {30}).find("model.input_cutoffs") !=
        std::string::npos);
  CHECK(error_of("encoder-decoder.encoder_layers = 2\n", {30})
            .find("model.backbone='encoder-decoder', which has this option") != std::string::npos);
  CHECK(error_of("encoder-decoder.shared_embedding = true\n", {30})
            .find("model.backbone='encoder-decoder', which has this option") != std::string::npos);
}
