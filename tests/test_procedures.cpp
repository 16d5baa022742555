// Parameter groups, regularisers and procedures: each term against plain loops, each run resumed bit for bit.
#include <c10/core/GradMode.h>

#include <catch2/catch.hpp>
#include <cmath>

#include "attention/layer.h"
#include "base/error.h"
#include "folder.h"
#include "io/shard.h"
#include "model/load.h"
#include "train/trainer.h"

using namespace mh;
using namespace mh::train;

namespace {

void write_text(const std::string& path, int64_t tokens) {
  auto tokenizer = io::make_word_tokenizer({{"<eos>", 1}, {"<unk>", 0}, {"a", 1}, {"b", 1}, {"c", 1}, {"d", 1}});
  io::ShardHeader h;
  h.vocabulary = tokenizer->size();
  h.fingerprint = tokenizer->fingerprint();
  h.tokenizer = tokenizer->serialize();
  auto sink = open_sink(path);
  io::ShardWriter writer(*sink, h);
  std::vector<int32_t> line;
  for (int64_t i = 0; i < tokens; ++i) line.push_back(static_cast<int32_t>(i % 5 == 4 ? 0 : 2 + i * i % 4));
  writer.add_run(line);
  writer.finish();
  sink->close();
}

RunConfig config_of(const Folder& folder, const std::string& extra) {
  Config config;
  config.load_text(
      "[model]\nlayers = 2\nwidth = 16\nffn = 16\ndropout_ffn = 0.1\n[attention]\nheads = 4\n[train]\nblock = 8\n"
      "batch_tokens = 64\nlr = 0.01\nlog_every = '1u'\nclip = 1.0\n[data]\ntrain = '" +
          folder.file("t.mhs") + "'\nvalid = '" + folder.file("t.mhs") + "'\n",
      "test");
  config.load_text(extra, "extra");
  return RunConfig::read(config);
}

model::LoadedModel run_of(const Folder& folder, const std::string& name, const std::string& extra,
                          bool resume = false) {
  Trainer trainer(config_of(folder, extra), folder.file(name), resume);
  const int status = trainer.run();
  CHECK(status == 0);
  return model::load_model(folder.file(name) + "/last.safetensors", at::kCPU);
}

at::Tensor& find(model::LoadedModel& m, const std::string& name) { return m.model->parameters().find(name)->master(); }

// What each method adds to a configuration; a run of each is stopped and resumed.
const std::map<std::string, std::string>& methods() {
  static const std::map<std::string, std::string> all{
      {"groups",
       "[train.groups.norms]\nmatch = ['*.norm.*']\noptimizer = 'sgd'\nlr = 0.5\n"
       "[train.groups.late]\nmatch = ['*.ffn.up.*']\nfreeze_until = '7u'\n"},
      {"orthogonal", "[attention]\nmixer = 'mixhead-a'\n[train.regularisers.orthogonal-mixing]\nweight = 0.1\n"},
      {"nuclear",
       "[attention]\ncombiner = 'alphas'\n[train.regularisers.nuclear-growth]\nweight = 0.05\nstart = 0.4\n"},
      {"disagreement", "[train.regularisers.disagreement]\nweight = 0.1\n"},
      {"positions", "[train.regularisers.disagreement]\nweight = 0.1\nof = 'positions'\n"},
      {"overlap", "[train.regularisers.subspace-overlap]\nweight = 0.1\n"},
      {"experts",
       "[attention]\ncombiner = 'mae'\n[attention.mae]\nhidden = 8\n[train.procedures.block-coordinate]\nevery = 2\n"
       "[train.groups.gates]\nmatch = ['*.gate.*']\noptimizer = 'sgd'\nlr = 1.0\n"},
      {"cross-head", "[attention]\npairing = 'cross-head'\n[attention.cross-head]\nrate = 0.5\n"}};
  return all;
}

std::string with_length(const std::string& extra, int updates) {
  return extra + "[train]\nlength = '" + std::to_string(updates) + "u'\nhorizon = '16u'\n";
}

}  // namespace

