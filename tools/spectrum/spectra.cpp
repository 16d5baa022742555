// mh-spectrum MODEL... [DATA]: spectra as rows, curves and pictures.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "analysis/dump.h"
#include "analysis/observers.h"
#include "analysis/spectrum_source.h"
#include "attention/layer.h"
#include "base/error.h"
#include "base/log.h"
#include "base/plot.h"
#include "base/table.h"
#include "base/text.h"
#include "figures.h"
#include "spectrum.h"

namespace mh::spectrum {

using analysis::PlaceSpectra;
using nlohmann::ordered_json;

namespace {

// What does not exist is NaN, so that a column of numbers stays one.
ordered_json number_or_none(int64_t x) {
  return x < 0 ? ordered_json(std::numeric_limits<double>::quiet_NaN()) : ordered_json(x);
}

// What a chart's title says of the kind of attention, where there are several.
std::string kind_of_chart(const std::string& kind, size_t kinds) {
  return kinds > 1 ? str(", ", kind.empty() ? "others" : kind) : "";
}

// The smaller side of the matrices, or its mean.
ordered_json size_of(const analysis::SpectrumMeans& s) {
  return s.by_share() ? ordered_json(s.size()) : ordered_json(std::llround(s.size()));
}

// k of a curve's point, or its share of the smaller side.
std::string number_of(const analysis::SpectrumMeans& s, size_t point) {
  return s.by_share() ? shortest(static_cast<double>(point + 1) / analysis::kGrid) : str(point + 1);
}

using Curves = std::vector<std::pair<std::string, Figures>>;

class Job {
 public:
  Job(const Arguments& a, const task::ScoringOptions& given)
      : a_(a),
        given_(given),
        reads_text_(analysis::source_named(a.of, "--of").source->reads_text()),
        models_(a.files),
        table_(Table::format_named(a.format)) {
    check();
    if (!a.plot.empty()) plot_.emplace(a.plot);
  }

  void run() {
    std::vector<Prepared> prepared;
    for (size_t i = 0; i < models_.size(); ++i) prepared.push_back(prepare(loaded(i)));
    if (!a_.curves.empty()) {
      curves_ = open_sink(a_.curves);
      curves_->write("model\tof\tname\thead\tk\tmean\tp10\tp50\tp90\n");
    }
    const auto names = short_names(models_);
    for (size_t i = 0; i < models_.size(); ++i) look(loaded(i), prepared[i], names[i]);
    if (curves_ != nullptr) curves_->close();
    if (plot_) {
      for (const auto& [kind, curves] : summaries_)
        plot_->add(chart_of(str(a_.of, kind_of_chart(kind, summaries_.size()), ", mean over layers"), curves, false,
                            by_share_));
      plot_->draw();
    }
  }

