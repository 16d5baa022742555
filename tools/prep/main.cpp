// mh-prep: turns text into vocabularies and shards, and shards back into text.
//
//   mh-prep vocab --type word train.txt > my.vocab
//   mh-prep lm --vocab my.vocab train.txt > train.mhs
//   mh-prep translation --vocab joint.model train.de train.en > train.mhs
//   mh-prep squad --wordpiece vocab.txt train-v1.1.json > questions.mhs
#include "base/tool.h"
#include "prep.h"

using namespace mh;

int main(int argc, char** argv) {
  Tool tool({"mh-prep", "Builds vocabularies and shards from text, describes shards, and decodes shards to text.",
             "  mh-prep vocab --type word train.txt > my.vocab\n"
             "  zstd -dc train.txt.zst | mh-prep lm --vocab my.vocab - > train.mhs\n"
             "  mh-prep translation --vocab joint.model train.de train.en > train.mhs\n"
             "  mh-prep mlm --wordpiece vocab.txt corpus.txt > pretrain.mhs\n"
             "  mh-prep glue --task mrpc --wordpiece vocab.txt train.tsv > mrpc.mhs\n"
             "  mh-prep squad --wordpiece vocab.txt train-v1.1.json > questions.mhs\n"
             "  mh-prep info train.mhs; mh-prep cat train.mhs | head"});
  tool.app().require_subcommand(1);
  CLI::App& app = tool.app();
  Jobs jobs;
  prep::add_vocab_subcommand(app, jobs);
  prep::add_preparation_subcommands(app, jobs);
  prep::add_info_subcommand(app, jobs);
  prep::add_cat_subcommand(app, jobs);
  prep::add_codes_subcommand(app, jobs);
  tool.run_and_exit(argc, argv, [&] { run_selected(jobs); });
}
