// Options of training: the configuration section [train].
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "base/fields.h"
#include "data/batch_options.h"
#include "nn/forward_context.h"
#include "task/translator.h"
#include "train/trainable_filter.h"

namespace mh::train {

using data::BatchOptions;
using data::BatchOrder;

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
    f.field("rule", rule, "update rule of the optimiser", {"adamw", "sgd", "nag"});
    f.field("betas", betas, "decay rates (β1, β2) of the first and second moment of adamw", between(0, 1)).changeable();
    f.field("epsilon", epsilon, "term added to the square root of the second moment of adamw", at_least(0))
        .changeable();
    f.field("bias_correction", bias_correction, "correct the bias of the moments of adamw").changeable();
    f.field("momentum", momentum, "momentum of sgd and nag", between(0, 1)).changeable();
    f.field("weight_decay", weight_decay,
            "weight decay; adamw, nag: decoupled, multiplied by the learning rate; sgd: L2, added to the gradient",
            at_least(0))
        .changeable();
    f.field("decay_norms_and_biases", decay_norms_and_biases,
            "with adamw: apply weight decay to layer norms and biases too, as in fairseq; false: to neither layer "
            "norms nor biases, as in common PyTorch recipes");
    f.field("clip_norm", clip_norm, "maximum norm of the gradient of the mean loss; 0 disables gradient clipping",
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
  Length restart{0, Length::Unit::updates};
  Length restart_warmup{0, Length::Unit::updates};
  void check() const;
  // Returns whether the learning rate of an update depends on the end of the schedule, warm-up aside.
  bool decays_to_end() const { return rule == "linear" || (rule == "cosine" && period.count == 0); }
  void describe(Fields& f) {
    f.field("rule", rule, "learning-rate schedule after the warm-up; equations under LEARNING RATES in mh-config(5)",
            {"constant", "inverse-sqrt", "cosine", "linear", "cyclic-cosine"})
        .changeable();
    f.field("length", length,
            "length of the learning-rate schedule, warm-up included, such as 1000u for 1000 updates; 0u: train.length")
        .changeable();
    f.field("warmup", warmup, "length of the linear warm-up from train.schedule.warmup_lr to train.lr").changeable();
    f.field(
         "warmup_ratio", warmup_ratio,
         "length of the warm-up as a fraction of the length of the schedule; 0: train.schedule.warmup is used instead",
         between(0, 1))
        .changeable();
    f.field("warmup_lr", warmup_lr, "learning rate at the start of the warm-up", at_least(0)).changeable();
    f.field(
         "decay_from", decay_from,
         "start of linear and cosine decay; warmup: the end of the warm-up, as in fairseq and transformers; start: the "
         "first update, as in BERT and Transformer-XL",
         {"warmup", "start"})
        .changeable();
    f.field("min_lr", min_lr, "lowest learning rate of the cosine schedule", at_least(0)).changeable();
    f.field(
         "period", period,
         "rule cosine: length of the first cycle, such as 1000u for 1000 updates; 0u: a single cycle up to the end of "
         "the schedule; rule cyclic-cosine: half the length of a cycle, above 0u")
        .changeable();
    f.field("period_growth", period_growth,
            "factor by which each new cycle of the cosine schedule multiplies the length of the cycle before it; 1: "
            "all cycles have the same length",
            at_least(1))
        .changeable();
    f.field("period_shrink", period_shrink,
            "factor by which each new cycle of the cosine schedule multiplies the highest and the lowest learning rate "
            "of the cycle before it; below 1: the rates shrink; 1: all cycles have the same rates",
            positive())
        .changeable();
    f.field(
         "restart", restart,
         "length of a first schedule, such as 450000u, after which a second schedule begins; the second schedule has "
         "the warm-up train.schedule.restart_warmup and takes the rest of train.schedule.length; 0u: one schedule")
        .changeable();
    f.field("restart_warmup", restart_warmup,
            "length of the linear warm-up of the second schedule, which train.schedule.restart starts, from "
            "train.schedule.warmup_lr to train.lr; 0u: no warm-up")
        .changeable();
  }
};

// Options with which a validation decodes text, if its metric is a score of decoded text: [train.validation.decode].
// The defaults are the settings of fairseq's recipes.
constexpr const char* kDecodeSection = "train.validation.decode";
struct DecodeOptions : task::DecodingOptions {
  DecodeOptions() { translation.search = {5, 1, 1.2, 10, 1, false}; }
  void describe(Fields& f) {
    f.section("", translation.search);
    f.field("batch_tokens", translation.batch_tokens,
            "maximum number of source tokens in a batch of beam search, padding included; affects speed, not results",
            between(1, 1 << 24));
    f.section("", bleu);
  }
};

// Returns the allowed values of train.validation.metric: "loss" and the scores of all tasks.
std::vector<std::string> validation_metrics();

// Options of validation, selection of the best model and early stopping: [train.validation].
struct ValidationOptions {
  Length every{1, Length::Unit::epochs};
  std::string metric = "loss";
  int64_t sequence_length = 0;
  int64_t memory = -1;
  int64_t patience = 0;
  double min_improvement = 0;
  DecodeOptions decode;
  void check() const;
  void describe(Fields& f) {
    f.field("every", every, "interval between validations, such as 100u for 100 updates; 0u: only at the end")
        .changeable();
    f.field("metric", metric,
            "metric that selects the best model: loss, BLEU of translations decoded with the options "
            "train.validation.decode.*, or a score of the task, see mh-eval(1)",
            validation_metrics())
        .fixed_with_validation_set();
    f.field("sequence_length", sequence_length,
            "sequence length for a text in validation, in tokens; 0: train.batch.sequence_length", between(0, 1 << 20))
        .fixed_with_validation_set();
    f.field("memory", memory,
            "length of the Transformer-XL memory in validation, in tokens; -1: model.transformer-xl.memory + "
            "train.batch.sequence_length - train.validation.sequence_length",
            between(-1, 1 << 24))
        .fixed_with_validation_set();
    f.field("patience", patience,
            "number of successive validations without improvement that stops training; 0 disables early stopping",
            at_least(0))
        .changeable();
    f.field("min_improvement", min_improvement,
            "smallest change that early stopping counts as an improvement, in the unit of the metric (perplexity, "
            "loss of examples, or score); 0: any improvement counts",
            at_least(0))
        .changeable();
    f.section("decode", decode).fixed_with_validation_set();
  }
};

// Options of saving training states and of checkpoint retention: [train.checkpoint].
struct CheckpointOptions {
  Length every{1, Length::Unit::epochs};
  int64_t retain = 0;
  std::string retain_by = "newest";
  void check() const;
  void describe(Fields& f) {
    f.field("every", every, "interval between saved training states, such as 100u for 100 updates; 0u: only at the end")
        .changeable();
    f.field("retain", retain,
            "number of models retained in the folder checkpoints/, for example for averaging; 0: none", at_least(0))
        .changeable();
    f.field("retain_by", retain_by,
            "rule of checkpoint retention: the newest models, or the models with the best validations",
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
  nn::DropoutIndex dropout_index = nn::DropoutIndex::position;
  std::string precision = "fp32";
  std::string attention_path = "auto";
  bool recompute = false;
  bool cuda_graph = false;
  Length log_every{10, Length::Unit::updates};
  int64_t timeout = 600;
  std::string shard = "none";
  BatchOptions batch;
  OptimizerOptions optimizer;
  ScheduleOptions schedule;
  ValidationOptions validation;
  CheckpointOptions checkpoint;

  // Throws Error(usage) for options of [train] that contradict each other.
  void check() const;

  void describe(Fields& f) {
    f.field("length", length,
            "total length of training, resumed parts included, in updates, epochs or tokens, such as 16000u, 10e or "
            "2000000t")
        .changeable();
    f.field("lr", lr, "peak learning rate", at_least(0)).changeable();
    f.field("label_smoothing", label_smoothing,
            "label smoothing ε: probability mass that is taken from the target token and spread uniformly over the "
            "vocabulary",
            between(0, 1))
        .changeable();
    f.field("trainable", trainable,
            str("trainable parameters: patterns of parameter names, such as decoder.layers.0.*, or words that mh-train "
                "--list trainable explains: ",
                trainable_words_text(), "; empty: all parameters"));
    f.field("seed", seed, "random seed of initial values, dropout and the order of the data", at_least(0));
    f.choice(
        "dropout_index", dropout_index,
        {{nn::DropoutIndex::position, "position"}, {nn::DropoutIndex::padded, "padded"}},
        "index of an element in the random numbers of dropout; position: its position in the sequence, whatever the "
        "padding, so that neither micro-batches nor processes change what is dropped; padded: its position in the "
        "padded batch, as in earlier versions");
    f.field("precision", precision, "precision of matrix products; weights and accumulation stay fp32",
            {"fp32", "bf16"});
    f.field("attention_path", attention_path,
            "implementation of attention; fused: one kernel, which never stores the probabilities; composed: a "
            "sequence of tensor operations; auto: fused in layers whose stages all support it, otherwise composed",
            {"auto", "composed", "fused"})
        .changeable();
    f.field("recompute", recompute,
            "compute the activations of each layer again in the backward pass instead of keeping them, which saves "
            "memory and takes up to a third more time; the weights stay the same, bit for bit; not with regularisers "
            "that observe attention")
        .changeable();
    f.field("cuda_graph", cuda_graph,
            "capture the forward and backward pass of an update in a CUDA graph; requires a GPU, a "
            "language model without memory, adaptive input or adaptive softmax, and training without micro-batches and "
            "without regularisers")
        .changeable();
    f.field("log_every", log_every,
            "interval between log lines of the training loss, such as 100u for 100 updates; 0u: only at the end")
        .changeable();
    f.field("timeout", timeout,
            "longest time, in seconds, until training ends with an error after another process of the job is stopped, "
            "is disconnected or sends no gradients; the time in which rank 0 saves is not counted",
            between(1, 1 << 20))
        .changeable();
    f.field("shard", shard,
            "training state that the processes of a job divide among themselves; none: each process holds all of it; "
            "optimizer: each process holds an equal part of the optimiser state and, with train.precision=bf16, of the "
            "fp32 weights that only the optimiser reads (ZeRO stage 1), which changes no result",
            {"none", "optimizer"})
        .changeable();
    f.section("batch", batch);
    f.section("optimizer", optimizer);
    f.section("schedule", schedule);
    f.section("validation", validation);
    f.section("checkpoint", checkpoint);
  }
};

}  // namespace mh::train
