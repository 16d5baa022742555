// Tests of lib/base: error messages, JSON checks, units, random numbers, command-line options, configuration and files.
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <stdexcept>

#include "base/command_line.h"
#include "base/config.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_types.h"
#include "base/random.h"
#include "base/registry.h"
#include "base/text.h"
#include "base/tool.h"
#include "base/units.h"
#include "fixtures/contains.h"
#include "fixtures/folder.h"
#include "fixtures/status.h"

using namespace mh;

// Returns the exit status of a tool whose work throws std::runtime_error(message).
static int exit_status_of_tool(const std::string& message) {
  const pid_t child = fork();  // the tool runs in a child process, since Tool installs signal handlers
  if (child == 0) {
    close(STDERR_FILENO);
    Tool tool({"tool", "purpose", "examples"});
    std::string name = "tool";
    char* arguments[] = {name.data(), nullptr};
    _exit(tool.run(1, arguments, [&] { throw std::runtime_error(message); }));
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

TEST_CASE("a tool exits with status 4 on an out-of-memory error of LibTorch", "[base]") {
  CHECK(exit_status_of_tool("CUDA out of memory. Tried to allocate 2.00 GiB.\nframe #0") == 4);
  CHECK(exit_status_of_tool("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes.") == 4);
  CHECK(exit_status_of_tool("index out of range") == 1);
}

TEST_CASE("json_depth() returns the maximum nesting depth and ignores brackets in strings", "[base]") {
  CHECK(json_depth("") == 0);
  CHECK(json_depth("3") == 0);
  CHECK(json_depth("{}") == 1);
  CHECK(json_depth(R"([{"a": [1, 2]}, [[]]])") == 3);
  CHECK(json_depth(R"(["[[[[", "\"[[", "\\", [1]])") == 2);  // brackets in strings do not count
  CHECK(json_depth("]]]{") == 0);
  CHECK(json_depth(std::string(1000, '[')) == 1000);
}

TEST_CASE("json_error_text() states what an access to JSON found", "[base]") {
  const auto found = [](const std::string& text, const auto& access) -> std::string {
    try {
      access(nlohmann::json::parse(text));
    } catch (const nlohmann::json::exception& error) {
      return json_error_text(error.what());
    }
    return "no exception";
  };
  const auto at_kind = [](const nlohmann::json& json) { return json.at("kind"); };
  CHECK(found("{}", at_kind) == "no key 'kind'");
  CHECK(found("3", at_kind) == "a JSON number");
  CHECK(found("[]", at_kind) == "a JSON array");
  CHECK(found("null", at_kind) == "a JSON null");
  CHECK(found("[]", [](const nlohmann::json& json) { return json.value("kind", 1); }) == "a JSON array");
  CHECK(found("\"a\"", [](const nlohmann::json& json) { return json.get<int>(); }) ==
        "a JSON string instead of a JSON number");
  CHECK(json_error_text("3 answers [a] b") == "the JSON error: 3 answers [a] b");
}

TEST_CASE("require_sound_json() refuses NUL bytes, duplicate keys and nesting above 64 levels", "[base]") {
  const auto message = [](const std::string& text) -> std::string {
    try {
      require_sound_json(text, "f", "copy it");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  for (const char* sound_json :
       {"", "3", "{}", R"({"a":1,"b":{"a":1},"c":[{"a":1},{"a":1}]})", R"({"a":"a","b":"a,\"a\":1"})", R"(["a","a"])",
        R"({"a\\":1,"a":2,"":3})", R"({"a)", "}]\"", R"({"a":"\)"})
    CHECK(message(sound_json).empty());
  CHECK(message(std::string("{}\0{}", 5)) == "f: byte 2: expected JSON without NUL bytes; found a NUL byte; copy it");
  CHECK(message(R"({"a":{"x":1},"b":2,"a":3})") ==
        "f: byte 19: expected unique keys in a JSON object; found the key 'a' twice; copy it");
  CHECK(message(R"([{"a":[1,2],"\u0061":3}])").starts_with("f: byte 12"));
  CHECK(message(R"({"a":1 , "a" : 2)").starts_with("f: byte 9"));
  CHECK(message(std::string(65, '[')).find("65 nested levels") != std::string::npos);
}

TEST_CASE("parse_json() states the byte at which text stops being JSON, and the text near it", "[base]") {
  const auto message = [](const std::string& text) -> std::string {
    try {
      parse_json_object<nlohmann::json>(text, "f", "copy it");
    } catch (const Error& error) {
      CHECK(error.exit() == Exit::input);
      return error.what();
    }
    return "";
  };
  CHECK(message(R"({"a":[1,2.5,-3,"b",true,null],"c":{}})").empty());
  CHECK(message("GPT") ==
        "f: byte 0: expected a JSON object; found a syntax error (invalid literal) near 'GPT'; copy it");
  CHECK(message(R"({"a": 1,})") ==
        "f: byte 8: expected a JSON object; found a syntax error (unexpected '}') near '{\"a\": 1,}'; copy it");
  CHECK(message(R"({"a": -1e999})") ==
        "f: byte 11: expected a JSON object; found a number beyond the range of fp64 near '{\"a\": -1e999}'; copy it");
  CHECK(message("{\n  \"a\": 1,\n\t\"b\": no\n}\n") ==
        "f: byte 19: expected a JSON object; found a syntax error (invalid literal) near '{ \"a\": 1, \"b\": no }'; "
        "copy it");
  CHECK(message("{\"a\": \"\xC3\"}") ==
        "f: byte 8: expected a JSON object; found a syntax error (invalid string: ill-formed UTF-8 byte) near "
        "'{\"a\": \"'; copy it");
  CHECK(message("{\"a\": \"" + std::string(100, 'x') + "\" b" + std::string(100, 'y'))
            .starts_with("f: byte 109: expected a JSON object; found a syntax error (invalid literal) near 'xx"));
  CHECK(message("[1]") == "f: expected a JSON object; found a JSON array; copy it");
}

TEST_CASE("parse_json() reports the end of a truncated text", "[base]") {
  const std::string text = R"({"a": [1, "é"], "b": {"c": false}})";
  for (size_t size = 0; size < text.size(); ++size) {
    INFO(size);
    CHECK_THROWS_WITH(parse_json<nlohmann::ordered_json>(text.substr(0, size), "f", "the settings", "copy it"),
                      str("f: byte ", size, ": expected the rest of the settings; found the end of the text; copy it"));
  }
  CHECK(parse_json<nlohmann::ordered_json>(text, "f", "the settings", "copy it").dump() ==
        R"({"a":[1,"é"],"b":{"c":false}})");
}

TEST_CASE("require_sound_json() refuses more strings, objects and arrays than max_json_allocated_values()", "[base]") {
  const auto list_of = [](const std::string& element, size_t count, const std::string& padding) {
    std::string text = "[";
    for (size_t i = 0; i < count; ++i) text += (i == 0 ? "" : ",") + element;
    return text + padding + "]";
  };
  const size_t count = size_t{1} << 20;
  for (const char* element : {R"("")", "{}", "[]"}) {
    INFO(element);
    const size_t size = list_of(element, count, "").size();
    // With this padding, max_json_allocated_values() equals the number of allocated values: the list and its `count`
    // elements.
    size_t padding = 0;
    while (max_json_allocated_values(size + padding) < count + 1) padding += 5;
    require_sound_json(list_of(element, count, std::string(padding, ' ')), "f", "copy it");
    try {
      require_sound_json(list_of(element, count, std::string(padding - 5, ' ')), "f", "copy it");
      FAIL("require_sound_json() accepted more containers than its limit");
    } catch (const Error& error) {
      CHECK(error.exit() == Exit::input);
      CHECK(std::string(error.what()).find("; found 1048577") != std::string::npos);
    }
  }
}

TEST_CASE("a configuration of more than 1 MiB is refused", "[base]") {
  const std::string key = "x = 1\n";
  std::string text = key + std::string((size_t{1} << 20) - key.size(), '\n');
  Config().load_text(text, "c.toml");
  text += '\n';
  try {
    Config().load_text(text, "c.toml");
    FAIL("load_text() accepted a configuration above 1 MiB");
  } catch (const Error& error) {
    CHECK(error.exit() == Exit::usage);
    CHECK(std::string(error.what()).find("c.toml: expected a configuration of at most 1048576 bytes") == 0);
  }
}

namespace {

// Returns "STATUS: MESSAGE" of the Error that the action throws, or "no error".
std::string message(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return str(static_cast<int>(error.exit()), ": ", error.what());
  }
  return "no error";
}

struct InnerOptions {
  double lr = 5e-4;
  Length every{100, Length::Unit::updates};
  std::vector<double> betas{0.9, 0.98};
  double decay = -1, momentum = -1;
  void describe(Fields& f) {
    f.field("lr", lr, "learning rate", positive());
    f.field("every", every, "interval between two validations");
    f.field("betas", betas, "decay rates of the moment estimates", between(0, 1));
    f.field("decay", decay, "weight decay; -1: none", or_unset(-1, at_least(0)));
    f.field("momentum", momentum, "momentum; -1: none", or_unset(-1, between(0, 1)));
  }
};
struct OuterOptions {
  int64_t heads = 8;
  bool tied = true;
  std::string norm = "pre";
  InnerOptions inner;
  void describe(Fields& f) {
    f.field("heads", heads, "number of attention heads", at_least(1));
    f.field("tied", tied, "share the weights of the embeddings");
    f.field("norm", norm, "position of the layer norms", {"pre", "post"});
    f.section("inner", inner);
  }
};

}  // namespace

TEST_CASE(
    "an Error prints a Problem as 'place: expected x; found y; advice', omits empty fields and shortens long fields") {
  Error error(Exit::input, Problem{"a.mhs", "a shard", "a folder", "name a file"});
  CHECK(std::string(error.what()) == "a.mhs: expected a shard; found a folder; name a file");
  CHECK(std::string(Error(Exit::usage, Problem{"", "x", "y", ""}).what()) == "expected x; found y");
  const Error long_parts(Exit::input,
                         Problem{std::string(3000, 'f'), std::string(3000, 'e'), std::string(3000, 'x'), "copy it"});
  CHECK(long_parts.what() == str(std::string(2000, 'f'), "…: expected ", std::string(2000, 'e'), "…; found ",
                                 std::string(2000, 'x'), "…; copy it"));
}

TEST_CASE("found_value() names a value that equals the default as the default") {
  CHECK(found_value(3, 3) == "the default, 3");
  CHECK(found_value(4, 3) == "4");
  CHECK(without_default_remark("the default, 3") == "3");
  CHECK(without_default_remark("4") == "4");
}

TEST_CASE("an invalid value in a stored configuration is an error of the file, with advice for the file") {
  const auto error_of = [](Exit exit, const std::string& place) {
    return message([&] {
      read_stored_config("a.bin", "copy it", [&] {
        throw Error(exit, Problem{place, "x", "the default, y", "set z"});
      });
    });
  };
  CHECK(error_of(Exit::usage, "heads") == "3: a.bin: configuration: heads: expected x; found y; copy it");
  CHECK(error_of(Exit::usage, "a.bin: line 1") == "3: a.bin: line 1: expected x; found y; copy it");
  CHECK(error_of(Exit::failed, "heads") == "1: heads: expected x; found the default, y; set z");
}

TEST_CASE("field_name() returns the key of a section, or the option of the command line") {
  CHECK(field_name("train.decode", "min_length") == "train.decode.min_length");
  CHECK(field_name("", "min_length") == "--min-length");
}

TEST_CASE("parse_length() accepts a whole number, an optional k, M or G, and a unit: u, e or t") {
  CHECK(parse_length("300u", "x") == Length{300, Length::Unit::updates});
  CHECK(parse_length("10e", "x") == Length{10, Length::Unit::epochs});
  CHECK(parse_length("16ku", "x") == Length{16000, Length::Unit::updates});
  CHECK(parse_length("2Mt", "x") == Length{2000000, Length::Unit::tokens});
  CHECK(parse_length("300u", "train.warmup").origin == "train.warmup");
  for (const char* invalid_length :
       {"", "300", "u", "-3u", "3x", "3uu", "3.5u", "99999999999999999999u", "9999999999999999Gt"})
    CHECK(contains(message([&] { parse_length(invalid_length, "train.length"); }),
                   "2: train.length: expected a length with a unit"));
  CHECK(to_string(Length{5, Length::Unit::epochs}) == "5e");
}

TEST_CASE("philox4x32 reproduces the published known-answer values") {
  // Test vectors of Salmon et al. 2011 for ten rounds.
  CHECK(philox4x32({0, 0, 0, 0}, {0, 0}) == std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}) ==
        std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
}

TEST_CASE("random numbers follow their distributions and depend on seed, stream name, update and site") {
  RandomSequence random(RandomStream(1, "test"));
  double sum = 0, squares = 0;
  const int n = 200000;
  for (int i = 0; i < n; ++i) {
    double x = random.normal();
    sum += x;
    squares += x * x;
  }
  // The margins are 4 standard deviations: 4 / √n for the mean, and 4 √(2 / n) for the mean of squares.
  CHECK(std::abs(sum / n) < 4 / std::sqrt(n));
  CHECK(std::abs(squares / n - 1) < 4 * std::sqrt(2. / n));
  auto first_draw = [](uint64_t seed, const char* name, uint32_t update, uint32_t site) {
    return RandomSequence(RandomStream(seed, name), update, site).next_u64();
  };
  std::vector<uint64_t> values{first_draw(1, "a", 0, 0), first_draw(2, "a", 0, 0), first_draw(1, "b", 0, 0),
                               first_draw(1, "a", 1, 0), first_draw(1, "a", 0, 1)};
  std::sort(values.begin(), values.end());
  CHECK(std::unique(values.begin(), values.end()) == values.end());
  CHECK(first_draw(1, "a", 0, 0) == first_draw(1, "a", 0, 0));

  std::vector<int> counts(7);
  for (int i = 0; i < 70000; ++i) ++counts[random.uniform_below(7)];
  // The margin is 4 standard deviations of a binomial distribution.
  for (int c : counts) CHECK(std::abs(c - 10000) < 4 * std::sqrt(70000 * (1. / 7) * (6. / 7)));
  std::vector<int64_t> order(100);
  std::iota(order.begin(), order.end(), 0);
  const std::vector<int64_t> sorted = order;
  random.shuffle(order);
  CHECK(order != sorted);
  CHECK(std::is_permutation(order.begin(), order.end(), sorted.begin()));
}

TEST_CASE(
    "RandomSequence: uniform_below(0) throws, uniform_below(1) returns 0, and shuffle() accepts 0 or 1 elements") {
  RandomSequence random(RandomStream(1, "test"));
  CHECK_THROWS_AS(random.uniform_below(0), std::logic_error);
  CHECK(random.uniform_below(1) == 0);
  std::vector<int64_t> empty, single{7};
  random.shuffle(empty);
  random.shuffle(single);
  CHECK(empty.empty());
  CHECK(single == std::vector<int64_t>{7});
  for (uint64_t bound = 1; bound < 100; ++bound) CHECK(random.uniform_below(bound) < bound);
}

TEST_CASE("Config fills a struct, later values override earlier ones, and written TOML reads back equal") {
  Config config;
  config.load_text("heads = 4\nnorm = 'post'\n[inner]\nlr = 1\nbetas = [0.5, 0.75]\n", "a.toml");
  config.set("inner.every=2e");
  config.set("heads=2");
  OuterOptions outer;
  config.read("", outer);
  config.check_all_known();
  CHECK(outer.heads == 2);
  CHECK(outer.norm == "post");
  CHECK(outer.inner.lr == 1.0);
  CHECK(outer.inner.every == Length{2, Length::Unit::epochs});
  CHECK(outer.inner.betas == std::vector<double>{0.5, 0.75});

  TomlWriter writer;
  writer.section("", outer);
  Config reread_config;
  reread_config.load_text(writer.text(), "written");
  OuterOptions reread_outer;
  reread_config.read("", reread_outer);
  reread_config.check_all_known();
  TomlWriter rewriter;
  rewriter.section("", reread_outer);
  CHECK(rewriter.text() == writer.text());
}

TEST_CASE("a field of one or more texts with choices accepts only the choices, as a text and in a list") {
  struct Options {
    std::vector<std::string> names{"x"};
    void describe(Fields& f) { f.text_or_texts("names", names, "names", {"x", "y"}); }
  };
  const auto read = [](const std::string& toml) {
    Config config;
    config.load_text(toml, "test");
    Options options;
    config.read("", options);
    return options.names;
  };
  using Texts = std::vector<std::string>;
  CHECK(read("") == Texts{"x"});
  CHECK(read("names = 'y'") == Texts{"y"});
  CHECK(read("names = ['y', 'x']") == Texts{"y", "x"});
  CHECK(read("names = []").empty());
  for (const char* toml : {"names = ''", "names = 'z'", "names = ['x', 'z']", "names = 1"}) {
    INFO(toml);
    CHECK(status_of([&] { read(toml); }) == 2);
  }
}

TEST_CASE("a field of one or more texts is written as a text or a list, and an empty list of numbers is not written") {
  struct Options {
    std::vector<std::string> paths;
    std::vector<double> weights;
    void describe(Fields& f) {
      f.text_or_texts("paths", paths, "paths");
      f.numbers_if_any("weights", weights, "weights", positive());
    }
  };
  const auto read = [](const std::string& toml) {
    Config config;
    config.load_text(toml, "test");
    Options options;
    config.read("", options);
    config.check_all_known();
    return options;
  };
  const auto written = [](Options options) {
    TomlWriter writer;
    writer.section("", options);
    return writer.text();
  };
  using Texts = std::vector<std::string>;
  CHECK(read("paths = ''").paths.empty());
  CHECK(read("paths = 'a'").paths == Texts{"a"});
  CHECK(read("paths = ['a']").paths == Texts{"a"});
  CHECK(read("paths = ['b', 'a']").paths == Texts{"b", "a"});
  CHECK(written(read("")) == "paths = \"\"\n");
  CHECK(written(read("paths = ['a']\nweights = []")) == "paths = \"a\"\n");
  CHECK(written(read("paths = ['b', 'a']\nweights = [2.0, 1]")) == "paths = [\"b\", \"a\"]\nweights = [2.0, 1.0]\n");
  for (const char* toml : {"paths = 1", "paths = ['a', 1]", "weights = 1.0", "weights = [0.0]", "weights = [1.0, -1.0]",
                           "weights = [inf]", "weights = [nan]"}) {
    INFO(toml);
    CHECK(status_of([&] { read(toml); }) == 2);
  }
  Config config;
  config.set_texts("paths", {"a b", "c\"d"}, "--paths");
  Options options;
  config.read("", options);
  CHECK(options.paths == Texts{"a b", "c\"d"});
  CHECK(status_of([&] { config.set_texts("paths", {"a", "\xff"}, "--paths"); }) == 2);
}

TEST_CASE("an error for an invalid configuration value names its file and line, the expected and the actual value") {
  auto error_of = [](const std::string& text) {
    return message([&] {
      Config config;
      config.load_text(text, "a.toml");
      OuterOptions outer;
      config.read("", outer);
      config.check_all_known();
    });
  };
  CHECK(error_of("\nhaeds = 4") ==
        "2: a.toml:2: expected a known key; found unknown key 'haeds'; did you mean 'heads'?");
  CHECK(error_of("heads = 'four'") ==
        "2: a.toml:1: heads: expected an integer of at least 1; found \"four\"; write the number in digits, without "
        "quotes");
  CHECK(contains(error_of("heads = 0"), "of at least 1"));
  CHECK(contains(error_of("heads = 1.5"), "an integer"));
  CHECK(contains(error_of("norm = 'psot'"), "did you mean 'post'?"));
  CHECK(contains(error_of("[inner]\nlr = -1"), "a number above 0"));
  CHECK(contains(error_of("[inner]\nevery = 100"), "a length with a unit"));
  CHECK(contains(error_of("[inner]\nevery = '100'"), "add the unit, as in 100u"));
  CHECK(contains(error_of("[inner]\nbetas = [0.9, 2]"), "from 0 to 1"));
  CHECK(contains(error_of("[inner]\nlr = nan"), "a finite number above 0"));
  CHECK(error_of("[inner]\ndecay = -1\nmomentum = -1.0") == "no error");
  CHECK(contains(error_of("[inner]\ndecay = -0.5"), "expected a number of at least 0, or -1; found -0.5"));
  CHECK(contains(error_of("[inner]\nmomentum = -0.5"), "expected a number from 0 to 1, or -1; found -0.5"));
  CHECK(contains(error_of("heads = "), "2: a.toml:1"));
  CHECK(contains(message([] { Config().set("train.lr"); }), "key=value"));
}

TEST_CASE(
    "include paths are relative to the including file; include cycles and includes that are not regular files are "
    "refused") {
  Folder folder;
  std::filesystem::create_directory(folder.path / "base");
  write_file_atomically(folder.file("base/b.toml"), "heads = 3\ntied = false\n");
  write_file_atomically(folder.file("a.toml"), "include = 'base/b.toml'\nheads = 5\n");
  write_file_atomically(folder.file("c.toml"), "include = 'c.toml'\n");
  write_file_atomically(folder.file("d.toml"), "include = 'base/../e.toml'\n");
  write_file_atomically(folder.file("e.toml"), "include = ['base/link.toml']\n");
  std::filesystem::create_symlink("../d.toml", folder.path / "base" / "link.toml");
  Config config;
  config.load_file(folder.file("a.toml"));
  OuterOptions outer;
  config.read("", outer);
  CHECK(outer.heads == 5);
  CHECK(outer.tied == false);
  CHECK(contains(message([&] { Config().load_file(folder.file("c.toml")); }), "includes itself"));
  // An include cycle through a symbolic link and ".." is also refused; the message quotes the paths as the files write
  // them.
  const std::string cycle_error = message([&] { Config().load_file(folder.file("d.toml")); });
  CHECK(contains(cycle_error, "includes itself"));
  CHECK(contains(cycle_error, "base/../e.toml -> " + folder.file("base/../base/link.toml")));
  CHECK(message([&] { Config().load_file(folder.file("none.toml")); }).substr(0, 2) == "3:");
  REQUIRE(mkfifo(folder.file("pipe").c_str(), 0600) == 0);
  for (const char* name : {"/dev/zero", "pipe", "-"}) {
    write_file_atomically(folder.file("f.toml"), str("include = '", name, "'\n"));
    CHECK(message([&] { Config().load_file(folder.file("f.toml")); }).substr(0, 2) == "3:");
  }
}

TEST_CASE("command-line options fill the same struct as a configuration file") {
  CLI::App app;
  OuterOptions outer;
  CommandLineFields fields(app);
  fields.declare(outer);
  app.parse("--heads 3 --tied=false --inner-lr 0.5 --inner-betas 0.1,0.2", false);
  fields.store_values(outer);
  CHECK(outer.heads == 3);
  CHECK(outer.tied == false);
  CHECK(outer.inner.lr == 0.5);
  CHECK(outer.inner.betas == std::vector<double>{0.1, 0.2});
  app.parse("--heads 0", false);
  CHECK(contains(message([&] { fields.store_values(outer); }), "2: --heads: expected an integer of at least 1"));
}

TEST_CASE("standard input is refused for a second file, and any number of named files is accepted") {
  CHECK(refusal([] { refuse_repeated_standard_input("cut", {"-", "x", "x"}); }) == "");
  CHECK(refusal([] {
          refuse_repeated_standard_input("cut", {"-", "x", "-"});
        }) ==
        "cut: expected standard input (-) for at most one file; found - more than once; write the other inputs to "
        "files");
}

namespace {

struct Shape {
  virtual ~Shape() = default;
  virtual int num_corners() const = 0;
  template <class Number>
  struct Adapter;
};
template <class Number>
struct Shape::Adapter : Shape {
  int num_corners() const override { return Number::value; }
};
struct Square : Shape {
  int num_corners() const override { return 4; }
};
using Six = std::integral_constant<int, 6>;  // not derived from Shape; the registry constructs Shape::Adapter<Six>

}  // namespace

TEST_CASE("a Registry suggests the most similar name for an unknown name and refuses a duplicate name") {
  Registry<Shape> registry("shape");
  const Registration<Square> square_entry(registry, "square", "four sides");
  const Registration<Six> hexagon_entry(registry, "hexagon", "");
  CHECK(registry.make("square", "drawing.shape")->num_corners() == 4);
  CHECK(registry.make("hexagon", "drawing.shape")->num_corners() == 6);
  CHECK(registry.find("square", "drawing.shape").help == "four sides");
  CHECK(contains(message([&] { registry.make("hexagn", "drawing.shape"); }), "did you mean 'hexagon'?"));
  // Registering a duplicate name throws and does not replace the first entry.
  CHECK_THROWS_AS(Registration<Six>(registry, "square", ""), std::logic_error);
  CHECK(registry.make("square", "drawing.shape")->num_corners() == 4);
}

TEST_CASE("an output file replaces the file of the same name only after close()") {
  Folder folder;
  write_file_atomically(folder.file("x"), "old");
  {
    auto sink = open_sink(folder.file("x"));
    sink->write("new and longer");
  }  // destroyed without close()
  CHECK(read_text_file(folder.file("x")) == "old");
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path), {}) == 1);
  write_file_atomically(folder.file("x"), "new");
  CHECK(read_text_file(folder.file("x")) == "new");
  std::filesystem::create_symlink("x", folder.path / "link");
  write_file_atomically(folder.file("link"), "through");
  CHECK(std::filesystem::is_symlink(folder.path / "link"));
  CHECK(read_text_file(folder.file("x")) == "through");
}

