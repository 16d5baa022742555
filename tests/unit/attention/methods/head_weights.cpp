// Fixed weights of heads.
#include <catch2/catch.hpp>

#include "fixtures/head_mixing.h"

using namespace mh;
using namespace mh::attention;
using layers::Layer;

TEST_CASE("weights of heads are ones at first, and the attention stays fused", "[head-weights]") {
  layers::check_identity_at_start({"combiner = 'head-weights'"});
  layers::check_fused_beside("head-weights");
}

TEST_CASE("weights of heads are refused where they are not one for each", "[head-weights]") {
  auto made = [](const char* list) {
    return Layer(str("heads = 3\ncombiner = 'head-weights'\n[attention.head-weights]\nweights = ", list), 6);
  };
  for (const char* list : {"[1.0]", "[1.0, 1.0, 1.0, 1.0]"}) {
    try {
      made(list);
      FAIL("taken");
    } catch (const Error& error) {
      CHECK(error.exit() == Exit::usage);
      CHECK(std::string(error.what()).find("one weight for each of 3 heads") != std::string::npos);
    }
  }
  CHECK_NOTHROW(made("[]"));
}
