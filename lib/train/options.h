// Options of training: the section [train].
#pragma once

#include <string>
#include <vector>

#include "base/fields.h"
#include "data/batch_options.h"
#include "metrics/bleu.h"
#include "search/beam_search.h"

namespace mh::train {

using data::Batching;
using data::BatchOptions;

// Options of the optimiser: [train.optimizer].
struct OptimizerOptions {
  std::string rule = "adamw";
  std::vector<double> betas{0.9, 0.98};
  double epsilon = 1e-8;
  bool bias_correction = true;
  double momentum = 0.99;
  double weight_decay = 0;
  bool decay_norms_and_biases = true;
  double clip_norm = 0;
  void check() const;
  void describe(Fields& f) {
    f.field("rule", rule, "Update rule", {"adamw", "sgd", "nag"});
    f.field("betas", betas, "Decay rates of the two moments of adamw.", between(0, 1)).changeable();
    f.field("epsilon", epsilon, "Term added to the square root of the second moment of adamw.", at_least(0))
        .changeable();
    f.field("bias_correction", bias_correction, "Bias correction of the moments of adamw.").changeable();
    f.field("momentum", momentum, "Momentum of sgd and nag.", between(0, 1)).changeable();
    f.field("weight_decay", weight_decay,
            "Weight decay: times the learning rate with adamw and nag, added to the gradient with sgd.", at_least(0))
        .changeable();
    f.field("decay_norms_and_biases", decay_norms_and_biases,
            "Whether adamw decays layer norms and biases too, as fairseq's adam does; false: as PyTorch recipes for "
            "AdamW do.");
    f.field("clip_norm", clip_norm, "Gradient clipping norm, of the gradient of the mean loss; 0 disables clipping.",
            at_least(0))
        .changeable();
  }
};

// Options of the learning-rate schedule: [train.schedule].
struct ScheduleOptions {
  std::string rule = "constant";
  Length length{0, Length::Unit::updates};
  Length warmup{0, Length::Unit::updates};
  double warmup_ratio = 0;
  double warmup_lr = 1e-7;
  std::string decay_from = "warmup";
  double min_lr = 0;
  Length period{0, Length::Unit::updates};
  double period_growth = 1;
  double period_shrink = 1;
  void check() const;
  void describe(Fields& f) {
    f.field("rule", rule, "Learning-rate schedule after the warm-up; see LEARNING RATES",
            {"constant", "inverse-sqrt", "cosine", "linear", "cyclic-cosine"})
        .changeable();
    f.field("length", length, "Total length of the schedule, to which fractions of training refer; 0u: train.length.")
        .changeable();
    f.field("warmup", warmup, "Length of the linear warm-up from warmup_lr to train.lr.").changeable();
    f.field("warmup_ratio", warmup_ratio, "Warm-up as a ratio of the schedule's length, in place of warmup.",
            between(0, 1))
        .changeable();
    f.field("warmup_lr", warmup_lr, "Learning rate at the start of the warm-up.", at_least(0)).changeable();
    f.field("decay_from", decay_from,
            "Origin of linear and cosine decay: the end of the warm-up (fairseq, transformers) or the first update "
            "(BERT, Transformer-XL)",
            {"warmup", "start"})
        .changeable();
    f.field("min_lr", min_lr, "Lowest learning rate of cosine.", at_least(0)).changeable();
    f.field("period", period,
            "Length of the first cycle of cosine; 0u: up to the schedule's end. Half the length of a cycle of "
            "cyclic-cosine.")
        .changeable();
    f.field("period_growth", period_growth, "Factor between the lengths of successive cycles of cosine.", at_least(1))
        .changeable();
    f.field("period_shrink", period_shrink, "Factor between the learning rates of successive cycles of cosine.",
            positive())
        .changeable();
  }
};

// Options of decoding for model selection by BLEU: [train.validation.decode]. Defaults as in fairseq's recipes.
struct DecodeOptions {
  search::SearchOptions search{5, 1, 1.2, 10, 1, false};
  int64_t batch_tokens = 1024;
  metrics::BleuOptions bleu;
  void describe(Fields& f) {
    f.section("", search);
    f.field("batch_tokens", batch_tokens, "Source tokens in a batch of the search.", between(1, 1 << 24));
    f.section("", bleu);
  }
};

// Validation, selection of the best model and early stopping: [train.validation].
struct ValidationOptions {
  Length every{1, Length::Unit::epochs};
  std::string metric = "loss";
  int64_t block = 0;
  int64_t memory = -1;
  int64_t patience = 0;
  double min_improvement = 0;
  DecodeOptions decode;
  void check() const;
  void describe(Fields& f) {
    f.field("every", every, "Interval between validations; 0u: only at the end.").changeable();
    f.field("metric", metric,
            "Metric by which the best model is selected: loss, BLEU of translations made with "
            "train.validation.decode, or a score of examples",
            {"loss", "bleu", "word_accuracy", "next_accuracy", "accuracy", "f1", "matthews", "pearson", "spearman",
             "exact"})
        .fixed_once_validated();
    f.field("block", block, "Tokens in a row of validation; 0: train.batch.block.", between(0, 1 << 20))
        .fixed_once_validated();
    f.field("memory", memory,
            "Positions of memory in validation; -1: model.transformer-xl.memory + train.batch.block - block.",
            between(-1, 1 << 24))
        .fixed_once_validated();
    f.field("patience", patience, "Early stopping: validations without improvement; 0 disables it.", at_least(0))
        .changeable();
    f.field("min_improvement", min_improvement,
            "Smallest improvement that resets patience: of perplexity, of the loss of examples, or of the metric; 0: "
            "any.",
            at_least(0))
        .changeable();
    f.section("decode", decode).fixed_once_validated();
  }
};

// Saving and checkpoint retention: [train.checkpoint].
struct CheckpointOptions {
  Length every{1, Length::Unit::epochs};
  int64_t retain = 0;
  std::string retain_by = "newest";
  void check() const;
  void describe(Fields& f) {
    f.field("every", every, "Interval between saved training states; 0u: only at the end.").changeable();
    f.field("retain", retain, "Number of models retained in checkpoints/, for averaging.", at_least(0)).changeable();
    f.field("retain_by", retain_by, "Which models are retained: the newest, or those of the best validations",
            {"newest", "best"})
        .changeable();
  }
};

struct TrainOptions {
  Length length{0, Length::Unit::updates};
  double lr = 5e-4;
  double label_smoothing = 0;
  std::vector<std::string> trainable;
  int64_t seed = 1;
  std::string precision = "fp32";
  std::string attention_path = "auto";
  bool cuda_graph = false;
  Length log_every{10, Length::Unit::updates};
  BatchOptions batch;
  OptimizerOptions optimizer;
  ScheduleOptions schedule;
  ValidationOptions validation;
  CheckpointOptions checkpoint;