TEST_CASE("a run with each method, stopped and resumed, is the run that never stopped", "[procedures]") {
  Folder folder;
  write_text(folder.file("t.mhs"), 400);
  for (const auto& [name, extra] : methods()) {
    INFO(name);
    auto whole = run_of(folder, name, with_length(extra, 16));
    // The share of training that has passed is taken from the end, so the stopped run knows it too.
    run_of(folder, name + "-stopped", with_length(extra, 16));
    auto halves = run_of(folder, name + "-halves", with_length(extra, 9));
    if (name == "nuclear") continue;  // its freezing is a share of the length, which a longer run moves
    halves = run_of(folder, name + "-halves", with_length(extra, 16), true);
    for (auto& p : whole.model->parameters().all()) {
      INFO(p.name());
      CHECK(at::equal(p.master(), find(halves, p.name())));
    }
  }
}

TEST_CASE("groups: frozen parameters rest, thawed ones start as at the start", "[procedures]") {
  Folder folder;
  write_text(folder.file("t.mhs"), 400);
  auto start = run_of(folder, "start", "[train]\nlength = '1u'\nlr = 0.0\n");
  auto frozen = run_of(folder, "frozen",
                       "[train]\nlength = '5u'\n[train.groups.x]\nmatch = ['*.self.*', '*.ffn.*']\nfrozen = true\n");
  auto late =
      run_of(folder, "late", "[train]\nlength = '5u'\n[train.groups.x]\nmatch = ['*.self.*']\nfreeze_until = '5u'\n");
  for (auto& p : start.model->parameters().all()) {
    INFO(p.name());
    const bool in_attention = matches("*.self.*", p.name()), in_ffn = matches("*.ffn.*", p.name());
    CHECK(at::equal(p.master(), find(frozen, p.name())) == (in_attention || in_ffn));
    CHECK(at::equal(p.master(), find(late, p.name())) == in_attention);
  }
  // Adam's first step is of the size of the rate whenever it comes: the bias correction counts the parameter's own
  // steps.
  auto thawed =
      run_of(folder, "thawed",
             "[train]\nlength = '6u'\n[train.groups.x]\nmatch = ['*.self.query.weight']\nfreeze_until = '5u'\n");
  at::Tensor moved =
      (find(thawed, "decoder.layers.0.self.query.weight") - find(start, "decoder.layers.0.self.query.weight")).abs();
  CHECK(moved.max().item<double>() == Approx(0.01).epsilon(0.01));
  CHECK_THROWS_AS(run_of(folder, "none", "[train]\nlength = '1u'\n[train.groups.x]\nmatch = ['*.slef.*']\n"), Error);
  CHECK_THROWS_AS(run_of(folder, "all", "[train]\nlength = '1u'\n[train.groups.x]\nmatch = ['*']\nfrozen = true\n"),
                  Error);
}

TEST_CASE("block coordinate descent trains gates with their own steps, and the rest with the others", "[procedures]") {
  Folder folder;
  write_text(folder.file("t.mhs"), 400);  // 7 updates an epoch
  const std::string& extra = methods().at("experts");
  auto start = run_of(folder, "start", extra + "[train]\nlength = '1u'\nlr = 0.0\n");
  auto first = run_of(folder, "first", with_length(extra, 7)),
       second = run_of(folder, "second", with_length(extra, 14));
  for (auto& p : start.model->parameters().all()) {
    if (!matches("*.gate.*", p.name())) {
      CHECK_FALSE(at::equal(find(first, p.name()), find(second, p.name())));
      continue;
    }
    INFO(p.name());
    CHECK(at::equal(find(first, p.name()), find(second, p.name())));  // epoch 1 has F passes only
  }
  CHECK_THROWS_AS(run_of(folder, "none", "[train]\nlength = '1u'\n[train.procedures.block-coordinate]\nevery = 5\n"),
                  Error);
}

namespace {

// Shows random probabilities and outputs of one layer to a term, and gives the term's value and gradients.
double term_of(Regulariser& term, const std::vector<at::Tensor>& layers, bool outputs) {
  const attention::Shape shape;
  for (const at::Tensor& x : layers) {
    if (outputs) term.observer()->head_outputs(shape, x);
    else term.observer()->probabilities(shape, x);
  }
  at::Tensor value = term.loss({});
  value.backward();
  return value.item<double>();
}

double product_of(const at::Tensor& a, const at::Tensor& b) {
  double sum = 0;
  const auto x = a.detach().to(at::kDouble).flatten(), y = b.detach().to(at::kDouble).flatten();
  for (int64_t i = 0; i < x.numel(); ++i) sum += x[i].item<double>() * y[i].item<double>();
  return sum;
}

}  // namespace