 private:
  // What can be seen before any work.
  void check() {
    if (reads_text_ && models_.size() > 1) data_name_ = models_.back(), models_.pop_back();
    else if (reads_text_ || models_.empty())
      throw Error(Exit::usage, Problem{"mh-spectrum", reads_text_ ? "one or more models, then the data" : "a model",
                                       a_.files.empty() ? "none" : str(a_.files[0], " alone"),
                                       reads_text_ ? "alphas, output-value and weight:NAME, with --of, need no data"
                                                   : "mh-spectrum --of WHAT MODEL..."});
    if (!reads_text_ && models_.size() > 1 && std::filesystem::path(models_.back()).extension() == ".mhs")
      throw Error(Exit::usage, Problem{str("--of ", a_.of), "models alone", models_.back(), "leave the data out"});
    if (std::count(a_.files.begin(), a_.files.end(), "-") > 1)
      throw Error(Exit::usage, Problem{"mh-spectrum", "standard input for one file", "- more than once", ""});
    refuse_output_onto_input("-", a_.files);
    std::set<std::string> outputs;
    for (const auto& [option, file] :
         {std::pair{"--curves", a_.curves}, std::pair{"--plot", a_.plot}, std::pair{"--dump", a_.dump}}) {
      if (file.empty() || (file == "-" && std::string(option) == "--plot")) continue;
      if (file == "-") throw Error(Exit::usage, Problem{option, "a file, as rows go to standard output", "-", ""});
      if (!outputs.insert(file).second) throw Error(Exit::usage, Problem{option, "a file of its own", file, ""});
      refuse_output_onto_input(file, a_.files);
    }
    if (!a_.dump.empty() && (a_.of != "attention" || models_.size() != 1 || given_.sample.blocks == 0))
      throw Error(Exit::usage, Problem{"--dump", "one model, --of attention and a sample",
                                       models_.size() != 1         ? str(models_.size(), " models")
                                       : given_.sample.blocks == 0 ? std::string("--blocks 0")
                                                                   : "--of " + a_.of,
                                       ""});
    const std::string argument = analysis::source_named(a_.of, "--of").argument;
    if (!argument.empty() && !a_.kinds.empty())
      throw Error(Exit::usage, Problem{"--kind", "matrices of several layers", "--of " + a_.of + ", which names one",
                                       "leave it out"});
    for (const std::string& model : models_) {
      checkpoints_.push_back(std::make_unique<io::Checkpoint>(model));
      const io::Checkpoint& header = *checkpoints_.back();
      header.entry(io::kConfigKey);
      if (argument.empty() || header.find(argument) != nullptr) continue;
      std::vector<std::string> names;
      for (const auto& tensor : header.tensors()) names.push_back(tensor.name);
      const std::string near = did_you_mean(argument, names);
      throw Error(Exit::usage, Problem{str("--of ", a_.of), str("a parameter of ", header.name()), "none of this name",
                                       near.empty() && !names.empty() ? "such as " + names.front() : near});
    }
    if (!reads_text_) return;
    data_.emplace(data_name_);
    for (const auto& checkpoint : checkpoints_) data_->require_for(*checkpoint);
    by_share_ = data_->holds_pairs() && a_.of != "mixing";
    if (data_->holds_pairs() && !a_.dump.empty())
      throw Error(Exit::usage, Problem{"--dump", "a text, whose attention matrices have one size",
                                       str(data_name_, ", pairs, each of another size"), ""});
  }

  const model::LoadedModel& loaded(size_t index) {
    if (!loaded_ || loaded_index_ != index) {
      loaded_.reset();
      loaded_ = load_as(a_, *checkpoints_[index], a_.sets);
      loaded_index_ = index;
    }
    return *loaded_;
  }

  // A model's source, and how it reads the text.
  struct Prepared {
    std::unique_ptr<analysis::SpectrumSource> source;
    task::ScoringOptions how;
  };

  // Refuses a model that has nothing to look at; what is looked at in parameters is, in this.
  Prepared prepare(const model::LoadedModel& m) {
    auto [source, argument] = analysis::source_named(a_.of, "--of");
    task::ScoringOptions how;
    bool too_short = false;
    if (reads_text_) {
      const task::Corpus text = data_->text_for(m);
      how = scoring_for(m, given_, text);
      too_short = !how.sentences && task::targets_in(text) < how.block;
    }
    const analysis::Kinds kinds = analysis::kinds_named(a_.kinds, m.model->parameters(), "--kind");
    source->start(*m.model, {argument, !a_.curves.empty(), how.block, how.sentences, kinds});
    const auto layers = m.model->attention_layers();
    const bool none = std::all_of(layers.begin(), layers.end(), [&](const attention::AttentionLayer* l) {
      return l->shape().heads == 0 || !analysis::among(kinds, l->shape().kind);
    });
    if (reads_text_ ? none || too_short : source->places().empty()) refuse_nothing(m);
    return {std::move(source), how};
  }

  void refuse_nothing(const model::LoadedModel& m) const {
    throw Error(
        Exit::usage,
        Problem{str("--of ", a_.of), reads_text_ ? "matrices to look at, of rows of full length" : "matrices",
                str("none in ", m.name), reads_text_ ? "the model has none, or the text is shorter than a block" : ""});
  }

  // `title`: of the model in pictures.
  void look(const model::LoadedModel& m, const Prepared& prepared, const std::string& title) {
    ordered_json settings = ordered_json::object();
    if (reads_text_) {
      watch(m, *prepared.source, data_->text_for(m), prepared.how);
      add_settings(settings, a_, prepared.how);
    }
    const auto& places = prepared.source->places();
    if (places.empty()) refuse_nothing(m);
    print(m.name, places, settings);
    if (plot_) draw(title, places);
  }

