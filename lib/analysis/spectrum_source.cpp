// The sources of matrices for spectra, which register themselves by name.
#include "analysis/spectrum_source.h"

#include <algorithm>
#include <map>

#include "analysis/heads.h"
#include "attention/head_mix.h"
#include "attention/layer.h"
#include "base/error.h"
#include "base/text.h"
#include "nn/aten.h"

namespace mh::analysis {

Registry<SpectrumSource>& spectrum_sources() {
  static Registry<SpectrumSource> registry("source of matrices");
  return registry;
}

SpectraEntry& SpectrumSource::find_or_add_entry(const std::string& matrix_kind, const std::string& name,
                                                bool has_matrix_per_head, bool has_varying_size) {
  for (const auto& p : entries_)
    if (p->name == name) return *p;
  // `name` is the prefix of a layer or the name of a parameter. layer_of() parses only names of parameters; ".x" turns
  // the prefix of a layer into the name of a parameter.
  const auto prefix_layer = layer_of(name + ".x");
  const auto parameter_layer = layer_of(name);
  const auto& layer = prefix_layer ? prefix_layer : parameter_layer;
  entries_.push_back(
      std::make_unique<SpectraEntry>(SpectraEntry{matrix_kind,
                                                  name,
                                                  layer ? name_of(layer->kind) : "",
                                                  layer ? layer->layer : -1,
                                                  has_matrix_per_head,
                                                  SpectrumMeans(request_.needs_percentiles, has_varying_size),
                                                  {},
                                                  false}));
  return *entries_.back();
}

const SpectraEntry* SpectrumSource::find_entry(const std::string& name) const {
  const auto entry = std::ranges::find_if(entries_, [&](const auto& e) { return e->name == name; });
  return entry == entries_.end() ? nullptr : entry->get();
}

// The label is the kind of the matrices, a line break and the name of the entry.
void SpectrumSource::contribute_spectra(const Contribution& c) {
  const auto defined = [](const at::Tensor& t) { return t.defined() ? t : at::empty({0}, at::kDouble); };
  const at::Tensor flags =
      at::tensor({int64_t{c.has_matrix_per_head}, int64_t{c.has_varying_size}, int64_t{c.is_constant}}, at::kLong);
  contribute(c.matrix_kind + "\n" + c.name, {flags, c.values, defined(c.entropy_sums), defined(c.mean_matrix)});
}

void SpectrumSource::add_contribution(const std::string& label, const Tensors& tensors) {
  const size_t line_break = label.find('\n');
  const auto* flags = tensors[0].const_data_ptr<int64_t>();
  SpectraEntry& entry =
      find_or_add_entry(label.substr(0, line_break), label.substr(line_break + 1), flags[0] != 0, flags[1] != 0);
  const bool is_constant = flags[2] != 0;
  if (is_constant && entry.spectra.num_blocks() > 0) return;
  const at::Tensor &values = tensors[1], &entropy_sums = tensors[2], &mean = tensors[3];
  const auto old_count = static_cast<double>(entry.spectra.num_blocks()),
             new_count = static_cast<double>(values.size(0));
  entry.spectra.add(values);
  if (entropy_sums.numel() > 0) entry.entropy.add_sums(entropy_sums), entry.has_entropy = true;
  if (mean.numel() > 0)
    entry.mean_matrix = entry.mean_matrix.defined()
                            ? (entry.mean_matrix * old_count + mean * new_count) / (old_count + new_count)
                            : mean;
}

at::Tensor SpectrumSource::full_blocks(attention::AttentionKind kind, const at::Tensor& x) const {
  const at::Tensor& lengths = lengths_.queries(kind);
  if (!lengths.defined() || request_.block_length == 0) return x;
  const at::Tensor block_indices = (lengths >= request_.block_length).nonzero().flatten();
  return block_indices.size(0) == x.size(0) ? x : x.index_select(0, block_indices.to(x.device()));
}

void SpectrumSource::add_matrices(const std::string& matrix_kind, const attention::LayerSpec& layer_spec,
                                  const at::Tensor& x, bool has_entropy) {
  if (!includes(layer_spec.kind)) return;
  const auto add_spectra = [&](const at::Tensor& matrices) {
    if (matrices.numel() == 0) return;
    contribute_spectra({.matrix_kind = matrix_kind,
                        .name = layer_spec.name,
                        .has_matrix_per_head = true,
                        .has_varying_size = request_.has_sentences,
                        .values = singular_values(matrices),
                        .entropy_sums = has_entropy ? EntropyMeans::sums_over_queries(matrices) : at::Tensor(),
                        .mean_matrix = {}});
  };
  if (!request_.has_sentences) return add_spectra(full_blocks(layer_spec.kind, x.detach()));
  std::map<std::pair<int64_t, int64_t>, std::vector<int64_t>> rows;  // batch rows, by numbers of queries and keys
  const at::Tensor &query_lengths = lengths_.queries(layer_spec.kind), &key_lengths = lengths_.keys(layer_spec.kind);
  for (int64_t b = 0; b < x.size(0); ++b)
    rows[{query_lengths[b].item<int64_t>(), key_lengths[b].item<int64_t>()}].push_back(b);
  for (const auto& [lengths, row_indices] : rows)
    add_spectra(x.detach()
                    .narrow(2, 0, lengths.first)
                    .narrow(3, 0, lengths.second)
                    .index_select(0, at::tensor(row_indices, at::kLong).to(x.device())));
}

at::Tensor SpectrumSource::valid_positions(attention::AttentionKind kind, const at::Tensor& x) const {
  if (!request_.has_sentences) return full_blocks(kind, x).flatten(0, 1);
  const at::Tensor is_valid = at::arange(x.size(1), at::kLong).unsqueeze(0) < lengths_.queries(kind).unsqueeze(1);
  return x.flatten(0, 1).index_select(0, is_valid.flatten().nonzero().flatten().to(x.device()));
}

namespace {

// Returns a source as a user writes it, such as "weight:NAME".
std::string form_of(const std::string& name, const SpectrumSource& source) {
  return source.needs_argument() ? name + ":NAME" : name;
}

// Throws Error(usage) for an unknown source; the message lists the sources, such as weight:NAME.
void require_source(const std::string& name, const std::string& where) {
  const std::vector<std::string> names = spectrum_sources().names();
  if (std::ranges::count(names, name) > 0) return;
  std::vector<std::string> forms = names;
  for (std::string& form : forms) form = form_of(form, *spectrum_sources().make(form, where));
  refuse_usage(where, "one of: " + join(forms, ", "), str("unknown matrices '", name, "'"),
               did_you_mean(name, names, "use one of these names"));
}

// Returns the sources whose reads_text() is `reads_text`, as a user writes them, with their summaries if
// `has_summaries`.
std::vector<std::string> forms_of_sources(bool reads_text, bool has_summaries) {
  std::vector<std::string> forms;
  for (const std::string& name : spectrum_sources().names()) {
    const auto source = spectrum_sources().make(name, "matrices");
    if (source->reads_text() != reads_text) continue;
    forms.push_back(form_of(name, *source));
    if (has_summaries) forms.back() += str(" (", source->summary(), ")");
  }
  return forms;
}

}  // namespace

std::vector<std::string> source_forms(bool reads_text) { return forms_of_sources(reads_text, false); }

std::vector<std::string> summarised_source_forms(bool reads_text) { return forms_of_sources(reads_text, true); }

SourceAndArgument parse_source(const std::string& text, const std::string& where) {
  const size_t colon = text.find(':');
  const std::string name = text.substr(0, colon), argument = colon == text.npos ? "" : text.substr(colon + 1);
  require_source(name, where);
  SourceAndArgument result{spectrum_sources().make(name, where), argument};
  const bool needs_argument = result.source->needs_argument();
  if (needs_argument != !argument.empty())
    refuse_usage(where,
                 needs_argument ? "weight:NAME, where NAME is the name of a parameter" : str(name, " without a colon"),
                 text,
                 needs_argument ? "for example weight:decoder.layers.0.self.query.weight"
                                : "omit the colon and the text after it");
  return result;
}

void require_weight(const io::Checkpoint& checkpoint, const std::string& name, const std::string& where) {
  if (checkpoint.find(name) != nullptr) return;
  std::vector<std::string> names;
  for (const auto& tensor : checkpoint.tensors()) names.push_back(tensor.name);
  const std::string advice = names.empty() ? "" : str("name a parameter of the model, for example ", names.front());
  refuse_usage(where, str("a parameter of ", checkpoint.name()), "no parameter of this name",
               did_you_mean(name, names, advice));
}

namespace {

class AttentionSource : public SpectrumSource {
 public:
  const char* summary() const override { return "attention matrices after head mixing"; }
  bool reads_attention() const override { return true; }
  bool has_token_axes() const override { return true; }
  void observe_probabilities(const attention::LayerSpec& layer_spec, const at::Tensor& p) override {
    add_matrices("attention", layer_spec, p, true);
  }
};

class BeforeMixingSource : public SpectrumSource {
 public:
  const char* summary() const override { return "input of head mixing: attention matrices or logits"; }
  bool has_token_axes() const override { return true; }
  void start(model::LanguageModel& model, const SourceRequest& request) override {
    SpectrumSource::start(model, request);
    for (const attention::AttentionLayer* layer : model.attention_layers()) {
      const auto mixer_input =
          includes(layer->layer_spec().kind) ? layer->mixer_input() : attention::MixerInput::nothing;
      if (mixer_input != attention::MixerInput::nothing)
        mixes_logits_[layer->layer_spec().name] = mixer_input == attention::MixerInput::logits;
      mixes_any_logits_ = mixes_any_logits_ || mixer_input == attention::MixerInput::logits;
    }
    if (mixes_logits_.empty())
      refuse_usage("--of before-mixing", "a model with head mixing", "no layer with a mixer in " + request.model_name,
                   "use --of attention, which reads the same matrices in a model without a mixer");
  }
  // wants_scores() makes the score stage compute all logits, including those that a causal mask hides.
  bool wants_scores() const override { return mixes_any_logits_; }
  at::Tensor intercept_heads(attention::HeadSide side, const attention::LayerSpec& layer_spec,
                             const at::Tensor& x) override {
    const auto entry = mixes_logits_.find(layer_spec.name);
    if (side != attention::HeadSide::score || entry == mixes_logits_.end()) return x;
    const bool mixes_logits = entry->second;
    add_matrices(mixes_logits ? "logits-before-mixing" : "attention-before-mixing", layer_spec, x, !mixes_logits);
    return x;
  }

