#include <algorithm>
#include <mutex>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "io/shard.h"
#include "task/example_options.h"
#include "text/records/whole_shard.h"
#include "text/tokenizers.h"
#include "text/wordpiece.h"

namespace mh::task {

namespace {

using model::HeadTask;

// The plan of an epoch is kept until another one is asked for.
class Documents : public ExampleSource {
 public:
  Documents(const io::ShardFile& shard, const text::WordPieceTokenizer& tokenizer,
            const text::PretrainingOptions& options, uint64_t seed)
      : pretraining_(text::runs_of(shard), tokenizer, options, seed) {}
  int64_t rows(int64_t epoch) const override { return plan(epoch)->size(); }
  int64_t length(int64_t epoch, int64_t row) const override { return plan(epoch)->length(row); }
  text::Example make(int64_t epoch, int64_t row) const override { return plan(epoch)->make(row); }

 private:
  std::shared_ptr<const text::Pretraining::Epoch> plan(int64_t epoch) const {
    const std::lock_guard lock(mutex_);
    if (plan_ == nullptr || epoch != epoch_) {
      plan_ = std::make_shared<const text::Pretraining::Epoch>(pretraining_.plan(static_cast<uint32_t>(epoch)));
      epoch_ = epoch;
    }
    return plan_;
  }
  text::Pretraining pretraining_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const text::Pretraining::Epoch> plan_;
  mutable int64_t epoch_ = 0;
};

// Of what always gives the same rows.
template <class Rows>
class Fixed : public ExampleSource {
 public:
  // What it is part of lives as long as it.
  explicit Fixed(std::shared_ptr<const Rows> rows) : rows_(std::move(rows)) {}
  int64_t rows(int64_t) const override { return rows_->size(); }
  int64_t length(int64_t, int64_t row) const override { return rows_->length(row); }
  text::Example make(int64_t, int64_t row) const override { return rows_->make(row); }

