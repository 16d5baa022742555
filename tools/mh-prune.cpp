// Which heads of a model matter, and models without those that do not.
//
//   mh-prune cut run1/best.safetensors --heads 0:1,0:3,5:7 -o small.safetensors
//   mh-prune cut run1/best.safetensors --by confidence --data valid.mhs --fraction 30% -o - | mh-eval - test.mhs
#include "base/tool.h"
#include "prune.h"

using namespace mh;

int main(int argc, char** argv) {
  Tool tool({"mh-prune", "Which heads of a model matter, and models without those that do not.",
             "  mh-prune cut run1/best.safetensors --heads 0:1,0:3,5:7 -o small.safetensors\n"
             "  mh-prune cut run1/best.safetensors --by confidence --data valid.mhs --fraction 30% -o - | mh-eval - "
             "test.mhs"});
  tool.app().require_subcommand(1);
  prune::Jobs jobs;
  prune::add_cut(tool.app(), jobs);
  return tool.run(argc, argv, [&] {
    for (const prune::Job& job : jobs)
      if (job.app->parsed()) job.run();
  });
}
