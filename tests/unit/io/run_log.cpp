// The lines of log.jsonl that a resumed run keeps, the curves of its values, and their quantities and moving averages.
#include "io/run_log.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "base/error.h"
#include "io/log_quantities.h"

using mh::Error;
using mh::Exit;
using mh::io::LogPoint;
using mh::io::read_curves;
using mh::io::rewind_log;

namespace {

const std::string kStart = "{\"update\":0,\"device\":\"cpu\"}\n", kLoss = "{\"update\":2,\"loss\":1.5}\n",
                  kProcedure = "{\"update\":2,\"head-rotation\":{}}\n",
                  kValidation = "{\"update\":2,\"valid_loss\":1}\n", kLaterLoss = "{\"update\":3,\"loss\":1}\n";
const std::string kLog = kStart + kLoss + kProcedure + kValidation + kLaterLoss;

}  // namespace

TEST_CASE("rewind_log() drops the lines of updates after the checkpoint", "[io]") {
  CHECK(rewind_log(kLog, 3, true, "log.jsonl") == kLog);
  CHECK(rewind_log(kLog, 2, true, "log.jsonl") == kStart + kLoss + kProcedure + kValidation);
  CHECK(rewind_log(kLog, 1, true, "log.jsonl") == kStart);
}

TEST_CASE("rewind_log() drops loss and validation of the update of an incomplete checkpoint", "[io]") {
  CHECK(rewind_log(kLog, 2, false, "log.jsonl") == kStart + kProcedure);
  CHECK(rewind_log("{\"update\":2,\"returned_to\":1}\n" + kProcedure, 2, false, "log.jsonl") == kProcedure);
}

TEST_CASE("rewind_log() drops lines that are not JSON objects, and ends each line that it keeps", "[io]") {
  CHECK(rewind_log("[]\n\n" + kStart + "{\"update\":1,\"lo", 2, true, "log.jsonl") == kStart);
  CHECK(rewind_log(kStart.substr(0, kStart.size() - 1), 2, true, "log.jsonl") == kStart);
  CHECK(rewind_log("", 2, true, "log.jsonl") == "");
}

TEST_CASE("rewind_log() refuses objects without an update and lines above 1 MiB", "[io]") {
  for (const std::string& line :
       {std::string("{\"loss\":1}"), std::string("{\"update\":\"1\"}"), "{\"update\":1}" + std::string(1 << 20, ' ')}) {
    try {
      rewind_log(line, 2, true, "log.jsonl");
      FAIL("rewind_log() accepted the line " << line.substr(0, 40));
    } catch (const Error& error) {
      CHECK(error.exit() == Exit::input);
      CHECK(std::string(error.what()).starts_with("log.jsonl: expected "));
    }
  }
}