 private:
  // Whether the mixer of a layer mixes logits, by layer name; only layers with a mixer.
  std::map<std::string, bool> mixes_logits_;
  bool mixes_any_logits_ = false;
};

class LogitsSource : public SpectrumSource {
 public:
  const char* summary() const override { return "attention logits before mask and head mixing"; }
  bool has_token_axes() const override { return true; }
  bool wants_scores() const override { return true; }
  void observe_scores(const attention::LayerSpec& layer_spec, const at::Tensor& x) override {
    add_matrices("logits", layer_spec, x, false);
  }
};

class MixingSource : public SpectrumSource, public attention::Subscriber<attention::MixingObservation> {
 public:
  const char* summary() const override { return "matrices that mix heads"; }
  void start(model::LanguageModel& model, const SourceRequest& request) override {
    SpectrumSource::start(model, request);
    for (const attention::AttentionLayer* layer : model.attention_layers())
      if (includes(layer->layer_spec().kind) && layer->mixer_input() != attention::MixerInput::nothing) return;
    refuse_usage("--of mixing", "a model with head mixing", "no layer with a mixer in " + request.model_name,
                 "use a model with a mixer; mh-train --list stages lists the mixers");
  }
  void receive(const attention::LayerSpec& layer_spec, attention::MixingObservation& observation) override {
    if (!includes(layer_spec.kind)) return;
    at::Tensor x = observation.matrix.detach().to(at::kCPU);
    const bool is_constant = x.dim() == 2;  // whether the matrix is the same at every position
    if (!is_constant) x = valid_positions(layer_spec.kind, x);
    if (x.size(0) == 0) return;
    if (is_constant && find_entry(layer_spec.name) != nullptr) return;
    x = x.view({-1, 1, x.size(-2), x.size(-1)});
    contribute_spectra({.matrix_kind = "mixing",
                        .name = layer_spec.name,
                        .is_constant = is_constant,
                        .values = singular_values(x),
                        .entropy_sums = {},
                        .mean_matrix = x.flatten(0, 1).to(at::kDouble).mean(0)});
  }
};

// Base class of sources that read parameters; a parameter counts as one block.
class ParameterSource : public SpectrumSource {
 public:
  bool reads_text() const override { return false; }