  void watch(const model::LoadedModel& m, analysis::SpectrumSource& source, const task::Corpus& text,
             const task::ScoringOptions& how) {
    const analysis::Subject subject{*m.model, text, how, analysis::Side::whole, progress_bar("spectra", "rows")};
    if (a_.dump.empty()) return analysis::observe(subject, source);
    analysis::AttentionDump dump(*m.model, how.sample.blocks, how.block, how.block + how.memory);
    auto sink = open_sink(a_.dump);
    analysis::Observers both({&source, &dump});
    analysis::observe(subject, both);
    dump.write(*sink, {{"multihead.model", m.name},
                       {"multihead.blocks", str(how.sample.blocks)},
                       {"multihead.seed", str(how.sample.seed)}});
    sink->close();
  }

  void print(const std::string& model, const std::vector<std::unique_ptr<PlaceSpectra>>& places,
             const ordered_json& settings) {
    std::map<std::string, std::vector<Figures>> layers;  // by kind
    for (const auto& place : places) {
      const auto heads = figures_of(*place);
      layers[place->kind].push_back(mean_of(heads));
      if (curves_ != nullptr) write_curves(model, *place, heads);
      if (a_.summary) continue;
      for (size_t h = 0; h < heads.size(); ++h) {
        ordered_json row{{"model", model},
                         {"of", place->of},
                         {"name", place->name},
                         {"kind", place->kind},
                         {"layer", number_or_none(place->layer)},
                         {"head", number_or_none(place->by_head ? static_cast<int64_t>(h) : -1)},
                         {"matrices", place->spectra.blocks()},
                         {"n", size_of(place->spectra)}};
        add_figures(row, heads[h]);
        row.update(settings);
        write_row(row);
      }
    }
    if (!a_.summary) return;
    for (const auto& [kind, of_kind] : layers) {
      ordered_json row{{"model", model}, {"of", a_.of}, {"kind", kind}, {"layers", of_kind.size()}};
      add_figures(row, mean_of(of_kind));
      row.update(settings);
      write_row(row);
    }
  }

  // A picture of characters takes the table's place.
  void write_row(const ordered_json& row) {
    if (a_.plot != "-") table_.row(row);
  }

  void write_curves(const std::string& model, const PlaceSpectra& place, const std::vector<Figures>& heads) {
    const at::Tensor low = place.spectra.percentile(0.1), middle = place.spectra.percentile(0.5),
                     high = place.spectra.percentile(0.9);
    for (size_t h = 0; h < heads.size(); ++h) {
      const auto i = static_cast<int64_t>(h);
      const auto p10 = numbers(low[i]), p50 = numbers(middle[i]), p90 = numbers(high[i]);
      const std::string head = place.by_head ? str(h) : "nan";
      for (size_t k = 0; k < p10.size(); ++k)
        curves_->write(str(table_field(model), '\t', place.of, '\t', place.name, '\t', head, '\t',
                           number_of(place.spectra, k), '\t', shortest(heads[h].curve[k]), '\t', shortest(p10[k]), '\t',
                           shortest(p50[k]), '\t', shortest(p90[k]), '\n'));
    }
  }

  void draw(const std::string& model, const std::vector<std::unique_ptr<PlaceSpectra>>& places) {
    std::map<std::string, Curves> layers;  // by kind
    for (const auto& place : places) {
      if (place->picture.defined())
        plot_->add(
            HeatMap{str(model, ": ", place->name), "head (second axis)", "head (first axis)", rows_of(place->picture)});
      layers[place->kind].emplace_back(place->layer >= 0 ? str("layer ", place->layer) : place->name,
                                       mean_of(figures_of(*place)));
    }
    for (const auto& [kind, curves] : layers) {
      plot_->add(chart_of(str(model, ": ", a_.of, kind_of_chart(kind, layers.size())), curves, true, by_share_));
      std::vector<Figures> all;
      for (const auto& [layer, figures] : curves) all.push_back(figures);
      if (models_.size() > 1) summaries_[kind].emplace_back(model, mean_of(all));
    }
  }

  const Arguments& a_;
  const task::ScoringOptions& given_;
  bool reads_text_;
  std::vector<std::string> models_;
  std::string data_name_;
  std::vector<std::unique_ptr<io::Checkpoint>> checkpoints_;
  std::optional<TextSource> data_;
  std::optional<model::LoadedModel> loaded_;
  size_t loaded_index_ = 0;
  Table table_;
  std::unique_ptr<ByteSink> curves_;
  std::optional<Plot> plot_;
  std::map<std::string, Curves> summaries_;  // by kind, of several models
  bool by_share_ = false;                    // curves are of matrices of several sizes
};

}  // namespace

void show(const Arguments& a, const task::ScoringOptions& given) { Job(a, given).run(); }

}  // namespace mh::spectrum
