// How a model is trained: keys of the section [train].
#pragma once

#include <string>
#include <vector>

#include "base/fields.h"
#include "metrics/bleu.h"
#include "search/beam_search.h"

namespace mh::train {

enum class Batching { blocks, streams };

// How translations are made where validation goes by BLEU; defaults as in fairseq's recipes.
struct DecodeOptions {
  search::SearchOptions search{5, 1, 1.2, 10, 1, false};
  int64_t batch_tokens = 1024;
  metrics::BleuOptions bleu;
  void describe(Fields& f) {
    f.section("", search);
    f.field("batch_tokens", batch_tokens, "source tokens searched at once", between(1, 1 << 24));
    f.section("", bleu);
  }
};

struct TrainOptions {
  Length length{0, Length::Unit::updates};
  Length horizon{0, Length::Unit::updates};
  std::vector<std::string> only;
  int64_t seed = 1;
  std::string precision = "fp32";
  std::string attention_path = "auto";
  bool record = false;
  Batching batching = Batching::blocks;
  int64_t block = 512;
  int64_t batch_tokens = 4096;
  int64_t micro_tokens = 0;
  int64_t batch_rows = 0;
  int64_t alike = 1;
  int64_t long_block = 0;
  Length long_from{0, Length::Unit::updates};
  std::string optimizer = "adam";
  double lr = 5e-4;
  std::vector<double> betas{0.9, 0.98};
  double epsilon = 1e-8;
  bool bias_correction = true;
  double momentum = 0.99;
  double weight_decay = 0;
  double clip = 0;
  double label_smoothing = 0;
  std::string schedule = "constant";
  std::string decay_from = "warmup";
  Length warmup{0, Length::Unit::updates};
  double warmup_share = 0;
  double warmup_lr = 1e-7;
  double min_lr = 0;
  Length period{0, Length::Unit::updates};
  double period_growth = 1;
  double period_shrink = 1;
  int64_t valid_block = 0;
  int64_t valid_memory = -1;
  Length validate_every{1, Length::Unit::epochs};
  Length save_every{1, Length::Unit::epochs};
  Length log_every{10, Length::Unit::updates};
  int64_t keep = 0;
  std::string keep_by = "newest";
  std::string validate_by = "loss";
  DecodeOptions decode;
  int64_t patience = 0;
  double min_improvement = 0;

  // Refuses values that make no sense together. Error(usage).
  void check() const;

