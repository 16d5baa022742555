// Configurations in TOML: parsing, assignments, and reading a struct of options.
#include "base/config.h"
#include "fuzz/fuzz.h"
#include "text/vocabulary.h"

using namespace mh;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto texts = fuzz::split_records(fuzz::text_of(data, size), 2);  // a file, then an assignment of --set
  fuzz::check(size, fuzz::kTextFactor, [&] {
    Config config;
    config.load_text(texts[0], "config.toml");
    if (!texts[1].empty()) config.set(texts[1]);
    text::VocabularyOptions options;
    config.read("vocabulary", options);
    TomlWriter writer;
    writer.section("vocabulary", options);
    config_differences(texts[0], writer.text());
    config.check_all_known();
  });
  const std::string& path = fuzz::memory_file(texts[0]);
  fuzz::check(size, fuzz::kTextFactor, [&] { Config().load_file(path); });
  return 0;
}
