// Fixed weights of heads (combiner head-weights).
#include <catch2/catch.hpp>

#include "fixtures/head_mixing.h"

using namespace mh;
using namespace mh::attention;
using layers::Layer;

TEST_CASE("head-weights starts as plain multi-head attention and takes the fused path", "[head-weights]") {
  layers::check_initial_identity({"combiner = 'head-weights'"});
  layers::check_fused_equals_composed("head-weights");
}

TEST_CASE("head-weights rejects a list whose length is not the number of heads", "[head-weights]") {
  auto make_layer = [](const char* list) {
    return Layer(str("heads = 3\ncombiner = 'head-weights'\n[attention.head-weights]\nweights = ", list), 6);
  };
  for (const char* list : {"[1.0]", "[1.0, 1.0, 1.0, 1.0]"}) {
    try {
      make_layer(list);
      FAIL("the layer accepted the weights " << list);
    } catch (const Error& error) {
      CHECK(error.exit() == Exit::usage);
      CHECK(std::string(error.what()).find("one weight for each of 3 heads") != std::string::npos);
    }
  }
  CHECK_NOTHROW(make_layer("[]"));
}