namespace {

// Returns the message of the Error(input) that read_curves() throws for a log; "" if it throws none.
std::string refusal_of_curves(const std::string& text) {
  try {
    read_curves(text, "log.jsonl");
  } catch (const Error& error) {
    CHECK(error.exit() == Exit::input);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("read_curves() returns the numbers of training and validation by update", "[io]") {
  const auto points = read_curves(
      "{\"started\":\"mh-train\",\"update\":0,\"threads\":2,\"updates_per_epoch\":4,\"configuration\":\"\"}\n"
      "{\"update\":2,\"epoch\":0.5,\"tokens\":100,\"loss\":3.5,\"lr\":0.1,\"shard_epochs\":[0.5,0.2]}\n"
      "{\"update\":3,\"valid_nll\":3,\"best\":true}\n"
      "{\"update\":4,\"valid_nll\":2,\"best\":true}\n"
      "{\"update\":4,\"epoch\":1,\"tokens\":300,\"loss\":null}\n"
      "{\"update\":5,\"head-rotation\":{\"epoch\":2}}\n"
      "{\"update\":5,\"returned_to\":4}\n"
      "{\"update\":6,\"valid_nll\":1}\n",
      "log.jsonl");
  REQUIRE(points.size() == 4);
  CHECK(points[0].update == 2);
  CHECK(points[0].epoch == 0.5);
  CHECK(points[0].tokens == 100);
  CHECK(points[0].values == std::vector<std::pair<std::string, double>>{{"loss", 3.5}, {"lr", 0.1}});
  CHECK(points[1].epoch == 0.75);
  CHECK(points[1].tokens == 200);  // in the middle between two lines of training
  CHECK(*points[1].find("valid_nll") == 3);
  CHECK(points[1].find("loss") == nullptr);
  CHECK(points[2].update == 4);
  CHECK(points[2].tokens == 300);
  CHECK(*points[2].find("valid_nll") == 2);
  CHECK(std::isnan(*points[2].find("loss")));
  CHECK(points[3].epoch == 1.5);
  CHECK(std::isnan(points[3].tokens));
}

TEST_CASE("read_curves() leaves out a truncated last line, and reads a complete last line without line feed", "[io]") {
  CHECK(read_curves(kLoss + "{\"update\":3,\"lo", "log.jsonl").size() == 1);
  CHECK(read_curves(kLoss + "{\"update\":3,\"loss\":1}", "log.jsonl").size() == 2);
}

TEST_CASE("read_curves() refuses broken lines by their numbers, and logs without values", "[io]") {
  for (const std::string& line :
       {std::string("nonsense"), std::string("[]"), std::string(""), std::string("{\"loss\":1}"),
        std::string("{\"update\":-1,\"loss\":1}"), std::string("{\"update\":3,\"loss\":\"high\"}"),
        std::string("{\"update\":1,\"loss\":1}"), "{\"update\":3}" + std::string(1 << 20, ' ')}) {
    INFO(line.substr(0, 40));
    CHECK(refusal_of_curves(kLoss + line + "\n" + kLaterLoss).starts_with("log.jsonl:2: "));
  }
  // Beyond the range of int64_t.
  CHECK(refusal_of_curves("{\"update\":18446744073709551615,\"loss\":1}\n").starts_with("log.jsonl:1: "));
  for (const std::string& text :
       {std::string(""), std::string("{\"up"), std::string("{\"update\":0,\"started\":\"\"}\n")})
    CHECK(refusal_of_curves(text).starts_with("log.jsonl: expected "));
}

TEST_CASE("the main quantities of a log are loss, perplexity, the scores of validations and the learning rate",
          "[io]") {
  using Texts = std::vector<std::string>;
  const Texts keys{"lr", "gradient_norm", "loss", "valid_nll", "valid_perplexity", "valid_bleu"};
  CHECK(mh::io::quantities_of(keys) == Texts{"lr", "gradient_norm", "loss", "nll", "perplexity", "bleu"});
  CHECK(mh::io::main_quantities(keys) == Texts{"loss", "perplexity", "bleu", "lr"});
  CHECK(mh::io::main_quantities({"valid_nll"}) == Texts{"loss"});
  CHECK(mh::io::main_quantities({"gradient_norm"}) == Texts{"gradient_norm"});
}

TEST_CASE("smooth() averages values of training over a window that ends at the value, and no other values", "[io]") {
  std::vector<mh::io::LogPoint> points(4);
  for (size_t i = 0; i < points.size(); ++i) {
    const double value = std::pow(2.0, static_cast<double>(i));  // 1, 2, 4, 8
    points[i].values = {{"loss", value}, {"lr", value}, {"valid_loss", value}};
  }
  points[1].values.erase(points[1].values.begin());  // an update without a logged loss takes no place in the window
  mh::io::smooth(points, {"loss", "lr", "valid_loss"}, 2);
  CHECK(*points[0].find("loss") == 1);
  CHECK(points[1].find("loss") == nullptr);
  CHECK(*points[2].find("loss") == 2.5);
  CHECK(*points[3].find("loss") == 6);
  CHECK(*points[3].find("lr") == 8);
  CHECK(*points[3].find("valid_loss") == 8);
}