TEST_CASE("writing to an invalid path, a full disk or a closed pipe throws an error that names the cause") {
  Folder folder;
  CHECK(message([&] { open_sink(folder.file("no/such")); }).starts_with("1: "));
  CHECK(message([&] { open_sink(folder.path.string()); }).starts_with("2: "));
  CHECK(contains(message([&] { write_file_atomically("/dev/full", "x"); }), "no space left on device"));
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  close(ends[0]);
  signal(SIGPIPE, SIG_IGN);
  auto sink = sink_of_descriptor(ends[1], "pipe");
  sink->write("x");
  CHECK_THROWS_AS(sink->close(), BrokenPipe);
  close(ends[1]);
}

TEST_CASE(
    "opening a missing file or a folder for reading throws an error that names the cause, and an output onto an input "
    "is refused") {
  Folder folder;
  CHECK(message([&] { open_source(folder.file("none")); }).starts_with("3: "));
  CHECK(contains(message([&] { open_source(folder.path.string()); }), "found a folder"));
  CHECK(contains(message([&] { MappedFile m(folder.path.string()); }), "found a folder"));
  write_file_atomically(folder.file("empty"), "");
  CHECK(MappedFile(folder.file("empty")).size() == 0);
  REQUIRE(mkfifo(folder.file("pipe").c_str(), 0600) == 0);
  for (const std::string& path : {std::string("-"), folder.file("pipe")})
    CHECK(contains(message([&] { MappedFile m(path); }),
                   "expected a regular file, since this input needs random access"));
  CHECK(message([&] { refuse_output_onto_input(folder.file("empty"), {folder.file("./empty")}); }).starts_with("2: "));
  refuse_output_onto_input(folder.file("new"), {folder.file("empty")});
}

