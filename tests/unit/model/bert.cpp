// The encoder and its output heads: parameter counts, equations, padding, options.
#include <c10/core/GradMode.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "base/error.h"
#include "fixtures/encoders.h"
#include "fixtures/passes.h"
#include "fixtures/status.h"
#include "fixtures/translators.h"

using namespace mh;
using namespace mh::model;
using namespace mh::nn;
using namespace encoders;
using models::parse_model_config;
using numbers::max_abs;

namespace {

// Returns the number of parameters without the output heads but with the pooler, like published counts of encoders.
int64_t num_encoder_parameters(const std::string& model_lines) {
  const auto model = build_language_model(parse_model_config(kBert + model_lines), {30522}, at::kMeta);
  int64_t count = 0;
  for (const Parameter& p : model->parameters().all())
    if (p.name().rfind("head.", 0) != 0) count += p.master().numel();
  return count;
}

}  // namespace

TEST_CASE("encoders have the parameter counts of BERT and of Bhojanapalli et al. 2020", "[bert]") {
  const std::string
      base_lines = "layers = 12\nwidth = 768\nffn_dim = 3072\nbert.next_sentence = true\n[attention]\nheads = 12\n",
      large_lines = "layers = 24\nwidth = 1024\nffn_dim = 4096\nbert.next_sentence = true\n[attention]\nheads = 16\n";
  CHECK(build_language_model(parse_model_config(kBert + base_lines), {30522}, at::kMeta)
            ->parameters()
            .num_trainable_elements() == 110106428);
  CHECK(num_encoder_parameters(base_lines) == 109482240);
  CHECK(num_encoder_parameters(large_lines) == 335141888);
  // Without head_size the count is independent of the number of heads.
  for (int num_heads : {8, 32})
    CHECK(num_encoder_parameters(std::string(large_lines).replace(large_lines.find("= 16"), 4, str("= ", num_heads))) ==
          335141888);
  // Bhojanapalli et al. 2020: width 512, inner width 4096, fixed head sizes.
  const auto count_in_millions = [](int num_heads, int size) {
    return static_cast<double>(num_encoder_parameters(str(
               "layers = 24\nwidth = 512\nffn_dim = 4096\nbert.next_sentence = true\n[attention]\nheads = ", num_heads,
               "\nhead_size = ", size, "\n"))) /
           1e6;
  };
  const double published_counts[][3] = {{8, 128, 167.4}, {12, 128, 192.6}, {16, 128, 217.8}, {32, 128, 318.6},
                                        {8, 32, 129.6},  {8, 64, 142.2},   {8, 256, 217.8}};
  for (const auto& [num_heads, size, count] : published_counts)
    CHECK(count_in_millions(static_cast<int>(num_heads), static_cast<int>(size)) == rounding::printed(count, 4));
}

TEST_CASE("the encoder and its output heads match a naive reference in double precision for rows of different lengths",
          "[bert]") {
  c10::NoGradGuard no_gradient;
  const std::vector<int64_t> lengths{6, 1, 4};
  const Input input = random_input(lengths, 7);
  for (const std::string& head : kOutputHeads)
    for (auto path : {attention::Path::composed, attention::Path::automatic}) {
      INFO(head);
      auto model = build_perturbed(tiny_config(head));
      model->set_path(path);
      const Reference reference = make_reference(*model);
      const at::Tensor hidden = model->hidden(input, {}), logits = model->logits(hidden),
                       next_sentence_logits = model->next_sentence_logits(hidden);
      // The error is relative to the largest hidden state, since scores of output heads are sums of products of hidden
      // states and weights.
      const auto require_close = [&](const at::Tensor& actual, const std::vector<double>& expected) {
        REQUIRE(rounding::passes_agree(*model, actual, at::tensor(expected, at::kDouble), 6, max_abs(hidden)));
      };
      CHECK(next_sentence_logits.defined() == (head.find("next") != std::string::npos));
      for (int64_t b = 0; b < 3; ++b) {
        const int64_t n = lengths[static_cast<size_t>(b)];
        const auto h =
            reference(reference::tokens_of_row(input.tokens, b, n), reference::tokens_of_row(input.segments, b, n), 2);
        for (int64_t t = 0; t < n; ++t) {
          require_close(hidden[b][t], h[static_cast<size_t>(t)]);
          if (head.find("head =") == std::string::npos)
            require_close(logits[b][t], reference.word_logits(h[static_cast<size_t>(t)]));
          if (head.find("span") != std::string::npos)
            require_close(logits[b][t], reference.dense("head.span", h[static_cast<size_t>(t)]));
        }
        if (next_sentence_logits.defined())
          require_close(next_sentence_logits[b], reference.dense("head.next", reference.pool(h)));
        if (head.find("classes") != std::string::npos)
          require_close(logits[b][0], reference.dense("head.classes", reference.pool(h)));
        if (head.find("number") != std::string::npos)
          require_close(logits[b][0], reference.dense("head.number", reference.pool(h)));
      }
    }
}

