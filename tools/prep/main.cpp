// Text to vocabularies and shards, and back.
//
//   mh-prep vocab --type word train.txt > my.vocab
//   mh-prep lm --vocab my.vocab train.txt > train.mhs
//   mh-prep translation --vocab joint.model train.de train.en > train.mhs
//   mh-prep squad --wordpiece vocab.txt train-v1.1.json > questions.mhs
#include <CLI/CLI.hpp>

#include "base/command_line.h"
#include "base/error.h"
#include "base/tool.h"
#include "prep.h"

using namespace mh;

int main(int argc, char** argv) {
  Tool tool({"mh-prep",
             "Turns text into vocabularies and shards, shows what a shard holds, and turns it back into text.",
             "  mh-prep vocab --type word train.txt > my.vocab\n"
             "  zstd -dc train.txt.zst | mh-prep lm --vocab my.vocab - > train.mhs\n"
             "  mh-prep translation --vocab joint.model train.de train.en > train.mhs\n"
             "  mh-prep mlm --wordpiece vocab.txt corpus.txt > pretrain.mhs\n"
             "  mh-prep glue --task mrpc --wordpiece vocab.txt train.tsv > mrpc.mhs\n"
             "  mh-prep squad --wordpiece vocab.txt train-v1.1.json > questions.mhs\n"
             "  mh-prep info train.mhs; mh-prep cat train.mhs | head"});
  tool.app().require_subcommand(1);
  prep::Arguments a;
  auto add = [&](const char* name, const char* help, const char* inputs, bool text, bool required = true) {
    CLI::App* sub = tool.app().add_subcommand(name, help);
    sub->add_option("inputs", a.inputs, std::string(inputs) + "; - is standard input")
        ->required(required)
        ->type_name("FILE");
    if (text) {
      sub->add_option("-o,--output", a.output, "where to write [standard output]")->type_name("FILE");
      sub->add_option("--crlf", a.crlf, "lines that end in CR LF: refuse or normalise [refuse]")
          ->type_name("WHAT")
          ->check(one_of({"refuse", "normalise"}));
    }
    return sub;
  };
  const char *texts = "text files, one sentence or paragraph a line", *shards = "shards";
  text::VocabularyOptions vocabulary;
  CLI::App* vocab = add("vocab", "make a vocabulary: words, characters, bytes, or pieces of words",
                        "text files, one sentence or paragraph a line; none with --from", true, false);
  CommandLineFields vocab_fields(*vocab);
  vocab_fields.declare(vocabulary);
  prep::LmOptions lm_options;
  CLI::App* lm = add("lm", "make a language-model shard: one record a line", texts, true);
  CommandLineFields lm_fields(*lm);
  lm_fields.declare(lm_options);
  prep::MlmOptions mlm_options;
  CLI::App* mlm =
      add("mlm",
          "make a shard of documents for BERT's pre-training; the pairs of sentences and the masks are not in "
          "it, training draws them anew in every epoch",
          "text files, a sentence a line, an empty line between documents", true);
  CommandLineFields mlm_fields(*mlm);
  mlm_fields.declare(mlm_options);
  prep::GlueOptions glue_options;
  CLI::App* glue =
      add("glue", "make a shard of examples of a task of GLUE", "files of the task, as GLUE has them", true);
  CommandLineFields glue_fields(*glue);
  glue_fields.declare(glue_options);
  prep::ExamplesOptions example_options;
  CLI::App* examples = add("examples", "make a shard of examples: a text or two, and a label",
                           "tab-separated files, an example a line; quotes are text", true);
  CommandLineFields example_fields(*examples);
  example_fields.declare(example_options);
  prep::TranslationOptions pair_options;
  CLI::App* translation =
      add("translation", "make a translation shard: a pair of lines a record",
          "two text files, a side each, line by line, or one of source, tab, target, as paste(1) writes", true);
  CommandLineFields pair_fields(*translation);
  pair_fields.declare(pair_options);
  prep::SquadPrepOptions squad_options;
  CLI::App* squad = add("squad", "make a shard of questions: a question and its paragraph a record",
                        "files of SQuAD, version 1.1 or 2.0", false);
  squad->add_option("-o,--output", a.output, "where to write [standard output]")->type_name("FILE");
  CommandLineFields squad_fields(*squad);
  squad_fields.declare(squad_options);
  CLI::App* info = add("info", "show what shards hold, after checking every sum", shards, false);
  info->add_option("--format", a.format, "table or json [table]")->type_name("WHAT")->check(one_of({"table", "json"}));
  CLI::App* cat = add("cat", "turn shards back into text", shards, false);
  cat->add_flag("--ids", a.ids, "numbers instead of text, one record a line");
  CLI::App* codes = add("codes",
                        "print the merges of a vocabulary of the type subword-nmt, or the pieces of one of the type "
                        "wordpiece, as the file of those tools",
                        "vocabularies", false);
  return tool.run(argc, argv, [&] {
    vocab_fields.take(vocabulary);
    lm_fields.take(lm_options);
    mlm_fields.take(mlm_options);
    glue_fields.take(glue_options);
    example_fields.take(example_options);
    pair_fields.take(pair_options);
    squad_fields.take(squad_options);
    if (vocab->parsed()) prep::make_vocab(a, vocabulary);
    if (codes->parsed()) quietly([&] { prep::show_codes(a); });
    if (lm->parsed()) prep::make_lm(a, lm_options);
    if (mlm->parsed()) prep::make_mlm(a, mlm_options);
    if (glue->parsed()) prep::make_glue(a, glue_options);
    if (examples->parsed()) prep::make_examples(a, example_options);
    if (translation->parsed()) prep::make_translation(a, pair_options);
    if (squad->parsed()) prep::make_squad(a, squad_options);
    if (info->parsed()) quietly([&] { prep::show_info(a); });
    if (cat->parsed()) quietly([&] { prep::show_text(a); });
  });
}
