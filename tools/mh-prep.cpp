// Text to vocabularies and shards, and back.
//
//   mh-prep vocab --type word train.txt > my.vocab
//   mh-prep lm --vocab my.vocab train.txt > train.mhs
//   mh-prep translation --vocab joint.model train.de train.en > train.mhs
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
  io::VocabularyOptions vocabulary;
  CLI::App* vocab = add("vocab", "make a vocabulary: words, characters, bytes, or pieces of words",
                        "text files, one sentence or paragraph a line; none with --from", true, false);
  CommandLineFields vocab_fields(*vocab);
  vocab_fields.declare(vocabulary);
  prep::LmOptions lm_options;
  CLI::App* lm = add("lm", "make a language-model shard: one record a line", texts, true);
  CommandLineFields lm_fields(*lm);
  lm_fields.declare(lm_options);
  prep::TranslationOptions pair_options;
  CLI::App* translation =
      add("translation", "make a translation shard: a pair of lines a record",
          "two text files, a side each, line by line, or one of source, tab, target, as paste(1) writes", true);
  CommandLineFields pair_fields(*translation);
  pair_fields.declare(pair_options);
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
    pair_fields.take(pair_options);
    if (vocab->parsed()) prep::make_vocab(a, vocabulary);
    if (codes->parsed()) quietly([&] { prep::show_codes(a); });
    if (lm->parsed()) prep::make_lm(a, lm_options);
    if (translation->parsed()) prep::make_translation(a, pair_options);
    if (info->parsed()) quietly([&] { prep::show_info(a); });
    if (cat->parsed()) quietly([&] { prep::show_text(a); });
  });
}