  // Throws Error(usage) for values that contradict each other.
  void check() const;

  void describe(Fields& f) {
    f.field("length", length, "Length of training: updates, epochs or tokens since the start.").changeable();
    f.field("lr", lr, "Peak learning rate.", at_least(0)).changeable();
    f.field("label_smoothing", label_smoothing, "Probability of the target that is spread over all entries.",
            between(0, 1))
        .changeable();
    f.field("trainable", trainable,
            "Trainable parameters, by patterns of names or by words: gates, mixing, stages, projections, output, "
            "attention, head; none: all.");
    f.field("seed", seed, "Seed of initial values, dropout and the order of the data.", at_least(0));
    f.field("precision", precision, "Precision of matrix products; weights and accumulation stay fp32",
            {"fp32", "bf16"});
    f.field("attention_path", attention_path, "Attention path; auto: fused where every stage allows it",
            {"auto", "composed", "fused"})
        .changeable();
    f.field("cuda_graph", cuda_graph,
            "Capture of the forward and backward pass of an update in a CUDA graph, on a GPU; not with pairs, memory, "
            "bands, micro-batches or regularisers.")
        .changeable();
    f.field("log_every", log_every, "Interval between lines of log.jsonl; 0u: only at the end.").changeable();
    f.section("batch", batch);
    f.section("optimizer", optimizer);
    f.section("schedule", schedule);
    f.section("validation", validation);
    f.section("checkpoint", checkpoint);
  }
};

}  // namespace mh::train