TEST_CASE("LineReader returns chunks of at most its limit, with all bytes and correct offsets and line numbers") {
  Folder folder;
  std::string text = "one\n\n" + std::string(1000000, 'x') + "\nlast";
  write_file_atomically(folder.file("t"), text);
  for (size_t limit : {3UL, 1000UL, 100000UL, 5000000UL}) {
    auto source = open_source(folder.file("t"));
    LineReader reader(*source, limit);
    LineReader::Chunk chunk;
    std::string joined;
    uint64_t num_lines = 0;
    while (reader.next(chunk)) {
      CHECK(chunk.text.size() <= limit);
      CHECK(chunk.offset == joined.size());
      joined += chunk.text;
      if (chunk.ends_line) {
        ++num_lines;
        joined += "\n";
        CHECK(chunk.line_number == num_lines);
      }
    }
    CHECK(num_lines == 4);
    CHECK(joined == text + "\n");
  }
}

TEST_CASE("numbers, sizes in bytes and durations in seconds are formatted for messages") {
  CHECK(shortest_decimal(0.1) == "0.1");
  CHECK(with_commas(1234567) == "1,234,567");
  CHECK(with_commas(-1234) == "-1,234");
  CHECK(with_commas(12) == "12");
  CHECK(count_of(0, "row") == "0 rows");
  CHECK(count_of(1, "row") == "1 row");
  CHECK(count_of(1234U, "entry") == "1234 entries");
  CHECK(count_of(2, "new key") == "2 new keys");
  CHECK(count_with_commas(1, "entry") == "1 entry");
  CHECK(count_with_commas(1234, "class") == "1,234 classes");
  CHECK(human_bytes(999) == "999 B");
  CHECK(human_bytes(12345678) == "12.3 MB");
  CHECK(human_seconds(45) == "45s");
  CHECK(human_seconds(750) == "12m30s");
  CHECK(human_seconds(11100) == "3h05m");
}

TEST_CASE("an unknown key with the name of another program has the project's key in its error") {
  struct Options {
    double lr = 1;
    void describe(Fields& f) { f.field("lr", lr, "peak learning rate"); }
  };
  CHECK(message([] {
          Config config;
          config.load_text("[train]\nlearning_rate = 0.1\n", "a.toml");
          Options options;
          config.read("train", options);
          config.check_all_known();
        }) == "2: a.toml:2: expected a known key; found unknown key 'train.learning_rate'; did you mean 'train.lr'?");
}

TEST_CASE("an empty configuration section is an unknown key until a struct reads it") {
  struct Options {
    int64_t a = 1;
    void describe(Fields& f) { f.field("a", a, "an integer"); }
  } options;
  Config config;
  config.load_text("[one.two]\n[one.three]\na = 2\n", "test");
  CHECK(config.keys_below("one") == std::vector<std::string>{"three.a", "two"});
  config.read("one.three", options);
  CHECK_THROWS_AS(config.check_all_known(), Error);
  config.read("one.two", options);
  CHECK_NOTHROW(config.check_all_known());
  Config inline_table;
  inline_table.load_text("[one]\na = {}\n", "test");
  CHECK_THROWS_AS(inline_table.read("one", options), Error);
}
