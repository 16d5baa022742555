// mh-swap MODEL: the same checkpoint with heads exchanged; all else stays byte for byte.
#include <algorithm>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "analysis/importance.h"
#include "analysis/rotation.h"
#include "base/error.h"
#include "base/log.h"
#include "base/table.h"
#include "base/text.h"
#include "common/subject.h"
#include "swap.h"

namespace mh::swap {

namespace {

using analysis::HeadPair;
using analysis::Kind;
using analysis::LayerScores;
using analysis::Selection;
using nlohmann::ordered_json;

Selection selection_named(const std::string& mode) {
  return mode == "hard"       ? Selection::hard
         : mode == "soft"     ? Selection::soft
         : mode == "released" ? Selection::released
                              : Selection::random;
}

bool has(const std::vector<std::string>& parts, const char* part) {
  return std::find(parts.begin(), parts.end(), part) != parts.end();
}

// What can be seen before a file is opened.
void check(const Arguments& a) {
  auto refuse = [](const std::string& where, const std::string& expected, const std::string& found,
                   const std::string& next) {
    throw Error(Exit::usage, Problem{where, expected, found, next});
  };
  if (a.model.empty()) refuse("mh-swap", "a model", "none", "mh-swap --help shows all options");
  if (!did_you_mean(a.model, {"report"}).empty() && !MappedFile::possible(a.model))
    refuse("mh-swap", "a model or the subcommand report", a.model, did_you_mean(a.model, {"report"}));
  if (a.pairs.empty() && a.mode.empty())
    refuse("mh-swap", "--pairs or --mode", "neither",
           "such as --mode soft --k 3 --data valid.mhs -o swapped.safetensors");
  if (a.output.empty() && !a.dry_run) refuse("--output", "where the new checkpoint goes", "none", "-o FILE, or -o -");
  if (!a.dry_run && a.format != "table") refuse("--format", "--dry-run or report, which print tables", "neither", "");
  const bool ranks = !a.mode.empty() && analysis::ranks(selection_named(a.mode));
  if (ranks && a.data.empty())
    refuse("--data", str("a shard to rank heads on, for --mode ", a.mode), "none", "--mode random needs none");
  if (!ranks && !a.data.empty() && !a.dry_run)
    refuse("--data", "a mode that ranks heads, or --dry-run, which shows their scores", "neither", "leave it out");
  if (a.model == "-" && a.data == "-") refuse("mh-swap", "standard input for one file", "- twice", "");
  std::vector<std::string> inputs{a.model};
  if (!a.data.empty()) inputs.push_back(a.data);
  refuse_output_onto_input(a.dry_run ? "-" : a.output, inputs);
}

// Of a training state the tensors that belong to parameters.
class Moments {
 public:
  Moments(const io::Checkpoint& checkpoint, const nn::ParameterList& parameters) : checkpoint_(checkpoint) {
    for (const nn::Parameter& p : parameters.all())
      for (const io::TensorInfo& info : checkpoint.tensors()) {
        if (info.name.rfind(model::kOptimizerPrefix + p.name() + ".", 0) != 0) continue;
        at::Tensor x = at::empty(p.master().sizes(), at::kFloat);
        model::load_tensor(checkpoint, info.name, x);
        tensors_.emplace(info.name, x);
        names_[p.name()].push_back(info.name);
      }
    if (tensors_.empty())
      throw Error(Exit::usage, Problem{"--with optimizer", "a training state, such as last.safetensors",
                                       checkpoint.name() + " without one", "leave optimizer out"});
  }
  std::vector<at::Tensor> of(const nn::Parameter& p) const {
    std::vector<at::Tensor> found;
    if (const auto it = names_.find(p.name()); it != names_.end())
      for (const std::string& name : it->second) found.push_back(tensors_.at(name));
    return found;
  }
  const std::map<std::string, at::Tensor>& all() const { return tensors_; }

