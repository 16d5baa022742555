// The lines of log.jsonl that a resumed run keeps.
#include "io/run_log.h"

#include <catch2/catch.hpp>

#include "base/error.h"

using mh::Error;
using mh::Exit;
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