TEST_CASE("terms of the loss equal plain loops over pairs of heads", "[procedures]") {
  const int64_t batch = 2, heads = 3, n = 4;
  std::vector<at::Tensor> layers;
  for (int i = 0; i < 2; ++i) layers.push_back(at::softmax(at::randn({batch, heads, n, n}), -1).requires_grad_());
  auto make = [](const std::string& name, const std::string& options) {
    auto term = regularisers().make(name, "");
    Config config;
    config.load_text("[r]\nweight = 0.5\n" + options, "test");
    config.read("r", *term);
    return term;
  };
  double cosines = 0, overlap = 0, rows = 0, columns = 0;
  for (const at::Tensor& p : layers)
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t i = 0; i < heads; ++i)
        for (int64_t j = 0; j < heads; ++j) {
          const at::Tensor x = p[b][i], y = p[b][j];
          cosines += (1 + product_of(x, y) / std::sqrt(product_of(x, x) * product_of(y, y))) /
                     static_cast<double>(batch * heads * heads);
          overlap += product_of(x, y) / static_cast<double>(batch * n * heads * heads);
          if (i == j) continue;
          const at::Tensor r = at::matmul(x, y.t()), c = at::matmul(x.t(), y);
          rows += product_of(r, r) / static_cast<double>(batch * heads * (heads - 1) * n);
          columns += product_of(c, c) / static_cast<double>(batch * heads * (heads - 1) * n);
        }
  CHECK(term_of(*make("disagreement", "of = 'outputs'"), layers, true) == Approx(0.5 * cosines));
  CHECK(term_of(*make("disagreement", "of = 'positions'"), layers, false) == Approx(0.5 * overlap));
  CHECK(term_of(*make("subspace-overlap", "of = 'rows'"), layers, false) == Approx(0.5 * rows));
  CHECK(term_of(*make("subspace-overlap", "of = 'columns'"), layers, false) == Approx(0.5 * columns));
}

TEST_CASE("orthogonal mixing: 0 for an orthogonal matrix, its gradient is 4 M (MᵀM - I)", "[procedures]") {
  model::ParameterList list(at::kCPU);
  list.add("decoder.layers.0.self.mixer.matrix", {4, 4}, {model::Init::identity(), true, false, std::nullopt, 0});
  list.initialise(1);
  auto term = regularisers().make("orthogonal-mixing", "");
  Config config;
  config.load_text("[r]\nweight = 1.0\n", "test");
  config.read("r", *term);
  term->start(list);
  at::Tensor& m = list.all().front().master();
  CHECK(term->loss({}).item<double>() == 0);
  {
    c10::NoGradGuard none;
    m.copy_(at::randn({4, 4}));
  }
  term->loss({}).backward();
  at::Tensor d = m.detach();
  CHECK(at::allclose(m.grad(), 4 * at::matmul(d, at::matmul(d.t(), d) - at::eye(4)), 1e-4, 1e-4));
  model::ParameterList empty(at::kCPU);
  CHECK_THROWS_AS(regularisers().make("orthogonal-mixing", "")->start(empty), Error);
}

TEST_CASE("nuclear growth: the norm's gradient, a value that says nothing, alphas frozen at first", "[procedures]") {
  model::ParameterList list(at::kCPU);
  list.add("decoder.layers.0.self.combiner.alpha", {4, 4}, {model::Init::identity(), true, false, std::nullopt, 0});
  list.initialise(1);
  at::Tensor& a = list.all().front().master();
  for (double margin : {1e-4, 0.5}) {
    auto term = regularisers().make("nuclear-growth", "");
    Config config;
    config.load_text("[r]\nweight = 2.0\nstart = 0.3\nmargin = " + std::to_string(margin) + "\n", "test");
    config.read("r", *term);
    term->start(list);
    CHECK_FALSE(term->loss({2, 0, 10}).defined());
    CHECK(term->freezes(list.all().front(), {2, 0, 10}));
    CHECK_FALSE(term->freezes(list.all().front(), {3, 0, 10}));
    {
      c10::NoGradGuard none;
      a.copy_(at::randn({4, 4}));
    }
    a.mutable_grad() = at::Tensor();
    at::Tensor value = term->loss({3, 0, 10});
    CHECK(value.item<double>() == Approx(2 * margin).margin(1e-5));
    value.backward();
    auto [u, s, v] = at::linalg_svd(a.detach(), false);
    CHECK(at::allclose(a.grad(), -2 * at::matmul(u, v), 1e-4, 1e-5));
  }
}