  void describe(Fields& f) {
    f.field("length", length, "when to stop: updates, epochs or tokens since the start").changeable();
    f.field("horizon", horizon, "where the schedule ends, and what shares of training are shares of; 0u: at the length")
        .changeable();
    f.field("only", only,
            "parameters that train, by patterns of names or words: gates, mixing, stages, projections, output, "
            "attention; none: all");
    f.field("seed", seed, "of first values, dropout and the order of the data", at_least(0));
    f.field("precision", precision, "of matrix products; weights and sums stay fp32", {"fp32", "bf16"});
    f.field("attention_path", attention_path, "auto: the fused one where every stage allows it",
            {"auto", "composed", "fused"})
        .changeable();
    f.field("record", record,
            "on a GPU: updates that repeat one another launch their forward and backward pass as one recorded graph; "
            "not with pairs, memory, bands, parts of an update or regularisers")
        .changeable();
    f.choice(
        "batching", batching, {{Batching::blocks, "blocks"}, {Batching::streams, "streams"}},
        "shuffled blocks, or pairs of like length, each alone; or streams in the text's order, which a memory follows");
    f.field("block", block, "tokens in a row; pairs: of the longest side there may be", between(1, 1 << 20));
    f.field("batch_tokens", batch_tokens,
            "tokens in an update, at most; pairs: times their longest side, filled up to it", between(1, 1 << 30));
    f.field("batch_rows", batch_rows, "examples: rows in an update, in place of batch_tokens; 0: batch_tokens / block",
            between(0, 1 << 24));
    f.field("alike", alike,
            "examples: rows of so many updates are dealt out by length, so that those of an update are alike; 1: at "
            "random",
            between(1, 1 << 16));
    f.field("long_block", long_block, "examples: tokens in a row from long_from on; 0: as block", between(0, 1 << 20));
    f.field("long_from", long_from, "examples: from which update on rows are of long_block tokens");
    f.field("micro_tokens", micro_tokens, "tokens held in memory at once; 0: a whole update", between(0, 1 << 30))
        .changeable();
    f.field("optimizer", optimizer, "adam decays all parameters, adamw no biases and norms",
            {"adam", "adamw", "sgd", "nag"});
    f.field("lr", lr, "peak learning rate, per update", at_least(0)).changeable();
    f.field("betas", betas, "adam: decay of the two moments", between(0, 1)).changeable();
    f.field("epsilon", epsilon, "adam: added to the root of the second moment", at_least(0)).changeable();
    f.field("bias_correction", bias_correction, "adam: correct the moments for their start at 0").changeable();
    f.field("momentum", momentum, "sgd, nag", between(0, 1)).changeable();
    f.field("weight_decay", weight_decay, "adam, adamw, nag: times the learning rate; sgd: added to the gradient",
            at_least(0))
        .changeable();
    f.field("clip", clip, "largest norm of the gradient of the mean loss; 0: none", at_least(0)).changeable();
    f.field("label_smoothing", label_smoothing, "share of the target spread over all entries", between(0, 1))
        .changeable();
    f.field("schedule", schedule, "learning-rate schedule after the warm-up; see LEARNING RATES",
            {"constant", "inverse-sqrt", "cosine", "linear", "cyclic-cosine"})
        .changeable();
    f.field(
         "decay_from", decay_from,
         "origin of linear and cosine decay: the end of the warm-up (fairseq, transformers) or the first update (BERT, "
         "Transformer-XL)",
         {"warmup", "start"})
        .changeable();
    f.field("warmup", warmup, "linear rise from warmup_lr to lr").changeable();
    f.field("warmup_share", warmup_share, "warm-up as a share of the horizon, in place of warmup", between(0, 1))
        .changeable();
    f.field("warmup_lr", warmup_lr, "where the warm-up starts", at_least(0)).changeable();
    f.field("min_lr", min_lr, "cosine: the lowest learning rate", at_least(0)).changeable();
    f.field("period", period, "cosine: of the first cycle; 0u: up to the horizon. cyclic-cosine: half a cycle")
        .changeable();
    f.field("period_growth", period_growth, "cosine: each cycle is longer by this", at_least(1)).changeable();
    f.field("period_shrink", period_shrink, "cosine: each cycle's rates are multiplied by this", positive())
        .changeable();
    f.field("valid_block", valid_block, "tokens in a row of validation; 0: as block", between(0, 1 << 20))
        .fixed_once_validated();
    f.field("valid_memory", valid_memory, "positions of memory in validation; -1: model.memory + block - valid_block",
            between(-1, 1 << 24))
        .fixed_once_validated();
    f.field("validate_every", validate_every, "0u: only at the end").changeable();
    f.field("validate_by", validate_by,
            "what the best model is the best by: loss, BLEU of translations, which are then made as train.decode says, "
            "or a "
            "score of examples",
            {"loss", "bleu", "word_accuracy", "next_accuracy", "accuracy", "f1", "matthews", "pearson", "spearman",
             "exact"})
        .fixed_once_validated();
    f.field("save_every", save_every, "0u: only at the end").changeable();
    f.field("log_every", log_every, "lines of log.jsonl; 0u: only at the end").changeable();
    f.field("keep", keep, "saved models kept in checkpoints/, for averaging", at_least(0)).changeable();
    f.field("keep_by", keep_by, "which of them: the newest that save_every gives, or those of the best validations",
            {"newest", "best"})
        .changeable();
    f.field("patience", patience, "stop after so many validations without a better one; 0: never", at_least(0))
        .changeable();
    f.field(
         "min_improvement", min_improvement,
         "patience: perplexity (of examples: loss) that a better one is below the last that counted, or BLEU or score "
         "above it; 0: any",
         at_least(0))
        .changeable();
    f.section("decode", decode).fixed_once_validated();
  }
};

}  // namespace mh::train