TEST_CASE("an encoder input without segment numbers belongs to the first segment", "[bert]") {
  c10::NoGradGuard no_gradient;
  auto model = build_perturbed(tiny_config(""));
  Input input = random_input({5, 3}, 3);
  const at::Tensor two_segments = model->hidden(input, {});
  input.segments.zero_();
  const at::Tensor first_segment = model->hidden(input, {});
  input.segments = at::Tensor();
  CHECK(at::equal(model->hidden(input, {}), first_segment));
  CHECK(!rounding::passes_agree(*model, two_segments, first_segment, 5));
}

TEST_CASE("a model with one segment gives all tokens this segment", "[bert]") {
  c10::NoGradGuard no_gradient;
  std::string toml = tiny_config("");
  const std::string two_segments = "bert.segments = 2";
  toml.replace(toml.find(two_segments), two_segments.size(), "bert.segments = 1");
  auto model = build_perturbed(toml);
  Input input = random_input({5, 3}, 3);
  const at::Tensor with_segments = model->hidden(input, {});
  input.segments = at::Tensor();
  CHECK(at::equal(model->hidden(input, {}), with_segments));
}

TEST_CASE("an encoder row is independent of padding and of the other rows, with every stage and for span losses",
          "[bert]") {
  c10::NoGradGuard no_gradient;
  const std::vector<int64_t> lengths{7, 6, 2, 1};
  const Input batch = random_input(lengths, 5);
  for (const std::string& stage : translators::stage_lines()) {
    if (stage.find("decoder") != std::string::npos && stage.find("encoder") == std::string::npos) continue;
    std::string encoder_stage = stage;
    if (const auto at = encoder_stage.find("[attention.decoder"); at != std::string::npos) encoder_stage.resize(at);
    INFO(encoder_stage);
    auto model = build_perturbed(tiny_config("") + encoder_stage);
    const at::Tensor batch_hidden = model->hidden(batch, {});
    for (int64_t b = 0; b < 4; ++b) {
      const int64_t n = lengths[static_cast<size_t>(b)];
      Input single_row{batch.tokens.narrow(0, b, 1).narrow(1, 0, n)};
      single_row.segments = batch.segments.narrow(0, b, 1).narrow(1, 0, n);
      CHECK(rounding::passes_agree(*model, model->hidden(single_row, {})[0], batch_hidden[b].narrow(0, 0, n), 7));
    }
  }
  // Padding is excluded from the softmax over the positions of a span.
  auto model = build_perturbed(tiny_config("bert.head = 'span'\n"));
  const at::Tensor targets = at::tensor({0, 1, -2}, at::kLong).view({1, 3});
  Input single_row{batch.tokens.narrow(0, 2, 1).narrow(1, 0, 2)};
  single_row.segments = batch.segments.narrow(0, 2, 1).narrow(1, 0, 2);
  const at::Tensor hidden = model->hidden(single_row, {});
  const double nll = model->loss(hidden, {targets}, 0).nll.item<double>();
  CHECK(model->loss(model->hidden(batch, {}).narrow(0, 2, 1), {targets}, 0).nll.item<double>() ==
        rounding::within(nll, rounding::pass_bound(*model, 7) * std::max(nll, max_abs(hidden))));
}

TEST_CASE("invalid options of an encoder and its output heads are rejected; encoders cannot decode", "[bert]") {
  const auto build = [](const std::string& toml) { build_language_model(parse_model_config(toml), {30}, at::kMeta); };
  CHECK(refusal([&] { build(tiny_config("bert.head = 'classes'\n")); }).find("model.bert.classes") !=
        std::string::npos);
  CHECK(refusal([&] { build(tiny_config("bert.classes = 2\n")); }).find("model.bert.classes") != std::string::npos);
  CHECK(refusal([&] { build(tiny_config("bert.head = 'span'\nbert.next_sentence = true\n")); }).find("next_sentence") !=
        std::string::npos);
  CHECK(refusal([&] { build(tiny_config("bert.pooler = 'transform'\n")); }).find("model.bert.pooler") !=
        std::string::npos);
  CHECK(refusal([&] {
          build(tiny_config("bert.head = 'span'\nbert.transform_bias = false\n"));
        }).find("model.bert.transform_bias") != std::string::npos);
  for (const char* key :
       {"transformer-xl.memory = 4\n", "transformer-xl.same_length = true\n", "output_bias = true\n",
        "encoder-decoder.encoder_layers = 2\n", "encoder-decoder.shared_embedding = true\n", "output_cutoffs = [10]\n"})
    CHECK(status_of([&] { build(tiny_config(key)); }) == 2);
  for (const char* key :
       {"bert.segments = 2\n", "bert.embedding_norm = true\n", "bert.head = 'span'\n", "bert.classes = 2\n",
        "bert.next_sentence = true\n", "bert.pooler = 'transform'\n", "bert.transform_bias = false\n"}) {
    const std::string decoder = str("[model]\nlayers = 1\nwidth = 16\nffn_dim = 16\n", key, "[attention]\nheads = 4\n");
    CHECK(refusal([&] { build(decoder); }).find("model.backbone='bert', which has this option") != std::string::npos);
  }
  CHECK(status_of([&] { build_language_model(parse_model_config(tiny_config("")), {30}, at::kCPU)->new_state(); }) ==
        2);
}