 protected:
  SpectraEntry& add(const std::string& matrix_kind, const std::string& name, const at::Tensor& values,
                    bool has_matrix_per_head) {
    SpectraEntry& entry = find_or_add_entry(matrix_kind, name, has_matrix_per_head);
    entry.spectra.add(values.unsqueeze(0));
    return entry;
  }
};

class AlphasSource : public ParameterSource {
 public:
  const char* summary() const override { return "parameters that map heads to heads"; }
  void start(model::LanguageModel& model, const SourceRequest& request) override {
    SpectrumSource::start(model, request);
    for (const nn::Parameter& p : model.parameters().all()) {
      if (p.traits().head_axes.size() != 2 || p.master().dim() != 2) continue;
      if (const auto layer = layer_of(p.name()); layer ? !includes(layer->kind) : !request_.kinds.empty()) continue;
      add("alphas", p.name(), singular_values(p.master()).unsqueeze(0), false).mean_matrix =
          p.master().detach().to(at::kCPU, at::kDouble);
    }
    if (entries().empty())
      refuse_usage("--of alphas", "a model with matrices across heads",
                   "no matrix across heads in " + request.model_name,
                   "use a model with the combiner alphas or with a mixer that has a matrix across heads");
  }
};

class OutputValueSource : public ParameterSource {
 public:
  const char* summary() const override { return "product of the value and output projections of a head"; }
  void start(model::LanguageModel& model, const SourceRequest& request) override {
    SpectrumSource::start(model, request);
    for (const attention::AttentionLayer* layer : model.attention_layers()) {
      const attention::LayerSpec& s = layer->layer_spec();
      const auto* v = model.parameters().find(s.name + ".value.weight");
      const auto* o = model.parameters().find(s.name + ".output.weight");
      if (v == nullptr || o == nullptr || s.heads == 0 || !includes(s.kind)) continue;
      if (s.value_heads != s.output_heads)
        refuse_usage("--of output-value", "equal numbers of output heads and value heads in every layer",
                     str(s.value_heads, " value heads and ", s.output_heads, " output heads in ", s.name),
                     "choose other matrices, such as --of weight:NAME");
      // Head i maps a hidden state x (a row vector) to x W^V_i W^O_i. Stored weights are transposed, (out, in).
      // Query heads of a group read the values of one head.
      at::Tensor value = v->master().detach().view({-1, s.value_size, s.width});
      if (s.is_grouped()) value = value.index_select(0, at::tensor(s.kv_head_of, at::kLong));
      const at::Tensor output = o->master().detach().view({s.width, s.value_heads, s.value_size}).transpose(0, 1);
      add("output-value", s.name, singular_values_of_product(output, value), true);
    }
  }
};

class WeightSource : public ParameterSource {
 public:
  const char* summary() const override { return "a parameter by its name"; }
  bool needs_argument() const override { return true; }
  void start(model::LanguageModel& model, const SourceRequest& request) override {
    SpectrumSource::start(model, request);
    const auto* p = model.parameters().find(request.argument);
    if (p == nullptr) {
      std::vector<std::string> names;
      for (const nn::Parameter& parameter : model.parameters().all()) names.push_back(parameter.name());
      refuse_usage("--of weight", "the name of a parameter", str("'", request.argument, "'"),
                   did_you_mean(request.argument, names, "mh-train --list tensors lists the names of parameters"));
    }
    const at::Tensor x = p->master().detach();
    if (x.dim() != 2 && x.dim() != 3)
      refuse_usage("--of weight", "a parameter with 2 or 3 axes",
                   str(request.argument, ", which has ", x.dim(), x.dim() == 1 ? " axis" : " axes"),
                   "name a parameter with more axes, such as a weight");
    const at::Tensor values = singular_values(x);
    add("weight", p->name(), x.dim() == 2 ? values.unsqueeze(0) : values, x.dim() == 3);
  }
};

const Registration<AttentionSource> attention_entry(spectrum_sources(), "attention",
                                                    "Attention matrices after mixing, before dropout; the default.");
const Registration<BeforeMixingSource> before_mixing_entry(
    spectrum_sources(), "before-mixing",
    "Input of the mixer: attention matrices, or logits for a mixer of logits; the column 'of' states which.");
const Registration<LogitsSource> logits_entry(
    spectrum_sources(), "logits",
    "Scaled logits before mixing and mask, for all pairs of queries and keys. A causal model never uses half of these "
    "logits; relative scores use negative distances for later keys.");
const Registration<MixingSource> mixing_entry(spectrum_sources(), "mixing",
                                              "Matrices that mix heads, one for each position if they depend on the "
                                              "position: row j belongs to source head j, column i to mixed head i.");
const Registration<AlphasSource> alphas_entry(
    spectrum_sources(), "alphas",
    "Parameters that map heads to heads: alphas, with a row for each output head and a column for each value head, and "
    "mixing matrices, with a row for each score head and a column for each value head.");
const Registration<OutputValueSource> output_entry(
    spectrum_sources(), "output-value",
    "Product of the value and output projections of a head, without mixer and combiner.");
const Registration<WeightSource> weight_entry(spectrum_sources(), "weight",
                                              "A parameter by its name; if it has three axes, each of its matrices.");

}  // namespace
}  // namespace mh::analysis
