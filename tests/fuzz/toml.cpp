// Configurations in TOML: parsing, assignments, and reading a struct with a field of each type of base/fields.h.
#include "base/config.h"
#include "base/fields.h"
#include "fuzz/fuzz.h"

using namespace mh;

namespace {

struct Section {
  double number = 0.5;
  void describe(Fields& f) {
    f.field("number", number, "a number with a value that means not set", or_unset(-1, between(0, 1)));
  }
};

struct Options {
  enum class Choice { first, second };
  bool flag = false;
  int64_t integer = 1;
  double number = 1;
  std::string text, choice_text = "a";
  Length length;
  std::vector<int64_t> integers;
  std::vector<double> numbers, numbers_if_any;
  std::vector<std::string> texts, text_or_texts;
  Choice choice = Choice::first;
  Section section;

  void describe(Fields& f) {
    f.field("flag", flag, "true or false").changeable();
    f.field("integer", integer, "an integer", at_least(0));
    f.field("number", number, "a number", positive()).fixed_with_validation_set();
    f.field("text", text, "a text");
    f.field("choice_text", choice_text, "a text of a list", {"a", "b"});
    f.field("length", length, "a length of training");
    f.field("integers", integers, "a list of integers", at_least(1));
    f.field("numbers", numbers, "a list of numbers");
    f.field("texts", texts, "a list of texts");
    f.text_or_texts("text_or_texts", text_or_texts, "a text or a list of texts");
    f.numbers_if_any("numbers_if_any", numbers_if_any, "a list of numbers, written unless empty", between(0, 10));
    f.choice("choice", choice, {{Choice::first, "first"}, {Choice::second, "second"}}, "a value of an enum");
    f.section("section", section).changeable();
  }
};

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto texts = fuzz::split_records(fuzz::text_of(data, size), 2);  // a file, then an assignment of --set
  fuzz::check(size, fuzz::kTextFactor, [&] {
    Config config;
    config.load_text(texts[0], "config.toml");
    if (!texts[1].empty()) config.set(texts[1]);
    Options options;
    config.read("options", options);
    TomlWriter writer;
    writer.section("options", options);
    config_differences(texts[0], writer.text());
    config.check_all_known();
  });
  const std::string& path = fuzz::memory_file(texts[0]);
  fuzz::check(size, fuzz::kTextFactor, [&] { Config().load_file(path); });
  return 0;
}