 private:
  std::shared_ptr<const Rows> rows_;
};

void say(int64_t count, const std::string& what) {
  if (count > 0) log_info(with_commas(count) + what);
}

void require_segments(int64_t wanted, int64_t known, const std::string& name) {
  if (wanted > known)
    throw Error(Exit::usage,
                Problem{"model.bert.segments", "2 or more, for the two parts of rows of " + name, str(known), ""});
}

void add_classified(Examples& all, const io::ShardFile& shard, const text::WordPieceTokenizer& tokenizer,
                    const ExampleOptions& o) {
  const text::ExampleTask task = text::task_of(shard.header(), shard.name());
  const auto refuse = [&](const std::string& expected, const std::string& found, const std::string& next) {
    throw Error(Exit::input, Problem{shard.name(), expected, found, next});
  };
  if (task.is_number() != (o.head == HeadTask::number))
    refuse(task.is_number() ? "classes, for model.bert.head='classes'" : "numbers, for model.bert.head='number'",
           task.is_number() ? "numbers" : "classes", "take a model of the other head");
  if (!task.is_number() && o.classes == 0)
    throw Error(Exit::usage,
                Problem{"model.bert.classes", str(task.labels.size(), ", as ", shard.name(), " has"), "0", ""});
  if (!task.is_number() && static_cast<int64_t>(task.labels.size()) != o.classes)
    refuse(str(o.classes, " classes, as the model has"), str(task.labels.size()), "");
  if (!o.labels.empty() && task.labels != o.labels)
    refuse("the classes in the model's order, " + join(o.labels, ", "), join(task.labels, ", "),
           "make the shard with these labels, or, where they mean the same, set model.bert.labels=[]");
  require_segments(task.sentences, o.segments, shard.name());
  all.classified = std::make_shared<const text::Classification>(text::runs_of(shard), task, tokenizer, o.block);
  if (const int64_t without = all.classified->unlabelled(); o.learn && without > 0)
    refuse("labels to learn from", str(without, " of ", all.classified->size(), " examples without one"), "");
  say(all.classified->truncated(),
      str(" of ", all.classified->size(), " rows of ", shard.name(), " are cut to ", o.block, " tokens"));
  all.source = std::make_shared<Fixed<text::Classification>>(all.classified);
}

void add_questions(Examples& all, const io::ShardFile& shard, const text::WordPieceTokenizer& tokenizer,
                   const ExampleOptions& o) {
  text::WindowOptions options = o.squad;
  options.length = o.block;
  options.check();
  require_segments(2, o.segments, shard.name());
  const auto task = std::make_shared<const QuestionTask>(
      QuestionTask{text::Questions(text::runs_of(shard), shard.header(), tokenizer, options,
                                   o.learn ? text::QuestionUse::learn : text::QuestionUse::answer, shard.name()),
                   o.answers});
  const text::Questions& questions = task->questions;
  say(questions.cut(), str(" questions of ", shard.name(), " are cut to ", options.question, " tokens"));
  say(questions.left_out(),
      str(" questions of ", shard.name(), " are left out, as their answer is not in the paragraph"));
  all.asked = task;
  all.source = std::make_shared<Fixed<text::Questions>>(std::shared_ptr<const text::Questions>(task, &questions));
}

}  // namespace

const char* kind_for(const model::ModelOptions& o) {
  switch (model::reads_of(o)) {
    case model::Reads::text:
      return io::kTextKind;
    case model::Reads::pairs:
      return io::kPairsKind;
    case model::Reads::examples:
      break;
  }
  return o.bert.head == HeadTask::words  ? io::kDocumentsKind
         : o.bert.head == HeadTask::span ? io::kQuestionsKind
                                         : io::kExamplesKind;
}

const char* preparation_of(const std::string& kind) {
  return kind == io::kTextKind        ? "lm"
         : kind == io::kPairsKind     ? "translation"
         : kind == io::kDocumentsKind ? "mlm"
         : kind == io::kQuestionsKind ? "squad"
                                      : "glue or mh-prep examples";
}

std::vector<std::string> head_keys(const io::ShardHeader& header, const std::string& name) {
  if (header.kind == io::kDocumentsKind)
    return {"model.bert.head='words'", "model.bert.classes=0", "model.bert.labels=[]"};
  const auto keys = [](const std::string& head, std::vector<std::string> labels) -> std::vector<std::string> {
    const std::string classes = str("model.bert.classes=", labels.size());
    std::ranges::transform(labels, labels.begin(), quoted_toml);
    return {str("model.bert.head='", head, "'"), classes, "model.bert.labels=[" + join(labels, ", ") + "]",
            "model.bert.next_sentence=false"};
  };
  if (header.kind == io::kQuestionsKind) return keys("span", {});
  io::require_kind(header, name, io::kExamplesKind);
  const text::ExampleTask task = text::task_of(header, name);
  return keys(task.is_number() ? "number" : "classes", task.labels);
}

void require_targets(const Examples& examples, const std::string& name) {
  bool any = examples.head == HeadTask::words;
  if (examples.classified != nullptr) any = examples.classified->unlabelled() < examples.size();
  if (examples.asked != nullptr)
    any = std::ranges::any_of(examples.asked->questions.questions(),
                              [](const text::Question& q) { return q.impossible || !q.answers.empty(); });
  if (!any)
    throw Error(Exit::input,
                Problem{name, "labels or answers, which a loss is measured by", "none", "take a set that has them"});
}

Examples examples_of(const io::ShardFile& shard, const text::Tokenizers& tokenizers, const ExampleOptions& o) {
  text::verify(shard);  // a number beyond its field's limit would be an index into nothing
  const text::WordPieceTokenizer& tokenizer = text::require_wordpiece(*tokenizers.target, shard.name());
  Examples all;
  all.head = o.head;
  all.padding = tokenizer.special().padding;
  if (o.head == HeadTask::words) {
    text::PretrainingOptions options = o.mlm;
    options.length = o.block;
    if (options.next_sentence) require_segments(2, o.segments, shard.name());
    constexpr uint64_t kSeedToScore = 1;
    all.source = std::make_shared<Documents>(shard, tokenizer, options, o.learn ? o.seed : kSeedToScore);
  } else if (o.head == HeadTask::span) {
    add_questions(all, shard, tokenizer, o);
  } else {
    add_classified(all, shard, tokenizer, o);
  }
  return all;
}

}  // namespace mh::task