 private:
  const io::Checkpoint& checkpoint_;
  std::map<std::string, at::Tensor> tensors_;
  std::map<std::string, std::vector<std::string>> names_;
};

void write(ByteSink& sink, const io::Checkpoint& checkpoint, nn::ParameterList& parameters,
           const std::map<std::string, at::Tensor>& moments) {
  // As they stand in the file.
  std::vector<io::TensorInfo> infos = checkpoint.tensors();
  std::stable_sort(infos.begin(), infos.end(), [&](const io::TensorInfo& a, const io::TensorInfo& b) {
    return std::less<>()(checkpoint.data(a.name), checkpoint.data(b.name));
  });
  std::vector<at::Tensor> held;
  std::vector<io::TensorView> views;
  for (const io::TensorInfo& info : infos) {
    const auto moved = moments.find(info.name);
    const nn::Parameter* p = parameters.find(info.name);
    if (p == nullptr && moved == moments.end()) {
      views.push_back({info, checkpoint.data(info.name)});
      continue;
    }
    held.push_back((p != nullptr ? p->master() : moved->second).detach().to(at::kCPU).contiguous());
    views.push_back({info, held.back().const_data_ptr()});
  }
  io::write_checkpoint(sink, views, checkpoint.metadata());
  sink.close();
}

}  // namespace

void exchange(const Arguments& a, const task::ScoringOptions& given) {
  check(a);
  const io::Checkpoint checkpoint(a.model);
  std::unique_ptr<TextSource> data = a.data.empty() ? nullptr : std::make_unique<TextSource>(a.data);
  const model::LoadedModel m = load_as(a, checkpoint);
  nn::ParameterList& parameters = m.model->parameters();
  const analysis::SwapOptions options{has(a.with, "output"), has(a.with, "stages")};
  std::unique_ptr<Moments> moments =
      has(a.with, "optimizer") ? std::make_unique<Moments>(checkpoint, parameters) : nullptr;

  std::vector<HeadPair> pairs;
  std::map<Kind, std::vector<int64_t>> heads;
  const Selection selection = selection_named(a.mode);
  if (a.mode.empty()) {
    for (const std::string& text : a.pairs) pairs.push_back(analysis::parse_pair(text, "--pairs"));
    analysis::check_swap(parameters, pairs, options, "--pairs");
  } else {
    heads = analysis::heads_to_pair(parameters, selection, a.k, a.t_max, a.kinds, options, [](std::string name) {
      std::replace(name.begin(), name.end(), '_', '-');
      return "--" + name;
    });
  }
  const auto sink = a.dry_run ? nullptr : open_sink(a.output);  // before there is work
  std::map<Kind, LayerScores> scores;
  task::ScoringOptions how = given;
  if (data != nullptr) {
    const task::Corpus text = data->measure_for(m);
    analysis::Kinds kinds;  // of what is exchanged
    for (const auto& [kind, layers] : heads) kinds.insert(kind);
    for (const HeadPair& pair : pairs) kinds.insert(pair.kind);
    analysis::check_importance(a.by, "--by", *m.model, analysis::Side::whole, kinds);
    how = scoring_for(m, given, text);
    scores = analysis::importance_of(a.by,
                                     {*m.model, text, how, analysis::Side::whole, progress_bar("rank", "rows"), kinds});
  }
  for (const auto& [kind, layers] : heads) {
    RandomSequence random(RandomStream(static_cast<uint64_t>(given.sample.seed), str(name_of(kind), ".rotation")));
    const auto chosen = analysis::ranks(selection)
                            ? analysis::pair_ranked(selection, kind, scores.at(kind), a.k, a.t_max)
                            : analysis::pair_random(kind, layers, a.k, random);
    pairs.insert(pairs.end(), chosen.begin(), chosen.end());
  }
  const bool draws = data != nullptr || !a.mode.empty();
  if (a.dry_run) {
    Table table(Table::format_named(a.format));
    // What tells of a text is NaN without one, and so is a seed from which nothing is drawn.
    const double none = std::numeric_limits<double>::quiet_NaN();
    auto score = [&](Kind kind, const analysis::Head& head) {
      return data == nullptr ? none : scores.at(kind)[static_cast<size_t>(head.layer)][static_cast<size_t>(head.head)];
    };
    for (const HeadPair& pair : pairs) {
      ordered_json row{{"model", m.name},
                       {"kind", name_of(pair.kind)},
                       {"pair", to_string(pair)},
                       {"mode", a.mode.empty() ? "pairs" : a.mode},
                       {"measure", data == nullptr ? "" : a.by},
                       {"score", score(pair.kind, pair.a)},
                       {"other_score", score(pair.kind, pair.b)}};
      row.update(settings_of(how, a.precision));
      for (const char* of_text : {"block", "context", "memory", "blocks"})
        if (data == nullptr) row[of_text] = none;
      if (!draws) row["seed"] = none;
      table.row(row);
    }
    return;
  }
  const analysis::Companions go_along = [&](const nn::Parameter& p) { return moments->of(p); };
  analysis::swap_heads(parameters, pairs, options, "mh-swap", moments != nullptr ? go_along : analysis::Companions{});
  write(*sink, checkpoint, parameters, moments != nullptr ? moments->all() : std::map<std::string, at::Tensor>{});
  const std::string chosen = data != nullptr      ? measured_by(a.by, how)
                             : a.mode == "random" ? str("; seed ", how.sample.seed)
                                                  : "";
  log_info(str("heads change places: ", join(analysis::to_strings(pairs), " "), chosen));
}

}  // namespace mh::swap
